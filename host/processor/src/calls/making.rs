//! Making calls: so many at a time, counted and timed.

use super::{Outcome, Wanted};
use crate::grants::HostGrants;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_env::Clock;
use tidemill_env::metrics::{Counter, Family, Gauge, Histogram, Metrics, exponential_buckets};
use tidemill_env::outside::{CallError, Outside};
use tidemill_types::{FunctionName, Result};
use tokio::sync::Semaphore;

type Labels = Vec<(String, String)>;

/// Makes the calls of all functions.
pub(crate) struct Caller {
    grants: HostGrants,
    /// `None`: this host calls nobody.
    outside: Option<Outside>,
    clock: Clock,
    all: Semaphore,
    /// Of functions that made a call.
    each: Mutex<BTreeMap<FunctionName, Arc<Semaphore>>>,
    calls: Family<Labels, Counter>,
    seconds: Family<Labels, Histogram>,
    under_way: Gauge,
}

impl Caller {
    /// A caller within what the host grants.
    ///
    /// # Errors
    /// When the machine's certificates can't be read.
    pub(crate) fn new(grants: HostGrants, clock: Clock, metrics: &Metrics) -> Result<Self> {
        let outside = match grants.http.is_empty() {
            true => None,
            false => Some(Outside::open(grants.addresses.iter().copied().collect())?),
        };
        let histogram = || Histogram::new(exponential_buckets(0.001, 4.0, 9));
        Ok(Self {
            outside,
            clock,
            all: Semaphore::new(grants.concurrency),
            each: Mutex::default(),
            calls: metrics.add(
                "function_calls",
                "Calls to the outside that were made, by what they came to.",
                Family::default(),
            ),
            seconds: metrics.add(
                "function_call_seconds",
                "Duration of a call to the outside.",
                Family::new_with_constructor(histogram as fn() -> Histogram),
            ),
            under_way: metrics.add(
                "function_calls_under_way",
                "Calls to the outside that wait for their answer.",
                Gauge::default(),
            ),
            grants,
        })
    }

    /// What the host grants.
    pub(crate) fn grants(&self) -> &HostGrants {
        &self.grants
    }

    /// Makes a call, once there is room for one more; dropped, it isn't waited for.
    pub(crate) async fn make(&self, function: &FunctionName, wanted: &Wanted) -> Outcome {
        let Some(outside) = &self.outside else {
            return Err(CallError::denied(
                "this host calls nobody; its operator may name places by grants.http",
            ));
        };
        let own = {
            let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
            let room = || Arc::new(Semaphore::new(self.grants.function_concurrency));
            Arc::clone(each.entry(function.clone()).or_insert_with(room))
        };
        // Neither is ever closed.
        let _own = own.acquire().await;
        let _all = self.all.acquire().await;
        let _under_way = UnderWay::begin(&self.under_way);
        let begun = self.clock.elapsed();
        let bounds = (wanted.time, self.grants.answer_bytes);
        let outcome = outside.call(&wanted.request, &wanted.key, bounds).await;
        let took = self.clock.elapsed().saturating_sub(begun);
        self.count(function, &outcome, took.as_secs_f64());
        outcome
    }

    fn count(&self, function: &FunctionName, outcome: &Outcome, seconds: f64) {
        let came_to = match outcome {
            Ok(answer) => format!("{}xx", answer.status / 100),
            Err(error) => error.kind.as_str().to_owned(),
        };
        let mut labels = vec![("function".to_owned(), function.to_string())];
        self.seconds.get_or_create(&labels).observe(seconds);
        labels.push(("outcome".to_owned(), came_to));
        self.calls.get_or_create(&labels).inc();
    }
}

/// A call that waits for its answer, until it is dropped.
struct UnderWay(Gauge);

impl UnderWay {
    fn begin(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.dec();
    }
}
