//! One function on one input partition: reads a batch, runs the function on it, commits what it comes
//! to, and goes on. All of it is synchronous and in slices; whatever must be waited for is handed to
//! the driver as a [`Slice`].

pub(crate) mod driver;
mod invoke;
mod repartition;

use crate::attempts::Next;
use crate::dead_letter::{Cause, Reason};
use crate::deployment::Deployment;
use crate::effects::{Desk, Effects, Refusal};
use crate::function_log::FunctionLog;
use crate::manifest::Exhausted;
use crate::measure::Meter;
use crate::note::Note;
use crate::parts::Parts;
use crate::pending::Pending;
use crate::pointer::Pointer;
use crate::record::{Role, reader};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tidemill_env::Shutdown;
use tidemill_log::{Advance, Draft, Read, ReadLimit};
use tidemill_state::{Missing, Scope};
use tidemill_types::{Error, ErrorKind, PartitionId, Result};

/// How long a slice may last before another task has its turn.
const BUDGET: Duration = Duration::from_millis(4);
/// Pause while the disk is full.
const FULL_DISK_PAUSE: Duration = Duration::from_secs(1);

/// Why a slice ended, and what to wait for.
#[derive(Debug)]
pub(crate) enum Slice {
    /// There is more to do, but it was long enough.
    More,
    /// Nothing to read: wait for the committed end to move.
    Idle,
    /// The next events aren't in memory: read them and [`Task::feed`] them.
    Read,
    /// These values of state aren't in memory: load them.
    Load(Vec<Missing>),
    /// Too much is in flight: wait for room.
    Room,
    /// Wait so long, then go on.
    Pause(Duration),
    /// The function stops: it said so, or its policy does.
    Stop(String),
    /// The task can't go on.
    Fault(Error),
}

/// What can be seen of a task while it works.
#[derive(Default)]
pub(crate) struct View(Mutex<Option<String>>);

impl View {
    /// Why the event at the front is being tried again, if it is.
    pub(crate) fn retrying(&self) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, why: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }
}

/// A transaction laid out and not yet taken by the log.
struct Prepared {
    draft: Draft,
    section: Vec<u8>,
    note: Note,
    position: u64,
    /// Rows of the batch it gives a fate to.
    rows: usize,
    /// What follows once it is committed.
    then: Then,
}

/// What follows a transaction.
enum Then {
    Go,
    /// The next row asked to be tried again.
    Retry(Cause),
    Stop(String),
}

/// A task.
pub(crate) struct Task {
    parts: Arc<Parts>,
    deployment: Arc<Deployment>,
    role: Role,
    at: PartitionId,
    position: u64,
    note: Note,
    pending: Option<Pending>,
    prepared: Option<Prepared>,
    guest: invoke::Guest,
    pointer: Option<Pointer>,
    meter: Meter,
    lines: Arc<FunctionLog>,
    view: Arc<View>,
    stop: Shutdown,
}

/// What a task starts with.
pub(crate) struct Start {
    pub(crate) deployment: Arc<Deployment>,
    pub(crate) role: Role,
    pub(crate) at: PartitionId,
    pub(crate) position: u64,
    pub(crate) note: Note,
    pub(crate) lines: Arc<FunctionLog>,
    pub(crate) view: Arc<View>,
    pub(crate) stop: Shutdown,
}

impl Task {
    /// A task at its committed position.
    pub(crate) fn new(parts: Arc<Parts>, start: Start) -> Self {
        let Start {
            deployment,
            role,
            at,
            position,
            note,
            lines,
            view,
            stop,
        } = start;
        let pointer = match role {
            Role::Main => None,
            Role::Repartition => deployment.manifest.inputs[0]
                .key
                .as_deref()
                .map(Pointer::new),
        };
        let meter = parts.metrics.of(&deployment.name);
        let guest = invoke::Guest::new(&parts, &deployment, at.partition);
        Self {
            parts,
            deployment,
            role,
            at,
            position,
            note,
            pending: None,
            prepared: None,
            guest,
            pointer,
            meter,
            lines,
            view,
            stop,
        }
    }

    /// Works until there is something to wait for, or long enough.
    pub(crate) fn work(&mut self) -> Slice {
        let begun = self.parts.clock.elapsed();
        loop {
            if let Some(slice) = self.step() {
                return slice;
            }
            if self.stop.is_cancelled() || self.parts.clock.elapsed() - begun > BUDGET {
                return Slice::More;
            }
        }
    }

