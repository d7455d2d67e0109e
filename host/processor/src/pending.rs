//! The events a task has read and not yet finished.

use crate::attempts::Attempts;
use crate::dead_letter::Cause;
use crate::manifest::Time;
use crate::merge::{Gathered, Positions};
use crate::note::{Floor, Note};
use crate::origin::{self, Moved, Origin};
use bytes::Bytes;
use std::ops::Range;
use tidemill_types::{
    Batch, CommitSeq, Commits, Event, IngestTimes, Offsets, PackedRows, Result, Timestamp,
};
use tidemill_wasm::Clock;

/// Where timers take their turn.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    /// The task's position.
    pub(crate) position: Positions,
    /// Processing time.
    pub(crate) processing: Timestamp,
    /// Number of the first: how many of the task's timers had their turn before.
    pub(crate) number: u64,
}

/// A parked event that is tried again.
#[derive(Clone, Debug)]
pub(crate) struct Fired {
    /// Its number among those parked.
    pub(crate) number: u64,
    /// How often it failed before.
    pub(crate) attempts: u32,
    /// When it failed first, if it did.
    pub(crate) first: Timestamp,
    /// How often it was put back from the dead letters.
    pub(crate) redriven: u32,
    /// Watermark at its turn, and when it was received.
    pub(crate) floor: Floor,
    /// The input it was read from; or, where the function doesn't read that any more, its topic.
    pub(crate) input: Result<usize, String>,
}

/// What the rows of a batch are.
enum Kind {
    /// Events that were read.
    Events,
    /// Timers, due in this time; for each the watermark it sees.
    Timers(Clock, Vec<i64>),
    /// Events that were parked.
    Parked(Vec<Fired>),
}

/// A batch between reading and its last commit.
pub(crate) struct Pending {
    batches: Vec<Batch>,
    /// For each row: which of the batches, and which row of it.
    rows: Vec<(u32, u32)>,
    /// Which input each of the batches is of; empty where there is one input.
    inputs: Vec<usize>,
    next: Positions,
    /// The inputs whose events say in a first header where they came from: a bit for each.
    by_key: u32,
    /// What each row says of its sources; empty where no input is keyed by a pointer.
    moved: Vec<(Moved, Option<i64>)>,
    kind: Kind,
    /// What to do next.
    pub(crate) attempts: Attempts,
    /// Why the row at the front failed.
    pub(crate) cause: Option<Cause>,
}

impl Pending {
    /// What a read brought; an event is tried `most` times.
    pub(crate) fn new(read: Gathered, by_key: u32, most: u32) -> Self {
        let mut rows = Vec::with_capacity(read.batches.iter().map(Batch::len).sum());
        for (at, batch) in (0..).zip(&read.batches) {
            rows.extend((0..).take(batch.len()).map(|row| (at, row)));
        }
        let attempts = Attempts::new(rows.len(), most);
        let mut pending = Self {
            batches: read.batches,
            rows,
            inputs: read.inputs,
            next: read.next,
            by_key,
            moved: Vec::new(),
            kind: Kind::Events,
            attempts,
            cause: None,
        };
        if by_key != 0 {
            let rows = 0..pending.rows.len();
            pending.moved = rows.map(|row| pending.moved(row)).collect();
        }
        pending
    }

    fn moved(&self, row: usize) -> (Moved, Option<i64>) {
        let origin = (self.by_key & 1 << self.input(row) != 0)
            .then(|| Origin::of(&self.raw(row)))
            .flatten();
        origin.map_or((Moved::Event, None), |origin| {
            (origin.moved, origin.reached)
        })
    }

    /// Whether a row is no event, but says how far time is in the sources of an internal topic.
    pub(crate) fn is_mark(&self, row: usize) -> bool {
        let moved = self.moved.get(row);
        moved.is_some_and(|(moved, _)| *moved != Moved::Event)
    }

    /// Takes a row's times into account. Whether it is from so far in the future that it moves nothing.
    pub(crate) fn observe(&self, row: usize, note: &mut Note, limits: &Time) -> bool {
        let (time, received) = self.times(row);
        let input = self.input(row);
        match self.moved.get(row) {
            Some((moved, Some(reached))) => {
                note.observe_moved(input, (*moved, *reached), received, limits.idle);
                false
            }
            _ => note.observe(input, time, received, limits),
        }
    }

    /// Timers whose turn it is, as the events they are handed over as; the position stays where it is.
    /// Each sees its watermark of `watermarks`.
    pub(crate) fn timers(
        rows: &PackedRows,
        clock: Clock,
        at: Turn,
        watermarks: Vec<i64>,
        most: u32,
    ) -> Self {
        let offsets = Offsets::From(at.number);
        let received = IngestTimes::Same(at.processing);
        let kind = Kind::Timers(clock, watermarks);
        Self::of(rows, offsets, received, at.position, kind, most)
    }

    /// Parked events to try again, at their offsets; the position stays where it is.
    pub(crate) fn parked(
        rows: &PackedRows,
        offsets: Vec<u64>,
        fired: Vec<Fired>,
        (position, by_key): (Positions, u32),
        most: u32,
    ) -> Self {
        let received: Vec<_> = fired.iter().map(|fired| fired.floor.received).collect();
        let offsets = Offsets::Each(offsets.into());
        let received = IngestTimes::Each(received.into());
        let kind = Kind::Parked(fired);
        Self {
            by_key,
            ..Self::of(rows, offsets, received, position, kind, most)
        }
    }

