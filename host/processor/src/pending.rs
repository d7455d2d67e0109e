//! The events a task has read and not yet finished.

use crate::attempts::Attempts;
use crate::dead_letter::Cause;
use crate::origin::{self, Origin};
use bytes::Bytes;
use tidemill_log::Read;
use tidemill_types::{
    Batch, CommitSeq, Commits, Event, IngestTimes, Offsets, PackedRows, Result, Timestamp,
};
use tidemill_wasm::Clock;

/// Where timers take their turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// The task's position.
    pub(crate) position: u64,
    /// Processing time.
    pub(crate) processing: Timestamp,
    /// Number of the first: how many of the task's timers had their turn before.
    pub(crate) number: u64,
}

/// A batch between reading and its last commit.
pub(crate) struct Pending {
    batches: Vec<Batch>,
    /// For each row: which of the batches, and which row of it.
    rows: Vec<(u32, u32)>,
    next: u64,
    /// Whether a first header says where each event came from.
    by_key: bool,
    /// Its rows are timers of this time, not events.
    timers: Option<Clock>,
    /// What to do next.
    pub(crate) attempts: Attempts,
    /// Why the row at the front failed.
    pub(crate) cause: Option<Cause>,
}

impl Pending {
    /// What a read brought; an event is tried `most` times.
    pub(crate) fn new(read: Read, by_key: bool, most: u32) -> Self {
        let mut rows = Vec::with_capacity(read.batches.iter().map(Batch::len).sum());
        for (at, batch) in (0..).zip(&read.batches) {
            rows.extend((0..).take(batch.len()).map(|row| (at, row)));
        }
        let attempts = Attempts::new(rows.len(), most);
        Self {
            batches: read.batches,
            rows,
            next: read.next,
            by_key,
            timers: None,
            attempts,
            cause: None,
        }
    }

    /// Timers whose turn it is, as the events they are handed over as; the position stays where it is.
    pub(crate) fn timers(rows: &PackedRows, clock: Clock, at: Turn, most: u32) -> Self {
        let heads: Vec<u8> = rows.heads.iter().flat_map(|head| head.to_bytes()).collect();
        let batch = Batch::new(
            heads.into(),
            Bytes::copy_from_slice(&rows.payload),
            Offsets::From(at.number),
            IngestTimes::Same(at.processing),
            Commits::Same(CommitSeq(0)),
        );
        Self {
            rows: (0..).take(rows.len()).map(|row| (0, row)).collect(),
            batches: vec![batch],
            next: at.position,
            by_key: false,
            timers: Some(clock),
            attempts: Attempts::new(rows.len(), most),
            cause: None,
        }
    }

    /// In which time its rows were due, if they are timers.
    pub(crate) fn timers_of(&self) -> Option<Clock> {
        self.timers
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

    /// Event `row` as the function sees it, and where it came from if it was repartitioned.
    ///
    /// # Errors
    /// `Corrupt` when a repartitioned event doesn't say so.
    pub(crate) fn event(&self, row: usize) -> Result<(Event<'_>, Option<Origin<'_>>)> {
        let event = self.raw(row);
        if !self.by_key {
            return Ok((event, None));
        }
        origin::take(event).map(|(event, origin)| (event, Some(origin)))
    }

    /// The key of event `row`.
    pub(crate) fn key(&self, row: usize) -> Option<&[u8]> {
        self.raw(row).row.key
    }

    /// Event time and ingest time of event `row`.
    pub(crate) fn times(&self, row: usize) -> (Timestamp, Timestamp) {
        let event = self.raw(row);
        (event.row.time, event.ingest_time)
    }

    /// The position once the first `rows` rows are committed.
    pub(crate) fn position_after(&self, rows: usize) -> u64 {
        if rows == self.rows.len() || self.timers.is_some() {
            self.next
        } else {
            self.raw(rows).offset
        }
    }
}
