//! Several inputs read as one: the events of one partition number in the order in which they were committed,
//! and those of one commit by their input's place in the manifest, then by offset. So the order depends on
//! what was committed and on nothing else, neither on when a task looked nor on where its batches end.
//!
//! An event may be taken only when no input can still bring one that comes before it. An input of which
//! nothing is at hand is therefore looked at again, up to a commit that was sequenced before the look.
//! Knows nothing of the log: it is told what there is.

use std::collections::VecDeque;
use tidemill_log::{Read, ReadLimit};
use tidemill_types::{Batch, CommitSeq, PartitionId};

/// Up to here an input has shown everything that brings nothing any more.
const OVER: CommitSeq = CommitSeq(u64::MAX);

/// Where a task stands in each of its inputs: the offset of the next event to read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Positions {
    first: u64,
    /// Those of the further inputs; most functions have none.
    others: Vec<u64>,
}

impl Positions {
    /// Of a task with one input.
    pub(crate) fn one(first: u64) -> Self {
        Self {
            first,
            others: Vec::new(),
        }
    }

    /// One after the other.
    pub(crate) fn of(offsets: impl IntoIterator<Item = u64>) -> Self {
        let mut offsets = offsets.into_iter();
        Self {
            first: offsets.next().unwrap_or_default(),
            others: offsets.collect(),
        }
    }

    /// In the first input.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// In an input, by its place in the manifest.
    pub(crate) fn get(&self, input: usize) -> u64 {
        match input {
            0 => self.first,
            input => self.others.get(input - 1).copied().unwrap_or_default(),
        }
    }

    /// The same with another place in one input.
    #[must_use]
    pub(crate) fn with(&self, input: usize, offset: u64) -> Self {
        let mut changed = self.clone();
        match input {
            0 => changed.first = offset,
            input => {
                if let Some(place) = changed.others.get_mut(input - 1) {
                    *place = offset;
                }
            }
        }
        changed
    }

    /// In all of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }
}

/// Events of one partition number, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gathered {
    /// The events, in one or more runs.
    pub(crate) batches: Vec<Batch>,
    /// Which input each run is of; empty where there is one input.
    pub(crate) inputs: Vec<usize>,
    /// Where to go on behind them.
    pub(crate) next: Positions,
}

impl Gathered {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.iter().all(Batch::is_empty)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.batches.iter().map(Batch::len).sum()
    }
}

impl From<Read> for Gathered {
    fn from(read: Read) -> Self {
        Self {
            next: Positions::one(read.next),
            inputs: Vec::new(),
            batches: read.batches,
        }
    }
}

/// What came of gathering.
#[derive(Debug)]
pub(crate) enum Next {
    /// These.
    Events(Gathered),
    /// Nothing; where to go on, which may be behind gaps.
    Nothing(Positions),
    /// What [`Merge::wanted`] says has to be fetched first.
    Fetch,
}

/// Reads several partitions in commit order.
pub(crate) struct Merge {
    lanes: Vec<Lane>,
    wanted: usize,
}

struct Lane {
    at: PartitionId,
    /// Behind what is at hand.
    next: u64,
    /// Runs of events that weren't taken yet; none is empty.
    ahead: VecDeque<Batch>,
    /// Of commits up to this one, nothing lies at `next` or behind.
    through: CommitSeq,
}

impl Lane {
    fn front(&self) -> Option<CommitSeq> {
        self.ahead.front().map(|batch| batch.commit(0))
    }

    fn position(&self) -> u64 {
        self.ahead
            .front()
            .map_or(self.next, |batch| batch.offset(0))
    }
}

impl Merge {
    /// Goes on from these offsets.
    pub(crate) fn new(lanes: impl IntoIterator<Item = (PartitionId, u64)>) -> Self {
        let lanes = lanes.into_iter().map(|(at, next)| Lane {
            at,
            next,
            ahead: VecDeque::new(),
            through: CommitSeq(0),
        });
        Self {
            lanes: lanes.collect(),
            wanted: 0,
        }
    }

    /// The input that has to be fetched from, and from which offset on.
    pub(crate) fn wanted(&self) -> (usize, PartitionId, u64) {
        let lane = &self.lanes[self.wanted];
        (self.wanted, lane.at, lane.next)
    }

    /// Takes what was fetched of the wanted input.
    pub(crate) fn fetched(&mut self, read: Read) {
        // That it brought nothing says nothing: the next look says up to which commit.
        self.lanes[self.wanted].found(read, None);
    }

