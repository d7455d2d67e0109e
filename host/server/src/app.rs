//! What every request needs: the parts of the host, wired.

use crate::budget::Budget;
use crate::config::Http;
use crate::ingest::Pointers;
use crate::metrics::{HttpMetrics, MemoryMetrics};
use crate::problem::{Answer, Problem};
use crate::suggest::nearest;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tidemill_env::metrics::Metrics;
use tidemill_env::objects::Objects;
use tidemill_env::{Buffers, Clock, Random, Shutdown};
use tidemill_log::{Log, Topic};
use tidemill_processor::Processor;
use tidemill_types::TopicName;

/// The parts of a running host.
pub(crate) struct App {
    pub(crate) http: Http,
    /// Memory for bodies that arrive.
    pub(crate) arriving: Budget,
    /// Memory for events that are read.
    pub(crate) leaving: Budget,
    /// What answers are written to, again and again.
    pub(crate) answers: Buffers,
    pub(crate) log: Log,
    pub(crate) processor: Processor,
    pub(crate) objects: Objects,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) metrics: Metrics,
    pub(crate) counted: HttpMetrics,
    pub(crate) memory: MemoryMetrics,
    /// Cancelled when the host begins to stop: waiting requests end.
    pub(crate) stopping: Shutdown,
    /// Pointers that topics' settings name.
    pub(crate) pointers: Pointers,
    /// Which partition the next request's events without key go to.
    pub(crate) sticky: AtomicU32,
}

/// How handlers get the app.
pub(crate) type Shared = axum::extract::State<Arc<App>>;

impl App {
    /// The topic that a path names.
    pub(crate) fn topic(&self, name: &str) -> Answer<Arc<Topic>> {
        if let Some(topic) = self.log.topic(name) {
            return Ok(topic);
        }
        let name: TopicName = name.parse()?;
        let topics = self.log.topics();
        let near = nearest(
            name.as_str(),
            topics.iter().map(|topic| topic.name.as_str()),
        );
        Err(Problem::because(
            "topic-not-found",
            not_found("topic", name.as_str(), near),
        ))
    }

    /// The next partition for events without key.
    pub(crate) fn sticky_partition(&self, partitions: u32) -> u32 {
        self.sticky
            .fetch_add(1, Ordering::Relaxed)
            .checked_rem(partitions)
            .unwrap_or(0)
    }
}

/// "There is no …", with the nearest name that exists.
pub(crate) fn not_found(what: &str, name: &str, near: Option<&str>) -> String {
    match near {
        Some(near) => format!("There is no {what} {name:?}. Did you mean {near:?}?"),
        None => format!("There is no {what} {name:?}."),
    }
}
