//! What failed and is tried again: in its place, or parked so that the others go on; and what nothing helped.

use super::transaction::Then;
use super::{Slice, Task};
use crate::backoff::pause;
use crate::effects::Tries;
use crate::manifest::{Exhausted, Order};
use crate::note::Front;
use crate::record::Role;
use std::time::Duration;
use tidemill_types::{Timestamp, limits};

impl Task {
    /// The row at the front failed so often since it came there.
    pub(super) fn wait(&mut self, failures: u32) -> Option<Slice> {
        let pending = self.pending.as_ref()?;
        let row = pending.attempts.done();
        if let Some(fired) = pending.fired(row) {
            let failures = fired.attempts.saturating_add(failures);
            return match failures >= self.deployment.manifest.retry.attempts {
                true => self.give_up(row, failures),
                false => self.park(row, failures),
            };
        }
        if pending.is_read() {
            if self.may_be_parked(row) {
                return self.park(row, failures);
            }
            if let Some(turn) = self.unpark() {
                return turn.slice();
            }
        }
        self.wait_in_place(failures)
    }

    /// Waits for the next try, and everything behind it, once that is on record: after a restart it is not
    /// tried sooner or more often.
    fn wait_in_place(&mut self, failures: u32) -> Option<Slice> {
        let pending = self.pending.as_ref()?;
        let is_timer = pending.timers_of().is_some();
        let front = self.note.front.filter(|front| front.is_timer == is_timer);
        let Some(front) = front.filter(|front| front.failures == failures) else {
            return self.put_on_record(is_timer, failures);
        };
        let left = self.left(front.due.micros());
        if left.is_zero() {
            self.pending.as_mut()?.attempts.waited();
            return None;
        }
        let cause = pending.cause.as_ref();
        let why = cause.map_or("before the host was started", |cause| cause.error.as_str());
        let by_key = self.deployment.manifest.retry.order == Order::Key && !is_timer;
        let full = if by_key {
            self.full_words()
        } else {
            String::new()
        };
        let retry = &self.deployment.manifest.retry;
        let (first, due, next) = (front.first, front.due, failures.saturating_add(1));
        self.view.set(Some(format!(
            "retrying since {first}: try {failures} failed: {why}; try {next} of {} at {due}{full}",
            retry.attempts
        )));
        let parked = self.until_parked();
        Some(Slice::Pause(parked.map_or(left, |parked| parked.min(left))))
    }

    fn put_on_record(&mut self, is_timer: bool, failures: u32) -> Option<Slice> {
        let (now, due) = self.next_try(failures);
        let mut effects = self.desk().empty();
        let before = self.note.front.filter(|front| front.is_timer == is_timer);
        effects.note.front = Some(Front {
            is_timer,
            failures,
            due,
            first: before.map_or(now, |front| front.first),
        });
        self.prepare(Ok(effects), 0..0, Then::Wait)
    }

    /// Now, and when what failed so often is tried again.
    fn next_try(&self, failures: u32) -> (Timestamp, Timestamp) {
        let now = self.parts.clock.now();
        let retry = &self.deployment.manifest.retry;
        let pause = pause(retry, failures, |bound| self.parts.random.below(bound));
        let micros = i64::try_from(pause.as_micros()).unwrap_or(i64::MAX);
        let due = now.micros().saturating_add(micros);
        (now, Timestamp::from_micros(due))
    }

    /// How long it is until then; never longer than the longest pause, however the clock was set.
    pub(super) fn left(&self, due: i64) -> Duration {
        let left = due.saturating_sub(self.parts.clock.now().micros()).max(0);
        let most = self.deployment.manifest.retry.backoff_most;
        Duration::from_micros(left.unsigned_abs()).min(most)
    }

    /// Whether the row at the front, which was read, is parked rather than waited for.
    fn may_be_parked(&self, row: usize) -> bool {
        let Some(pending) = &self.pending else {
            return false;
        };
        self.role == Role::Main
            && self.deployment.manifest.retry.order == Order::Key
            && self.parked.is_some()
            && self.parked().has_room(1, pending.bytes(row))
    }

    fn park(&mut self, row: usize, failures: u32) -> Option<Slice> {
        let (_, due) = self.next_try(failures);
        let pending = self.pending.as_ref()?;
        let cause = pending.cause.as_ref();
        let why = cause.map_or("", |cause| cause.error.as_str());
        self.view.set_parked(format!(
            "try {failures} of {} failed: {why}; the next at {due}",
            self.place(row)
        ));
        let tries = Tries {
            failures,
            cause,
            due,
        };
        let effects = self.desk().parked(pending, row, tries);
        self.prepare(Ok(effects), row..row + 1, Then::Go)
    }

    /// Why nothing more is parked.
    pub(super) fn full_words(&self) -> String {
        let (most, bytes) = (limits::PARKED_EVENTS, limits::PARKED_BYTES);
        format!(
            "; no more events can be parked (PARKED_EVENTS {most}, PARKED_BYTES {bytes}), so that the partition waits"
        )
    }

    /// Nothing helped the row at the front: it gets the fate its function's policy says.
    pub(super) fn give_up(&mut self, row: usize, attempts: u32) -> Option<Slice> {
        let pending = self.pending.as_ref()?;
        let exhausted = self.deployment.manifest.retry.exhausted;
        if exhausted == Exhausted::Stop {
            let error = pending
                .cause
                .as_ref()
                .map_or("", |cause| cause.error.as_str());
            let place = self.place(row);
            return Some(Slice::Stop(format!(
                "{place} failed {attempts} times, at last with: {error}"
            )));
        }
        let letter = exhausted == Exhausted::DeadLetter;
        let effects = self.desk().given_up(pending, row, attempts, letter);
        self.prepare(effects, row..row + 1, Then::Go)
    }
}
