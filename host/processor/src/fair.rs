//! Whose turn it is: a queue of work of many owners, which gives each the same time. Pure; whoever runs the
//! work says how long it took.
//!
//! Each owner has a clock of its own that goes by the time its work took. The one that is furthest behind is
//! next, so that an owner with much to do gets what the others leave and no more, however many pieces it
//! queues. An owner that had nothing to do begins where the least of those at work are: it neither has to
//! make up for what others did meanwhile, nor gets credit for not having worked.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tidemill_types::FunctionId;

/// Work that waits, by owner.
pub(crate) struct Fair<W> {
    owners: BTreeMap<FunctionId, Owner<W>>,
    /// Those that have work and may run it: furthest behind first, then who came first.
    ready: BTreeSet<(Duration, u64, FunctionId)>,
    /// Where the last one that was chosen was.
    now: Duration,
    /// Numbers the turns.
    next: u64,
}

struct Owner<W> {
    waiting: VecDeque<W>,
    clock: Duration,
    running: usize,
    most: usize,
    /// Its place among the ready, while it has one.
    place: Option<(Duration, u64, FunctionId)>,
}

impl<W> Default for Fair<W> {
    fn default() -> Self {
        Self {
            owners: BTreeMap::new(),
            ready: BTreeSet::new(),
            now: Duration::ZERO,
            next: 0,
        }
    }
}

impl<W> Fair<W> {
    /// Queues work of an owner that may have `most` pieces at work at a time.
    pub(crate) fn push(&mut self, owner: FunctionId, most: usize, work: W) {
        let now = self.now;
        let entry = self.owners.entry(owner).or_insert_with(|| Owner {
            waiting: VecDeque::new(),
            clock: now,
            running: 0,
            most,
            place: None,
        });
        entry.most = most.max(1);
        entry.waiting.push_back(work);
        self.line_up(owner);
    }

    /// The next piece of work, if some may be run; [`Fair::done`] has to follow.
    pub(crate) fn next(&mut self) -> Option<(FunctionId, W)> {
        let place = self.ready.pop_first()?;
        let owner = self.owners.get_mut(&place.2)?;
        owner.place = None;
        owner.running += 1;
        self.now = self.now.max(owner.clock);
        let work = owner.waiting.pop_front()?;
        self.line_up(place.2);
        Some((place.2, work))
    }

    /// A piece of an owner's work is done and took so long.
    pub(crate) fn done(&mut self, owner: FunctionId, took: Duration) {
        let Some(entry) = self.owners.get_mut(&owner) else {
            return;
        };
        entry.clock += took;
        entry.running -= 1;
        if let Some(place) = entry.place.take() {
            self.ready.remove(&place);
        }
        // An owner without work is forgotten once the others have caught up with it.
        if entry.running == 0 && entry.waiting.is_empty() && entry.clock <= self.now {
            self.owners.remove(&owner);
        } else {
            self.line_up(owner);
        }
    }

    /// Forgets owners without work that the others have caught up with, now and then.
    pub(crate) fn tidy(&mut self) {
        let now = self.now;
        self.owners
            .retain(|_, owner| owner.running > 0 || !owner.waiting.is_empty() || owner.clock > now);
    }

    /// How many pieces wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.owners.values().map(|owner| owner.waiting.len()).sum()
    }

    fn line_up(&mut self, id: FunctionId) {
        let Some(owner) = self.owners.get_mut(&id) else {
            return;
        };
        if owner.place.is_some() || owner.waiting.is_empty() || owner.running >= owner.most {
            return;
        }
        if owner.running == 0 {
            owner.clock = owner.clock.max(self.now);
        }
        let place = (owner.clock, self.next, id);
        self.next += 1;
        owner.place = Some(place);
        self.ready.insert(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: FunctionId = FunctionId(1);
    const B: FunctionId = FunctionId(2);
    const C: FunctionId = FunctionId(3);

    fn units(units: u64) -> Duration {
        Duration::from_micros(units)
    }

    /// Runs one piece after the other, each as long as `takes` says, and gives whose they were.
    fn play(fair: &mut Fair<()>, takes: impl Fn(FunctionId) -> u64, turns: usize) -> Vec<u32> {
        let mut seen = Vec::new();
        while seen.len() < turns
            && let Some((owner, ())) = fair.next()
        {
            seen.push(owner.0);
            fair.done(owner, units(takes(owner)));
        }
        seen
    }

    #[test]
    fn a_hot_owner_does_not_hold_up_a_quiet_one() {
        let mut fair = Fair::default();
        (0..1000).for_each(|_| fair.push(A, 9, ()));
        assert_eq!(play(&mut fair, |_| 4000, 3), [1, 1, 1]);
        fair.push(B, 9, ());
        let next = play(&mut fair, |_| 4000, 2);
        assert!(
            next.contains(&2),
            "its turn comes at once, not after 997 others"
        );
        assert_eq!(fair.waiting(), 996);
    }

    #[test]
    fn time_is_shared_not_turns() {
        let mut fair = Fair::default();
        for _ in 0..4000 {
            fair.push(A, 9, ());
            fair.push(B, 9, ());
            fair.push(C, 9, ());
        }
        let takes = |owner: FunctionId| u64::from(owner.0) * 10;
        let seen = play(&mut fair, takes, 1100);
        for owner in [A, B, C] {
            let turns = seen.iter().filter(|seen| **seen == owner.0).count() as u64;
            let time = turns * takes(owner);
            assert!(
                (5_900..=6_100).contains(&time),
                "{owner:?} had {time} of 18000"
            );
        }
    }

    #[test]
    fn nobody_saves_time_up() {
        let mut fair = Fair::default();
        fair.push(B, 9, ());
        assert_eq!(play(&mut fair, |_| 10, 1), [2]);
        (0..500).for_each(|_| fair.push(A, 9, ()));
        assert_eq!(play(&mut fair, |_| 10, 400).len(), 400);
        (0..500).for_each(|_| fair.push(B, 9, ()));
        let seen = play(&mut fair, |_| 10, 100);
        let turns = seen.iter().filter(|owner| **owner == 2).count();
        assert!((49..=51).contains(&turns), "half of them, not all: {turns}");
    }

    #[test]
    fn no_more_at_a_time_than_allowed_and_others_go_by() {
        let mut fair = Fair::default();
        (0..5).for_each(|_| fair.push(A, 2, ()));
        fair.push(B, 1, ());
        let running: Vec<_> = std::iter::from_fn(|| fair.next())
            .map(|(owner, ())| owner.0)
            .collect();
        assert_eq!(running.iter().filter(|owner| **owner == 1).count(), 2);
        assert_eq!((running.len(), fair.waiting()), (3, 3));
        fair.done(A, units(5));
        assert_eq!(fair.next().map(|(owner, ())| owner), Some(A));
        assert!(fair.next().is_none());
    }

    #[test]
    fn who_has_nothing_to_do_is_forgotten() {
        let mut fair = Fair::default();
        for owner in 0..100 {
            fair.push(FunctionId(owner), 1, ());
        }
        assert_eq!(play(&mut fair, |_| 10, 200).len(), 100);
        fair.push(A, 1, ());
        assert_eq!(play(&mut fair, |_| 0, 1), [1]);
        fair.tidy();
        assert!(fair.owners.len() <= 1, "{} are left", fair.owners.len());
    }
}
