//! Looks for what a function should have emitted in what was committed.

use super::same::same_row;
use tidemill_log::{Log, Read, ReadLimit};
use tidemill_types::{Batch, PartitionId, Result, RowView};

/// Read at once: there are as many cursors as pairs of partitions.
const CHUNK: ReadLimit = ReadLimit {
    events: 4096,
    bytes: 256 << 10,
};
/// After so many events that aren't there a cursor looks no further: each costs reading to the end.
const MOST_MISSING: u64 = 4;

/// A reader of one partition that finds events in their order, passing over those of others.
pub(crate) struct Cursor {
    log: Log,
    at: PartitionId,
    /// Events up to this commit don't count.
    behind: u64,
    /// Dead letters are compared without what they say of tries.
    letters: bool,
    next: u64,
    chunk: Option<(Read, usize, usize)>,
    missing: u64,
}

/// What became of looking for an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sought {
    Found,
    Missing,
    /// Too many were missing before.
    Unsought,
}

impl Cursor {
    pub(crate) fn new(log: &Log, at: PartitionId, behind: u64, letters: bool) -> Result<Self> {
        Ok(Self {
            log: log.clone(),
            at,
            behind,
            letters,
            next: log.range(at)?.start,
            chunk: None,
            missing: 0,
        })
    }

    /// Finds the next event with these bytes, behind the one found before.
    ///
    /// # Errors
    /// As [`Log::read`].
    pub(crate) async fn find(&mut self, row: RowView<'_>) -> Result<Sought> {
        if self.missing >= MOST_MISSING {
            return Ok(Sought::Unsought);
        }
        let begun = (self.next, self.chunk.clone());
        loop {
            if self.in_chunk(row) {
                return Ok(Sought::Found);
            }
            let read = self.log.read(self.at, self.next, CHUNK).await?;
            if read.next <= self.next {
                (self.next, self.chunk) = begun;
                self.missing += 1;
                return Ok(Sought::Missing);
            }
            self.next = read.next;
            self.chunk = Some((read, 0, 0));
        }
    }

    fn in_chunk(&mut self, row: RowView<'_>) -> bool {
        let Some((read, batch, from)) = &mut self.chunk else {
            return false;
        };
        while let Some(events) = read.batches.get(*batch) {
            if let Some(found) = position(events, *from, self.behind, row, self.letters) {
                *from = found + 1;
                return true;
            }
            *batch += 1;
            *from = 0;
        }
        false
    }
}

fn position(
    events: &Batch,
    from: usize,
    behind: u64,
    row: RowView<'_>,
    letters: bool,
) -> Option<usize> {
    let last = events.len().checked_sub(1)?;
    if events.commit(last).0 <= behind {
        return None;
    }
    (from..events.len()).find(|at| {
        let event = events.get(*at);
        event.commit.0 > behind && same_row(event.row, row, letters)
    })
}
