//! Reading what is in memory and in the journal.

use super::{Shard, lock};
use crate::ReadLimit;
use crate::frame;
use crate::journal::{JournalFile, disk_error};
use crate::tail::{Place, Source, Taken};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tidemill_types::{
    Batch, CommitSeq, Commits, Error, IngestTimes, Offsets, PartitionId, ROW_HEAD_BYTES, Result,
    Timestamp,
};

/// Most places that are kept after a read.
const RECENT: usize = 4;

/// The stretches of the journal that were read last. Who is behind reads a stretch in many small
/// batches, and each partition of a topic finds its events in the same one. What a place names is
/// durable, and a file's number is never used again, so the bytes can't change.
#[derive(Default)]
pub(super) struct Recent(Mutex<VecDeque<(Stretch, Bytes)>>);

/// File number, position, length.
type Stretch = (u64, u64, u64);

impl Recent {
    fn bytes(&self, file: &JournalFile, place: &Place) -> Result<Bytes> {
        let stretch = (place.file, place.at, place.len);
        let known = |kept: &VecDeque<(Stretch, Bytes)>| {
            let found = kept.iter().find(|(known, _)| *known == stretch);
            found.map(|(_, bytes)| bytes.clone())
        };
        if let Some(bytes) = known(&self.kept()) {
            return Ok(bytes);
        }
        let len =
            usize::try_from(place.len).map_err(|_| Error::internal("place above address space"))?;
        let mut bytes = vec![0; len];
        file.file
            .read_at(place.at, &mut bytes)
            .map_err(|e| disk_error(&file.path, "can't be read", &e))?;
        let bytes = Bytes::from(bytes);
        let mut kept = self.kept();
        kept.truncate(RECENT - 1);
        kept.push_front((stretch, bytes.clone()));
        Ok(bytes)
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<(Stretch, Bytes)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    /// Where events of a partition are.
    pub(crate) fn source(&self, at: PartitionId, from: u64, limit: ReadLimit) -> Result<Source> {
        let partition = self.partition(at)?;
        Ok(lock(&partition).source(from, limit))
    }

    /// Events from places of the journal; blocks.
    ///
    /// # Errors
    /// `Unavailable` when a file can't be read, `Corrupt` when it isn't what was written.
    pub(crate) fn read_places(
        &self,
        at: PartitionId,
        places: &[Place],
        from: u64,
        limit: ReadLimit,
    ) -> Result<Taken> {
        let mut taken = Taken::new(from, limit);
        for place in places {
            if taken.is_full() {
                break;
            }
            let file = self
                .journal()
                .get(&place.file)
                .map(|used| used.file.clone());
            // Cut meanwhile: the events are in a segment now.
            let Some(file) = file else { break };
            let bytes = self.recent.bytes(&file, place)?;
            take_place(&file, at, place, bytes, &mut taken)?;
        }
        Ok(taken)
    }

    /// Events that are in memory or in the journal; blocks. Empty at the end.
    ///
    /// # Errors
    /// As [`Shard::read_places`]; `OutOfRange` for what is only in segments.
    pub(crate) fn read_local(&self, at: PartitionId, from: u64, limit: ReadLimit) -> Result<Taken> {
        let mut from = from;
        loop {
            match self.source(at, from, limit)? {
                Source::Memory(taken) => return Ok(taken),
                Source::Journal(places) => return self.read_places(at, &places, from, limit),
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
pub(super) fn batch_of(
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

fn take_place(
    file: &JournalFile,
    at: PartitionId,
    place: &Place,
    bytes: Bytes,
    taken: &mut Taken,
) -> Result<()> {
    let mut start = 0;
    while start < bytes.len() && !taken.is_full() {
        let damaged = || {
            Error::corrupt(format!(
                "{}: the frame at byte {} is damaged: restore the file from a copy of the disk",
                file.path.display(),
                place.at + start as u64
            ))
        };
        let rest = &bytes[start..];
        let head = frame::Head::read(rest, file.nonce).ok_or_else(damaged)?;
        if !head.body_is_whole(rest) {
            return Err(damaged());
        }
        let body = bytes.slice(start + head.body().start..start + head.body().end);
        let sections = head.sections(&body)?;
        for slice in &head.slices {
            let ours = slice.topic == at.topic.0 && slice.partition == at.partition;
            let Some(section) = sections.get(slice.section as usize).filter(|_| ours) else {
                continue;
            };
            taken.take(&batch_of(
                &body,
                section,
                slice,
                head.stamp.seq,
                head.stamp.time,
            ));
        }
        start += head.frame_bytes();
    }
    Ok(())
}