    /// One step: commit what is prepared, or read, or decide what to do with the batch.
    fn step(&mut self) -> Option<Slice> {
        if let Some(prepared) = self.prepared.take() {
            return self.commit(prepared);
        }
        let Some(pending) = &self.pending else {
            return match self
                .parts
                .log
                .read_tail(self.at, self.position, self.read_limit())
            {
                Some(read) => self.feed(read),
                None => Some(Slice::Read),
            };
        };
        match pending.attempts.next() {
            Next::Done => {
                self.pending = None;
                None
            }
            Next::Wait { failures } => {
                let cause = pending.cause.as_ref();
                let why = cause.map_or("", |cause| cause.error.as_str());
                self.view
                    .set(Some(format!("try {} failed: {why}", failures)));
                Some(Slice::Pause(self.backoff(failures)))
            }
            Next::GiveUp { row, attempts } => self.give_up(row, attempts),
            Next::Run { rows, attempt } => match self.role {
                Role::Main => self.invoke(rows, attempt),
                Role::Repartition => self.repartition(rows),
            },
        }
    }

    /// Takes events that were read.
    pub(crate) fn feed(&mut self, read: Read) -> Option<Slice> {
        if read.batches.iter().all(tidemill_types::Batch::is_empty) {
            return Some(Slice::Idle);
        }
        let by_key = self.role == Role::Main && self.deployment.by_key.is_some();
        let most = self.deployment.manifest.retry.attempts;
        self.pending = Some(Pending::new(read, by_key, most));
        None
    }

