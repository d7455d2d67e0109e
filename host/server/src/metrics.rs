//! What the HTTP side counts.

use tidemill_env::metrics::{Counter, Family, Gauge, Histogram, Metrics, exponential_buckets};
use tidemill_types::ByteSize;

/// Memory of the process beside what it keeps to.
pub(crate) struct MemoryMetrics {
    now: Gauge,
    most: Gauge,
}

impl MemoryMetrics {
    /// Registers them.
    pub(crate) fn new(metrics: &Metrics, limit: Option<ByteSize>) -> Self {
        let add = |name: &str, help: &str| metrics.add(name, help, Gauge::default());
        let limit = limit.map_or(0, |limit| limit.0);
        add(
            "memory_limit_bytes",
            "Memory that the host keeps to (memory.limit); 0: not known.",
        )
        .set(signed(limit));
        Self {
            now: add("memory_resident_bytes", "Resident memory of the process."),
            most: add(
                "memory_resident_most_bytes",
                "Resident memory of the process, at most since it was started.",
            ),
        }
    }

    /// Looks at the process.
    pub(crate) fn look(&self) {
        if let Some(seen) = tidemill_env::resident_memory() {
            self.now.set(signed(seen.now));
            self.most.set(signed(seen.most));
        }
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

type Labels = [(&'static str, &'static str); 2];
type Route = [(&'static str, &'static str); 1];

/// Metrics of the HTTP side.
pub(crate) struct HttpMetrics {
    requests: Family<Labels, Counter>,
    seconds: Family<Route, Histogram, fn() -> Histogram>,
    /// Events accepted.
    pub(crate) events: Counter,
    /// Key, value and header bytes of accepted events.
    pub(crate) event_bytes: Counter,
    /// Events refused.
    pub(crate) refused: Counter,
}

fn latency() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 2.0, 20))
}

impl HttpMetrics {
    /// Registers them.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        Self {
            requests: metrics.add(
                "http_requests",
                "Requests by route and status.",
                Family::default(),
            ),
            seconds: metrics.add(
                "http_request_seconds",
                "Time from a request's head to its answer's head, by route.",
                Family::new_with_constructor(latency as fn() -> Histogram),
            ),
            events: metrics.add(
                "ingest_events",
                "Events accepted over HTTP.",
                Counter::default(),
            ),
            event_bytes: metrics.add(
                "ingest_bytes",
                "Key, value and header bytes of events accepted over HTTP.",
                Counter::default(),
            ),
            refused: metrics.add(
                "ingest_refused_events",
                "Events refused over HTTP.",
                Counter::default(),
            ),
        }
    }

    /// Counts one answered request.
    pub(crate) fn answered(&self, route: &'static str, status: u16, seconds: f64) {
        self.requests
            .get_or_create(&[("route", route), ("status", status_label(status))])
            .inc();
        self.seconds
            .get_or_create(&[("route", route)])
            .observe(seconds);
    }
}

/// A bounded set of labels without an allocation.
fn status_label(status: u16) -> &'static str {
    const KNOWN: [(u16, &str); 20] = [
        (200, "200"),
        (201, "201"),
        (204, "204"),
        (400, "400"),
        (404, "404"),
        (405, "405"),
        (406, "406"),
        (408, "408"),
        (409, "409"),
        (413, "413"),
        (415, "415"),
        (416, "416"),
        (422, "422"),
        (429, "429"),
        (431, "431"),
        (500, "500"),
        (501, "501"),
        (503, "503"),
        (504, "504"),
        (507, "507"),
    ];
    KNOWN
        .iter()
        .find(|(known, _)| *known == status)
        .map_or("other", |(_, label)| label)
}
