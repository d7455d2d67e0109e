//! Compaction decided: when a partition is due, which events of it stay, which segments become one.
//! Pure; [`crate::keeper`] acts.
//!
//! An event goes if a later event of its key lies in a segment, or if it is a tombstone that has been
//! the only event of its key for long enough. Offsets and order never change. Events that aren't in
//! segments yet are neither looked at nor taken away.
//!
//! A pass reads the keys of what came since the last one (the dirty part), as many as memory allows,
//! and then writes every segment up to there again without what is outdated. Keys are kept whole: two
//! keys can't be taken for one.

use crate::Cleanup;
use crate::manifest::{Cleaned, PartitionManifest};
use crate::merging;
use crate::segment::SegmentMeta;
use std::collections::HashMap;
use std::time::Duration;
use tidemill_types::{Batch, Commits, Event, IngestTimes, Offsets, ROW_HEAD_BYTES, Timestamp};

/// Memory a key takes beside its bytes.
const KEY_BYTES: u64 = 64;
/// Times of passes are rounded up to this part of the tombstones' age, so that few stretches are kept.
const AGE_PARTS: i64 = 16;

/// What a pass over a partition is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Work {
    /// First offset that can be read.
    pub(crate) start: u64,
    /// Keys are read from here on.
    pub(crate) dirty_from: u64,
    /// Tombstones below this have been kept long enough.
    pub(crate) forget_below: u64,
}

/// What a partition needs, if it is due: enough of it is dirty, or tombstones are old enough.
pub(crate) fn due(
    partition: &PartitionManifest,
    percent: u32,
    tombstone_age: Duration,
    now: Timestamp,
) -> Option<Work> {
    let cleaned_end = partition.cleaned.last().map_or(0, |cleaned| cleaned.end);
    let dirty_from = cleaned_end.max(partition.start);
    let bytes = |segments: &mut dyn Iterator<Item = &SegmentMeta>| -> u64 {
        segments.map(|segment| segment.bytes).sum()
    };
    let all = bytes(&mut partition.segments.iter());
    let mut dirty = partition.segments.iter().filter(|it| it.end > dirty_from);
    let dirty = bytes(&mut dirty);
    let enough = dirty > 0 && u128::from(dirty) * 100 >= u128::from(all) * u128::from(percent);
    let is_old = |cleaned: &&Cleaned| match cleaned.since {
        None => true,
        Some(since) => since.micros().saturating_add(micros(tombstone_age)) <= now.micros(),
    };
    let old = partition.cleaned.iter().take_while(is_old);
    let forgets = old.clone().any(|cleaned| cleaned.since.is_some());
    (enough || forgets).then(|| Work {
        start: partition.start,
        dirty_from,
        forget_below: old.last().map_or(0, |cleaned| cleaned.end),
    })
}

/// The stretches of a partition after a pass that read keys up to `end`; `tombstones` says whether
/// any are left in what it read.
pub(crate) fn cleaned_after(
    before: &[Cleaned],
    work: Work,
    end: u64,
    tombstones: bool,
    tombstone_age: Duration,
    now: Timestamp,
) -> Vec<Cleaned> {
    let mut after: Vec<Cleaned> = Vec::new();
    let mut add = |next: Cleaned| match after.last_mut() {
        Some(last) if last.end >= next.end => {}
        Some(last) if last.since == next.since => last.end = next.end,
        _ => after.push(next),
    };
    if work.forget_below > 0 {
        add(Cleaned {
            end: work.forget_below,
            since: None,
        });
    }
    let latest = before.iter().filter_map(|cleaned| cleaned.since).max();
    before.iter().copied().for_each(&mut add);
    let since = rounded_up(now, tombstone_age);
    if end > 0 {
        add(Cleaned {
            end,
            since: tombstones.then(|| latest.map_or(since, |latest| latest.max(since))),
        });
    }
    after
}

