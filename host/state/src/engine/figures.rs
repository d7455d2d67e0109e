//! What the metrics show.

use tidemill_env::metrics::{Counter, Gauge, Metrics};

/// The metrics.
pub(super) struct Figures {
    pub(super) live_bytes: Gauge,
    pub(super) dirty: Gauge,
    pub(super) written: Gauge,
    pub(super) resets: Counter,
}

impl Figures {
    pub(super) fn new(metrics: &Metrics) -> Self {
        Self {
            live_bytes: metrics.add(
                "state_live_bytes",
                "Memory taken by live values of state.",
                Gauge::default(),
            ),
            dirty: metrics.add(
                "state_dirty",
                "Changes of state that wait to be written back.",
                Gauge::default(),
            ),
            written: metrics.add(
                "state_written_commit",
                "Commit that the state store reflects.",
                Gauge::default(),
            ),
            resets: metrics.add(
                "state_store_resets",
                "Times the state store was wiped because it could not be trusted.",
                Counter::default(),
            ),
        }
    }
}

/// As a gauge takes it.
pub(super) fn signed(figure: u64) -> i64 {
    i64::try_from(figure).unwrap_or(i64::MAX)
}
