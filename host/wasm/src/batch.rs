//! Packing events for a guest.

use tidemill_types::{Event, ROW_HEAD_BYTES, RowFlags, RowHead};

/// Version of the packed batch.
const VERSION: u8 = 1;
/// Bytes before the first block, which are the row heads.
const HEADER_BYTES: usize = 48;
/// `len` of a state cell where nothing is stored.
const ABSENT: u32 = u32::MAX;

/// The value of one slot for one key, as it travels with a batch.
#[derive(Clone, Copy, Debug)]
pub enum StateCell<'a> {
    /// Nothing is stored.
    Absent,
    /// This is stored.
    Value(&'a [u8]),
}

/// Lays out one batch in the packed form (`wit/README.md`). Reused from batch to batch.
///
/// Each block grows in a buffer of its own and [`finish`](Self::finish) joins them, because where a
/// block starts depends on how many events there are.
#[derive(Default)]
pub struct BatchPacker {
    slots: usize,
    count: usize,
    keys: usize,
    heads: Vec<u8>,
    offsets: Vec<u8>,
    ingest_times: Vec<u8>,
    key_index: Vec<u8>,
    cells: Vec<u8>,
    payload: Vec<u8>,
    packed: Vec<u8>,
}

impl BatchPacker {
    /// Starts a batch for a function with `slots` declared slots.
    pub fn begin(&mut self, slots: usize) {
        self.slots = slots;
        self.count = 0;
        self.keys = 0;
        for block in [
            &mut self.heads,
            &mut self.offsets,
            &mut self.ingest_times,
            &mut self.key_index,
            &mut self.cells,
            &mut self.payload,
        ] {
            block.clear();
        }
    }

    /// Adds an event. `key_index` numbers the distinct keys of the batch from 0 in order of first
    /// appearance (ignored when the function has no slots).
    pub fn push(&mut self, event: &Event<'_>, key_index: u32) {
        let row = &event.row;
        let key_at = self.payload.len();
        self.payload.extend_from_slice(row.key.unwrap_or_default());
        let value_at = self.payload.len();
        self.payload
            .extend_from_slice(row.value.unwrap_or_default());
        let headers_at = self.payload.len();
        self.payload.extend_from_slice(row.headers.as_bytes());
        let mut flags = RowFlags::default();
        if row.key.is_some() {
            flags = flags.with(RowFlags::KEY);
        }
        if row.value.is_none() {
            flags = flags.with(RowFlags::TOMBSTONE);
        }
        let head = RowHead {
            time: row.time.micros(),
            key_at: narrow(key_at),
            key_len: narrow(value_at - key_at),
            value_at: narrow(value_at),
            value_len: narrow(headers_at - value_at),
            headers_len: narrow(self.payload.len() - headers_at),
            flags,
        };
        self.heads.extend_from_slice(&head.to_bytes());
        self.offsets.extend_from_slice(&event.offset.to_le_bytes());
        self.ingest_times
            .extend_from_slice(&event.ingest_time.micros().to_le_bytes());
        if self.slots > 0 {
            self.key_index.extend_from_slice(&key_index.to_le_bytes());
        }
        self.count += 1;
    }

    /// Gives the state of the next distinct key: one cell per slot. Called once per key, in order,
    /// after all events.
    pub fn state(&mut self, cells: &[StateCell<'_>]) {
        debug_assert_eq!(cells.len(), self.slots, "one cell per slot");
        for cell in cells {
            let (at, len) = match cell {
                StateCell::Absent => (0, ABSENT),
                StateCell::Value(value) => {
                    let at = self.payload.len();
                    self.payload.extend_from_slice(value);
                    (narrow(at), narrow(value.len()))
                }
            };
            self.cells.extend_from_slice(&at.to_le_bytes());
            self.cells.extend_from_slice(&len.to_le_bytes());
        }
        self.keys += 1;
    }

    /// The finished batch.
    pub fn finish(&mut self) -> &[u8] {
        let offsets_at = HEADER_BYTES + self.heads.len();
        let ingest_at = offsets_at + self.offsets.len();
        let key_index_at = ingest_at + self.ingest_times.len();
        let state_at = key_index_at + self.key_index.len().next_multiple_of(8);
        let payload_at = state_at + self.cells.len();
        let keyed = self.slots > 0;
        let fields = [
            narrow(self.count),
            narrow(self.keys),
            narrow(HEADER_BYTES),
            narrow(offsets_at),
            narrow(ingest_at),
            if keyed { narrow(key_index_at) } else { 0 },
            if keyed { narrow(state_at) } else { 0 },
            narrow(payload_at),
            narrow(self.payload.len()),
        ];

        let out = &mut self.packed;
        out.clear();
        out.reserve(payload_at + self.payload.len());
        out.extend_from_slice(&[VERSION, 0]);
        out.extend_from_slice(&u16::try_from(self.slots).unwrap_or(u16::MAX).to_le_bytes());
        for field in fields {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.resize(HEADER_BYTES, 0);
        out.extend_from_slice(&self.heads);
        out.extend_from_slice(&self.offsets);
        out.extend_from_slice(&self.ingest_times);
        out.extend_from_slice(&self.key_index);
        out.resize(state_at, 0);
        out.extend_from_slice(&self.cells);
        out.extend_from_slice(&self.payload);
        out
    }

    /// Bytes so far: what [`finish`](Self::finish) would give now.
    pub fn bytes(&self) -> usize {
        let per_event = ROW_HEAD_BYTES + 8 + 8;
        HEADER_BYTES
            + self.count * per_event
            + self.key_index.len().next_multiple_of(8)
            + self.cells.len()
            + self.payload.len()
    }
}

/// A position or length as the layout stores it. A batch that doesn't fit 32 bits can't be lowered into
/// a guest's 32-bit memory either: the call fails there, so nobody reads a number cut off here.
fn narrow(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