fn rounded_up(now: Timestamp, age: Duration) -> Timestamp {
    let part = (micros(age) / AGE_PARTS).max(1);
    let up = now.micros().rem_euclid(part);
    let up = if up == 0 { 0 } else { part - up };
    Timestamp::from_micros(now.micros().saturating_add(up))
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Segments that are written again as one: neighbours that together aren't larger than one may be.
/// Where retention takes segments too, only those of one UTC day of ingest are joined, so that no event
/// stays longer because of its neighbours.
pub(crate) fn groups(
    segments: &[SegmentMeta],
    cleanup: Cleanup,
    segment_bytes: u64,
) -> Vec<&[SegmentMeta]> {
    merging::chunks(segments, |group, next| {
        let bytes: u64 = group.iter().map(|segment| segment.bytes).sum();
        bytes + next.bytes <= segment_bytes
            && (!cleanup.deletes() || group.first().is_some_and(|it| merging::one_day(it, next)))
    })
}

/// The last offset of each key of the dirty part.
#[derive(Debug)]
pub(crate) struct Keys {
    latest: HashMap<Box<[u8]>, u64>,
    bytes: u64,
    most: u64,
    /// Offset up to which keys were read.
    pub(crate) end: u64,
}

impl Keys {
    /// None yet; at most so many bytes of them.
    pub(crate) fn new(from: u64, most: u64) -> Self {
        Self {
            latest: HashMap::new(),
            bytes: 0,
            most,
            end: from,
        }
    }

    /// Takes an event's key; offsets rise. `false` when there is no room for it; the first has room.
    pub(crate) fn take(&mut self, key: Option<&[u8]>, offset: u64) -> bool {
        let Some(key) = key else {
            self.end = offset + 1;
            return true;
        };
        if let Some(latest) = self.latest.get_mut(key) {
            *latest = offset;
        } else {
            let bytes = KEY_BYTES + key.len() as u64;
            if self.bytes + bytes > self.most && !self.latest.is_empty() {
                return false;
            }
            self.bytes += bytes;
            self.latest.insert(key.into(), offset);
        }
        self.end = offset + 1;
        true
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.latest.len()
    }

    /// Whether an event stays.
    pub(crate) fn keeps(&self, work: Work, event: &Event<'_>) -> bool {
        if event.offset < work.start {
            return false;
        }
        // Events without a key have no successor.
        let Some(key) = event.row.key else {
            return true;
        };
        let forgotten = event.row.value.is_none() && event.offset < work.forget_below;
        let outdated = self
            .latest
            .get(key)
            .is_some_and(|latest| event.offset < *latest);
        !forgotten && !outdated
    }
}

/// What stayed of the dirty part: proof that no key lost its last event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Stayed {
    /// Events with a key.
    pub(crate) keyed: usize,
    /// Whether a tombstone is among them.
    pub(crate) tombstones: bool,
}

/// The events of a batch that stay.
pub(crate) fn sift(batch: &Batch, keys: &Keys, work: Work, stayed: &mut Stayed) -> Batch {
    let (mut heads, mut offsets) = (Vec::new(), Vec::new());
    let (mut times, mut commits) = (Vec::new(), Vec::new());
    for (row, event) in batch.iter().enumerate() {
        if !keys.keeps(work, &event) {
            continue;
        }
        if event.row.key.is_some() && (work.dirty_from..keys.end).contains(&event.offset) {
            stayed.keyed += 1;
            stayed.tombstones |= event.row.value.is_none();
        }
        heads.reserve(ROW_HEAD_BYTES);
        heads.extend_from_slice(&batch.head(row).to_bytes());
        offsets.push(event.offset);
        times.push(event.ingest_time);
        commits.push(event.commit);
    }
    Batch::new(
        heads.into(),
        batch.payload().clone(),
        Offsets::Each(offsets.into()),
        IngestTimes::Each(times.into()),
        Commits::Each(commits.into()),
    )
}

#[cfg(test)]
mod tests;