    /// The pause that was asked for is over.
    pub(crate) fn waited(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.attempts.waited();
        }
    }

    /// Lets go of everything that an idle task doesn't need.
    pub(crate) fn rest(&mut self) {
        self.guest.rest();
    }

    /// Whether it holds anything that [`Task::rest`] would let go of.
    pub(crate) fn is_warm(&self) -> bool {
        self.guest.is_warm()
    }

    /// Where it reads.
    pub(crate) fn at(&self) -> PartitionId {
        self.at
    }

    /// Next offset to read.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Whose state it changes.
    pub(crate) fn scope(&self) -> Scope {
        Scope {
            function: self.deployment.function,
            partition: self.at.partition,
        }
    }

    /// How much is read at once: a batch.
    pub(crate) fn read_limit(&self) -> ReadLimit {
        let manifest = &self.deployment.manifest;
        match self.role {
            Role::Main => ReadLimit {
                events: manifest.batch_events,
                bytes: manifest.batch_bytes.as_usize(),
            },
            Role::Repartition => repartition::LIMIT,
        }
    }

    /// How long a batch may be waited for, and how many events make it full.
    pub(crate) fn fill(&self) -> (Duration, u64) {
        (
            self.deployment.manifest.batch_wait,
            self.deployment.manifest.batch_events as u64,
        )
    }

    /// Says what it waits for.
    pub(crate) fn say(&self, why: String) {
        self.view.set(Some(why));
    }

    /// The pause after so many failures: doubled each time, up to the longest, half of it by chance.
    fn backoff(&self, failures: u32) -> Duration {
        let retry = &self.deployment.manifest.retry;
        let doubled = retry
            .backoff_least
            .saturating_mul(1 << (failures - 1).min(30));
        let longest = doubled.min(retry.backoff_most);
        let micros = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(micros - self.parts.random.below(micros / 2 + 1))
    }

    /// Nothing helped the row at the front: it gets the fate its function's policy says.
    fn give_up(&mut self, row: usize, attempts: u32) -> Option<Slice> {
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

    fn desk(&self) -> Desk<'_> {
        Desk {
            deployment: &self.deployment,
            partition: self.at.partition,
            note: self.note,
        }
    }

    /// Where an event of the batch stands, in words.
    fn place(&self, row: usize) -> String {
        let topic = &self.deployment.input.name;
        let origin = self.pending.as_ref().and_then(|pending| {
            let (event, origin) = pending.event(row).ok()?;
            Some(match origin {
                Some(origin) => (origin.partition, origin.offset),
                None => (self.at.partition, event.offset),
            })
        });
        let (partition, offset) = origin.unwrap_or((self.at.partition, self.position));
        format!("the event at {topic} {partition}:{offset}")
    }

    /// Lays out the transaction of some effects; it is committed in the next step.
    fn prepare(
        &mut self,
        effects: Result<Effects, Refusal>,
        run: std::ops::Range<usize>,
        then: Then,
    ) -> Option<Slice> {
        let prepared = effects.and_then(|effects| self.lay_out(effects, then));
        match prepared {
            Ok(prepared) => {
                self.prepared = Some(prepared);
                None
            }
            Err(Refusal::Apart(row)) => {
                self.pending.as_mut()?.attempts.set_apart(run, row);
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

    fn lay_out(&self, effects: Effects, then: Then) -> Result<Prepared, Refusal> {
        let Some(pending) = &self.pending else {
            return Err(Refusal::Fault(Error::internal("effects without a batch")));
        };
        let mut draft = Draft::new();
        let position = pending.position_after(pending.attempts.done() + effects.rows);
        draft.advance(Advance {
            reader: reader(self.deployment.function, self.role),
            topic: self.at.topic,
            partition: self.at.partition,
            from: self.position,
            to: position,
            note: effects.note.encode().to_vec().into(),
        });
        let outputs = match (self.role, &self.deployment.by_key) {
            (Role::Repartition, Some(by_key)) => std::slice::from_ref(by_key),
            _ => self.deployment.outputs.as_slice(),
        };
        for (topic, (rows, partitions)) in outputs.iter().zip(&effects.outputs) {
            if !rows.is_empty() {
                draft.append(topic.id, rows, partitions)?;
            }
        }
        let (letters, partitions) = &effects.letters;
        if !letters.is_empty() {
            draft.append(self.deployment.dead_letters.id, letters, partitions)?;
        }
        let mut section = Vec::new();
        if !effects.changes.is_empty() {
            section.extend_from_slice(effects.changes.as_bytes());
            draft.state(&section);
        }
        Ok(Prepared {
            draft,
            section,
            note: effects.note,
            position,
            rows: effects.rows,
            then,
        })
    }

    /// Commits; what follows is done only if the log took it.
    fn commit(&mut self, mut prepared: Prepared) -> Option<Slice> {
        let sections: &[&[u8]] = if prepared.section.is_empty() {
            &[]
        } else {
            &[prepared.section.as_slice()]
        };
        match self.parts.commit(prepared.draft, sections) {
            Ok(_ticket) => self.committed(
                &prepared.note,
                prepared.position,
                prepared.rows,
                prepared.then,
            ),
            Err((error, Some(draft))) => {
                let slice = match error.kind {
                    ErrorKind::Busy => Slice::Room,
                    ErrorKind::StorageFull => {
                        self.view.set(Some(error.detail));
                        Slice::Pause(FULL_DISK_PAUSE)
                    }
                    _ => return Some(Slice::Fault(error)),
                };
                prepared.draft = draft;
                self.prepared = Some(prepared);
                Some(slice)
            }
            Err((error, None)) => Some(Slice::Fault(error)),
        }
    }

    fn committed(&mut self, note: &Note, position: u64, rows: usize, then: Then) -> Option<Slice> {
        debug_assert!(note.counts.conserved());
        if self.role == Role::Main {
            self.meter.committed(&self.note.counts, &note.counts);
        }
        (self.note, self.position) = (*note, position);
        self.view.set(None);
        let pending = self.pending.as_mut()?;
        pending.attempts.passed(rows);
        pending.cause = None;
        match then {
            Then::Go => None,
            Then::Retry(cause) => {
                self.retry(cause);
                None
            }
            Then::Stop(why) => Some(Slice::Stop(why)),
        }
    }

    /// The row at the front asked to be tried again.
    fn retry(&mut self, cause: Cause) {
        self.meter.failed(cause.reason);
        if let Some(pending) = &mut self.pending {
            pending.attempts.retry();
            pending.cause = Some(cause);
        }
    }

    /// A run failed as a whole.
    fn failed(&mut self, run: std::ops::Range<usize>, cause: Cause) {
        self.meter.failed(cause.reason);
        if let Some(pending) = &mut self.pending {
            pending.attempts.failed(run);
            pending.cause = Some(cause);
        }
    }
}
