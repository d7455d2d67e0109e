//! What the next manifest says of a partition, and which objects go once it is committed.

use crate::manifest::{Cleaned, Manifest, PartitionManifest};
use crate::segment::SegmentMeta;
use std::collections::HashSet;
use tidemill_types::PartitionId;

/// Segments of a partition that were written again with fewer events.
#[derive(Clone, Debug)]
pub(crate) struct Compacted {
    /// The partition.
    pub(crate) at: PartitionId,
    /// Paths of the segments that are replaced.
    pub(crate) replaced: Vec<String>,
    /// What replaces them, uploaded and not yet named.
    pub(crate) segments: Vec<SegmentMeta>,
    /// How far the partition is compacted then.
    pub(crate) cleaned: Vec<Cleaned>,
    /// Events that went.
    pub(crate) events: u64,
    /// Bytes that went.
    pub(crate) bytes: u64,
}

impl Compacted {
    fn apply(&self, partition: &mut PartitionManifest) {
        partition
            .segments
            .retain(|segment| !self.replaced.contains(&segment.path));
        partition.segments.extend(self.segments.iter().cloned());
        partition.segments.sort_by_key(|segment| segment.first);
        partition.cleaned.clone_from(&self.cleaned);
    }
}

/// Start and committed end of a partition.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// A partition as the next manifest has it: what was, with what was compacted and sealed since, and
/// without what lies below its start.
pub(super) fn partition<'k>(
    before: Option<&PartitionManifest>,
    bounds: Bounds,
    compacted: impl Iterator<Item = &'k Compacted>,
    sealed: impl Iterator<Item = &'k SegmentMeta>,
) -> PartitionManifest {
    let mut partition = before.cloned().unwrap_or_default();
    for compacted in compacted {
        compacted.apply(&mut partition);
    }
    for segment in sealed {
        partition.archived_end = partition.archived_end.max(segment.end);
        partition.segments.push(segment.clone());
    }
    let Bounds { start, end } = bounds;
    partition.start = start;
    partition.end = end;
    partition.archived_end = partition.archived_end.max(start);
    partition.segments.retain(|segment| segment.end > start);
    partition.cleaned.retain(|cleaned| cleaned.end > start);
    partition
}

/// Objects that were named before, or were about to be, and that a committed manifest doesn't name.
pub(super) fn dropped<'k>(
    before: &'k Manifest,
    about_to_be: impl Iterator<Item = &'k SegmentMeta>,
    now: &Manifest,
) -> Vec<String> {
    let named: HashSet<&str> = segments(now).map(|segment| segment.path.as_str()).collect();
    let all = segments(before).chain(about_to_be);
    all.map(|segment| &segment.path)
        .filter(|path| !named.contains(path.as_str()))
        .cloned()
        .collect()
}

fn segments(manifest: &Manifest) -> impl Iterator<Item = &SegmentMeta> {
    let partitions = manifest.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.flat_map(|partition| &partition.segments)
}
