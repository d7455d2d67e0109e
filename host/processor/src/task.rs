//! One function on one partition of its inputs: reads a batch, runs the function on it, commits what it comes
//! to, and goes on. All of it is synchronous and in slices; whatever must be waited for is handed to
//! the driver as a [`Slice`].

mod ahead;
pub(crate) mod driver;
mod failing;
mod firing;
mod instance;
mod invoke;
mod keeping;
mod outside;
mod parking;
mod repartition;
mod skipped;
mod transaction;
mod view;
mod wanted;

use crate::attempts::Next;
use crate::calls;
use crate::deployment::Deployment;
use crate::effects::Desk;
use crate::function_log::{FunctionLog, FunctionLogLine};
use crate::measure::Meter;
use crate::merge::{Gathered, Merge, Next as Gathering, Positions};
use crate::note::Note;
use crate::parked::Parked;
use crate::parts::Parts;
use crate::pending::Pending;
use crate::pointer::Pointer;
use crate::record::Role;
use crate::sources::Sources;
use crate::timers::Timers;
use crate::usage::Kept;
use firing::Turned;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tidemill_env::Shutdown;
use tidemill_log::{Read, ReadLimit};
use tidemill_state::Scope;
use tidemill_types::{Error, PartitionId, Timestamp};
use tidemill_wasm::LogLevel;
use transaction::Prepared;
pub(crate) use view::View;
pub(crate) use wanted::Wanted;

/// How long a slice may last before another task has its turn.
const BUDGET: Duration = Duration::from_millis(4);

/// How much is fetched from storage at once, at least.
const FETCH: ReadLimit = ReadLimit {
    events: 16 << 10,
    bytes: 4 << 20,
};

/// Why a slice ended, and what to wait for.
#[derive(Debug)]
pub(crate) enum Slice {
    /// There is more to do, but it was long enough.
    More,
    /// Nothing to read: wait for the appended end to move.
    Idle,
    /// The next events aren't in memory: read them and hand them to [`Task::fetched`].
    Read,
    /// Something of its state has to be known first: do [`Task::reading`] and hand it to [`Task::learned`].
    State(Wanted),
    /// There is no room for an instance of so many pages: wait for it and hand it to [`Task::granted`].
    Instance(u32),
    /// State can't be read now: wait, then go on.
    Storage(Error),
    /// The event has to be durable, then a call to the outside made: hand what it comes to to [`Task::heard`].
    Call(Box<calls::Wanted>),
    /// Too much is in flight: wait for room.
    Room,
    /// Wait so long, then go on.
    Pause(Duration),
    /// The function stops: it said so, or its policy does.
    Stop(String),
    /// The task can't go on.
    Fault(Error),
}

/// A task.
pub(crate) struct Task {
    parts: Arc<Parts>,
    deployment: Arc<Deployment>,
    role: Role,
    /// What it reads, input by input.
    inputs: Vec<PartitionId>,
    position: Positions,
    note: Note,
    /// The input with whose position the note is kept.
    noted: usize,
    /// Events that were fetched from storage and wait for their turn.
    ahead: Option<Read>,
    /// Whether what was read last filled a batch: then there is more to do at once.
    has_more: bool,
    /// How far state was asked for.
    looked: ahead::Ahead,
    /// What is known of several inputs' events.
    merge: Option<Merge>,
    pending: Option<Pending>,
    /// What waits while parked events or timers are in front, the next last.
    behind: Vec<Pending>,
    /// What is parked, once it is known.
    parked: Option<Parked>,
    /// Timers that are set, once they are known.
    timers: Option<Timers>,
    /// How much state there is, once it is known.
    kept: Option<Kept>,
    prepared: Option<Prepared>,
    guest: invoke::Guest,
    pointer: Option<Pointer>,
    /// Of a task that moves events: the partitions of its input.
    sources: Option<Arc<Sources>>,
    meter: Meter,
    lines: Arc<FunctionLog>,
    view: Arc<View>,
    stop: Shutdown,
    /// How far the clock is said to be, of a replay.
    until: Option<Timestamp>,
}

