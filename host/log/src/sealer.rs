//! When committed events become a segment, and the steps from there to a named object.

use crate::Topic;
use crate::manifest::Manifest;
use crate::segment::SegmentMeta;
use std::path::Path;
use std::time::Duration;
use tidemill_env::objects::Objects;
use tidemill_types::{Batch, ByteSize, PartitionId, Result, Timestamp};

/// What is known of a partition's events that no segment holds yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PartitionFacts {
    /// The partition.
    pub(crate) at: PartitionId,
    /// First offset that is not in a segment.
    pub(crate) archived_end: u64,
    /// Durable end.
    pub(crate) end: u64,
    /// Bytes of keys, values and headers between the two.
    pub(crate) bytes: u64,
    /// Ingest time of the first event that is not in a segment.
    pub(crate) oldest: Timestamp,
}

/// When to seal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SealSettings {
    /// With this much unsealed.
    pub(crate) bytes: ByteSize,
    /// When the oldest unsealed event was committed this long ago.
    pub(crate) age: Duration,
}

/// One segment to write. It may end before `to`: at the end of a UTC day of ingest time, or when it
/// has grown to `max_bytes`; what is left is sealed by the next order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SealOrder {
    /// Of which partition.
    pub(crate) at: PartitionId,
    /// First offset.
    pub(crate) from: u64,
    /// Offset behind the last.
    pub(crate) to: u64,
    /// Key, value and header bytes after which the segment ends.
    pub(crate) max_bytes: u64,
}

/// Which partitions are to be sealed now.
pub(crate) fn due(
    facts: &[PartitionFacts],
    now: Timestamp,
    settings: SealSettings,
) -> Vec<SealOrder> {
    let _ = (facts, now, settings);
    unimplemented!("soon")
}

/// Writes one segment below `dir`, uploads it and gives back what the manifest has to name. Until
/// then the object is an orphan. `next_batch` gives events from an offset on, at least one; it is
/// called on a thread that may block.
pub(crate) async fn write_segment(
    objects: &Objects,
    dir: &Path,
    topic: &Topic,
    order: SealOrder,
    nonce: &str,
    next_batch: impl FnMut(u64) -> Result<Batch> + Send + 'static,
) -> Result<SegmentMeta> {
    let _ = (objects, dir, topic, order, nonce, next_batch);
    unimplemented!("soon")
}

/// Deletes segments that `manifest` doesn't name: what a crash left between upload and manifest, and
/// everything of deleted topics. Only for the owner, after its first manifest is committed.
/// Answers how many it deleted.
pub(crate) async fn remove_orphans(objects: &Objects, manifest: &Manifest) -> Result<usize> {
    let _ = (objects, manifest);
    unimplemented!("soon")
}
