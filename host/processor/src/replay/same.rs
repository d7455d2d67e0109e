//! Whether two events or two states are the same, and what they look like where they aren't.

use crate::record::Record;
use crate::stored::{Opened, Slots, TIMERS, USAGE, opened, split_entry};
use bytes::Bytes;
use std::cmp::Ordering;
use tidemill_state::{Frozen, FrozenValue, Scope};
use tidemill_types::{PartitionId, Result, RowView, Timestamp};
use tidemill_wasm::Clock;

/// Values of state compared at once.
const PAGE: usize = 1024;
/// Headers of a dead letter that say what its tries were like, not what became of the event.
const OF_TRIES: [&str; 5] = [
    "tidemill-version",
    "tidemill-attempts",
    "tidemill-error",
    "tidemill-first-failure",
    "tidemill-last-failure",
];

/// An event that a function emitted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Emitted {
    /// The topic it goes to.
    pub topic: String,
    /// The partition there.
    pub partition: u32,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its value; `None`: a tombstone.
    pub value: Option<Bytes>,
    /// Its headers.
    pub headers: Vec<(String, Bytes)>,
    /// Its time.
    pub time: Timestamp,
}

impl Emitted {
    /// A copy of a row.
    pub(crate) fn new(topic: &str, at: PartitionId, row: RowView<'_>) -> Self {
        Self {
            topic: topic.to_owned(),
            partition: at.partition,
            key: row.key.map(Bytes::copy_from_slice),
            value: row.value.map(Bytes::copy_from_slice),
            headers: row
                .headers
                .map(|(name, value)| (name.to_owned(), Bytes::copy_from_slice(value)))
                .collect(),
            time: row.time,
        }
    }

    /// Bytes of it.
    pub(crate) fn bytes(&self) -> usize {
        let headers = self.headers.iter();
        let headers: usize = headers.map(|(name, value)| name.len() + value.len()).sum();
        let part = |part: &Option<Bytes>| part.as_ref().map_or(0, Bytes::len);
        part(&self.key) + part(&self.value) + headers
    }

    /// Whether two versions said the same: the same bytes, but for what a dead letter tells of tries.
    pub(crate) fn says_the_same(&self, other: &Self) -> bool {
        let said = |event: &Self| {
            let mut headers = event.headers.clone();
            headers.retain(|(name, _)| !OF_TRIES.contains(&name.as_str()));
            headers
        };
        (
            &self.topic,
            self.partition,
            &self.key,
            &self.value,
            self.time,
        ) == (
            &other.topic,
            other.partition,
            &other.key,
            &other.value,
            other.time,
        ) && said(self) == said(other)
    }
}

/// Whether two rows have the same bytes, but for what a dead letter tells of tries.
pub(crate) fn same_row(a: RowView<'_>, b: RowView<'_>, letters: bool) -> bool {
    if (a.key, a.value, a.time) != (b.key, b.value, b.time) {
        return false;
    }
    if !letters {
        return a.headers.as_bytes() == b.headers.as_bytes();
    }
    let told = |(name, _): &(&str, &[u8])| !OF_TRIES.contains(name);
    a.headers.filter(told).eq(b.headers.filter(told))
}

/// One value of state that differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateDifference {
    /// The partition.
    pub partition: u32,
    /// Name of the slot; `timers` for timers.
    pub slot: String,
    /// The event key.
    pub key: Bytes,
    /// The key of the entry in a map, or the tag of a timer.
    pub entry: Option<Bytes>,
    /// On the left; `None`: nothing.
    pub left: Option<Bytes>,
    /// On the right.
    pub right: Option<Bytes>,
}

/// What comparing states came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StateSummary {
    /// Values that are the same.
    pub same: u64,
    /// Values that differ.
    pub different: u64,
    /// Values that only the left has.
    pub only_left: u64,
    /// Values that only the right has.
    pub only_right: u64,
    /// Some of those that differ.
    pub examples: Vec<StateDifference>,
}

impl StateSummary {
    /// Whether there is no difference.
    pub fn is_same(&self) -> bool {
        self.different + self.only_left + self.only_right == 0
    }
}

/// How far time is on a partition, in both of a function's times: what ended by then isn't there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    pub(crate) event: i64,
    pub(crate) processing: i64,
}

/// What is needed to read stored values.
pub(crate) struct Reading<'a> {
    pub(crate) record: &'a Record,
    pub(crate) slots: &'a Slots,
    pub(crate) examples: usize,
}

