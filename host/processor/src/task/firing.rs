//! Timers whose turn it is: put in front of the events, handled and committed like them, without moving the
//! position.
//!
//! Where between two events a timer's turn comes is decided by the events alone: in event time before the
//! first event at whose turn the watermark has reached it, in processing time before the first event that
//! was received at its time or later. Only while there is nothing to read does the clock decide, and what
//! it said is part of the frame. In the same way the clock may tell that an input is idle and holds event time
//! back no more; what the next event's receipt tells comes to the same.

use super::{Slice, Task, Wanted};
use crate::manifest::Time;
use crate::pending::{Pending, Turn};
use crate::record::Role;
use crate::stored::{StoredTimer, TIMERS, entry_key};
use crate::timers::{TimerChange, Timers};
use bytes::Bytes;
use std::ops::Range;
use tidemill_types::{PackedRows, Result, Timestamp};
use tidemill_wasm::Clock;

/// Most timers that are loaded at once, for what they bring along may be large.
const LOADED: usize = 64;

/// What came of looking for timers whose turn it is.
pub(super) enum Turned {
    /// They are in front now, or a transaction is.
    InFront,
    /// Something must be waited for first.
    Wait(Slice),
}

impl Turned {
    pub(super) fn slice(self) -> Option<Slice> {
        match self {
            Self::InFront => None,
            Self::Wait(slice) => Some(slice),
        }
    }
}

/// A timer that is due: when, its key and its tag.
type Due = (i64, Bytes, Bytes);

impl Task {
    /// Puts timers in front that come before a row, or before whatever is read next.
    pub(super) fn fire(&mut self, row: Option<usize>) -> Option<Turned> {
        if !self.has_timers() {
            return None;
        }
        let received = match (&self.pending, row) {
            // Timers are in front already.
            (Some(pending), _) if pending.timers_of().is_some() => return None,
            (Some(pending), Some(row)) => Some(pending.times(row).1),
            _ => None,
        };
        self.fire_at(self.note.processing.max(received))
    }

    /// Puts timers in front that are due in processing time by the clock: there is nothing to read.
    pub(super) fn fire_by_clock(&mut self) -> Option<Turned> {
        if !self.has_timers() {
            return None;
        }
        let now = self.until.unwrap_or_else(|| self.parts.clock.now());
        self.fire_at(self.note.processing.max(Some(now)))
    }

    /// Whether what is in front are timers.
    pub(super) fn fires(&self) -> bool {
        let timers = self.pending.as_ref().and_then(Pending::timers_of);
        timers.is_some()
    }

    fn has_timers(&self) -> bool {
        self.role == Role::Main && self.deployment.slots.timers
    }

    fn fire_at(&mut self, processing: Option<Timestamp>) -> Option<Turned> {
        if self.timers.is_none() {
            return Some(Turned::Wait(Slice::State(Wanted::Timers)));
        }
        let Time { disorder, .. } = self.deployment.manifest.time;
        let (clock, turns) = self.due(processing)?;
        let watermark = self.note.watermark_micros(disorder);
        // Whether the next event was there already makes no difference to what comes before it.
        let processing = match clock {
            Clock::Event => self.note.processing,
            Clock::Processing => processing,
        };
        let rows = match self.rows_of(&turns) {
            Ok(Ok(rows)) => rows,
            Ok(Err(wait)) => return Some(Turned::Wait(wait)),
            Err(fault) => return Some(Turned::Wait(Slice::Fault(fault))),
        };
        let turn = Turn {
            position: self.position.clone(),
            processing: processing.unwrap_or(Timestamp::from_micros(i64::MIN)),
            number: self.note.counts.timers,
        };
        self.note.processing = processing;
        let attempts = self.deployment.manifest.retry.attempts;
        // A timer between parked events of its key sees time as it was at their turns.
        let seen = |(_, key, _): &(i64, Bytes, Bytes)| match self.parked().first_of(key) {
            Some(first) => watermark.min(first.watermark),
            None => watermark,
        };
        let seen = turns.iter().take(rows.len()).map(seen).collect();
        let mut timers = Pending::timers(&rows, clock, turn, seen, attempts);
        if let Some(front) = self.note.front.filter(|front| front.is_timer) {
            timers.attempts.resume(front.failures);
        }
        self.behind.extend(self.pending.replace(timers));
        Some(Turned::InFront)
    }

    /// Timers that are due by a moment. Moments at which time went on because an input was idle come one after
    /// the other, so that whoever looks late finds the same as who looks often.
    fn due(&mut self, processing: Option<Timestamp>) -> Option<(Clock, Vec<Due>)> {
        let until = processing.map_or(i64::MIN, |time| time.micros());
        let Time { disorder, idle, .. } = self.deployment.manifest.time;
        let most = self.deployment.manifest.batch_events;
        loop {
            let raised = self.note.falls_idle(idle).filter(|(at, _)| *at <= until);
            let before = raised.map_or(until, |(at, _)| at - 1);
            let watermark = self.note.watermark_micros(disorder);
            let due = self
                .timers
                .as_ref()?
                .due(watermark, before, most, self.parked());
            match (due, raised) {
                (Some(due), _) => return Some(due),
                (None, Some((_, note))) => self.note = note,
                (None, None) => return None,
            }
        }
    }

