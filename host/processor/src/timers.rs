//! The order of a task's timers, in memory. What is set lies in the state store; this is rebuilt from it
//! when the task starts.

use crate::parked::Parked;
use crate::stored::{StoredTimer, split_entry};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use tidemill_types::{Error, Result};
use tidemill_wasm::Clock;

/// A timer in its place: when it is due, its event key, its tag. They take their turns in this order.
pub(crate) type Turn = (i64, Bytes, Bytes);

/// A timer that was set or is gone, as a transaction has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TimerChange {
    pub(crate) key: Bytes,
    pub(crate) tag: Bytes,
    /// `None`: gone.
    pub(crate) set: Option<(Clock, i64)>,
}

/// Timers of one task that are set.
#[derive(Default, Debug)]
pub(crate) struct Timers {
    event: BTreeSet<Turn>,
    processing: BTreeSet<Turn>,
    by_name: BTreeMap<(Bytes, Bytes), (Clock, i64)>,
}

impl Timers {
    /// What the state store has: keys and values of the slot of timers.
    ///
    /// # Errors
    /// `Corrupt` when it isn't what a task writes.
    pub(crate) fn load(stored: Vec<(Bytes, Bytes)>) -> Result<Self> {
        let mut timers = Self::default();
        for (place, value) in stored {
            let timer = StoredTimer::read(&value)?;
            let (key, tag) = split_entry(&place)
                .ok_or_else(|| Error::corrupt("a stored timer has no key and tag"))?;
            timers.apply(TimerChange {
                key: key.into(),
                tag: Bytes::copy_from_slice(tag),
                set: Some((timer.clock, timer.due)),
            });
        }
        Ok(timers)
    }

    /// How many are set.
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// How many are set once these changes are made.
    pub(crate) fn len_after(&self, changes: &[TimerChange]) -> usize {
        let mut last = BTreeMap::new();
        for change in changes {
            last.insert((&change.key, &change.tag), change.set.is_some());
        }
        last.into_iter().fold(self.len(), |len, ((key, tag), set)| {
            let was = self.by_name.contains_key(&(key.clone(), tag.clone()));
            len + usize::from(set && !was) - usize::from(was && !set)
        })
    }

    fn of(&mut self, clock: Clock) -> &mut BTreeSet<Turn> {
        match clock {
            Clock::Event => &mut self.event,
            Clock::Processing => &mut self.processing,
        }
    }

    /// Follows a committed change.
    pub(crate) fn apply(&mut self, change: TimerChange) {
        let TimerChange { key, tag, set } = change;
        let name = (key.clone(), tag.clone());
        let before = match set {
            Some(set) => self.by_name.insert(name, set),
            None => self.by_name.remove(&name),
        };
        if let Some((clock, due)) = before {
            self.of(clock).remove(&(due, key.clone(), tag.clone()));
        }
        if let Some((clock, due)) = set {
            self.of(clock).insert((due, key, tag));
        }
    }

    /// When the first of a time is due whose key has nothing parked.
    pub(crate) fn first(&self, clock: Clock, parked: &Parked) -> Option<i64> {
        let turns = match clock {
            Clock::Event => &self.event,
            Clock::Processing => &self.processing,
        };
        let mut free = turns.iter().filter(|(_, key, _)| !parked.holds(Some(key)));
        free.next().map(|(due, ..)| *due)
    }

