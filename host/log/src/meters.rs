//! What the log counts.

use crate::journal::Queued;
use std::time::Duration;
use tidemill_env::metrics::{Counter, Gauge, Histogram, Metrics, exponential_buckets};

/// The log's metrics.
pub(crate) struct Meters {
    frames: Counter,
    bytes: Counter,
    events: Counter,
    syncs: Counter,
    sync_seconds: Histogram,
    segments: Counter,
    compacted_events: Counter,
    compacted_bytes: Counter,
    compactions: Counter,
    merged_segments: Counter,
    merged_bytes: Counter,
    truncated_events: Counter,
    truncated_bytes: Counter,
    /// Bytes of journal files that can't be cut yet.
    pub(crate) journal_bytes: Gauge,
    /// Bytes of events in memory.
    pub(crate) tail_bytes: Gauge,
    /// Requests that were appended before and came again.
    pub(crate) replays: Counter,
    producers: Gauge,
    idempotency_keys: Gauge,
}

impl Meters {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let buckets = exponential_buckets(0.000_05, 2.0, 16);
        Self {
            frames: metrics.add("journal_frames", "Frames made durable.", Counter::default()),
            bytes: metrics.add(
                "journal_written_bytes",
                "Bytes of frames made durable.",
                Counter::default(),
            ),
            events: metrics.add("journal_events", "Events made durable.", Counter::default()),
            syncs: metrics.add(
                "journal_syncs",
                "Groups of frames written and synced.",
                Counter::default(),
            ),
            sync_seconds: metrics.add(
                "journal_sync_seconds",
                "Time to write and sync one group.",
                Histogram::new(buckets),
            ),
            compacted_events: metrics.add(
                "compacted_events",
                "Events that compaction took away.",
                Counter::default(),
            ),
            compacted_bytes: metrics.add(
                "compacted_bytes",
                "Bytes of segments that compaction made room of.",
                Counter::default(),
            ),
            compactions: metrics.add(
                "compactions",
                "Compactions of a partition.",
                Counter::default(),
            ),
            merged_segments: metrics.add(
                "merged_segments",
                "Small segments that were merged into larger ones.",
                Counter::default(),
            ),
            merged_bytes: metrics.add(
                "merged_bytes",
                "Bytes of the segments they were merged into.",
                Counter::default(),
            ),
            truncated_events: metrics.add(
                "truncated_events",
                "Offsets taken away at the start of partitions, by retention or on request.",
                Counter::default(),
            ),
            truncated_bytes: metrics.add(
                "truncated_bytes",
                "Bytes taken away with them.",
                Counter::default(),
            ),
            segments: metrics.add("segments_sealed", "Segments written.", Counter::default()),
            journal_bytes: metrics.add(
                "journal_kept_bytes",
                "Bytes in journal files that can't be cut yet.",
                Gauge::default(),
            ),
            tail_bytes: metrics.add("tail_bytes", "Bytes of events in memory.", Gauge::default()),
            replays: metrics.add(
                "replayed_appends",
                "Appends that were answered as before, because they had been made before.",
                Counter::default(),
            ),
            producers: metrics.add(
                "producers",
                "Producers whose last step is remembered.",
                Gauge::default(),
            ),
            idempotency_keys: metrics.add(
                "idempotency_keys",
                "Idempotency keys that are remembered.",
                Gauge::default(),
            ),
        }
    }

    pub(crate) fn synced(&self, group: &[Queued], time: Duration) {
        let rows = |queued: &Queued| -> u64 {
            queued
                .body
                .slices
                .iter()
                .map(|slice| u64::from(slice.rows))
                .sum()
        };
        self.frames.inc_by(group.len() as u64);
        self.bytes
            .inc_by(group.iter().map(|queued| queued.bytes as u64).sum());
        self.events.inc_by(group.iter().map(rows).sum());
        self.syncs.inc();
        self.sync_seconds.observe(time.as_secs_f64());
    }

    pub(crate) fn compacted(&self, events: u64, bytes: u64) {
        self.compactions.inc();
        self.compacted_events.inc_by(events);
        self.compacted_bytes.inc_by(bytes);
    }

    pub(crate) fn merged(&self, segments: usize, bytes: u64) {
        self.merged_segments.inc_by(segments as u64);
        self.merged_bytes.inc_by(bytes);
    }

    pub(crate) fn truncated(&self, events: u64, bytes: u64) {
        self.truncated_events.inc_by(events);
        self.truncated_bytes.inc_by(bytes);
    }

    /// How many marks are remembered.
    pub(crate) fn marks(&self, producers: usize, keys: usize) {
        self.producers
            .set(i64::try_from(producers).unwrap_or(i64::MAX));
        self.idempotency_keys
            .set(i64::try_from(keys).unwrap_or(i64::MAX));
    }

    pub(crate) fn sealed(&self, segments: usize) {
        self.segments.inc_by(segments as u64);
    }
}