    fn of(
        rows: &PackedRows,
        offsets: Offsets,
        received: IngestTimes,
        next: Positions,
        kind: Kind,
        most: u32,
    ) -> Self {
        let heads: Vec<u8> = rows.heads.iter().flat_map(|head| head.to_bytes()).collect();
        let payload = Bytes::copy_from_slice(&rows.payload);
        let commits = Commits::Same(CommitSeq(0));
        Self {
            rows: (0..).take(rows.len()).map(|row| (0, row)).collect(),
            batches: vec![Batch::new(
                heads.into(),
                payload,
                offsets,
                received,
                commits,
            )],
            inputs: Vec::new(),
            next,
            by_key: 0,
            moved: Vec::new(),
            kind,
            attempts: Attempts::new(rows.len(), most),
            cause: None,
        }
    }

    /// In which time its rows were due, if they are timers.
    pub(crate) fn timers_of(&self) -> Option<Clock> {
        match &self.kind {
            Kind::Timers(clock, _) => Some(*clock),
            Kind::Events | Kind::Parked(_) => None,
        }
    }

    /// Row `row` as a parked event, if its rows are.
    pub(crate) fn fired(&self, row: usize) -> Option<&Fired> {
        match &self.kind {
            Kind::Parked(fired) => fired.get(row),
            Kind::Events | Kind::Timers(..) => None,
        }
    }

    /// Whether its rows are events that were read and move the position.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self.kind, Kind::Events)
    }

    /// The watermark that row `row` sees, if its turn doesn't say so.
    pub(crate) fn watermark(&self, row: usize) -> Option<i64> {
        match &self.kind {
            Kind::Events => None,
            Kind::Timers(_, watermarks) => watermarks.get(row).copied(),
            Kind::Parked(fired) => fired.get(row).map(|fired| fired.floor.watermark),
        }
    }

    /// Rows from `row` on that are parked events of one key: they follow in order.
    pub(crate) fn queue(&self, row: usize) -> Range<usize> {
        let key = self.key(row);
        let more = (row + 1..self.rows.len())
            .take_while(|next| key.is_some() && self.key(*next) == key)
            .count();
        row..row + 1 + more
    }

    /// The tag of the timer that row `row` is.
    pub(crate) fn tag(&self, row: usize) -> &[u8] {
        let mut headers = self.raw(row).row.headers;
        headers.next().map_or(&[], |(_, tag)| tag)
    }

    /// Event `row` as it was read.
    pub(crate) fn raw(&self, row: usize) -> Event<'_> {
        let (batch, row) = self.rows[row];
        self.batches[batch as usize].get(row as usize)
    }

    /// Asks for the memory of some events, so that it comes while others are waited for: they were written a while ago
    /// and by another thread.
    pub(crate) fn touch(&self, rows: Range<usize>) {
        const LINE: usize = 64;
        let mut all = 0;
        for row in rows {
            let row = self.raw(row).row;
            all ^= row.key.and_then(<[u8]>::first).copied().unwrap_or_default();
            let lines = row.value.unwrap_or_default().chunks(LINE);
            all = lines.fold(all, |all, line| all ^ line[0]);
        }
        std::hint::black_box(all);
    }

    /// Event `row` as the function sees it, and where it came from if it was repartitioned.
    ///
    /// # Errors
    /// `Corrupt` when a repartitioned event doesn't say so.
    pub(crate) fn event(&self, row: usize) -> Result<(Event<'_>, Option<Origin<'_>>)> {
        let event = self.raw(row);
        if self.by_key & 1 << self.input(row) == 0 {
            return Ok((event, None));
        }
        origin::take(event).map(|(event, origin)| (event, Some(origin)))
    }

    /// The input that event `row` was read from; of a timer, the first.
    pub(crate) fn input(&self, row: usize) -> usize {
        match &self.kind {
            Kind::Events => {
                let (batch, _) = self.rows[row];
                self.inputs.get(batch as usize).copied().unwrap_or_default()
            }
            Kind::Timers(..) => 0,
            Kind::Parked(fired) => match fired.get(row).map(|fired| &fired.input) {
                Some(Ok(input)) => *input,
                _ => 0,
            },
        }
    }

    /// The first rows of a run, as many as are of one input.
    pub(crate) fn of_one_input(&self, rows: Range<usize>) -> Range<usize> {
        if self.inputs.is_empty() && self.is_read() {
            return rows;
        }
        let input = self.input(rows.start);
        let end = rows.clone().find(|row| self.input(*row) != input);
        rows.start..end.unwrap_or(rows.end)
    }

    /// The key of event `row`.
    pub(crate) fn key(&self, row: usize) -> Option<&[u8]> {
        let (batch, row) = self.rows[row];
        self.batches[batch as usize].key(row as usize)
    }

    /// Event time and ingest time of event `row`.
    pub(crate) fn times(&self, row: usize) -> (Timestamp, Timestamp) {
        let (batch, row) = self.rows[row];
        let (batch, row) = (&self.batches[batch as usize], row as usize);
        (batch.time(row), batch.ingest_time(row))
    }

    /// Bytes that event `row` takes when it is parked, at most.
    pub(crate) fn bytes(&self, row: usize) -> u64 {
        const BESIDE: usize = 2048;
        let row = self.raw(row).row;
        let length = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len);
        (length(row.key) + length(row.value) + row.headers.as_bytes().len() + BESIDE) as u64
    }

    /// The position once the first `rows` rows are committed.
    pub(crate) fn position_after(&self, rows: usize) -> Positions {
        if rows == self.rows.len() || !self.is_read() {
            return self.next.clone();
        }
        if self.inputs.is_empty() {
            return Positions::one(self.raw(rows).offset);
        }
        let offset_of = |(input, next)| {
            let mut left = rows..self.rows.len();
            left.find(|row| self.input(*row) == input)
                .map_or(next, |row| self.raw(row).offset)
        };
        Positions::of(self.next.iter().enumerate().map(offset_of))
    }
}
