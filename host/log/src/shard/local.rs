//! Reading what is in memory and in the journal.

use super::{Shard, Used};
use crate::ReadLimit;
use crate::frame::{self, Stamp};
use crate::journal::Frame;
use crate::tail::{Place, Source, Taken};
use bytes::Bytes;
use tidemill_types::{
    Batch, CommitSeq, Commits, Error, IngestTimes, Offsets, PartitionId, ROW_HEAD_BYTES, Result,
    Timestamp,
};

impl Shard {
    /// Where events of a partition are.
    pub(crate) fn source(&self, at: PartitionId, from: u64, limit: ReadLimit) -> Result<Source> {
        let partition = self.partition(at)?;
        Ok(partition.lock().source(from, limit))
    }

    /// Events that are in the journal and not in memory, and how much of it was gone through: at least one place,
    /// then until that is `most` bytes, the limit is reached or the next events are elsewhere. Blocks.
    ///
    /// # Errors
    /// `Unavailable` when a file can't be read, `Corrupt` when it isn't what was written.
    pub(crate) fn read_journal(
        &self,
        at: PartitionId,
        from: u64,
        limit: ReadLimit,
        most: u64,
    ) -> Result<(Taken, u64)> {
        let (mut taken, mut through) = (Taken::new(from, limit), 0_u64);
        while !taken.is_full() && (through < most || through == 0) {
            let Source::Journal(places) = self.source(at, taken.next, taken.limit())? else {
                break;
            };
            let before = taken.next;
            self.read_places(at, &places, &mut taken)?;
            through += places.iter().map(|place| place.len).sum::<u64>().max(1);
            if taken.next == before {
                break;
            }
        }
        Ok((taken, through))
    }

    fn read_places(&self, at: PartitionId, places: &[Place], taken: &mut Taken) -> Result<()> {
        for place in places {
            if taken.is_full() {
                break;
            }
            let used = self.journal().get(&place.file).map(Used::durable_part);
            // Cut meanwhile: the events are in a segment now.
            let Some((file, end)) = used else { break };
            let mut position = place.at;
            while position < place.at + place.len && !taken.is_full() {
                let stretch = self.frames.read(&file, position, end)?;
                for frame in stretch.from(position) {
                    take_frame(at, frame, taken);
                }
                position = stretch.end;
            }
        }
        Ok(())
    }

    /// Events that are in memory or in the journal; blocks. Empty at the end.
    ///
    /// # Errors
    /// As [`Shard::read_journal`]; `OutOfRange` for what is only in segments.
    pub(crate) fn read_local(&self, at: PartitionId, from: u64, limit: ReadLimit) -> Result<Taken> {
        let mut from = from;
        loop {
            match self.source(at, from, limit)? {
                Source::Memory(taken) => return Ok(taken),
                Source::Journal(_) => return Ok(self.read_journal(at, from, limit, 1)?.0),
                Source::End => return Ok(Taken::new(from, limit)),
                Source::Gap(next) | Source::Below(next) => from = next,
                Source::Segment(_) => {
                    return Err(Error::internal(format!(
                        "offset {from} is in a segment already"
                    )));
                }
            }
        }
    }
}

/// One slice's events, sharing the body's memory.
pub(crate) fn batch_of(
    body: &Bytes,
    section: &frame::Section,
    slice: &frame::Slice,
    seq: u64,
    time: i64,
) -> Batch {
    let at = section.at as usize;
    let heads_at = at + section.payload as usize + slice.first_row as usize * ROW_HEAD_BYTES;
    Batch::new(
        body.slice(heads_at..heads_at + slice.rows as usize * ROW_HEAD_BYTES),
        body.slice(at..at + section.payload as usize),
        Offsets::From(slice.base),
        IngestTimes::Same(Timestamp::from_micros(time)),
        Commits::Same(CommitSeq(seq)),
    )
}

fn take_frame(at: PartitionId, frame: &Frame, taken: &mut Taken) {
    for slice in &frame.slices {
        if taken.is_full() {
            return;
        }
        let ours = slice.topic == at.topic.0 && slice.partition == at.partition;
        let Some(section) = frame.sections.get(slice.section as usize).filter(|_| ours) else {
            continue;
        };
        let Stamp { seq, time, .. } = frame.stamp;
        taken.take(&batch_of(&frame.body, section, slice, seq, time));
    }
}
