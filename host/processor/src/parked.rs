//! The order of a task's parked events, in memory. The events lie in the state store, in a scope beside that
//! of the function's state; this is rebuilt from it when the task starts.
//!
//! An event is parked when it has to be tried again and the function's manifest says `order = "key"`, when it
//! comes behind one of its key that is parked, or when a dead letter is put back. Those of a key stand in a
//! queue: only its first is tried, the others follow in order.

mod stored;

pub(crate) use stored::{ParkedEvent, SLOT, from_key, key_of, scope};

use crate::note::Floor;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use tidemill_state::{Change, Changes, Scope, Store};
use tidemill_types::{Error, FunctionId, Result, Timestamp, limits};

/// What is known of a parked event without reading it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// Its key; events without one stand alone.
    pub(crate) key: Option<Bytes>,
    /// How often it failed.
    pub(crate) attempts: u32,
    /// When it is tried again, once it is its key's first.
    pub(crate) due: i64,
    /// Watermark at its turn, and when it was received.
    pub(crate) floor: Floor,
    /// Bytes it takes in the state store.
    pub(crate) bytes: u64,
}

/// A change of what is parked, as a transaction has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ParkedChange {
    /// Its number: those parked later have higher ones.
    pub(crate) number: u64,
    /// `None`: gone.
    pub(crate) place: Option<Place>,
}

/// Parked events of one task.
#[derive(Default, Debug)]
pub(crate) struct Parked {
    places: BTreeMap<u64, Place>,
    queues: HashMap<Bytes, BTreeSet<u64>>,
    /// When the first of each queue is due.
    due: BTreeSet<(i64, u64)>,
    bytes: u64,
}

