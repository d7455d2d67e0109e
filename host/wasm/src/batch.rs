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
    /// This is stored until a time, µs since 1970.
    Until(i64, &'a [u8]),
}

/// In which time something lasts or is due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Clock {
    /// That of events.
    Event,
    /// That of their processing.
    Processing,
}

/// How long the values of a slot last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotTtl {
    /// In which time.
    pub clock: Clock,
    /// How long, in µs.
    pub micros: i64,
}

/// A timer's row: flag of the row head.
const TIMER: RowFlags = RowFlags(4);
/// A timer in processing time.
const PROCESSING: RowFlags = RowFlags(8);

/// Lays out one batch in the packed form (`wit/README.md`). Reused from batch to batch.
///
/// The blocks of fixed size grow in buffers of their own and [`finish`](Self::finish) joins them, because
/// where a block starts depends on how many events there are. The payload, most of a batch, is written
/// where it stays if [`expect`](Self::expect) said so in time.
#[derive(Default)]
pub struct BatchPacker {
    slots: usize,
    count: usize,
    keys: usize,
    heads: Vec<u8>,
    offsets: Vec<u8>,
    ingest_times: Vec<u8>,
    clock: Vec<u8>,
    ttls: Vec<u8>,
    key_index: Vec<u8>,
    cells: Vec<u8>,
    /// Where the payload starts in `packed`: room for the blocks before it.
    front: usize,
    packed: Vec<u8>,
}

/// Offset and ingest time of a packed batch's first event; `None`: it has none.
pub(crate) fn first(batch: &[u8]) -> Option<(u64, i64)> {
    let word = |at: usize| {
        let bytes = batch.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    let long =
        |at: usize| -> Option<[u8; 8]> { batch.get(at..at.checked_add(8)?)?.try_into().ok() };
    let (count, offsets_at, ingest_at) = (word(4)?, word(16)?, word(20)?);
    (count > 0).then_some(())?;
    Some((
        u64::from_le_bytes(long(offsets_at)?),
        i64::from_le_bytes(long(ingest_at)?),
    ))
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
            &mut self.clock,
            &mut self.ttls,
            &mut self.key_index,
            &mut self.cells,
            &mut self.packed,
        ] {
            block.clear();
        }
        self.front = 0;
    }

    /// Says how many events and distinct keys will come, and whether with a [`clock`](Self::clock) each;
    /// called before the first event and after `ttls`. What comes may differ, that only costs a copy.
    pub fn expect(&mut self, events: usize, keys: usize, clocked: bool) {
        let per_event = ROW_HEAD_BYTES + 8 + 8 + if clocked { 8 } else { 0 };
        let (key_index, cells) = match self.slots {
            0 => (0, 0),
            slots => ((events * 4).next_multiple_of(8), keys * slots * 8),
        };
        self.front = HEADER_BYTES + events * per_event + self.ttls.len() + key_index + cells;
        self.packed.resize(self.front, 0);
    }

    fn payload_len(&self) -> usize {
        self.packed.len() - self.front
    }

    /// Says how long the values of each slot last; called after `begin`, where one of them has an end.
    pub fn ttls(&mut self, ttls: &[Option<SlotTtl>]) {
        debug_assert_eq!(ttls.len(), self.slots, "one per slot");
        for ttl in ttls {
            let (clock, micros) = match ttl {
                None => (0, 0),
                Some(ttl) if ttl.clock == Clock::Event => (1, ttl.micros),
                Some(ttl) => (2, ttl.micros),
            };
            self.ttls.extend_from_slice(&[clock, 0, 0, 0, 0, 0, 0, 0]);
            self.ttls.extend_from_slice(&micros.to_le_bytes());
        }
    }

    /// Gives the watermark at the turn of the next event. Called once per event, in order, or never.
    pub fn clock(&mut self, watermark: i64) {
        self.clock.extend_from_slice(&watermark.to_le_bytes());
    }

    /// Adds a timer that is due, as the event it is handed over as; see [`BatchPacker::push`].
    pub fn timer(&mut self, timer: &Event<'_>, clock: Clock, key_index: u32) {
        let flags = match clock {
            Clock::Event => TIMER,
            Clock::Processing => TIMER.with(PROCESSING),
        };
        self.row(timer, flags, key_index);
    }

    /// Adds an event. `key_index` numbers the distinct keys of the batch from 0 in order of first
    /// appearance (ignored when the function has no slots).
    pub fn push(&mut self, event: &Event<'_>, key_index: u32) {
        self.row(event, RowFlags::default(), key_index);
    }

    fn row(&mut self, event: &Event<'_>, flags: RowFlags, key_index: u32) {
        let row = &event.row;
        let key_at = self.payload_len();
        self.packed.extend_from_slice(row.key.unwrap_or_default());
        let value_at = self.payload_len();
        self.packed.extend_from_slice(row.value.unwrap_or_default());
        let headers_at = self.payload_len();
        self.packed.extend_from_slice(row.headers.as_bytes());
        let mut flags = flags;
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
            headers_len: narrow(self.payload_len() - headers_at),
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
                    let at = self.payload_len();
                    self.packed.extend_from_slice(value);
                    (narrow(at), narrow(value.len()))
                }
                StateCell::Until(expires, value) => {
                    self.packed.extend_from_slice(&expires.to_le_bytes());
                    let at = self.payload_len();
                    self.packed.extend_from_slice(value);
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
        let clock_at = ingest_at + self.ingest_times.len();
        let slots_at = clock_at + self.clock.len();
        let key_index_at = slots_at + self.ttls.len();
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
            narrow(self.payload_len()),
            if self.clock.is_empty() {
                0
            } else {
                narrow(clock_at)
            },
            if self.ttls.is_empty() {
                0
            } else {
                narrow(slots_at)
            },
        ];

        self.move_payload(payload_at);
        let slots = u16::try_from(self.slots).unwrap_or(u16::MAX);
        let [low, high] = slots.to_le_bytes();
        self.packed[..4].copy_from_slice(&[VERSION, 0, low, high]);
        for (place, field) in self.packed[4..HEADER_BYTES].chunks_exact_mut(4).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        // What lies between two blocks is zeros.
        let blocks = [
            (HEADER_BYTES, &self.heads),
            (offsets_at, &self.offsets),
            (ingest_at, &self.ingest_times),
            (clock_at, &self.clock),
            (slots_at, &self.ttls),
            (key_index_at, &self.key_index),
            (state_at, &self.cells),
        ];
        for (at, block) in blocks {
            self.packed[at..at + block.len()].copy_from_slice(block);
        }
        &self.packed
    }

    /// Makes the payload start there, where it doesn't yet.
    fn move_payload(&mut self, to: usize) {
        let (from, len) = (self.front, self.payload_len());
        if from == to {
            return;
        }
        self.packed.resize(to.max(from) + len, 0);
        self.packed.copy_within(from..from + len, to);
        self.packed.truncate(to + len);
        self.packed[..to].fill(0);
        self.front = to;
    }

    /// Bytes so far: what [`finish`](Self::finish) would give now.
    pub fn bytes(&self) -> usize {
        let per_event = ROW_HEAD_BYTES + 8 + 8;
        HEADER_BYTES
            + self.count * per_event
            + self.clock.len()
            + self.ttls.len()
            + self.key_index.len().next_multiple_of(8)
            + self.cells.len()
            + self.payload_len()
    }
}

/// A position or length as the layout stores it. A batch that doesn't fit 32 bits can't be lowered into
/// a guest's 32-bit memory either: the call fails there, so nobody reads a number cut off here.
fn narrow(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