    /// Timers with what they bring along: the first ones, as many as make a batch.
    fn rows_of(&self, turns: &[(i64, Bytes, Bytes)]) -> Result<Result<PackedRows, Slice>> {
        let most = self.deployment.manifest.batch_bytes.as_usize();
        let (state, scope) = (&self.parts.state, self.scope());
        let (mut stored, mut missing, mut bytes) = (Vec::new(), Vec::new(), 0);
        state.read(scope, |reader| {
            for (_, key, tag) in turns {
                match reader.get(TIMERS, &entry_key(key, tag)) {
                    Ok(found) => {
                        let found = found.unwrap_or_default();
                        bytes += found.len();
                        stored.push(Bytes::copy_from_slice(found));
                    }
                    Err(wanted) => missing.push(wanted),
                }
                if bytes >= most || missing.len() >= LOADED {
                    break;
                }
            }
        });
        if !missing.is_empty() {
            return Ok(Err(Slice::State(Wanted::Values(scope, missing))));
        }
        let mut rows = PackedRows::default();
        for ((due, key, tag), stored) in turns.iter().zip(stored) {
            let payload = StoredTimer::read(&stored)?.payload;
            let due = Timestamp::from_micros(*due);
            rows.push(due, Some(key), payload, [("tag", &**tag)])?;
        }
        Ok(Ok(rows))
    }

    /// The rows of a run that are handled before the next timer's turn.
    pub(super) fn before_timers(&self, rows: Range<usize>) -> Range<usize> {
        let (Some(timers), Some(pending)) = (&self.timers, &self.pending) else {
            return rows;
        };
        if !pending.is_read() || timers.len() == 0 {
            return rows;
        }
        let (event, processing) = (
            timers.first(Clock::Event, self.parked()),
            timers.first(Clock::Processing, self.parked()),
        );
        let mut time = self.clocks();
        time.turn_of(pending, rows.start);
        let end = (rows.start + 1..rows.end).find(|row| {
            let received = pending.times(*row).1.micros();
            let watermark = time.turn_of(pending, *row);
            event.is_some_and(|due| due <= watermark)
                || processing.is_some_and(|due| due <= received)
        });
        rows.start..end.unwrap_or(rows.end)
    }

    /// Takes the timers that were read from the state store.
    ///
    /// # Errors
    /// `Corrupt` when they aren't what a task writes.
    pub(super) fn timers_read(&mut self, stored: Vec<(Bytes, Bytes)>) -> Result<()> {
        let timers = Timers::load(stored)?;
        self.view.set_timers(timers.len());
        self.timers = Some(timers);
        Ok(())
    }

    /// Says how many timers there are with a transaction, before its position can be seen.
    pub(super) fn announce(&self, changes: &[TimerChange]) {
        if let Some(timers) = self.timers.as_ref().filter(|_| !changes.is_empty()) {
            self.view.set_timers(timers.len_after(changes));
        }
    }

    /// Follows what a transaction did to timers.
    pub(super) fn follow(&mut self, changes: Vec<TimerChange>) {
        let Some(timers) = &mut self.timers else {
            return;
        };
        for change in changes {
            timers.apply(change);
        }
    }

    /// Timers that others in front of them have set may come before them: those left are put in front anew.
    pub(super) fn look_again(&mut self) {
        if self.fires() {
            self.pending = self.behind.pop();
        }
    }

    /// How long nothing but the clock makes anything due: a timer, a parked event, or word of time to pass on.
    pub(crate) fn until_due(&self) -> Option<std::time::Duration> {
        let left = |due: i64| {
            let left = due.saturating_sub(self.parts.clock.now().micros()).max(0);
            std::time::Duration::from_micros(left.unsigned_abs())
        };
        let due = self.timers.as_ref().and_then(|timers| {
            let processing = timers.first(Clock::Processing, self.parked());
            // Those in event time are due once an input that holds time back is idle.
            let waits = timers.first(Clock::Event, self.parked());
            let idle = self.deployment.manifest.time.idle;
            let idle = waits.and_then(|_| self.note.falls_idle(idle));
            processing.into_iter().chain(idle.map(|(at, _)| at)).min()
        });
        let timer = due.map(left);
        let now = self.parts.clock.now().micros();
        let sources = self.sources.as_ref();
        let word = sources.and_then(|sources| sources.next(now)).map(left);
        let all = timer.into_iter().chain(word);
        all.chain(self.until_parked()).min()
    }
}
