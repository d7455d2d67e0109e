//! A transaction in the making: the frame's body is laid out here, outside any lock; the sequencer
//! later only fills in what it decides (sequence number, offsets, ingest time).

use bytes::Bytes;
use tidemill_types::{PackedRows, Result, TopicId};

/// A reader's step over one partition: refused unless its position still is `from`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advance {
    /// Who reads, e.g. a function's task; the empty position of an unknown reader is 0.
    pub reader: u32,
    /// What is read.
    pub topic: TopicId,
    /// Which partition.
    pub partition: u32,
    /// The position this transaction started from.
    pub from: u64,
    /// The position after it: offset of the next event to read.
    pub to: u64,
    /// Kept with the position, given back at recovery (a task's counters).
    pub note: Bytes,
}

/// One transaction, all or nothing.
#[derive(Default)]
pub struct Draft {
    _private: (),
}

impl Draft {
    /// An empty draft.
    pub fn new() -> Self {
        Self::default()
    }

    /// A draft whose first append has `payload` as its payload block: read a request body straight
    /// into this buffer (it has the room that the frame's header needs), then call
    /// [`Draft::append_in_place`].
    pub fn payload(&mut self, expected: usize) -> &mut Vec<u8> {
        let _ = expected;
        unimplemented!("helper")
    }

    /// Appends the rows that lie in the buffer of [`Draft::payload`]: `heads` point into it,
    /// `partitions` says for each row where it goes. Order is kept within each partition.
    ///
    /// # Errors
    /// `too-large` beyond the frame limit; `invalid-rows` if a head points outside the payload.
    pub fn append_in_place(&mut self, topic: TopicId, heads: &[tidemill_types::RowHead], partitions: &[u32]) -> Result<()> {
        let _ = (topic, heads, partitions);
        unimplemented!("helper")
    }

    /// Appends packed rows to a topic; `partitions` says for each row where it goes. Several appends
    /// to several topics may be in one draft.
    ///
    /// # Errors
    /// `too-large` beyond the frame limit.
    pub fn append(&mut self, topic: TopicId, rows: &PackedRows, partitions: &[u32]) -> Result<()> {
        let _ = (topic, rows, partitions);
        unimplemented!("helper")
    }

    /// Advances a reader.
    pub fn advance(&mut self, advance: Advance) {
        let _ = advance;
        unimplemented!("helper")
    }

    /// Changes of state, opaque to the log; given back at recovery in commit order. A draft may carry
    /// several sections (of several scopes); they come back one by one in the order they were added.
    pub fn state(&mut self, section: &[u8]) {
        let _ = section;
        unimplemented!("helper")
    }

    /// Sets (or with `None` removes) an entry of the registry, a small map that is part of every
    /// manifest: deployments live there.
    pub fn entry(&mut self, key: &str, value: Option<&[u8]>) {
        let _ = (key, value);
        unimplemented!("helper")
    }

    /// Bytes of the frame so far.
    pub fn bytes(&self) -> usize {
        unimplemented!("helper")
    }
}