    /// The next ones whose turn it is: at most `most` of one time, and of each key one, so that what one of
    /// them does to others of its key is done before theirs. Those of a key that has events parked wait for
    /// these as they would have if they hadn't failed: until the first at whose turn they are due.
    pub(crate) fn due(
        &self,
        watermark: i64,
        processing: i64,
        most: usize,
        parked: &Parked,
    ) -> Option<(Clock, Vec<Turn>)> {
        let waits = |clock: Clock, due: i64, key: &Bytes| {
            let until = parked.first_of(key).map(|first| match clock {
                Clock::Event => first.watermark,
                Clock::Processing => first.received.micros(),
            });
            until.is_some_and(|until| due > until)
        };
        let times = [
            (Clock::Event, &self.event, watermark),
            (Clock::Processing, &self.processing, processing),
        ];
        times.into_iter().find_map(|(clock, turns, by)| {
            let mut keys = BTreeSet::new();
            let due = turns
                .iter()
                .take_while(|(due, ..)| *due <= by)
                .filter(|(due, key, _)| !waits(clock, *due, key))
                .take(most)
                .take_while(|(_, key, _)| keys.insert(key.clone()));
            let due: Vec<Turn> = due.cloned().collect();
            (!due.is_empty()).then_some((clock, due))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::note::Floor;
    use crate::parked::{ParkedChange, Place};
    use crate::stored::entry_key;
    use tidemill_types::Timestamp;

    fn set(key: &'static str, tag: &'static str, set: Option<(Clock, i64)>) -> TimerChange {
        TimerChange {
            key: key.into(),
            tag: tag.into(),
            set,
        }
    }

    fn due(timers: &Timers, watermark: i64, processing: i64) -> Vec<String> {
        let due = timers.due(watermark, processing, 10, &Parked::default());
        let shown = due.map(|(clock, turns)| {
            let turn = |(due, key, tag): Turn| format!("{clock:?} {due} {key:?} {tag:?}");
            turns.into_iter().map(turn).collect()
        });
        shown.unwrap_or_default()
    }

    #[test]
    fn they_take_turns_by_time_then_key_then_tag_and_one_of_a_key() {
        let mut timers = Timers::default();
        let event = |due| Some((Clock::Event, due));
        for change in [
            set("b", "y", event(10)),
            set("a", "z", event(10)),
            set("b", "x", event(10)),
            set("c", "x", event(20)),
            set("a", "w", Some((Clock::Processing, 5))),
            set("d", "x", event(10)),
            set("d", "x", event(30)),
            set("e", "x", event(1)),
            set("e", "x", None),
            set("e", "never", None),
        ] {
            timers.apply(change);
        }
        assert_eq!(timers.len(), 6);
        let changes = [
            set("a", "z", None),
            set("a", "z", event(1)),
            set("b", "x", None),
            set("f", "x", event(1)),
            set("f", "y", event(1)),
            set("f", "z", None),
        ];
        assert_eq!(timers.len_after(&changes), 7);
        let none = Parked::default();
        assert_eq!(timers.first(Clock::Event, &none), Some(10));
        assert_eq!(timers.first(Clock::Processing, &none), Some(5));
        assert_eq!(due(&timers, 9, 4), [""; 0]);
        assert_eq!(
            due(&timers, 25, 99),
            [r#"Event 10 b"a" b"z""#, r#"Event 10 b"b" b"x""#],
            "the second of key b waits"
        );
        timers.apply(set("a", "z", None));
        timers.apply(set("b", "x", None));
        timers.apply(set("b", "y", None));
        assert_eq!(due(&timers, 19, 99), [r#"Processing 5 b"a" b"w""#]);
        assert_eq!(due(&timers, 99, 99).len(), 2);
    }

    #[test]
    fn those_of_a_parked_key_wait_for_its_events() {
        let mut timers = Timers::default();
        let event = |due| Some((Clock::Event, due));
        timers.apply(set("a", "early", event(10)));
        timers.apply(set("a", "late", event(20)));
        timers.apply(set("b", "x", event(30)));
        timers.apply(set("a", "clock", Some((Clock::Processing, 6))));
        let mut parked = Parked::default();
        let parks = |number, watermark, received| ParkedChange {
            number,
            place: Some(Place {
                key: Some("a".into()),
                attempts: 1,
                due: 0,
                floor: Floor::new(watermark, Timestamp::from_micros(received)),
                bytes: 0,
            }),
        };
        parked.apply(parks(1, 15, 5));
        parked.apply(parks(2, 25, 7));
        assert_eq!(timers.first(Clock::Event, &parked), Some(30));
        assert_eq!(timers.first(Clock::Processing, &parked), None);
        let tags = |timers: &Timers, parked: &Parked| {
            let due = timers.due(99, 99, 10, parked);
            let tag = |(_, _, tag): Turn| String::from_utf8(tag.to_vec()).expect("text");
            due.map_or_else(Vec::new, |(_, turns)| turns.into_iter().map(tag).collect())
        };
        assert_eq!(tags(&timers, &parked), ["early", "x"]);
        timers.apply(set("a", "early", None));
        timers.apply(set("b", "x", None));
        assert_eq!(tags(&timers, &parked), [""; 0]);
        parked.apply(ParkedChange {
            number: 1,
            place: None,
        });
        assert_eq!(tags(&timers, &parked), ["late"]);
        timers.apply(set("a", "late", None));
        assert_eq!(tags(&timers, &parked), ["clock"]);
    }

    #[test]
    fn they_are_rebuilt_from_what_is_stored() {
        let timer = StoredTimer {
            clock: Clock::Processing,
            due: 7,
            payload: None,
        };
        let stored = |key: &[u8]| (Bytes::copy_from_slice(key), timer.head().to_vec().into());
        let place = entry_key(b"a\0", b"tag");
        let timers = Timers::load(vec![stored(&place)]).expect("its own bytes");
        assert_eq!(due(&timers, 0, 7), [r#"Processing 7 b"a\0" b"tag""#]);
        assert!(Timers::load(vec![stored(b"a")]).is_err());
    }
}
