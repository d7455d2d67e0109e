//! A bounded run of committed events of one partition, as readers and tasks get it.

use crate::{CommitSeq, ROW_HEAD_BYTES, RowHead, RowView, Timestamp};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;

/// Offsets of a run of events, rising.
#[derive(Clone, Debug)]
pub enum Offsets {
    /// Without gaps from this one on.
    From(u64),
    /// One per event: compaction may leave gaps.
    Each(Arc<[u64]>),
}

/// Times at which a run of events was committed.
#[derive(Clone, Debug)]
pub enum IngestTimes {
    /// The same for all.
    Same(Timestamp),
    /// One per event.
    Each(Arc<[Timestamp]>),
}

/// Commits to which a run of events belongs.
#[derive(Clone, Debug)]
pub enum Commits {
    /// The same for all.
    Same(CommitSeq),
    /// One per event.
    Each(Arc<[CommitSeq]>),
}

/// A run of committed events of one partition, in offset order. Cheap to clone and to slice.
#[derive(Clone, Debug)]
pub struct Batch {
    heads: Bytes,
    payload: Bytes,
    first: usize,
    offsets: Offsets,
    ingest_times: IngestTimes,
    commits: Commits,
}

/// One committed event.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// Its offset in the partition.
    pub offset: u64,
    /// When it was committed.
    pub ingest_time: Timestamp,
    /// The frame it was committed in.
    pub commit: CommitSeq,
    /// Key, value, headers and event time.
    pub row: RowView<'a>,
}

impl Batch {
    /// A batch over a block of row heads and the payload they point into. Columns given per event
    /// start at the block's first row.
    pub fn new(
        heads: Bytes,
        payload: Bytes,
        offsets: Offsets,
        ingest_times: IngestTimes,
        commits: Commits,
    ) -> Self {
        debug_assert_eq!(heads.len() % ROW_HEAD_BYTES, 0);
        Self {
            heads,
            payload,
            first: 0,
            offsets,
            ingest_times,
            commits,
        }
    }

    /// Number of events.
    #[inline]
    pub fn len(&self) -> usize {
        self.heads.len() / ROW_HEAD_BYTES
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// The head of event `row`, for those who copy rows.
    #[inline]
    pub fn head(&self, row: usize) -> RowHead {
        RowHead::read(&self.heads, row)
    }

    /// The payload the heads point into; it may hold more than this batch's events.
    #[inline]
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Offset of event `row`.
    #[inline]
    pub fn offset(&self, row: usize) -> u64 {
        match &self.offsets {
            Offsets::From(first) => first + (self.first + row) as u64,
            Offsets::Each(all) => all[self.first + row],
        }
    }

    /// Ingest time of event `row`.
    #[inline]
    pub fn ingest_time(&self, row: usize) -> Timestamp {
        match &self.ingest_times {
            IngestTimes::Same(time) => *time,
            IngestTimes::Each(all) => all[self.first + row],
        }
    }

    /// The ingest time of all events, where it is known to be the same.
    #[inline]
    pub fn same_ingest_time(&self) -> Option<Timestamp> {
        match &self.ingest_times {
            IngestTimes::Same(time) => Some(*time),
            IngestTimes::Each(_) => None,
        }
    }

    /// Commit of event `row`.
    #[inline]
    pub fn commit(&self, row: usize) -> CommitSeq {
        match &self.commits {
            Commits::Same(commit) => *commit,
            Commits::Each(all) => all[self.first + row],
        }
    }

    /// Event time of event `row`.
    #[inline]
    pub fn time(&self, row: usize) -> Timestamp {
        Timestamp::from_micros(self.head(row).time)
    }

    /// Key of event `row`; `None` = null.
    #[inline]
    pub fn key(&self, row: usize) -> Option<&[u8]> {
        self.head(row).key(&self.payload)
    }

    /// Event `row`.
    #[inline]
    pub fn get(&self, row: usize) -> Event<'_> {
        Event {
            offset: self.offset(row),
            ingest_time: self.ingest_time(row),
            commit: self.commit(row),
            row: RowView::new(self.head(row), &self.payload),
        }
    }

    /// All events in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Event<'_>> {
        (0..self.len()).map(|row| self.get(row))
    }

    /// Some of its rows, sharing the memory.
    #[must_use]
    pub fn slice(&self, rows: Range<usize>) -> Self {
        Self {
            heads: self
                .heads
                .slice(rows.start * ROW_HEAD_BYTES..rows.end * ROW_HEAD_BYTES),
            first: self.first + rows.start,
            ..self.clone()
        }
    }

    /// The first row whose offset is at least `offset`; the length if there is none.
    pub fn row_at(&self, offset: u64) -> usize {
        match &self.offsets {
            Offsets::From(first) => {
                usize::try_from(offset.saturating_sub(first + self.first as u64))
                    .unwrap_or(usize::MAX)
                    .min(self.len())
            }
            Offsets::Each(all) => {
                all[self.first..self.first + self.len()].partition_point(|o| *o < offset)
            }
        }
    }

    /// Key, value and header bytes of all its events.
    pub fn event_bytes(&self) -> usize {
        (0..self.len()).map(|row| self.head(row).bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PackedRows;

    #[test]
    fn slices_keep_their_columns() {
        let mut rows = PackedRows::default();
        for value in ["a", "b", "c", "d"] {
            rows.push(Timestamp::from_micros(1), None, Some(value.as_bytes()), [])
                .expect("push");
        }
        let heads: Vec<u8> = rows.heads.iter().flat_map(|h| h.to_bytes()).collect();
        let batch = Batch::new(
            heads.into(),
            rows.payload.into(),
            Offsets::Each([3, 5, 8, 9].into()),
            IngestTimes::Same(Timestamp::from_micros(7)),
            Commits::Each([1, 1, 2, 2].map(CommitSeq).into()),
        );
        let part = batch.slice(1..4).slice(1..3);
        let seen: Vec<_> = part
            .iter()
            .map(|e| (e.offset, e.commit.0, e.row.value))
            .collect();
        assert_eq!(seen, [(8, 2, Some(b"c".as_slice())), (9, 2, Some(b"d"))]);
        assert_eq!((part.row_at(0), part.row_at(9), part.row_at(10)), (0, 1, 2));
    }
}
