//! Events in memory: which part of which frame. Small, for where events are spread over many partitions
//! each of them is a chunk of its own.

use super::Place;
use crate::frame::{Section, Slice};
use crate::shard::batch_of;
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidemill_types::Batch;

/// Memory a chunk takes beside its events, with what is noted of its partition.
pub(crate) const CHUNK_BYTES: usize = 128;

/// A durable frame, in memory until it is let go, and where it lies in the journal.
pub(crate) struct InMemory {
    content: Mutex<Option<Content>>,
    gone: AtomicBool,
    at: FrameAt,
}

/// A frame's body and its directory.
struct Content {
    body: Bytes,
    sections: Vec<Section>,
}

/// What is known of a durable frame for as long as something of it is unsealed.
#[derive(Clone, Copy)]
pub(crate) struct FrameAt {
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
}

impl InMemory {
    /// A frame that became durable.
    pub(crate) fn new(body: Bytes, sections: Vec<Section>, at: FrameAt) -> Arc<Self> {
        Arc::new(Self {
            content: Mutex::new(Some(Content { body, sections })),
            gone: AtomicBool::new(false),
            at,
        })
    }

    /// Lets its memory go; what is in no segment is read from the journal from now on.
    pub(crate) fn let_go(&self) {
        // First, so that whoever finds no memory finds it gone.
        self.gone.store(true, Ordering::Release);
        let content = self.content().take();
        drop(content);
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    fn content(&self) -> MutexGuard<'_, Option<Content>> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    /// The events of a slice, whose section the frame has.
    pub(crate) fn new(frame: &Arc<InMemory>, slice: &Slice) -> Self {
        Self {
            frame: frame.clone(),
            first: slice.base,
            rows: slice.rows,
            bytes: slice.bytes,
            section: slice.section,
            first_row: slice.first_row,
        }
    }

    /// Offset behind the last.
    pub(super) fn end(&self) -> u64 {
        self.first + u64::from(self.rows)
    }

    /// Key, value and header bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.into()
    }

    /// Whether the memory of its events was let go.
    pub(super) fn is_gone(&self) -> bool {
        self.frame.is_gone()
    }

    /// Where they lie in the journal.
    pub(super) fn place(&self) -> Place {
        Place {
            first: self.first,
            end: self.end(),
            bytes: self.bytes(),
            time: self.frame.at.time,
            file: self.frame.at.file,
            at: self.frame.at.at,
            len: self.frame.at.len,
        }
    }

    /// The events, sharing the frame's memory; `None` when that was let go.
    pub(super) fn batch(&self) -> Option<Batch> {
        let (section, FrameAt { seq, time, .. }) = (self.section, self.frame.at);
        let content = self.frame.content();
        let content = content.as_ref()?;
        let known = content.sections.get(section as usize)?;
        let slice = Slice {
            section,
            topic: known.topic,
            partition: 0,
            first_row: self.first_row,
            rows: self.rows,
            bytes: self.bytes,
            base: self.first,
        };
        Some(batch_of(&content.body, known, &slice, seq, time))
    }
}
