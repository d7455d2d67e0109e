//! Running ahead of the disk: followers of a partition, and how long a group waits for them.
//!
//! A follower reads what is appended before it is durable. What it commits lies behind in the same
//! journal, so that after a crash either both are there, or only what it read, or neither. Nothing of it
//! can be seen from outside before its frame is durable.
//!
//! The flusher lets followers that were idle finish before it writes the events that woke them, so that an
//! event, what a function makes of it, and what the next function makes of that reach the disk with one
//! sync. It waits no longer than a sync takes: who isn't done by then goes with the next group.

use crate::sequencer::topic_not_found;
use crate::shard::Shard;
use crate::tail::Shared;
use crate::{Read, ReadLimit};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemill_types::{PartitionId, Result};
use tokio::sync::watch;

/// A reader of one partition that may run ahead of the disk. Whoever holds one must commit, in the
/// log it came from, everything that follows from what it read.
pub struct Follower {
    shard: Arc<Shard>,
    partition: Arc<Shared>,
    at: PartitionId,
    end: watch::Receiver<u64>,
    pace: Arc<Pace>,
}

/// How far a follower is with what it was woken for.
#[derive(Default)]
pub(crate) struct Pace(AtomicU64);

/// Has read everything.
const IDLE: u64 = 0;
/// Is at work, and nobody waits for it. Above it: the round in which it was woken, from 2 on.
const LATE: u64 = 1;

/// Whom the next group waits for.
#[derive(Default)]
pub(crate) struct Hold {
    awaited: Mutex<Awaited>,
    calm: Condvar,
}

#[derive(Default)]
struct Awaited {
    followers: u64,
    /// Rounds that ended before all were done.
    round: u64,
}

impl Awaited {
    fn mark(&self) -> u64 {
        self.round + 2
    }
}

impl Hold {
    /// There are new events for a follower: if it was idle, the group that has them waits for it.
    pub(crate) fn begin(&self, pace: &Pace) {
        if pace.0.load(Ordering::Acquire) != IDLE {
            return;
        }
        let mut awaited = self.awaited();
        let mark = awaited.mark();
        let woken = pace
            .0
            .compare_exchange(IDLE, mark, Ordering::AcqRel, Ordering::Acquire);
        awaited.followers += u64::from(woken.is_ok());
    }

    /// A follower has read everything, or is gone.
    fn done(&self, pace: &Pace, now: u64) {
        let mut awaited = self.awaited();
        if pace.0.swap(now, Ordering::AcqRel) == awaited.mark() {
            awaited.followers -= 1;
            if awaited.followers == 0 {
                self.calm.notify_all();
            }
        }
    }

    /// Waits until all are done, at most so long; who isn't then is waited for no more.
    pub(crate) fn wait(&self, most: Duration) {
        let awaited = self.awaited();
        if awaited.followers == 0 {
            return;
        }
        let waited = self
            .calm
            .wait_timeout_while(awaited, most, |awaited| awaited.followers > 0);
        let (mut awaited, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if awaited.followers > 0 {
            awaited.followers = 0;
            awaited.round += 1;
        }
    }

    fn awaited(&self) -> MutexGuard<'_, Awaited> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Follower {
    /// Follows a partition.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn new(shard: &Arc<Shard>, at: PartitionId) -> Result<Self> {
        let partition = shard.partition(at)?;
        let pace = Arc::new(Pace(AtomicU64::new(LATE)));
        let end = partition.follow(&pace);
        let end = end.ok_or_else(|| topic_not_found(at.topic))?;
        shard.followers.fetch_add(1, Ordering::AcqRel);
        Ok(Self {
            shard: shard.clone(),
            partition,
            at,
            end,
            pace,
        })
    }

    /// Waits until the appended end lies behind `position`, which everything before has been read and
    /// committed up to; the end.
    ///
    /// # Errors
    /// `NotFound` when the topic is deleted.
    pub async fn moved(&mut self, position: u64) -> Result<u64> {
        self.shard.hold.done(&self.pace, IDLE);
        match self.end.wait_for(|end| *end > position).await {
            Ok(end) => Ok(*end),
            Err(_) => Err(topic_not_found(self.at.topic)),
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.partition.lock().unfollow(&self.pace);
        self.shard.followers.fetch_sub(1, Ordering::AcqRel);
        self.shard.hold.done(&self.pace, LATE);
    }
}

/// See [`crate::Log::read_ahead`].
pub(crate) fn read(shard: &Shard, at: PartitionId, from: u64, limit: ReadLimit) -> Option<Read> {
    let partition = shard.partition(at).ok()?;
    let mut partition = partition.lock();
    let taken = partition.read_ahead(from, limit)?;
    Some(Read {
        end: partition.end().max(taken.next),
        batches: taken.batches,
        next: taken.next,
    })
}

#[cfg(test)]
mod tests;
