//! One transaction of a task: laid out, taken by the log, and what follows once it is.

use super::outside::unreadable;
use super::{Slice, Task};
use crate::broken::Fault;
use crate::dead_letter::{Cause, Reason};
use crate::effects::{Effects, Refusal, Spare};
use crate::merge::Positions;
use crate::note::Note;
use crate::parked::ParkedChange;
use crate::record::Role;
use crate::sources::Tale;
use crate::timers::TimerChange;
use crate::usage::Kept;
use bytes::Bytes;
use std::ops::Range;
use std::time::Duration;
use tidemill_log::Draft;
use tidemill_state::Changes;
use tidemill_types::{Error, ErrorKind, Result};

/// Pause while the disk is full.
const FULL_DISK_PAUSE: Duration = Duration::from_secs(1);

/// A transaction laid out and not yet taken by the log.
pub(super) struct Prepared {
    pub(super) draft: Draft,
    /// Changes of state, and of what is parked.
    pub(super) sections: Vec<Bytes>,
    pub(super) note: Note,
    /// How much state there is with it, if it changes any.
    pub(super) kept: Option<Kept>,
    /// Timers set and gone.
    pub(super) timers: Vec<TimerChange>,
    /// What was parked and what isn't any more.
    pub(super) parked: Vec<ParkedChange>,
    pub(super) position: Positions,
    /// What it tells of time.
    pub(super) tale: Tale,
    /// Events of it from too far in the future.
    pub(super) future: u64,
    /// Rows of the batch it gives a fate to.
    pub(super) rows: usize,
    /// What follows once it is committed.
    pub(super) then: Then,
}

/// What follows a transaction.
pub(super) enum Then {
    Go,
    /// The row at the front waits for its next try.
    Wait,
    /// The next row asked to be tried again.
    Retry(Cause),
    Stop(String),
}

impl Task {
    /// Lays out the transaction of some effects; it is committed in the next step.
    pub(super) fn prepare(
        &mut self,
        effects: Result<Effects, Refusal>,
        run: Range<usize>,
        then: Then,
    ) -> Option<Slice> {
        let effects = match effects {
            Ok(mut effects) => match self.forget_calls(&mut effects) {
                Ok(()) => Ok(effects),
                Err(error) => return Some(unreadable(error)),
            },
            refused => refused,
        };
        let prepared = effects.and_then(|effects| self.lay_out(effects, then));
        match prepared {
            Ok((prepared, spare)) => {
                self.guest.spare = spare;
                self.prepared = Some(prepared);
                None
            }
            Err(Refusal::Apart(row)) => {
                self.pending.as_mut()?.attempts.set_apart(run, row);
                None
            }
            Err(Refusal::Nonsense(wrong)) => {
                self.nonsense(run, &wrong);
                None
            }
            Err(Refusal::TooLarge) => {
                let error = "its outputs don't fit into one transaction".to_owned();
                self.failed(
                    run,
                    Cause {
                        reason: Reason::OutputLimit,
                        error,
                    },
                );
                None
            }
            Err(Refusal::Fault(error)) => Some(Slice::Fault(error)),
        }
    }

    fn lay_out(&self, mut effects: Effects, then: Then) -> Result<(Prepared, Spare), Refusal> {
        let kept = self.account(&mut effects)?;
        let mut draft = self.parts.log.draft_with_room(effects.room());
        let (parked, order) = effects.parked;
        if !order.is_empty() {
            effects.note.floor = self.parked().floor_after(&order);
        }
        let Some(pending) = &self.pending else {
            return Err(Refusal::Fault(Error::internal("effects without a batch")));
        };
        let position = pending.position_after(pending.attempts.done() + effects.rows);
        let faults = &self.parts.faults;
        if !faults.strikes(Fault::PositionStays) {
            self.advance(&position, &effects.note, &mut draft);
        }
        let outputs = match self.role {
            Role::Repartition => self.moves_to().map_or(&[][..], std::slice::from_ref),
            Role::Main => self.deployment.outputs.as_slice(),
        };
        for (topic, (rows, partitions)) in outputs.iter().zip(&effects.outputs) {
            if !rows.is_empty() && !faults.strikes(Fault::OutputIsLost) {
                draft.append(topic.id, rows, partitions)?;
                if faults.strikes(Fault::OutputTwice) {
                    draft.append(topic.id, rows, partitions)?;
                }
            }
        }
        let (letters, partitions) = &effects.letters;
        if !letters.is_empty() && !faults.strikes(Fault::LetterIsLost) {
            draft.append(self.deployment.dead_letters.id, letters, partitions)?;
        }
        let changes = [effects.changes, parked];
        let changes = changes.into_iter().filter(|changes| !changes.is_empty());
        // They are kept until they are written back, and without what was left of their room.
        let bytes = |changes: Changes| changes.into_bytes().into_boxed_slice().into();
        let sections: Vec<Bytes> = changes.map(bytes).collect();
        sections.iter().for_each(|section| draft.state(section));
        let prepared = Prepared {
            draft,
            sections,
            note: effects.note,
            kept,
            timers: effects.timers,
            parked: order,
            position,
            tale: effects.tale,
            future: effects.future,
            rows: effects.rows,
            then,
        };
        let spare = Spare::of(effects.outputs, effects.sizes, effects.owners);
        Ok((prepared, spare))
    }

