//! What exists: the versioned list of topics, segments, positions and registry entries, committed by
//! creating the next numbered object.

mod marks;
mod store;
#[cfg(test)]
mod tests;
mod wire;

pub(crate) use marks::{delete_marks, keep_only_marks, read_marks, write_marks};
pub(crate) use store::ManifestStore;
pub(crate) use wire::decode;
#[cfg(test)]
pub(crate) use wire::encode;

use crate::segment::SegmentMeta;
use crate::{Position, SnapshotRef, Topic};
use bytes::Bytes;
use std::collections::BTreeMap;
use tidemill_types::{CommitSeq, Error, Result, Timestamp, TopicId};

/// Everything a start needs to know besides the journal's frames after [`Manifest::commit`].
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Manifest {
    /// Counts up by one with each manifest; [`ManifestStore::commit`] sets it.
    pub(crate) number: u64,
    /// Nonce of the process run that wrote it; [`ManifestStore::commit`] sets it.
    pub(crate) owner: String,
    /// Nonce given when the data was begun: ties a journal to its storage.
    pub(crate) data_id: String,
    /// The last commit whose effects on topics, positions and entries are in here.
    pub(crate) commit: CommitSeq,
    /// The number the next topic gets.
    pub(crate) next_topic: u32,
    /// The topics.
    pub(crate) topics: Vec<TopicManifest>,
    /// Positions of readers.
    pub(crate) positions: Vec<Position>,
    /// The registry.
    pub(crate) entries: BTreeMap<String, Bytes>,
    /// The newest snapshot of the state.
    pub(crate) snapshot: Option<SnapshotRef>,
    /// Marks of producers and idempotency keys; none before the first.
    pub(crate) marks: Option<MarksRef>,
    /// The last commit with a mark that counts at [`Manifest::commit`]; 0 = none. Those behind what
    /// [`Manifest::marks`] names are in the journal.
    pub(crate) marked: CommitSeq,
}

/// Marks as of a commit, in an object of their own because manifests are kept for ever.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MarksRef {
    /// Its path in object storage.
    pub(crate) path: String,
    /// All marks up to it are in it.
    pub(crate) commit: CommitSeq,
}

/// One topic and what is kept of it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct TopicManifest {
    /// The topic.
    pub(crate) topic: Topic,
    /// Its partitions, by number.
    pub(crate) partitions: Vec<PartitionManifest>,
}

/// Where a partition starts and ends and which segments it has.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct PartitionManifest {
    /// First offset that can be read.
    pub(crate) start: u64,
    /// First offset that is not in a segment.
    pub(crate) archived_end: u64,
    /// First offset not committed as of [`Manifest::commit`].
    pub(crate) end: u64,
    /// How far it is compacted, in offset order; empty if it never was.
    pub(crate) cleaned: Vec<Cleaned>,
    /// Its segments in offset order.
    pub(crate) segments: Vec<SegmentMeta>,
}

/// A stretch of offsets in which each key comes at most once, from where the one before it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cleaned {
    /// Offset behind it.
    pub(crate) end: u64,
    /// When that became so; `None` if no tombstones are in it.
    pub(crate) since: Option<Timestamp>,
}

impl Manifest {
    /// What must hold whoever wrote it; checked before writing and after reading.
    fn check(&self) -> Result<()> {
        let marks_at = self
            .marks
            .as_ref()
            .map_or(self.marked, |marks| marks.commit);
        if marks_at.max(self.marked) > self.commit {
            return Err(Error::corrupt("it has marks of a later commit than it"));
        }
        for topic in &self.topics {
            let name = topic.topic.name.as_str();
            if topic.topic.id.0 >= self.next_topic {
                return Err(Error::corrupt(format!(
                    "topic {name:?} has a number not yet given out"
                )));
            }
            if topic.partitions.len() != topic.topic.settings.partitions as usize {
                return Err(Error::corrupt(format!(
                    "topic {name:?} has not as many partitions as it says"
                )));
            }
            for (number, partition) in (0..).zip(&topic.partitions) {
                if !partition.holds(topic.topic.id, number) {
                    return Err(Error::corrupt(format!(
                        "partition {number} of topic {name:?} has segments or ends out of order"
                    )));
                }
            }
        }
        Ok(())
    }
}

impl PartitionManifest {
    fn holds(&self, topic: TopicId, partition: u32) -> bool {
        let mut free_from = 0;
        let segments_in_order = self.segments.iter().all(|segment| {
            let rising = free_from <= segment.first && segment.first < segment.end;
            free_from = segment.end;
            rising && segment.topic == topic && segment.partition == partition
        });
        let stretches = self.cleaned.windows(2);
        let cleaned_in_order = stretches.into_iter().all(|two| two[0].end < two[1].end);
        let cleaned_end = self.cleaned.last().map_or(0, |cleaned| cleaned.end);
        segments_in_order
            && cleaned_in_order
            && cleaned_end <= self.archived_end
            && free_from <= self.archived_end
            && self.start <= self.archived_end
            && self.archived_end <= self.end
    }
}