/// One side of a comparison, in order.
struct Side<'a> {
    frozen: &'a Frozen,
    scope: Scope,
    page: std::vec::IntoIter<FrozenValue>,
    last: Option<Bytes>,
    done: bool,
}

impl Side<'_> {
    fn next(&mut self, reading: &Reading<'_>, until: Until) -> Result<Option<FrozenValue>> {
        loop {
            for value in self.page.by_ref() {
                if reading.is_live(&value, until) {
                    return Ok(Some(value));
                }
            }
            if self.done {
                return Ok(None);
            }
            let page = self.frozen.page(self.scope, self.last.as_deref(), PAGE)?;
            self.done = page.len() < PAGE;
            self.last = page
                .last()
                .map(|value| value.place.clone())
                .or(self.last.take());
            self.page = page.into_iter();
        }
    }
}

impl Reading<'_> {
    /// Compares the states of one partition. Blocks.
    ///
    /// # Errors
    /// `Unavailable` when a store can't be read.
    pub(crate) fn compare(
        &self,
        (left, right): (&Frozen, &Frozen),
        partition: u32,
        until: Until,
        summary: &mut StateSummary,
    ) -> Result<()> {
        let scope = Scope {
            function: self.record.function(),
            partition,
        };
        let side = |frozen| Side {
            frozen,
            scope,
            page: Vec::new().into_iter(),
            last: None,
            done: false,
        };
        let (mut left, mut right) = (side(left), side(right));
        let mut pair = (left.next(self, until)?, right.next(self, until)?);
        loop {
            let order = match &pair {
                (None, None) => return Ok(()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => a.place.cmp(&b.place),
            };
            let (a, b) = match order {
                Ordering::Less => (pair.0.take(), None),
                Ordering::Greater => (None, pair.1.take()),
                Ordering::Equal => (pair.0.take(), pair.1.take()),
            };
            if a.is_some() {
                pair.0 = left.next(self, until)?;
            }
            if b.is_some() {
                pair.1 = right.next(self, until)?;
            }
            self.count(partition, a, b, summary);
        }
    }

    fn count(
        &self,
        partition: u32,
        left: Option<FrozenValue>,
        right: Option<FrozenValue>,
        summary: &mut StateSummary,
    ) {
        let counter = match (&left, &right) {
            (Some(a), Some(b)) if a.value == b.value => {
                summary.same += 1;
                return;
            }
            (Some(_), Some(_)) => &mut summary.different,
            (Some(_), None) => &mut summary.only_left,
            _ => &mut summary.only_right,
        };
        *counter += 1;
        let Some(shown) = left.as_ref().or(right.as_ref()) else {
            return;
        };
        if summary.examples.len() >= self.examples {
            return;
        }
        let is_map = shown.slot >= tidemill_state::ORDERED_SLOTS || shown.slot == TIMERS;
        let (key, entry) = match split_entry(&shown.key).filter(|_| is_map) {
            Some((key, entry)) => (key.into(), Some(Bytes::copy_from_slice(entry))),
            None => (shown.key.clone(), None),
        };
        let value = |side: &Option<FrozenValue>| {
            let side = side.as_ref()?;
            Some(Bytes::copy_from_slice(self.open(side).value))
        };
        summary.examples.push(StateDifference {
            partition,
            slot: self.name(shown.slot),
            key,
            entry,
            left: value(&left),
            right: value(&right),
        });
    }

    fn open<'v>(&self, value: &'v FrozenValue) -> Opened<'v> {
        if value.slot == TIMERS {
            return Opened {
                expires: i64::MAX,
                value: &value.value,
            };
        }
        let slot = self
            .slots
            .list
            .iter()
            .find(|slot| slot.number == value.slot);
        opened(
            self.slots.stamped,
            slot.and_then(|slot| slot.ttl),
            &value.value,
        )
    }

    fn is_live(&self, value: &FrozenValue, until: Until) -> bool {
        // How much is kept is the host's account, and what it is uncertain of depends on restarts.
        if value.slot == USAGE {
            return false;
        }
        let slot = self
            .slots
            .list
            .iter()
            .find(|slot| slot.number == value.slot);
        let until = match slot.and_then(|slot| slot.ttl) {
            None => return true,
            Some(ttl) if ttl.clock == Clock::Event => until.event,
            Some(_) => until.processing,
        };
        self.open(value).expires > until
    }

    fn name(&self, number: u16) -> String {
        if number == TIMERS {
            return "timers".into();
        }
        let known = self
            .record
            .slots
            .iter()
            .find(|(_, known)| **known == number);
        known.map_or_else(|| format!("slot {number}"), |(name, _)| name.clone())
    }
}
