//! What is seen of a storage: figures about requests, and since when it doesn't answer.

use crate::Clock;
use crate::metrics::{Counter, Family, Gauge, Histogram, Metrics, exponential_buckets};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tidemill_types::{Error, ErrorKind, Timestamp};

/// What is asked of a storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Get,
    GetRange,
    Size,
    Create,
    Upload,
    List,
    Delete,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::GetRange => "get-range",
            Self::Size => "size",
            Self::Create => "create",
            Self::Upload => "upload",
            Self::List => "list",
            Self::Delete => "delete",
        }
    }
}

/// A storage that doesn't do what it is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failing {
    /// Since when no request has succeeded.
    pub since: Timestamp,
    /// What the last one failed with.
    pub detail: String,
}

type OfOperation = [(&'static str, &'static str); 1];
type OfOutcome = [(&'static str, &'static str); 2];

/// Counts requests and remembers how the storage is.
pub(super) struct Watch {
    requests: Family<OfOutcome, Counter>,
    seconds: Family<OfOperation, Histogram, fn() -> Histogram>,
    retries: Family<OfOperation, Counter>,
    reachable: Gauge,
    failing: Mutex<Option<Failing>>,
}

impl Watch {
    pub(super) fn new(metrics: &Metrics) -> Self {
        let watch = Self {
            requests: metrics.add(
                "object_requests",
                "Requests to the object storage by what was asked and what came of it.",
                Family::default(),
            ),
            seconds: metrics.add(
                "object_request_seconds",
                "Time that one request to the object storage took.",
                Family::new_with_constructor(seconds),
            ),
            retries: metrics.add(
                "object_retries",
                "Requests to the object storage that were made again after a failure.",
                Family::default(),
            ),
            reachable: metrics.add(
                "object_storage_reachable",
                "1 while the object storage does what it is asked, 0 from a failure until the next success.",
                Gauge::default(),
            ),
            failing: Mutex::default(),
        };
        watch.reachable.set(1);
        watch
    }

    /// One request was answered, or not.
    pub(super) fn asked(&self, operation: Operation, error: Option<&Error>, took: Duration) {
        let operation = ("operation", operation.name());
        let outcome = ("outcome", error.map_or("done", outcome));
        self.requests.get_or_create(&[operation, outcome]).inc();
        let seconds = self.seconds.get_or_create(&[operation]);
        seconds.observe(took.as_secs_f64());
    }

    /// A request is made again.
    pub(super) fn repeated(&self, operation: Operation) {
        let of = [("operation", operation.name())];
        self.retries.get_or_create(&of).inc();
    }

    /// A request came to its end after as many attempts as it had.
    pub(super) fn ended(&self, error: Option<&Error>, clock: &Clock) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let detail = match error {
            Some(error) if is_failure(error) => error.detail.clone(),
            _ => {
                *failing = None;
                self.reachable.set(1);
                return;
            }
        };
        self.reachable.set(0);
        let since = failing.as_ref().map_or_else(|| clock.now(), |it| it.since);
        *failing = Some(Failing { since, detail });
    }

    pub(super) fn failing(&self) -> Option<Failing> {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        failing.clone()
    }
}

/// Whether it is the storage that failed: that something isn't there is an answer too.
fn is_failure(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Unavailable | ErrorKind::StorageFull)
}

fn outcome(error: &Error) -> &'static str {
    match error.kind {
        ErrorKind::NotFound => "absent",
        ErrorKind::StorageFull => "full",
        ErrorKind::Unavailable => match error.code {
            super::steady::REFUSED => "refused",
            super::steady::BUSY => "busy",
            _ => "failed",
        },
        _ => "wrong",
    }
}

fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 16))
}