    /// The wanted input goes on at an offset.
    pub(crate) fn skip(&mut self, to: u64) {
        self.lanes[self.wanted].next = to;
    }

    /// The wanted input brings nothing any more.
    pub(crate) fn end(&mut self) {
        self.lanes[self.wanted].through = OVER;
    }

    /// Gathers what a limit allows. `look` says what a partition has from an offset on, if that is at hand,
    /// and up to which commit it has shown everything.
    pub(crate) fn gather(
        &mut self,
        limit: ReadLimit,
        look: &mut dyn FnMut(PartitionId, u64) -> Option<(CommitSeq, Read)>,
    ) -> Next {
        let mut left = limit;
        let mut gathered = Gathered::default();
        let mut looked = vec![false; self.lanes.len()];
        while left.events > 0 && left.bytes > 0 {
            if let Some(blind) = self.blind(&looked) {
                let lane = &mut self.lanes[blind];
                let Some((through, read)) = look(lane.at, lane.next) else {
                    self.wanted = blind;
                    if gathered.batches.is_empty() {
                        return Next::Fetch;
                    }
                    break;
                };
                looked[blind] |= !lane.found(read, Some(through));
            } else if !self.take(&mut left, &mut gathered) {
                break;
            }
        }
        gathered.next = Positions::of(self.lanes.iter().map(Lane::position));
        match gathered.batches.is_empty() {
            true => Next::Nothing(gathered.next),
            false => Next::Events(gathered),
        }
    }

    /// The event that is next as far as is known: its commit and its input.
    fn first(&self) -> Option<(CommitSeq, usize)> {
        let fronts = self.lanes.iter().enumerate();
        fronts
            .filter_map(|(input, lane)| Some((lane.front()?, input)))
            .min()
    }

    /// An input that has to be looked at first: it may have something earlier, or nothing is known at all.
    fn blind(&self, looked: &[bool]) -> Option<usize> {
        let first = self.first().map(|(commit, _)| commit);
        let mut lanes = self.lanes.iter().zip(looked);
        lanes.position(|(lane, looked)| {
            let unknown = !looked && lane.through < OVER;
            lane.ahead.is_empty() && first.map_or(unknown, |commit| lane.through < commit)
        })
    }

    /// Takes the run of events of one input that come before all others; answers whether there was one.
    fn take(&mut self, left: &mut ReadLimit, gathered: &mut Gathered) -> bool {
        let Some((_, input)) = self.first() else {
            return false;
        };
        let others = self.lanes.iter().enumerate().filter(|(n, _)| *n != input);
        // The first place in the order that isn't this input's for sure.
        let bound = others
            .map(|(n, lane)| match lane.front() {
                Some(commit) => (commit, n),
                None => (CommitSeq(lane.through.0.saturating_add(1)), 0),
            })
            .min();
        let lane = &mut self.lanes[input];
        let Some(batch) = lane.ahead.pop_front() else {
            return false;
        };
        let (mut rows, mut bytes) = (1, bytes_of(&batch, 0));
        while rows < batch.len().min(left.events)
            && bytes < left.bytes
            && bound.is_none_or(|bound| (batch.commit(rows), input) < bound)
        {
            bytes += bytes_of(&batch, rows);
            rows += 1;
        }
        left.events -= rows;
        left.bytes = left.bytes.saturating_sub(bytes);
        if rows < batch.len() {
            lane.ahead.push_front(batch.slice(rows..batch.len()));
            gathered.batches.push(batch.slice(0..rows));
        } else {
            gathered.batches.push(batch);
        }
        gathered.inputs.push(input);
        true
    }
}

impl Lane {
    /// Takes what a look brought, which showed everything up to a commit if it says so; answers whether
    /// there was anything.
    fn found(&mut self, read: Read, through: Option<CommitSeq>) -> bool {
        let moved = read.next > self.next;
        self.next = self.next.max(read.next);
        let batches = read.batches.into_iter().filter(|batch| !batch.is_empty());
        self.ahead.extend(batches);
        if let Some(through) = through.filter(|_| !moved) {
            self.through = self.through.max(through);
        }
        moved
    }
}

fn bytes_of(batch: &Batch, row: usize) -> usize {
    let head = batch.head(row);
    head.key_len as usize + head.value_len as usize + head.headers_len as usize
}

#[cfg(test)]
mod tests;
