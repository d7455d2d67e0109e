//! How far event time is in each of several inputs, and what that comes to for the task that reads them: it
//! waits for the one that is furthest behind, unless nothing came of that for a while.
//!
//! All of it follows from the events alone, by the times at which they were received: whether an input is idle
//! is told at the turn of the next event by when that was received. While there is nothing to read the clock
//! tells, which comes to nothing else, only sooner: the next event is received later than that.

use super::Note;
use crate::manifest::Time;
use crate::origin::Moved;
use std::time::Duration;
use tidemill_types::limits::INPUTS;
use tidemill_types::{Timestamp, TopicId};

/// Nothing yet.
const NONE: i64 = i64::MIN;

/// Times of a task's inputs; a task with one input has none of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InputTimes {
    count: usize,
    /// Highest event time seen, not counting those from too far in the future.
    seen: [i64; INPUTS],
    /// When the last event was received; of an input without any, when the task's first one was.
    last: [i64; INPUTS],
}

impl Default for InputTimes {
    fn default() -> Self {
        Self {
            count: 0,
            seen: [NONE; INPUTS],
            last: [NONE; INPUTS],
        }
    }
}

impl InputTimes {
    /// Bytes of one input's.
    pub(super) const BYTES: usize = 16;

    /// How many inputs it tells of.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Its bytes: for each input the two times.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        for (seen, last) in self.seen.iter().zip(&self.last).take(self.count) {
            out.extend(seen.to_le_bytes());
            out.extend(last.to_le_bytes());
        }
    }

    /// Reads them back.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (pairs, []) = bytes.as_chunks::<{ Self::BYTES }>() else {
            return None;
        };
        let mut times = Self {
            count: pairs.len(),
            ..Self::default()
        };
        if !(2..=INPUTS).contains(&times.count) {
            return None;
        }
        for (at, pair) in pairs.iter().enumerate() {
            let (seen, last) = pair.split_first_chunk::<8>()?;
            times.seen[at] = i64::from_le_bytes(*seen);
            times.last[at] = i64::from_le_bytes(last.try_into().ok()?);
        }
        Some(times)
    }

    /// An event was read, or how far time is in an input was said; `is_fresh`: it had something.
    fn observe(&mut self, input: usize, time: Option<i64>, received: i64, is_fresh: bool) {
        for last in &mut self.last[..self.count] {
            if *last == NONE {
                *last = received;
            }
        }
        if let (Some(seen), Some(last)) = (self.seen.get_mut(input), self.last.get_mut(input)) {
            *seen = (*seen).max(time.unwrap_or(NONE));
            if is_fresh {
                *last = (*last).max(received);
            }
        }
    }

    /// Inputs that are waited for at a moment.
    fn awaited(&self, now: i64, idle: i64) -> impl Iterator<Item = i64> {
        let all = self.seen.iter().zip(&self.last).take(self.count);
        all.filter(move |(_, last)| **last == NONE || now < last.saturating_add(idle))
            .map(|(seen, _)| *seen)
    }

    /// How far event time is at a moment: as far as in the input furthest behind, or where nobody is waited
    /// for, in the one furthest ahead.
    fn reached(&self, now: i64, idle: i64) -> i64 {
        let least = self.awaited(now, idle).min();
        let most = self.seen.iter().take(self.count).copied().max();
        least.or(most).unwrap_or(NONE)
    }

    /// The moments at which inputs become idle.
    fn falling_idle(&self, idle: i64) -> impl Iterator<Item = i64> {
        let last = self.last.iter().take(self.count);
        last.filter(|last| **last != NONE)
            .map(move |last| last.saturating_add(idle))
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl Note {
    /// Takes an event's times into account. Whether it lies too far in the future, which is answered, is told by
    /// its ingest time, not by the clock, so that a replay sees the same.
    pub(crate) fn observe(
        &mut self,
        input: usize,
        time: Timestamp,
        ingested: Timestamp,
        limits: &Time,
    ) -> bool {
        let latest = ingested.micros().saturating_add(micros(limits.max_future));
        let time = Some(time).filter(|time| time.micros() <= latest);
        self.ingested = Some(ingested);
        self.reaches(input, time, ingested, (true, limits.idle));
        time.is_none()
    }

    /// Takes into account what an internal topic says of the partitions that it is filled from; what of that lies
    /// too far in the future was decided there.
    pub(crate) fn observe_moved(
        &mut self,
        input: usize,
        (moved, reached): (Moved, i64),
        received: Timestamp,
        idle: Duration,
    ) {
        if moved == Moved::Event {
            self.ingested = Some(received);
        }
        let reached = Some(reached).filter(|reached| *reached != NONE);
        let is_fresh = moved != Moved::Silence;
        let time = reached.map(Timestamp::from_micros);
        self.reaches(input, time, received, (is_fresh, idle));
    }

    fn reaches(
        &mut self,
        input: usize,
        time: Option<Timestamp>,
        received: Timestamp,
        (is_fresh, idle): (bool, Duration),
    ) {
        self.processing = self.processing.max(Some(received));
        if self.inputs.count == 0 {
            self.seen = self.seen.max(time);
            return;
        }
        let (time, micros) = (time.map(Timestamp::micros), received.micros());
        self.inputs.observe(input, time, micros, is_fresh);
        self.arrives(received, idle);
    }

    /// How far time is in an input.
    pub(crate) fn seen_of(&self, input: usize) -> Option<Timestamp> {
        match self.inputs.count {
            0 => self.seen,
            _ => {
                let seen = self.inputs.seen.get(input).copied();
                seen.filter(|seen| *seen != NONE)
                    .map(Timestamp::from_micros)
            }
        }
    }

    /// Something comes at a moment: inputs that are idle by then are waited for no more.
    pub(crate) fn arrives(&mut self, received: Timestamp, idle: Duration) {
        if self.inputs.count == 0 {
            return;
        }
        let now = self.processing.map_or(received, |time| time.max(received));
        let reached = self.inputs.reached(now.micros(), micros(idle));
        self.raise(reached);
    }

    fn raise(&mut self, reached: i64) {
        if reached != NONE {
            self.seen = self.seen.max(Some(Timestamp::from_micros(reached)));
        }
    }

    /// The next moment at which time goes on because an input is idle from then on, and the note then.
    pub(crate) fn falls_idle(&self, idle: Duration) -> Option<(i64, Self)> {
        let idle = micros(idle);
        let raised = |at: i64| {
            let mut note = *self;
            note.raise(self.inputs.reached(at, idle));
            (note.seen > self.seen).then_some((at, note))
        };
        let moments = self.inputs.falling_idle(idle);
        moments.filter_map(raised).min_by_key(|(at, _)| *at)
    }

    /// The moment up to which inputs fell idle, so that time got as far as in another note.
    pub(crate) fn idle_until(&self, other: &Self, idle: Duration) -> Option<i64> {
        let (mut note, mut until) = (*self, None);
        while let Some((at, raised)) = note.falls_idle(idle).filter(|(_, n)| n.seen <= other.seen) {
            (note, until) = (raised, Some(at));
        }
        until
    }

    /// The note of a task that reads so many inputs.
    pub(crate) fn reading(mut self, inputs: usize) -> Self {
        let count = if inputs > 1 { inputs.min(INPUTS) } else { 0 };
        if self.inputs.count != count {
            for at in count..INPUTS {
                (self.inputs.seen[at], self.inputs.last[at]) = (NONE, NONE);
            }
            self.inputs.count = count;
        }
        self
    }

    /// The note of a task whose inputs change: each keeps its times.
    pub(crate) fn rearranged(self, old: &[TopicId], new: &[TopicId]) -> Self {
        if old == new {
            return self;
        }
        let times = self.inputs;
        let own = |at: usize| match times.count {
            // Of the only one they are the task's.
            0 => (
                self.seen.map_or(NONE, Timestamp::micros),
                self.ingested.map_or(NONE, Timestamp::micros),
            ),
            _ => (times.seen[at], times.last[at]),
        };
        let mut changed = Self {
            inputs: InputTimes::default(),
            ..self
        }
        .reading(new.len());
        for (at, topic) in new.iter().enumerate().take(changed.inputs.count) {
            if let Some(before) = old
                .iter()
                .position(|old| old == topic)
                .filter(|at| *at < INPUTS)
            {
                (changed.inputs.seen[at], changed.inputs.last[at]) = own(before);
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn limits() -> Time {
        Time {
            disorder: Duration::ZERO,
            idle: Duration::from_secs(5),
            max_future: Duration::from_secs(300),
        }
    }

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    fn watermark(note: &Note) -> Option<i64> {
        note.watermark(Duration::ZERO).map(Timestamp::micros)
    }

    #[test]
    fn the_input_furthest_behind_is_waited_for() {
        let mut note = Note::default().reading(2);
        note.observe(0, at(100), at(1000), &limits());
        assert_eq!(watermark(&note), None, "nothing is known of the other");
        note.observe(1, at(40), at(1001), &limits());
        assert_eq!(watermark(&note), Some(39));
        note.observe(1, at(60), at(1002), &limits());
        assert_eq!(watermark(&note), Some(59));
        note.observe(1, at(50), at(1003), &limits());
        assert_eq!(watermark(&note), Some(59), "it never goes back");
        note.observe(1, at(400), at(1004), &limits());
        assert_eq!(watermark(&note), Some(99));
    }

    #[test]
    fn one_that_is_idle_holds_nothing_back() {
        let mut note = Note::default().reading(2);
        note.observe(0, at(10), at(0), &limits());
        note.observe(0, at(25), at(SECOND), &limits());
        note.arrives(at(4 * SECOND), limits().idle);
        assert_eq!(watermark(&note), None, "not yet");
        // The second has had nothing since the first event was received.
        let (moment, idle) = note.falls_idle(limits().idle).expect("it will be");
        assert_eq!((moment, watermark(&idle)), (5 * SECOND, Some(24)));
        assert_eq!(
            idle.falls_idle(limits().idle),
            None,
            "time is as far as it gets"
        );
        let mut later = note;
        later.arrives(at(7 * SECOND), limits().idle);
        assert_eq!(watermark(&later), Some(24));
        assert_eq!(note.idle_until(&later, limits().idle), Some(5 * SECOND));
        assert_eq!(note.idle_until(&note, limits().idle), None);
        // The next event finds it so, whether somebody looked before or not.
        for mut note in [note, later] {
            note.arrives(at(8 * SECOND), limits().idle);
            assert_eq!(watermark(&note), Some(24));
            note.observe(1, at(20), at(8 * SECOND), &limits());
            assert_eq!(watermark(&note), Some(24));
        }
        // It counts again once it has something.
        later.observe(1, at(20), at(8 * SECOND), &limits());
        later.observe(0, at(90), at(8 * SECOND), &limits());
        assert_eq!(watermark(&later), Some(24), "the second is at 20");
        later.observe(1, at(70), at(9 * SECOND), &limits());
        assert_eq!(watermark(&later), Some(69));
    }

    #[test]
    fn events_from_the_far_future_move_nothing() {
        let mut note = Note::default().reading(2);
        note.observe(0, at(999_999_999), at(10), &limits());
        note.observe(1, at(5), at(11), &limits());
        assert_eq!(watermark(&note), None);
        note.observe(0, at(7), at(12), &limits());
        assert_eq!(watermark(&note), Some(4));
    }

    #[test]
    fn inputs_keep_their_times_when_others_come_and_go() {
        let topics = [1, 2, 3].map(TopicId);
        let mut note = Note::default();
        note.observe(0, at(50), at(100), &limits());
        assert_eq!(watermark(&note), Some(49));
        let mut two = note.rearranged(&topics[..1], &topics[..2]);
        two.observe(1, at(80), at(101), &limits());
        assert_eq!(watermark(&two), Some(49), "the first is at 50");
        let turned = [topics[1], topics[2], topics[0]];
        let mut three = two.rearranged(&topics[..2], &turned);
        three.observe(1, at(70), at(102), &limits());
        three.observe(2, at(60), at(103), &limits());
        assert_eq!(watermark(&three), Some(59));
        let mut one = three.rearranged(&turned, &topics[1..2]);
        assert_eq!((watermark(&one), one.inputs.count), (Some(59), 0));
        one.observe(0, at(61), at(104), &limits());
        assert_eq!(watermark(&one), Some(60));
    }

    #[test]
    fn times_have_golden_bytes() {
        let mut note = Note::default().reading(2);
        note.observe(0, at(3), at(4), &limits());
        let mut bytes = Vec::new();
        note.inputs.write(&mut bytes);
        let mut golden = vec![3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0];
        golden.extend([0, 0, 0, 0, 0, 0, 0, 128, 4, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes, golden);
        assert_eq!(InputTimes::read(&golden), Some(note.inputs));
        assert_eq!(
            InputTimes::read(&golden[..16]),
            None,
            "one has none of its own"
        );
        assert_eq!(InputTimes::read(&golden[..20]), None);
        let encoded = note.encode();
        assert_eq!((encoded[0], encoded[2]), (4, 2));
        assert!(encoded.ends_with(&golden));
        assert_eq!(Note::decode(&encoded).expect("its own bytes"), note);
        assert!(Note::decode(&encoded[..encoded.len() - 16]).is_err());
    }
}
