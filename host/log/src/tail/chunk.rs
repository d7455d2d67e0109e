//! Events in memory: which part of which frame. Small, for where events are spread over many partitions
//! each of them is a chunk of its own.

use super::Place;
use crate::frame::{Section, Slice};
use crate::shard::batch_of;
use bytes::Bytes;
use std::sync::Arc;
use tidemill_types::Batch;

/// Memory a chunk takes beside its events, with what is noted of its partition.
pub(crate) const CHUNK_BYTES: usize = 128;

/// A durable frame in memory, and where it lies in the journal.
pub(crate) struct InMemory {
    pub(crate) body: Bytes,
    pub(crate) sections: Vec<Section>,
    /// Its commit.
    pub(crate) seq: u64,
    /// Its ingest time.
    pub(crate) time: i64,
    /// Number of the journal file.
    pub(crate) file: u64,
    /// Where it starts there.
    pub(crate) at: u64,
    /// Its bytes there.
    pub(crate) len: u64,
    /// The group it became durable with.
    pub(crate) group: u64,
}

/// A partition's events of one append in a frame.
pub(crate) struct Chunk {
    frame: Arc<InMemory>,
    /// Offset of the first.
    pub(super) first: u64,
    rows: u32,
    bytes: u32,
    section: u32,
    first_row: u32,
}

impl Chunk {
    /// The events of a slice; `None` if the frame has no such section.
    pub(crate) fn new(frame: &Arc<InMemory>, slice: &Slice) -> Option<Self> {
        frame.sections.get(slice.section as usize)?;
        Some(Self {
            frame: frame.clone(),
            first: slice.base,
            rows: slice.rows,
            bytes: slice.bytes,
            section: slice.section,
            first_row: slice.first_row,
        })
    }

    /// Offset behind the last.
    pub(super) fn end(&self) -> u64 {
        self.first + u64::from(self.rows)
    }

    /// Key, value and header bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.into()
    }

    pub(super) fn group(&self) -> u64 {
        self.frame.group
    }

    /// Where they lie in the journal.
    pub(super) fn place(&self) -> Place {
        Place {
            first: self.first,
            end: self.end(),
            bytes: self.bytes(),
            time: self.frame.time,
            file: self.frame.file,
            at: self.frame.at,
            len: self.frame.len,
        }
    }

    /// The events, sharing the frame's memory.
    pub(super) fn batch(&self) -> Option<Batch> {
        let (frame, section) = (&self.frame, self.section);
        let known = frame.sections.get(section as usize)?;
        let slice = Slice {
            section,
            topic: known.topic,
            partition: 0,
            first_row: self.first_row,
            rows: self.rows,
            bytes: self.bytes,
            base: self.first,
        };
        let batch = batch_of(&frame.body, known, &slice, frame.seq, frame.time);
        Some(batch)
    }
}
