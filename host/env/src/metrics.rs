//! Metrics: counters, gauges and histograms with a fixed prefix, shown as Prometheus text.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::{Metric, Registry};
use std::sync::{Arc, Mutex, PoisonError};

pub use prometheus_client::encoding::EncodeLabelSet;
pub use prometheus_client::metrics::counter::Counter;
pub use prometheus_client::metrics::family::Family;
pub use prometheus_client::metrics::gauge::Gauge;
pub use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

/// The host's metrics. Cheap to clone; an argument, never a global.
#[derive(Clone)]
pub struct Metrics(Arc<Mutex<Registry>>);

impl Default for Metrics {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Registry::with_prefix("tidemill"))))
    }
}

impl Metrics {
    /// Adds a metric and gives it back. `name` is without prefix and without `_total`; units are base
    /// units and part of the name (`_seconds`, `_bytes`).
    pub fn add<M: Metric + Clone>(&self, name: &str, help: &str, metric: M) -> M {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .register(name, help, metric.clone());
        metric
    }

    /// Everything in the OpenMetrics text format.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let registry = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if encode(&mut text, &registry).is_err() {
            text.clear();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renders_with_prefix() {
        let metrics = Metrics::default();
        let events: Counter = metrics.add("events", "Events.", Counter::default());
        events.inc_by(3);
        assert!(metrics.render().contains("tidemill_events_total 3"));
    }
}
