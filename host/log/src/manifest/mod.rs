//! What exists: the versioned list of topics, segments, positions and registry entries, committed by
//! creating the next numbered object.

mod store;

pub(crate) use store::ManifestStore;

use crate::segment::SegmentMeta;
use crate::{Position, SnapshotRef, Topic};
use bytes::Bytes;
use std::collections::BTreeMap;
use tidemill_types::CommitSeq;

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
    /// Its segments in offset order.
    pub(crate) segments: Vec<SegmentMeta>,
}
