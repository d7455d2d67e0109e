//! One ordered view over segments, journal and tail: nothing twice, nothing skipped at the borders.

use crate::segment::{ABSENT, SegmentMeta, Segments};
use crate::sequencer::out_of_range;
use crate::shard::Shard;
use crate::tail::{Source, Taken};
use crate::{Read, ReadLimit, TimeOf};
use std::sync::Arc;
use tidemill_types::{Error, ErrorKind, Event, PartitionId, Result, Timestamp, limits};

/// How much of the journal who reads in step with others goes through at a time. Well below what is kept
/// of it, so that it is still there when the last of them comes.
pub(crate) const STEP: u64 = 4 << 20;

/// See [`crate::Log::read`] and [`crate::Log::read_in_step`]: with what limit on bytes of journal.
pub(crate) async fn read(
    shard: &Arc<Shard>,
    segments: &Segments,
    at: PartitionId,
    from: u64,
    limit: ReadLimit,
    journal: u64,
) -> Result<Read> {
    let end = check_range(shard, at, from)?;
    let mut gone_through = 0;
    let mut read = Read {
        batches: Vec::new(),
        next: from,
        end,
    };
    let mut left = limit;
    loop {
        let source = shard.source(at, read.next, left)?;
        let taken = match source {
            Source::End => break,
            // It was taken away while it was read; what was read before that stands.
            Source::Below(_) if read.next > from => break,
            Source::Below(start) => return Err(out_of_range(read.next, start, end)),
            Source::Gap(next) => {
                read.next = next;
                continue;
            }
            Source::Memory(taken) => taken,
            Source::Journal(_) if gone_through >= journal && read.next > from => break,
            Source::Journal(_) => {
                let (shard, from, most) = (shard.clone(), read.next, journal - gone_through);
                let read = move || shard.read_journal(at, from, left, most);
                let (taken, through) = in_background(read).await?;
                gone_through = gone_through.saturating_add(through).min(journal);
                taken
            }
            Source::Segment(segment) => {
                let batches = match segments.read(&segment, read.next, left).await {
                    Err(error) if is_replaced(shard, at, &segment, &error)? => continue,
                    batches => batches?,
                };
                let mut taken = Taken::new(read.next, left);
                batches.iter().for_each(|batch| taken.take(batch));
                // Compaction may have left nothing behind this offset.
                taken.next = if batches.is_empty() {
                    segment.end
                } else {
                    taken.next
                };
                taken
            }
        };
        read.next = taken.next;
        left = taken.limit();
        let full = taken.is_full();
        read.batches.extend(taken.batches);
        if full || left.events == 0 || left.bytes == 0 {
            break;
        }
    }
    read.end = read.end.max(read.next);
    Ok(read)
}

/// See [`crate::Log::read_tail`].
pub(crate) fn read_memory(
    shard: &Shard,
    at: PartitionId,
    from: u64,
    limit: ReadLimit,
) -> Option<Read> {
    let end = check_range(shard, at, from).ok()?;
    match shard.source(at, from, limit).ok()? {
        Source::Memory(taken) => {
            let end = end.max(taken.next);
            Some(Read {
                batches: taken.batches,
                next: taken.next,
                end,
            })
        }
        Source::End => Some(Read {
            batches: Vec::new(),
            next: from,
            end,
        }),
        Source::Below(_) | Source::Journal(_) | Source::Segment(_) | Source::Gap(_) => None,
    }
}

/// See [`crate::Log::offset_at`].
pub(crate) async fn offset_at(
    shard: &Arc<Shard>,
    segments: &Segments,
    at: PartitionId,
    time: Timestamp,
    time_of: TimeOf,
) -> Result<u64> {
    let limit = ReadLimit {
        events: limits::READ_EVENTS,
        bytes: 4 << 20,
    };
    let partition = shard.partition(at)?;
    let mut from = partition.lock().start();
    loop {
        if let Source::Segment(segment) = shard.source(at, from, limit)? {
            match segments.offset_at(&segment, from, time, time_of).await {
                Ok(Some(offset)) => return Ok(offset),
                Ok(None) => from = segment.end,
                Err(error) if is_replaced(shard, at, &segment, &error)? => {}
                Err(error) => return Err(error),
            }
            continue;
        }
        let read = match read(shard, segments, at, from, limit, u64::MAX).await {
            // Its start has moved meanwhile.
            Err(error) if error.kind == ErrorKind::OutOfRange => {
                from = from.max(partition.lock().start());
                continue;
            }
            read => read?,
        };
        let mut events = read.batches.iter().flat_map(|batch| batch.iter());
        let time_of = |event: &Event<'_>| match time_of {
            TimeOf::Event => event.row.time,
            TimeOf::Ingest => event.ingest_time,
        };
        if let Some(event) = events.find(|event| time_of(event) >= time) {
            return Ok(event.offset);
        }
        if read.next >= read.end {
            return Ok(read.next);
        }
        from = read.next;
    }
}

/// Whether a segment couldn't be read because it is no longer part of the partition: compaction has
/// written its events elsewhere, or they were taken away.
fn is_replaced(
    shard: &Shard,
    at: PartitionId,
    segment: &SegmentMeta,
    error: &Error,
) -> Result<bool> {
    let partition = shard.partition(at)?;
    Ok(error.code == ABSENT && !partition.lock().has_segment(&segment.path))
}

fn check_range(shard: &Shard, at: PartitionId, from: u64) -> Result<u64> {
    let partition = shard.partition(at)?;
    let partition = partition.lock();
    let (start, end) = (partition.start(), partition.end());
    if from < start || from > end {
        return Err(out_of_range(from, start, end));
    }
    Ok(end)
}

/// Runs what blocks where it may.
pub(crate) async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(_) => Err(Error::internal("work in the background panicked")),
    }
}
