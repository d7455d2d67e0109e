//! Events of a partition that are appended and not yet durable, for those who may run ahead: whatever
//! they commit lands behind these events in the same journal, or not at all.

use super::{Partition, Source, Taken};
use crate::ReadLimit;
use crate::ahead::{Hold, Pace};
use std::collections::VecDeque;
use std::sync::Arc;
use tidemill_types::Batch;
use tokio::sync::watch;

/// What followers of a partition see beyond its durable end.
pub(super) struct Ahead {
    /// One behind the other, from some offset on up to the appended end. While frames that were sequenced
    /// before anybody followed are on their way, that offset lies behind the durable end, and nothing
    /// of this is read.
    batches: VecDeque<Batch>,
    /// The end that followers may read to.
    moved: watch::Sender<u64>,
    followers: Vec<Arc<Pace>>,
}

impl Partition {
    /// Somebody follows from now on: the end to read to as it moves. `None` when the topic is deleted.
    pub(super) fn follow(&mut self, pace: &Arc<Pace>) -> Option<watch::Receiver<u64>> {
        self.moved.as_ref()?;
        let end = self.end;
        let ahead = self.ahead.get_or_insert_with(|| {
            Box::new(Ahead {
                batches: VecDeque::new(),
                moved: watch::Sender::new(end),
                followers: Vec::new(),
            })
        });
        ahead.followers.push(pace.clone());
        Some(ahead.moved.subscribe())
    }

    /// The follower is gone.
    pub(crate) fn unfollow(&mut self, pace: &Arc<Pace>) {
        if let Some(ahead) = &mut self.ahead {
            ahead.followers.retain(|other| !Arc::ptr_eq(other, pace));
            if ahead.followers.is_empty() {
                self.ahead = None;
            }
        }
    }

    /// Whether anybody follows.
    pub(crate) fn is_followed(&self) -> bool {
        self.ahead.is_some()
    }

    /// Events that were appended, in order.
    pub(crate) fn append(&mut self, batch: Batch, hold: &Hold) {
        if let Some(ahead) = &mut self.ahead {
            ahead.batches.push_back(batch);
            if ahead.tell(self.end) {
                ahead.followers.iter().for_each(|pace| hold.begin(pace));
            }
        }
    }

    /// The durable end has moved.
    pub(super) fn let_ahead_go(&mut self) {
        if let Some(ahead) = &mut self.ahead {
            let end = self.end;
            while ahead
                .batches
                .pop_front_if(|batch| end_of(batch) <= end)
                .is_some()
            {}
            ahead.tell(end);
        }
    }

    /// Events from `from` on up to the appended end, if they are in memory.
    pub(crate) fn read_ahead(&mut self, from: u64, limit: ReadLimit) -> Option<Taken> {
        let mut taken = match self.source(from, limit) {
            Source::Memory(taken) => taken,
            Source::End => Taken::new(from, limit),
            _ => return None,
        };
        let batches = self.ahead.iter().flat_map(|ahead| &ahead.batches);
        for batch in batches {
            let next = taken.next;
            if taken.is_full() || first_of(batch) > next {
                break;
            }
            if end_of(batch) > next {
                taken.take(batch);
            }
        }
        Some(taken)
    }
}

impl Ahead {
    /// Tells followers where they may read to, if that has moved: whether it has.
    fn tell(&self, durable: u64) -> bool {
        let contiguous = self
            .batches
            .front()
            .is_some_and(|batch| first_of(batch) <= durable);
        let end = match self.batches.back() {
            Some(last) if contiguous => end_of(last),
            _ => durable,
        };
        self.moved.send_if_modified(|told| {
            let moves = end > *told;
            *told = end.max(*told);
            moves
        })
    }
}

fn first_of(batch: &Batch) -> u64 {
    batch.offset(0)
}

fn end_of(batch: &Batch) -> u64 {
    batch.offset(batch.len() - 1) + 1
}