impl Parked {
    /// What the state store has. Events that another version failed on are due at once, as if they hadn't.
    ///
    /// # Errors
    /// `Corrupt` when it isn't what a task writes.
    pub(crate) fn load(stored: &[(Bytes, Bytes)], version: u32) -> Result<Self> {
        let mut parked = Self::default();
        for (key, value) in stored {
            let number = from_key(key)?;
            let event = ParkedEvent::read(value)?;
            let mut place = event.place();
            if event.version != version {
                (place.attempts, place.due) = (0, i64::MIN);
            }
            let place = Some(place);
            parked.apply(ParkedChange { number, place });
        }
        Ok(parked)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The number for the next one.
    pub(crate) fn next(&self) -> u64 {
        self.places.last_key_value().map_or(0, |(last, _)| last + 1)
    }

    /// Whether so many more events of so many bytes may be parked.
    pub(crate) fn has_room(&self, events: usize, bytes: u64) -> bool {
        self.len() + events <= limits::PARKED_EVENTS
            && self.bytes + bytes <= limits::PARKED_BYTES as u64
    }

    /// Whether later events of a key have to wait.
    pub(crate) fn holds(&self, key: Option<&[u8]>) -> bool {
        key.is_some_and(|key| self.queues.contains_key(key))
    }

    /// Times of the first event of a key.
    pub(crate) fn first_of(&self, key: &[u8]) -> Option<Floor> {
        let first = self.queues.get(key)?.first()?;
        self.places.get(first).map(|place| place.floor)
    }

    /// How often an event failed.
    pub(crate) fn attempts(&self, number: u64) -> u32 {
        self.places.get(&number).map_or(0, |place| place.attempts)
    }

    /// When the first one is due.
    pub(crate) fn first_due(&self) -> Option<i64> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Those to try now: of each key that is due its first, and unless `one` is asked for, those behind it,
    /// in order and side by side.
    pub(crate) fn due(&self, now: i64, one: bool, (most, bytes): (usize, usize)) -> Vec<u64> {
        let (mut taken, mut left) = (Vec::new(), bytes as u64);
        let mut take = |number: u64| {
            let bytes = self.places.get(&number).map_or(0, |place| place.bytes);
            if taken.len() >= most || (!taken.is_empty() && bytes > left) {
                return ControlFlow::Break(());
            }
            left = left.saturating_sub(bytes);
            taken.push(number);
            ControlFlow::Continue(())
        };
        for (_, first) in self.due.range(..=(now, u64::MAX)) {
            let key = self.places.get(first).and_then(|place| place.key.as_ref());
            let queue = key.filter(|_| !one).and_then(|key| self.queues.get(key));
            let filled = match queue {
                Some(queue) => queue.iter().copied().try_for_each(&mut take),
                None => take(*first),
            };
            if filled.is_break() {
                break;
            }
        }
        taken
    }

    /// Times of the first one once these changes are made.
    pub(crate) fn floor_after(&self, changes: &[ParkedChange]) -> Option<Floor> {
        let changed = |number: u64| changes.iter().rev().find(|change| change.number == number);
        let kept = self.places.iter().find_map(|(number, place)| {
            let place = match changed(*number) {
                Some(change) => change.place.as_ref(),
                None => Some(place),
            };
            place.map(|place| (*number, place.floor))
        });
        let set = changes
            .iter()
            .filter_map(|change| Some((change.number, change.place.as_ref()?.floor)));
        let first = kept
            .into_iter()
            .chain(set)
            .min_by_key(|(number, _)| *number);
        first.map(|(_, floor)| floor)
    }

    /// Follows a committed change.
    pub(crate) fn apply(&mut self, change: ParkedChange) {
        let ParkedChange { number, place } = change;
        if let Some(before) = self.places.remove(&number) {
            self.leave(number, &before);
        }
        let Some(place) = place else { return };
        self.bytes += place.bytes;
        if let Some(key) = &place.key {
            let queue = self.queues.entry(key.clone()).or_default();
            if let Some(first) = queue.first().copied()
                && let Some(front) = self.places.get(&first)
            {
                self.due.remove(&(front.due, first));
            }
            queue.insert(number);
        }
        let key = place.key.clone();
        self.places.insert(number, place);
        self.line_up(number, key.as_ref());
    }

    /// Takes one out of its queue.
    fn leave(&mut self, number: u64, place: &Place) {
        self.bytes -= place.bytes;
        self.due.remove(&(place.due, number));
        let Some(key) = &place.key else { return };
        let Some(queue) = self.queues.get_mut(key) else {
            return;
        };
        queue.remove(&number);
        if queue.is_empty() {
            self.queues.remove(key);
        } else {
            self.line_up(number, Some(key));
        }
    }

    /// Says when the first of a queue is due; one without key is its own queue.
    fn line_up(&mut self, number: u64, key: Option<&Bytes>) {
        let first = match key {
            None => Some(number),
            Some(key) => self
                .queues
                .get(key)
                .and_then(|queue| queue.first().copied()),
        };
        if let Some(first) = first
            && let Some(place) = self.places.get(&first)
        {
            self.due.insert((place.due, first));
        }
    }
}

/// Everything a scope has parked; blocks.
///
/// # Errors
/// `Unavailable` when the store can't be read.
pub(crate) fn stored_in(state: &Store, scope: Scope) -> Result<Vec<(Bytes, Bytes)>> {
    const PAGE: usize = 256;
    let mut all: Vec<(Bytes, Bytes)> = Vec::new();
    loop {
        let after = all.last().map(|(key, _)| key.clone());
        let page = state.list(scope, SLOT, b"", after.as_deref(), PAGE)?;
        let is_last = page.len() < PAGE;
        all.extend(page);
        if is_last {
            return Ok(all);
        }
        if all.len() > limits::PARKED_EVENTS * 2 {
            return Err(Error::corrupt("more is parked than may be"));
        }
    }
}

/// Changes that empty what a function's tasks have parked.
pub(crate) fn cleared(function: FunctionId, partitions: u32) -> Vec<Changes> {
    let cleared = |partition| {
        let mut changes = Changes::new(scope(Scope {
            function,
            partition,
        }));
        changes.push(Change::Clear);
        changes
    };
    (0..partitions).map(cleared).collect()
}

impl Floor {
    /// Of an event at whose turn the watermark was so.
    pub(crate) fn new(watermark: i64, received: Timestamp) -> Self {
        Self {
            watermark,
            received,
        }
    }
}

#[cfg(test)]
mod tests;
