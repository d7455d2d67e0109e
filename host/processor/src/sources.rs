//! How far event time is in the partitions from which a function's internal topic is filled, and who knows.
//!
//! Tasks that move events there say with each of them how far time is in all source partitions: as far as in the
//! one furthest behind, of those that aren't idle ([`crate::origin`]). That is decided once, from what was sequenced
//! before, and lies in the topic from then on; so those who read it, now or in a replay, need to know neither
//! the source partitions nor the clock. A partition of the topic that gets no events for a while gets marks.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemill_types::Timestamp;

/// Nothing yet.
pub(crate) const NONE: i64 = i64::MIN;

/// A partition of the internal topic gets at most one mark of a source partition in this time.
const EVERY: Duration = Duration::from_secs(1);

/// The source partitions of one input that is keyed by a pointer, shared by the tasks that move its events.
#[derive(Debug)]
pub(crate) struct Sources {
    idle: i64,
    every: i64,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    places: Vec<Place>,
    /// When the first event of any of them was received.
    first: i64,
    told: Vec<Told>,
}

/// One source partition.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Highest event time of what was moved, not counting those from too far in the future.
    seen: i64,
    /// When the last event moved was received.
    last: i64,
    /// Whether everything it has was moved.
    quiet: bool,
}

/// What a partition of the internal topic knows, and since when.
#[derive(Clone, Copy, Debug)]
struct Told {
    reached: i64,
    at: i64,
}

/// What a transaction tells partitions of the internal topic, once it is sequenced.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tale {
    /// How far time is, by partition.
    pub(crate) told: Vec<(u32, i64)>,
    /// When it was made up.
    pub(crate) at: i64,
}

