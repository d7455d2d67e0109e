//! What the log counts.

use crate::journal::Queued;
use crate::segment::SegmentMeta;
use std::time::Duration;
use tidemill_env::metrics::{Counter, Gauge, Histogram, Metrics, exponential_buckets};

/// How long a group took.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Took {
    pub(crate) write: Duration,
    pub(crate) sync: Duration,
}

/// How often what is read of the journal was in memory.
#[derive(Clone, Default)]
pub(crate) struct Stretches {
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
}

/// The log's metrics.
pub(crate) struct Meters {
    frames: Counter,
    bytes: Counter,
    events: Counter,
    syncs: Counter,
    write_seconds: Histogram,
    sync_seconds: Histogram,
    group_frames: Histogram,
    group_bytes: Histogram,
    in_flight_bytes: Gauge,
    unsealed_bytes: Gauge,
    segments: Counter,
    sealed_events: Counter,
    sealed_bytes: Counter,
    sealing_seconds: Histogram,
    /// Rounds of sealing that failed and will be tried again.
    pub(crate) sealing_failures: Counter,
    kept_segments: Gauge,
    kept_segment_bytes: Gauge,
    manifests: Counter,
    manifest_seconds: Histogram,
    /// Manifests that couldn't be committed.
    pub(crate) manifest_failures: Counter,
    retentions: Counter,
    compaction_seconds: Histogram,
    /// Rounds of compaction that failed and will be tried again.
    pub(crate) compaction_failures: Counter,
    pub(crate) stretches: Stretches,
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
        let disk = || Histogram::new(exponential_buckets(0.000_05, 2.0, 16));
        let long = || Histogram::new(exponential_buckets(0.005, 2.0, 16));
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
            write_seconds: metrics.add(
                "journal_write_seconds",
                "Time to hand one group to the disk.",
                disk(),
            ),
            sync_seconds: metrics.add(
                "journal_sync_seconds",
                "Time to sync one group once it is written.",
                disk(),
            ),
            group_frames: metrics.add(
                "journal_group_frames",
                "Frames that one sync made durable.",
                Histogram::new(exponential_buckets(1.0, 2.0, 14)),
            ),
            group_bytes: metrics.add(
                "journal_group_bytes",
                "Bytes that one sync made durable.",
                Histogram::new(exponential_buckets(256.0, 4.0, 9)),
            ),
            in_flight_bytes: metrics.add(
                "journal_in_flight_bytes",
                "Bytes of frames that are sequenced and not yet durable.",
                Gauge::default(),
            ),
            unsealed_bytes: metrics.add(
                "unsealed_bytes",
                "Key, value and header bytes of events that no segment holds yet.",
                Gauge::default(),
            ),
            sealed_events: metrics.add(
                "sealed_events",
                "Events written into segments.",
                Counter::default(),
            ),
            sealed_bytes: metrics.add(
                "sealed_bytes",
                "Bytes of segments written.",
                Counter::default(),
            ),
            sealing_seconds: metrics.add(
                "sealing_seconds",
                "Time of a round of sealing: events read, segments written, uploaded and named.",
                long(),
            ),
            sealing_failures: metrics.add(
                "sealing_failures",
                "Rounds of sealing that failed and were tried again.",
                Counter::default(),
            ),
            kept_segments: metrics.add("segments", "Segments there are.", Gauge::default()),
            kept_segment_bytes: metrics.add(
                "segment_bytes",
                "Bytes of the segments there are.",
                Gauge::default(),
            ),
            manifests: metrics.add("manifests", "Manifests committed.", Counter::default()),
            manifest_seconds: metrics.add(
                "manifest_commit_seconds",
                "Time to commit a manifest.",
                long(),
            ),
            manifest_failures: metrics.add(
                "manifest_failures",
                "Manifests that could not be committed.",
                Counter::default(),
            ),
            retentions: metrics.add(
                "retentions",
                "Starts of partitions that retention moved.",
                Counter::default(),
            ),
            compaction_seconds: metrics.add(
                "compaction_seconds",
                "Time of one compaction of a partition.",
                long(),
            ),
            compaction_failures: metrics.add(
                "compaction_failures",
                "Rounds of compaction that failed and were tried again.",
                Counter::default(),
            ),
            stretches: Stretches {
                hits: metrics.add(
                    "journal_cache_hits",
                    "Stretches of the journal that were read again from memory.",
                    Counter::default(),
                ),
                misses: metrics.add(
                    "journal_cache_misses",
                    "Stretches of the journal that were read from the disk.",
                    Counter::default(),
                ),
            },
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

    /// A group was written and synced.
    pub(crate) fn synced(&self, group: &[Queued], took: Took) {
        let rows = |queued: &Queued| -> u64 {
            queued
                .body
                .slices
                .iter()
                .map(|slice| u64::from(slice.rows))
                .sum()
        };
        self.frames.inc_by(group.len() as u64);
        let bytes: u64 = group.iter().map(|queued| queued.bytes as u64).sum();
        self.bytes.inc_by(bytes);
        self.group_frames.observe(whole(group.len() as u64));
        self.group_bytes.observe(whole(bytes));
        self.events.inc_by(group.iter().map(rows).sum());
        self.syncs.inc();
        self.write_seconds.observe(took.write.as_secs_f64());
        self.sync_seconds.observe(took.sync.as_secs_f64());
    }

    /// What there is now.
    pub(crate) fn kept(&self, in_flight: u64, segments: u64, segment_bytes: u64, unsealed: u64) {
        self.in_flight_bytes.set(in_flight.cast_signed());
        self.kept_segments.set(segments.cast_signed());
        self.kept_segment_bytes.set(segment_bytes.cast_signed());
        self.unsealed_bytes.set(unsealed.cast_signed());
    }

    /// A manifest was committed.
    pub(crate) fn manifest(&self, took: Duration) {
        self.manifests.inc();
        self.manifest_seconds.observe(took.as_secs_f64());
    }

    /// A round of sealing wrote something.
    pub(crate) fn sealing(&self, took: Duration) {
        self.sealing_seconds.observe(took.as_secs_f64());
    }

    /// Retention moved a start.
    pub(crate) fn retained(&self) {
        self.retentions.inc();
    }

    /// One compaction of a partition came to its end.
    pub(crate) fn compaction(&self, took: Duration) {
        self.compaction_seconds.observe(took.as_secs_f64());
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

    /// Segments are named by a manifest.
    pub(crate) fn sealed(&self, segments: &[SegmentMeta]) {
        self.segments.inc_by(segments.len() as u64);
        self.sealed_events
            .inc_by(segments.iter().map(|it| it.events).sum());
        self.sealed_bytes
            .inc_by(segments.iter().map(|it| it.bytes).sum());
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "for buckets that double; far below 2^53"
)]
fn whole(number: u64) -> f64 {
    number as f64
}
