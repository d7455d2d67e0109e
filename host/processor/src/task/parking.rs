//! Parked events whose time has come: put in front of what is read, tried and committed like it, without
//! moving the position.

use super::firing::Turned;
use super::transaction::Then;
use super::{Slice, Task, Wanted};
use crate::dead_letter::{Cause, Reason};
use crate::parked::{self, Parked, ParkedChange, ParkedEvent, SLOT, key_of};
use crate::pending::{Fired, Pending};
use crate::record::Role;
use bytes::Bytes;
use std::ops::Range;
use std::sync::LazyLock;
use std::time::Duration;
use tidemill_types::{PackedRows, Result, TopicId};

/// Most parked events that are loaded at once, for they may be large.
const LOADED: usize = 64;

/// Stands for what is parked while that isn't known; nothing is run then.
pub(super) fn none() -> &'static Parked {
    static NONE: LazyLock<Parked> = LazyLock::new(Parked::default);
    &NONE
}

impl Task {
    /// What is parked, as far as it is known.
    pub(super) fn parked(&self) -> &Parked {
        self.parked.as_ref().unwrap_or_else(|| none())
    }

    /// Puts parked events in front that are to be tried now.
    pub(super) fn unpark(&mut self) -> Option<Turned> {
        if self.role != Role::Main || self.pending.as_ref().is_some_and(|at| !at.is_read()) {
            return None;
        }
        let Some(parked) = &self.parked else {
            if self.note.counts.retrying > 0 {
                return Some(Turned::Wait(Slice::State(Wanted::Parked)));
            }
            self.parked = Some(Parked::default());
            return None;
        };
        let first = parked.first_due()?;
        if !self.left(first).is_zero() {
            return None;
        }
        let manifest = &self.deployment.manifest;
        let limit = (manifest.batch_events, manifest.batch_bytes.as_usize());
        let now = self.parts.clock.now().micros().max(first);
        // What a timer does between two events of its key is done before the second.
        let due = parked.due(now, self.deployment.slots.timers, limit);
        match self.pending_of(&due) {
            Ok(Ok(pending)) => {
                self.behind.extend(self.pending.replace(pending));
                Some(Turned::InFront)
            }
            Ok(Err(wait)) => Some(Turned::Wait(wait)),
            Err(fault) => Some(Turned::Wait(Slice::Fault(fault))),
        }
    }

    /// Reads parked events.
    fn pending_of(&self, due: &[u64]) -> Result<Result<Pending, Slice>> {
        let scope = parked::scope(self.scope());
        let (mut stored, mut missing) = (Vec::new(), Vec::new());
        self.parts.state.read(scope, |reader| {
            for number in due {
                match reader.get(SLOT, &key_of(*number)) {
                    Ok(found) => stored.push(Bytes::copy_from_slice(found.unwrap_or_default())),
                    Err(wanted) => missing.push(wanted),
                }
                if missing.len() >= LOADED {
                    break;
                }
            }
        });
        if !missing.is_empty() {
            return Ok(Err(Slice::State(Wanted::Values(scope, missing))));
        }
        let mut rows = PackedRows::default();
        let (mut offsets, mut fired) = (Vec::new(), Vec::new());
        for (number, stored) in due.iter().zip(&stored) {
            let event = ParkedEvent::read(stored)?;
            rows.push(event.time, event.key, event.value, event.headers)?;
            offsets.push(event.offset);
            fired.push(Fired {
                number: *number,
                attempts: self.parked().attempts(*number),
                first: event.first,
                redriven: event.redriven,
                floor: event.floor,
                input: self.input_of(event.topic),
            });
        }
        let most = self.deployment.manifest.retry.attempts;
        let at = (self.position.clone(), self.deployment.by_key());
        Ok(Ok(Pending::parked(&rows, offsets, fired, at, most)))
    }

    /// The input that a parked event was read from, or its topic if the function doesn't read that any more.
    fn input_of(&self, topic: Option<TopicId>) -> Result<usize, String> {
        let inputs = &self.deployment.inputs;
        let Some(topic) = topic else { return Ok(0) };
        let known = inputs.iter().position(|input| input.topic.id == topic);
        match known {
            Some(input) => Ok(input),
            // Its topic was made again under the same name.
            None if inputs.len() == 1 => Ok(0),
            None => {
                let topic = self.parts.log.topic_by_id(topic);
                Err(topic.map_or_else(String::new, |topic| topic.name.to_string()))
            }
        }
    }

    /// Whether a row is a parked event of an input that the function doesn't read any more.
    pub(super) fn is_elsewhere(&self, row: usize) -> bool {
        let fired = self.pending.as_ref().and_then(|at| at.fired(row));
        fired.is_some_and(|fired| fired.input.is_err())
    }

    /// A parked event of an input that the function doesn't read any more becomes a dead letter.
    pub(super) fn turn_away(&mut self, row: usize) -> Option<Slice> {
        let pending = self.pending.as_mut()?;
        let fired = pending.fired(row)?;
        let attempts = fired.attempts;
        let topic = fired.input.clone().err().unwrap_or_default();
        pending.cause = Some(Cause {
            reason: Reason::Guest,
            error: format!(
                "it waited to be tried again, and the function doesn't read its topic {topic:?} any more"
            ),
        });
        let pending = self.pending.as_ref()?;
        let effects = self.desk().given_up(pending, row, attempts, true);
        self.prepare(effects, row..row + 1, Then::Go)
    }

    /// Takes the parked events that were read from the state store.
    ///
    /// # Errors
    /// `Corrupt` when they aren't what a task writes.
    pub(super) fn parked_read(&mut self, stored: &[(Bytes, Bytes)]) -> Result<()> {
        self.parked = Some(Parked::load(stored, self.deployment.version)?);
        Ok(())
    }

    /// The rows of a run that can be dealt with at once: parked events that failed before begin a run, so
    /// that the function is told how often they did; of read ones, as many as may be parked if they have to.
    pub(super) fn at_once(&self, rows: Range<usize>) -> Range<usize> {
        let Some(pending) = &self.pending else {
            return rows;
        };
        if pending.fired(rows.start).is_some() {
            let tried = |row: &usize| pending.fired(*row).is_some_and(|at| at.attempts > 0);
            let end = (rows.start + 1..rows.end).find(tried);
            return rows.start..end.unwrap_or(rows.end);
        }
        if !pending.is_read() || self.parked().is_empty() {
            return rows;
        }
        let (mut events, mut bytes) = (0, 0);
        let full = |row: &usize| {
            if !self.parked().holds(pending.key(*row)) {
                return false;
            }
            (events, bytes) = (events + 1, bytes + pending.bytes(*row));
            !self.parked().has_room(events, bytes)
        };
        let end = rows.clone().find(full);
        rows.start..end.unwrap_or(rows.end)
    }

    /// The row at the front comes behind a parked one of its key, and no more can be parked.
    pub(super) fn wait_for_room(&mut self) -> Slice {
        let why = format!("a key waits to be tried again{}", self.full_words());
        self.view.set(Some(why));
        let due = self.parked().first_due().map(|due| self.left(due));
        Slice::Pause(due.unwrap_or(Duration::ZERO))
    }

    /// Follows what a transaction did to parked events.
    pub(super) fn follow_parked(&mut self, changes: Vec<ParkedChange>) {
        if let Some(parked) = &mut self.parked {
            changes.into_iter().for_each(|change| parked.apply(change));
        }
    }

    /// How long it is until a parked event is tried again.
    pub(super) fn until_parked(&self) -> Option<Duration> {
        self.parked().first_due().map(|due| self.left(due))
    }
}