impl Sources {
    /// Source partitions with what is known of them (highest event time, receipt of the last event), and how far
    /// time is as those who read the internal topic know.
    pub(crate) fn new(
        idle: Duration,
        sources: impl IntoIterator<Item = (Option<Timestamp>, Option<Timestamp>)>,
        known: impl IntoIterator<Item = Option<Timestamp>>,
    ) -> Self {
        let micros = |time: Option<Timestamp>| time.map_or(NONE, Timestamp::micros);
        let places = sources.into_iter().map(|(seen, last)| Place {
            seen: micros(seen),
            last: micros(last),
            quiet: false,
        });
        let places: Vec<Place> = places.collect();
        let received = places.iter().map(|place| place.last);
        let first = received.filter(|last| *last != NONE).min();
        let told = known.into_iter().map(|reached| Told {
            reached: micros(reached),
            at: NONE,
        });
        let whole = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        Self {
            idle: whole(idle),
            every: whole(EVERY.min(idle / 4)),
            kept: Mutex::new(Kept {
                first: first.unwrap_or(NONE),
                told: told.collect(),
                places,
            }),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far time is in the others of a source partition that are waited for; the most i64: in none.
    pub(crate) fn beside(&self, source: u32, now: i64) -> i64 {
        let kept = self.kept();
        let others = (0..).zip(&kept.places).filter(|(at, _)| *at != source);
        let awaited = others.filter(|(_, place)| !self.is_idle(&kept, place, now));
        let least = awaited.map(|(_, place)| place.seen).min();
        least.unwrap_or(i64::MAX)
    }

    /// The partitions of the internal topic that are to be told how far time is beside a transaction that tells
    /// those of `told` anyway.
    pub(crate) fn to_tell(&self, told: &[(u32, i64)], reached: i64, now: i64) -> Vec<u32> {
        let kept = self.kept();
        let mut is_told = vec![false; kept.told.len()];
        for (partition, _) in told {
            if let Some(told) = is_told.get_mut(*partition as usize) {
                *told = true;
            }
        }
        let all = (0..).zip(kept.told.iter().zip(is_told));
        let waits = all.filter(|(_, (known, is_told))| {
            !is_told && known.reached < reached && now >= known.at.saturating_add(self.every)
        });
        waits.map(|(partition, _)| partition).collect()
    }

    /// A source partition has events to move.
    pub(crate) fn is_busy(&self, source: u32) {
        if let Some(place) = self.kept().places.get_mut(source as usize) {
            place.quiet = false;
        }
    }

    /// A source partition has nothing to move. Answers what is to be told now.
    pub(crate) fn is_quiet(&self, source: u32, now: i64) -> Option<Tale> {
        let mut kept = self.kept();
        if let Some(place) = kept.places.get_mut(source as usize) {
            place.quiet = true;
        }
        let reached = self.reached(&kept, now);
        drop(kept);
        let told = self.to_tell(&[], reached, now).into_iter();
        let told: Vec<(u32, i64)> = told.map(|partition| (partition, reached)).collect();
        (!told.is_empty()).then_some(Tale { told, at: now })
    }

    /// A transaction that moved events of a source partition, or told something, was sequenced.
    pub(crate) fn moved(
        &self,
        source: u32,
        (seen, last): (Option<Timestamp>, Option<Timestamp>),
        tale: &Tale,
    ) {
        let mut kept = self.kept();
        if let Some(place) = kept.places.get_mut(source as usize) {
            place.seen = seen.map_or(place.seen, Timestamp::micros);
            place.last = last.map_or(place.last, Timestamp::micros);
            if kept.first == NONE {
                kept.first = last.map_or(NONE, Timestamp::micros);
            }
        }
        for (partition, reached) in &tale.told {
            if let Some(known) = kept.told.get_mut(*partition as usize) {
                known.reached = known.reached.max(*reached);
                known.at = known.at.max(tale.at);
            }
        }
    }

    /// The next moment at which there is something to tell although nothing is moved.
    pub(crate) fn next(&self, now: i64) -> Option<i64> {
        let kept = self.kept();
        let reached = self.reached(&kept, now);
        let waits = kept.told.iter().filter(|known| known.reached < reached);
        if let Some(at) = waits.map(|known| known.at.saturating_add(self.every)).min() {
            return Some(at);
        }
        // Those that hold time back have to be idle, all of them.
        let awaited = kept.places.iter();
        let awaited = awaited.filter(|place| !self.is_idle(&kept, place, now));
        let holding: Vec<&Place> = awaited.filter(|place| place.seen == reached).collect();
        let moments = holding.iter().map(|place| {
            let since = since(&kept, place);
            (place.quiet && since != NONE).then(|| since.saturating_add(self.idle))
        });
        let at = moments.collect::<Option<Vec<i64>>>()?.into_iter().max()?;
        (self.reached(&kept, at) > reached).then_some(at)
    }

    fn is_idle(&self, kept: &Kept, place: &Place, now: i64) -> bool {
        let since = since(kept, place);
        place.quiet && since != NONE && now >= since.saturating_add(self.idle)
    }

    /// As far as in the one furthest behind, or where nobody is waited for, in the one furthest ahead.
    fn reached(&self, kept: &Kept, now: i64) -> i64 {
        let awaited = kept.places.iter();
        let awaited = awaited.filter(|place| !self.is_idle(kept, place, now));
        let least = awaited.map(|place| place.seen).min();
        let most = kept.places.iter().map(|place| place.seen).max();
        least.or(most).unwrap_or(NONE)
    }
}

/// Since when a place has had nothing, should it have nothing now.
fn since(kept: &Kept, place: &Place) -> i64 {
    match place.last {
        NONE => kept.first,
        last => last,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn at(micros: i64) -> Option<Timestamp> {
        Some(Timestamp::from_micros(micros))
    }

    fn two() -> Sources {
        Sources::new(Duration::from_secs(5), [(None, None); 2], [None; 3])
    }

    fn tale(told: &[(u32, i64)], at: i64) -> Tale {
        let told = told.to_vec();
        Tale { told, at }
    }

    #[test]
    fn the_source_furthest_behind_is_waited_for() {
        let sources = two();
        assert_eq!(sources.beside(0, 0), NONE, "nothing is known of the other");
        sources.moved(0, (at(100), at(0)), &Tale::default());
        assert_eq!(sources.beside(1, 0), 100);
        assert_eq!(sources.beside(0, 0), NONE);
        sources.moved(1, (at(40), at(1)), &Tale::default());
        assert_eq!(sources.beside(0, 1), 40);
    }

    #[test]
    fn one_that_is_idle_holds_nothing_back_but_one_that_is_behind_does() {
        let sources = two();
        assert_eq!((sources.is_quiet(1, 0), sources.next(0)), (None, None));
        sources.moved(0, (at(25), at(SECOND)), &tale(&[(2, NONE)], SECOND));
        assert_eq!(sources.is_quiet(0, 4 * SECOND), None);
        assert_eq!(sources.next(4 * SECOND), Some(6 * SECOND));
        assert_eq!(sources.beside(0, 5 * SECOND), NONE);
        assert_eq!(sources.beside(0, 6 * SECOND), i64::MAX);
        let told = sources.is_quiet(0, 6 * SECOND).expect("it is to be told");
        assert_eq!(told, tale(&[(0, 25), (1, 25), (2, 25)], 6 * SECOND));
        sources.moved(0, (None, None), &told);
        assert_eq!(sources.is_quiet(0, 7 * SECOND), None, "everybody knows");
        assert_eq!(sources.next(7 * SECOND), None, "nothing will change");
        sources.is_busy(1);
        assert_eq!(sources.beside(0, 9 * SECOND), NONE, "it has something now");
    }

    #[test]
    fn what_was_moved_is_told_to_partitions_without_events_now_and_then() {
        let sources = two();
        sources.moved(1, (at(90), at(0)), &Tale::default());
        let mine = [(1, 50)];
        assert_eq!(sources.to_tell(&mine, 50, SECOND), [0, 2]);
        let told = tale(&[(0, 50), (1, 50), (2, 50)], SECOND);
        sources.moved(0, (at(50), at(SECOND)), &told);
        let soon = SECOND + SECOND / 2;
        assert_eq!(sources.to_tell(&mine, 60, soon), [0; 0]);
        sources.moved(0, (at(60), at(soon)), &tale(&[(1, 60)], soon));
        assert_eq!(sources.is_quiet(0, soon), None);
        assert_eq!(
            sources.next(soon),
            Some(2 * SECOND),
            "those that weren't told"
        );
        let told = sources.is_quiet(0, 2 * SECOND).expect("it is to be told");
        assert_eq!(told.told, [(0, 60), (2, 60)]);
    }

    #[test]
    fn what_is_known_from_before_is_not_told_again() {
        let known = [at(30), at(50), None];
        let sources = [(at(30), at(0)), (at(50), at(SECOND))];
        let sources = Sources::new(Duration::from_secs(5), sources, known);
        assert_eq!(sources.is_quiet(0, SECOND).expect("one").told, [(2, 30)]);
        sources.is_quiet(1, SECOND);
        assert_eq!(sources.beside(1, 5 * SECOND), i64::MAX, "the first is idle");
        assert_eq!(
            sources.is_quiet(1, 9 * SECOND).expect("all are idle").told,
            [(0, 50), (2, 50)],
            "as far as in the one furthest ahead"
        );
    }
}