/// What a task starts with.
pub(crate) struct Start {
    pub(crate) deployment: Arc<Deployment>,
    pub(crate) role: Role,
    /// What it reads, input by input; at least one.
    pub(crate) inputs: Vec<PartitionId>,
    pub(crate) position: Positions,
    pub(crate) note: Note,
    /// The input with whose position the note is kept.
    pub(crate) noted: usize,
    /// Of a task that moves events: the partitions of its input.
    pub(crate) sources: Option<Arc<Sources>>,
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
            inputs,
            position,
            note,
            noted,
            sources,
            lines,
            view,
            stop,
        } = start;
        let pointer = match role {
            Role::Main => None,
            Role::Repartition => moved_from(&deployment, inputs[0])
                .and_then(|input| deployment.manifest.inputs[input].key.as_deref())
                .map(Pointer::new),
        };
        let several = inputs.len() > 1;
        let merge = several.then(|| Merge::new(inputs.iter().copied().zip(position.iter())));
        let note = note.taken_up_by(deployment.version).reading(inputs.len());
        let mut meter = parts.metrics.of(&deployment.name, deployment.version);
        if role == Role::Main {
            meter.waiting(note.shown().retrying);
        }
        let guest = invoke::Guest::new(&parts, &deployment, inputs[0].partition);
        Self {
            parts,
            deployment,
            role,
            inputs,
            position,
            note,
            noted,
            ahead: None,
            has_more: false,
            looked: ahead::Ahead::default(),
            merge,
            pending: None,
            behind: Vec::new(),
            parked: None,
            timers: None,
            kept: None,
            prepared: None,
            guest,
            pointer,
            sources,
            meter,
            lines,
            view,
            stop,
            until: None,
        }
    }

    /// Works until there is something to wait for, or long enough.
    pub(crate) fn work(&mut self) -> Slice {
        let begun = self.parts.clock.elapsed();
        let slice = loop {
            if let Some(slice) = self.step() {
                break slice;
            }
            if self.stop.is_cancelled() || self.parts.clock.elapsed() - begun > BUDGET {
                break Slice::More;
            }
        };
        self.shelve();
        slice
    }

    /// One step: commit what is prepared, or read, or decide what to do with the batch.
    fn step(&mut self) -> Option<Slice> {
        if let Some(prepared) = self.prepared.take() {
            return self.commit(prepared);
        }
        if self.kept.is_none() && self.keeps() {
            return Some(Slice::State(Wanted::Kept { again: false }));
        }
        let Some(pending) = &self.pending else {
            if let Some(turn) = self.unpark().or_else(|| self.fire(None)) {
                return turn.slice();
            }
            return match self.next_batch() {
                Some(read) => self.feed(read),
                None => Some(Slice::Read),
            };
        };
        match pending.attempts.next() {
            Next::Done => {
                self.pending = self.behind.pop();
                None
            }
            Next::Wait { failures } => self.wait(failures),
            Next::GiveUp { row, attempts } => {
                let before = pending.fired(row).map_or(0, |fired| fired.attempts);
                self.give_up(row, before.saturating_add(attempts))
            }
            Next::Run { rows, .. } if self.is_elsewhere(rows.start) => self.turn_away(rows.start),
            Next::Run { rows, attempt } => match self.role {
                Role::Main => self.run(rows, attempt),
                Role::Repartition => self.repartition(rows),
            },
        }
    }

    /// Runs the function on some rows, after what comes before them.
    fn run(&mut self, rows: Range<usize>, attempt: u32) -> Option<Slice> {
        let before = self.unpark().or_else(|| self.fire(Some(rows.start)));
        if let Some(turn) = before {
            return turn.slice();
        }
        let rows = self.before_timers(self.at_once(rows));
        let mut rows = match &self.pending {
            Some(pending) if !rows.is_empty() => pending.of_one_input(rows),
            _ => rows,
        };
        if self.calls_outside() {
            rows.end = rows.end.min(rows.start + 1);
        }
        if rows.is_empty() {
            return Some(self.wait_for_room());
        }
        let fired = self.pending.as_ref().and_then(|at| at.fired(rows.start));
        let before = fired.map_or(0, |fired| fired.attempts);
        self.invoke(rows, before.saturating_add(attempt))
    }

    /// The next batch, if its events are in memory.
    fn next_batch(&mut self) -> Option<Gathered> {
        let limit = self.read_limit();
        if let Some(merge) = &mut self.merge {
            return merged(&self.parts, merge, limit);
        }
        if let Some(ahead) = &mut self.ahead {
            let read = ahead.take(limit);
            if ahead.batches.is_empty() {
                self.ahead = None;
            }
            return Some(read.into());
        }
        let read = self
            .parts
            .read_ahead(self.inputs[0], self.position.first(), limit);
        read.map(Gathered::from)
    }

    /// Takes events that were fetched: more than a batch, so that a file is opened and a page unpacked
    /// once for many batches. Answers that there were none.
    pub(crate) fn fetched(&mut self, read: Read) -> Option<Slice> {
        if let Some(merge) = &mut self.merge {
            merge.fetched(read);
            return None;
        }
        if read.batches.iter().all(tidemill_types::Batch::is_empty) {
            return self.feed(read.into());
        }
        self.ahead = Some(read);
        None
    }

    /// Takes events of a replay: those of several inputs are a batch.
    pub(crate) fn handed(&mut self, gathered: Gathered) -> Option<Slice> {
        if self.merge.is_some() || gathered.is_empty() {
            return self.feed(gathered);
        }
        self.ahead = Some(Read {
            next: gathered.next.first(),
            end: gathered.next.first(),
            batches: gathered.batches,
        });
        None
    }

    /// Time goes on as far as the clock had it in a live task that came to another note, with nothing to read.
    pub(crate) fn went_on(&mut self, note: &Note) -> Option<Slice> {
        let idle = self.deployment.manifest.time.idle;
        let idle = self.note.idle_until(note, idle).map(Timestamp::from_micros);
        self.until = note.processing.max(idle);
        self.fire_by_clock()
            .map_or(Some(Slice::Idle), Turned::slice)
    }

    /// Takes events that were read.
    fn feed(&mut self, read: Gathered) -> Option<Slice> {
        if read.is_empty() {
            if read.next == self.position {
                let turned = self.tell_of_time().or_else(|| self.fire_by_clock());
                return turned.map_or(Some(Slice::Idle), Turned::slice);
            }
            // Compaction left nothing up to there, nor of what failed.
            let front = self.note.front.filter(|front| front.is_timer);
            self.pass_over(read.next, Note { front, ..self.note });
            return None;
        }
        let by_key = match self.role {
            Role::Main => self.deployment.by_key(),
            Role::Repartition => 0,
        };
        if let Some(sources) = &self.sources {
            sources.is_busy(self.partition());
        }
        self.has_more = self.ahead.is_some() || read.len() >= self.read_limit().events;
        let most = self.deployment.manifest.retry.attempts;
        let next = read.next.first();
        let mut pending = Pending::new(read, by_key, most);
        if let Some(front) = self.note.front.filter(|front| !front.is_timer) {
            pending.attempts.resume(front.failures);
        }
        self.pending = Some(pending);
        self.look_ahead(next);
        None
    }

    /// What has to be fetched, and from which offset on: of which input, of which partition.
    pub(crate) fn wanted(&self) -> (usize, PartitionId, u64) {
        match &self.merge {
            Some(merge) => merge.wanted(),
            None => (0, self.inputs[0], self.position.first()),
        }
    }

    /// Next offset to read of each input.
    pub(crate) fn position(&self) -> &Positions {
        &self.position
    }

    /// Its totals.
    pub(crate) fn note(&self) -> Note {
        self.note
    }

    /// Whose state it changes.
    pub(crate) fn scope(&self) -> Scope {
        Scope {
            function: self.deployment.function,
            partition: self.partition(),
        }
    }

    /// The number of the partition it reads of each input.
    fn partition(&self) -> u32 {
        self.inputs[0].partition
    }

    /// How many tasks of the function may be at work at a time.
    pub(crate) fn concurrency(&self) -> usize {
        let limit = self.deployment.manifest.limits.concurrency;
        limit.map_or(self.parts.pool.threads(), |limit| limit as usize)
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

    /// How much is fetched from storage at once.
    pub(crate) fn fetch_limit(&self) -> ReadLimit {
        let ReadLimit { events, bytes } = self.read_limit();
        // Several inputs share what one may take.
        let inputs = self.inputs.len();
        ReadLimit {
            events: events.max(FETCH.events / inputs),
            bytes: bytes.max(FETCH.bytes / inputs),
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
    pub(crate) fn waits(&self, why: impl Into<String>) {
        self.view.waits(self.parts.clock.now(), why.into());
    }

    /// It has what it waited for.
    pub(crate) fn goes_on(&self) {
        self.view.goes_on();
    }

    fn desk(&self) -> Desk<'_> {
        Desk {
            deployment: &self.deployment,
            partition: self.partition(),
            note: self.note,
            parked: self.parked(),
            now: self.parts.clock.now(),
        }
    }

    /// A line of the host's own in the function's log, about the position in an input.
    fn warn(&self, input: usize, message: String) {
        self.lines.push(FunctionLogLine {
            time: self.parts.clock.now(),
            level: LogLevel::Warn,
            version: self.deployment.version,
            topic: self.named(input),
            partition: self.partition(),
            offset: self.position.get(input),
            key: None,
            message,
        });
    }

    /// The topic of an input as log lines name it: where there are several.
    fn named(&self, input: usize) -> Option<String> {
        let inputs = &self.deployment.inputs;
        let several = inputs.len() > 1 && self.role == Role::Main;
        several.then(|| inputs[input].topic.name.to_string())
    }

    /// Where an event of the batch stands, in words.
    fn place(&self, row: usize) -> String {
        let input = self
            .pending
            .as_ref()
            .map_or(0, |pending| pending.input(row));
        let topic = &self.deployment.inputs[input].topic.name;
        if let Some(pending) = &self.pending
            && pending.timers_of().is_some()
        {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let (tag, key) = (pending.tag(row), pending.key(row).unwrap_or_default());
            let (tag, key, partition) = (text(tag), text(key), self.partition());
            return format!("the timer {tag:?} of key {key:?} on partition {partition} of {topic}");
        }
        let origin = self.pending.as_ref().and_then(|pending| {
            let (event, origin) = pending.event(row).ok()?;
            Some(match origin {
                Some(origin) => (origin.partition, origin.offset),
                None => (self.partition(), event.offset),
            })
        });
        let here = (self.partition(), self.position.get(input));
        let (partition, offset) = origin.unwrap_or(here);
        format!("the event at {topic} {partition}:{offset}")
    }
}

/// The input whose events a task moves to an internal topic.
fn moved_from(deployment: &Deployment, at: PartitionId) -> Option<usize> {
    let mut inputs = deployment.inputs.iter();
    inputs.position(|input| input.topic.id == at.topic)
}

/// The next events of several inputs, if they are in memory; a replay is handed them.
fn merged(parts: &Parts, merge: &mut Merge, limit: ReadLimit) -> Option<Gathered> {
    if parts.aside.is_some() {
        return None;
    }
    let mut look = |at, from| {
        let through = parts.log.appended();
        Some((through, parts.log.read_ahead(at, from, limit)?))
    };
    match merge.gather(limit, &mut look) {
        Gathering::Events(gathered) => Some(gathered),
        Gathering::Nothing(next) => Some(Gathered {
            next,
            ..Gathered::default()
        }),
        Gathering::Fetch => None,
    }
}
