//! Calls to the outside: what an event wants called, what it came to, and forgetting it with the event's fate.

use super::transaction::Then;
use super::{Slice, Task};
use crate::calls::{Calling, Kind, Outcome, SLOT, Subject, Wanted, key_of};
use crate::dead_letter::Cause;
use crate::effects::Effects;
use crate::parked;
use crate::pending::Pending;
use tidemill_state::Change;
use tidemill_types::{Error, ErrorKind, FunctionName, Result};

impl Task {
    /// Whether its events may make calls; then each is handed over alone, so that only it is given up.
    pub(super) fn calls_outside(&self) -> bool {
        !self.deployment.manifest.grants.http.is_empty()
    }

    /// A cause without secrets that the function was given.
    pub(super) fn masked(&self, cause: Cause) -> Cause {
        let error = self.guest.mask().text(&cause.error).into_owned();
        Cause { error, ..cause }
    }

    /// Its function.
    pub(crate) fn function(&self) -> &FunctionName {
        &self.deployment.name
    }

    /// What is known of a row that is about to be handed over.
    pub(super) fn calling(&self, pending: &Pending, row: usize, failures: u32) -> Result<Calling> {
        let subject = self.subject(pending, row);
        let (event, origin) = match subject.kind {
            Kind::Timer => (pending.raw(row), None),
            Kind::Event | Kind::Redriven => pending.event(row)?,
        };
        let topic = self.deployment.inputs[pending.input(row)].topic.id.0;
        let origin = match origin {
            Some(origin) => (topic, origin.partition, origin.offset),
            None => (topic, self.partition(), event.offset),
        };
        Ok(Calling {
            subject,
            origin,
            failures,
        })
    }

    /// A call was made: its outcome goes on record, then the event is handed over again.
    pub(crate) fn heard(&mut self, wanted: &Wanted, outcome: &Outcome) -> Option<Slice> {
        let record = match wanted.record(outcome, self.deployment.version) {
            Ok(record) => record,
            Err(fault) => return Some(Slice::Fault(fault)),
        };
        let mut effects = self.desk().empty();
        let key = key_of(wanted.calling.subject, wanted.number);
        effects.parked.0.push_set(SLOT, &[&key], &[&record]);
        self.prepare(Ok(effects), 0..0, Then::Wait)
    }

    /// Adds to the effects that the calls of the rows they give a fate to are forgotten; those of a row that is
    /// parked stay.
    ///
    /// # Errors
    /// `Unavailable` when state can't be read.
    pub(super) fn forget_calls(&self, effects: &mut Effects) -> Result<()> {
        let Some(pending) = self.pending.as_ref().filter(|_| self.calls_outside()) else {
            return Ok(());
        };
        if effects.parked.1.iter().any(|change| change.place.is_some()) {
            return Ok(());
        }
        let (scope, done) = (parked::scope(self.scope()), pending.attempts.done());
        for row in done..done + effects.rows {
            let subject = self.subject(pending, row);
            for number in 0..u16::MAX {
                let key = key_of(subject, number);
                if self.guest.recorded(scope, &key)?.is_none() {
                    break;
                }
                effects.parked.0.push(Change::Delete {
                    slot: SLOT,
                    key: &key,
                });
            }
        }
        Ok(())
    }

    /// What a row is, for its calls.
    fn subject(&self, pending: &Pending, row: usize) -> Subject {
        let offset = pending.raw(row).offset;
        let (kind, topic, number) = match pending.fired(row) {
            Some(fired) if fired.redriven > 0 => (Kind::Redriven, 0, fired.number),
            None if pending.timers_of().is_some() => (Kind::Timer, 0, offset),
            _ => {
                let input = &self.deployment.inputs[pending.input(row)];
                (Kind::Event, input.read().id.0, offset)
            }
        };
        Subject {
            kind,
            topic,
            number,
        }
    }
}

/// What to wait for when state can't be read now.
pub(super) fn unreadable(error: Error) -> Slice {
    match error.kind {
        ErrorKind::Unavailable => Slice::Storage(error),
        _ => Slice::Fault(error),
    }
}