    /// Commits; what follows is done only if the log took it.
    pub(super) fn commit(&mut self, mut prepared: Prepared) -> Option<Slice> {
        let sections = std::mem::take(&mut prepared.sections);
        if !sections.is_empty() && self.parts.faults.strikes(Fault::StateTwice) {
            let mut alone = Draft::new();
            sections.iter().for_each(|section| alone.state(section));
            // The run is made once more, on what it changed.
            return match self.parts.commit(alone, &sections, false) {
                Ok(()) => None,
                Err((error, _)) => Some(Slice::Fault(error)),
            };
        }
        self.announce(&prepared.timers);
        match self.parts.commit(prepared.draft, &sections, self.has_more) {
            Ok(()) => {
                if let Some(kept) = prepared.kept {
                    self.measured(kept);
                }
                self.follow_parked(std::mem::take(&mut prepared.parked));
                let timers = std::mem::take(&mut prepared.timers);
                let sets = timers.iter().any(|change| change.set.is_some());
                let goes_on = matches!(prepared.then, Then::Go);
                if let Some(sources) = &self.sources {
                    let times = (prepared.note.seen, prepared.note.ingested);
                    sources.moved(self.partition(), times, &prepared.tale);
                }
                self.follow(timers);
                self.meter.future(prepared.future);
                let slice = self.committed(
                    &prepared.note,
                    prepared.position,
                    prepared.rows,
                    prepared.then,
                );
                if sets && goes_on {
                    self.look_again();
                }
                slice
            }
            Err((error, Some(draft))) => {
                let slice = match error.kind {
                    ErrorKind::Busy => Slice::Room,
                    ErrorKind::StorageFull => {
                        self.waits(error.detail);
                        Slice::Pause(FULL_DISK_PAUSE)
                    }
                    _ => return Some(Slice::Fault(error)),
                };
                (prepared.draft, prepared.sections) = (draft, sections);
                self.prepared = Some(prepared);
                Some(slice)
            }
            Err((error, None)) => Some(Slice::Fault(error)),
        }
    }

    fn committed(
        &mut self,
        note: &Note,
        position: Positions,
        rows: usize,
        then: Then,
    ) -> Option<Slice> {
        debug_assert!(note.counts.conserved());
        if self.role == Role::Main {
            self.meter.committed(&self.note.counts, &note.counts);
            self.meter.waiting(note.shown().retrying);
        }
        (self.note, self.position) = (*note, position);
        self.view.set(None);
        self.view.goes_on();
        let pending = self.pending.as_mut()?;
        if matches!(then, Then::Wait) {
            return None;
        }
        if pending.timers_of().is_some() && self.parts.faults.strikes(Fault::TimerTwice) {
            return None;
        }
        pending.attempts.passed(rows);
        pending.cause = None;
        match then {
            Then::Go | Then::Wait => None,
            Then::Retry(cause) => {
                self.retry(cause);
                None
            }
            Then::Stop(why) => Some(Slice::Stop(why)),
        }
    }

    /// The row at the front asked to be tried again.
    pub(super) fn retry(&mut self, cause: Cause) {
        self.meter.failed(cause.reason);
        if let Some(pending) = &mut self.pending {
            pending.attempts.retry();
            pending.cause = Some(cause);
        }
    }

    /// A run failed as a whole.
    pub(super) fn failed(&mut self, run: Range<usize>, cause: Cause) {
        self.meter.failed(cause.reason);
        if let Some(pending) = &mut self.pending {
            if run.len() == 1 && self.parts.faults.strikes(Fault::FailureIsDone) {
                pending.attempts.passed(1);
                return;
            }
            pending.attempts.failed(run);
            pending.cause = Some(cause);
        }
    }
}
