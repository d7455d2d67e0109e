//! Calling the function on some rows of a batch.

use super::keeping::Full;
use super::transaction::Then;
use super::{Slice, Task, Wanted, parking};
use crate::calls;
use crate::dead_letter::{Cause, Reason};
use crate::deployment::Deployment;
use crate::effects::{Run, Spare};
use crate::function_log::FunctionLogLine;
use crate::instances::{Room, pages};
use crate::keys::KeyNumbers;
use crate::manifest::{SlotKind, Time};
use crate::mask::Mask;
use crate::note::Note;
use crate::parked::Parked;
use crate::parts::Parts;
use crate::pending::Pending;
use crate::services::Services;
use crate::stored::Slots;
use crate::timers::Timers;
use crate::usage::size;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidemill_state::{Missing, Reader, Scope, Store};
use tidemill_types::{Error, Result};
use tidemill_wasm::{
    BatchPacker, Call, Commands, Failure, FailureKind, Instance, LogLine, StateCell, Stop,
};

/// Timers draw other random numbers than events.
const TIMER_SEED: u64 = 0x7469_6d65_7273_0001;

/// The live copy of a component and the buffers its calls use.
pub(super) struct Guest {
    services: Arc<Services>,
    /// Which instance on the shelf is its own.
    pub(super) number: u64,
    pub(super) instance: Option<Instance>,
    pub(super) packer: BatchPacker,
    /// The room its instance has while it is at work.
    pub(super) room: Option<Room>,
    /// Room that was waited for.
    pub(super) granted: Option<Room>,
    /// Whether its next call gets all the room its limit allows.
    pub(super) wants_all: bool,
    numbers: KeyNumbers,
    /// Rows that are sent.
    sent: Vec<usize>,
    /// Number of each sent row's key.
    keys: Vec<u32>,
    /// For each distinct key: the first row that has it.
    first_rows: Vec<usize>,
    /// Watermark at the turn of each sent row; empty where nothing is kept.
    clock: Vec<i64>,
    /// For each distinct key and slot, what a counter holds; empty without counters.
    counts: Vec<Option<i64>>,
    /// For each distinct key and slot, the bytes it takes.
    sizes: Vec<u64>,
    /// Memory of the last effects.
    pub(super) spare: Spare,
    /// Of the random numbers of each input's events.
    seeds: Vec<u64>,
    told_keyless: bool,
}

impl Guest {
    pub(super) fn new(parts: &Parts, deployment: &Deployment, partition: u32) -> Self {
        Self {
            services: Arc::new(Services::new(parts, deployment, partition)),
            number: parts.instances.number(),
            instance: None,
            packer: BatchPacker::default(),
            room: None,
            granted: None,
            wants_all: false,
            numbers: KeyNumbers::default(),
            sent: Vec::new(),
            keys: Vec::new(),
            first_rows: Vec::new(),
            clock: Vec::new(),
            counts: Vec::new(),
            sizes: Vec::new(),
            spare: Spare::default(),
            seeds: seeds(deployment, partition),
            told_keyless: false,
        }
    }

    /// Secrets that the function was given.
    pub(super) fn mask(&self) -> &Mask {
        self.services.mask()
    }

    /// What is on record of a call. May wait for the disk.
    pub(super) fn recorded(&self, scope: Scope, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.services.recorded(scope, key)
    }

    /// Chooses the rows to send and numbers their keys. A function that keeps something by key gets no
    /// events without one, and none gets events whose key is parked. Answers how many have no key.
    fn choose(
        &mut self,
        pending: &Pending,
        rows: Range<usize>,
        slots: &Slots,
        (time, parked): (Clocks<'_>, &Parked),
    ) -> usize {
        let all = rows.len();
        let (is_read, parks) = (pending.is_read(), !parked.is_empty());
        let waits = |row: usize| {
            is_read && (parks && parked.holds(pending.key(row)) || pending.is_mark(row))
        };
        self.sent.clear();
        self.keys.clear();
        self.first_rows.clear();
        self.clock.clear();
        if !slots.keyed() {
            self.sent.extend(rows.filter(|row| !waits(*row)));
            return 0;
        }
        self.numbers.begin(all);
        pending.touch(rows.clone());
        let (mut time, mut keyless) = (time, 0);
        for row in rows {
            let watermark = time.turn_of(pending, row);
            let Some(key) = pending.key(row) else {
                keyless += usize::from(!pending.is_mark(row));
                continue;
            };
            if waits(row) {
                continue;
            }
            let first_rows = &self.first_rows;
            let known = |number: u32| pending.key(first_rows[number as usize]).unwrap_or_default();
            let (number, fresh) = self.numbers.number(key, known);
            if fresh {
                self.first_rows.push(row);
            }
            self.sent.push(row);
            self.keys.push(number);
            self.clock.push(watermark);
        }
        keyless
    }

    /// Lays out the batch: the events, then the state of their keys. What isn't in memory is answered;
    /// then the batch isn't whole.
    fn pack(
        &mut self,
        pending: &Pending,
        state: &Store,
        scope: Scope,
        slots: &Slots,
    ) -> Result<Vec<Missing>> {
        self.packer.begin(slots.list.len());
        if !slots.ttls.is_empty() {
            self.packer.ttls(&slots.ttls);
        }
        self.packer
            .expect(self.sent.len(), self.first_rows.len(), slots.clocked());
        for (at, row) in self.sent.iter().enumerate() {
            let (event, _) = pending.event(*row)?;
            let number = self.keys.get(at).copied().unwrap_or_default();
            match pending.timers_of() {
                None => self.packer.push(&event, number),
                Some(clock) => self.packer.timer(&event, clock, number),
            }
            if slots.clocked() {
                self.packer.clock(self.clock[at]);
            }
        }
        self.counts.clear();
        self.sizes.clear();
        if slots.list.is_empty() {
            return Ok(Vec::new());
        }
        Ok(state.read(scope, |reader| self.pack_state(pending, reader, slots)))
    }

    fn pack_state(
        &mut self,
        pending: &Pending,
        reader: &Reader<'_>,
        slots: &Slots,
    ) -> Vec<Missing> {
        let mut missing = Vec::new();
        let mut cells = Vec::with_capacity(slots.list.len());
        let keys = || self.first_rows.iter().filter_map(|row| pending.key(*row));
        for slot in slots.list.iter().filter(|slot| slot.kind != SlotKind::Map) {
            reader.touch(slot.number, keys());
        }
        let counts = slots.list.iter().any(|slot| slot.kind == SlotKind::Counter);
        for row in &self.first_rows {
            let key = pending.key(*row).unwrap_or_default();
            cells.clear();
            for slot in &slots.list {
                // The entries of a map are asked for one by one.
                let stored = match slot.kind {
                    SlotKind::Map => Ok(None),
                    _ => reader.get(slot.number, key),
                };
                let stored = match stored {
                    Ok(stored) => stored,
                    Err(wanted) => {
                        missing.push(wanted);
                        continue;
                    }
                };
                self.sizes
                    .push(stored.map_or(0, |stored| size(key, stored)));
                let opened = stored.map(|stored| slots.open(slot, stored));
                if counts {
                    self.counts.push(count(opened.map(|opened| opened.value)));
                }
                cells.push(match opened {
                    None => StateCell::Absent,
                    Some(opened) if slot.ttl.is_some() => {
                        StateCell::Until(opened.expires, opened.value)
                    }
                    Some(opened) => StateCell::Value(opened.value),
                });
            }
            if missing.is_empty() {
                self.packer.state(&cells);
            }
        }
        missing
    }
}

/// What a counter holds; `None`: no number.
fn count(stored: Option<&[u8]>) -> Option<i64> {
    match stored {
        None => Some(0),
        Some(text) => std::str::from_utf8(text).ok()?.parse().ok(),
    }
}

/// How far time is at the turns of events, one after the other.
#[derive(Clone, Copy)]
pub(super) struct Clocks<'t> {
    pub(super) note: Note,
    pub(super) limits: &'t Time,
}

impl<'t> Clocks<'t> {
    fn of(note: Note, deployment: &'t Deployment) -> Self {
        Self {
            note,
            limits: &deployment.manifest.time,
        }
    }

    /// The watermark at the turn of a row; the next row's turn comes after it.
    pub(super) fn turn_of(&mut self, pending: &Pending, row: usize) -> i64 {
        if let Some(watermark) = pending.watermark(row) {
            return watermark;
        }
        let (_, received) = pending.times(row);
        self.note.arrives(received, self.limits.idle);
        let watermark = self.note.watermark_micros(self.limits.disorder);
        pending.observe(row, &mut self.note, self.limits);
        watermark
    }
}

impl Task {
    pub(super) fn invoke(&mut self, rows: Range<usize>, attempt: u32) -> Option<Slice> {
        if let Some(slice) = self.warm_up() {
            return Some(slice);
        }
        let time = Clocks::of(self.note, &self.deployment);
        let pending = self.pending.as_ref()?;
        let slots = &self.deployment.slots;
        let parked = self.parked.as_ref().unwrap_or_else(|| parking::none());
        let keyless = self
            .guest
            .choose(pending, rows.clone(), slots, (time, parked));
        let scope = self.scope();
        match self.guest.pack(pending, &self.parts.state, scope, slots) {
            Ok(missing) if missing.is_empty() => {}
            Ok(missing) => {
                self.looked.missed();
                return Some(Slice::State(Wanted::Values(scope, missing)));
            }
            Err(fault) => return Some(Slice::Fault(fault)),
        }
        if keyless > 0 {
            self.tell_keyless(rows.start);
        }
        if self.guest.sent.is_empty() {
            return self.passed_over(rows);
        }
        match self.call(attempt) {
            Ok(answer) => self.answered(rows, attempt, &answer),
            Err(Called::Unstartable(why)) => Some(Slice::Stop(why)),
            Err(Called::Short) => {
                self.ran_short();
                None
            }
            Err(Called::Unreadable(error)) => Some(Slice::Storage(error)),
            Err(Called::Outside(wanted)) => Some(Slice::Call(wanted)),
            Err(Called::Failed(cause)) => {
                self.failed(rows, cause);
                None
            }
        }
    }

    /// How far time is before the next event.
    pub(super) fn clocks(&self) -> Clocks<'_> {
        Clocks::of(self.note, &self.deployment)
    }

    /// A run of nothing that the function is given.
    fn passed_over(&mut self, rows: Range<usize>) -> Option<Slice> {
        let pending = self.pending.as_ref()?;
        let effects = self.desk().passed_over(pending, rows.clone());
        self.prepare(Ok(effects), rows, Then::Go)
    }

    fn call(&mut self, attempt: u32) -> Result<Vec<u8>, Called> {
        let (granted, partition) = (self.grant(), self.partition());
        let watermark = self.watermark_of_call();
        let deployment = &self.deployment;
        let row = self.guest.sent.first().copied();
        let calling = match self.pending.as_ref().zip(row) {
            Some((pending, row)) if self.calls_outside() => {
                let calling = self.calling(pending, row, attempt);
                Some(calling.map_err(Called::Unreadable)?)
            }
            _ => None,
        };
        self.guest.services.begin(calling);
        let instance = match &mut self.guest.instance {
            Some(instance) => instance,
            empty => {
                let services: Arc<Services> = Arc::clone(&self.guest.services);
                let made = self.parts.sandbox.instantiate_within(
                    &deployment.component,
                    deployment.limits(),
                    granted,
                    services,
                );
                empty.insert(made.map_err(|failure| match failure.kind {
                    FailureKind::Short => Called::Short,
                    _ => Called::Unstartable(format!("it can't be started: {}", failure.message)),
                })?)
            }
        };
        let pending = self.pending.as_ref();
        let timers = pending.and_then(Pending::timers_of);
        let input = pending
            .zip(self.guest.sent.first())
            .map_or(0, |(pending, row)| pending.input(*row));
        let call = Call {
            input: u32::try_from(input).unwrap_or_default(),
            partition,
            attempt,
            watermark,
            seed: self.guest.seeds[input] ^ timers.map_or(0, |_| TIMER_SEED),
        };
        let begun = self.parts.clock.elapsed();
        let answer = instance.on_batch(call, self.guest.packer.finish());
        self.meter
            .called(self.parts.clock.elapsed().saturating_sub(begun));
        let lines = instance.take_log();
        if answer.is_err() || deployment.component.is_alone() {
            let used = pages(instance.memory());
            deployment.pages.fetch_max(used, Ordering::Relaxed);
            self.guest.instance = None;
        }
        if let Some(wanted) = self.guest.services.take_wanted() {
            // Whatever the guest made of it, it did without the answer.
            self.guest.instance = None;
            return Err(Called::Outside(Box::new(wanted)));
        }
        if answer.is_err() {
            self.meter.restarted();
        }
        let is_short = |failure: &Failure| failure.kind == FailureKind::Short;
        if answer.as_ref().is_err_and(is_short) {
            return Err(Called::Short);
        }
        for line in lines {
            self.keep_line(line);
        }
        answer.map_err(|failure| match self.guest.services.take_unreadable() {
            Some(error) => Called::Unreadable(error),
            None => Called::Failed(self.masked(failure.into())),
        })
    }

    /// The watermark at the turn of the first row that is sent.
    fn watermark_of_call(&self) -> i64 {
        let mut clocks = self.clocks();
        let now = clocks.note.watermark_micros(clocks.limits.disorder);
        match self.pending.as_ref().zip(self.guest.sent.first()) {
            // Rows before it that aren't sent count, too.
            Some((pending, first)) if pending.is_read() => {
                let rows = pending.attempts.done()..=*first;
                rows.fold(now, |_, row| clocks.turn_of(pending, row))
            }
            Some((pending, row)) => clocks.turn_of(pending, *row),
            None => now,
        }
    }

    fn answered(&mut self, rows: Range<usize>, attempt: u32, answer: &[u8]) -> Option<Slice> {
        let spare = std::mem::take(&mut self.guest.spare);
        let pending = self.pending.as_ref()?;
        let slots = self.deployment.slots.list.len();
        let outputs = self.deployment.outputs.len();
        let commands = match Commands::parse(answer, self.guest.sent.len(), slots, outputs) {
            Ok(commands) => commands,
            Err(wrong) => {
                self.nonsense(rows, &wrong);
                return None;
            }
        };
        if let Some(cause) = self.emits_too_much(&commands) {
            self.guest.instance = None;
            self.failed(rows, cause);
            return None;
        }
        let mut run = Run {
            rows: rows.clone(),
            sent: &self.guest.sent,
            keys: &self.guest.keys,
            clock: &self.guest.clock,
            counts: &self.guest.counts,
            sizes: &self.guest.sizes,
            timers: self.timers.as_ref().map_or(0, Timers::len),
            attempt,
            mask: self.guest.services.mask(),
            spare: Cell::new(spare),
            refused: BTreeMap::new(),
        };
        let then = match commands.stopped() {
            // Timers that come first are found when the next row's turn comes.
            None | Some(Stop::Timers) => Then::Go,
            Some(Stop::Retry(why)) => Then::Retry(self.masked(Cause::guest(why))),
            Some(Stop::Fatal(why)) => {
                let why = self.guest.mask().text(why);
                let row = self.guest.sent.get(commands.processed()).copied();
                Then::Stop(format!("{}: {why}", self.place(row.unwrap_or(rows.start))))
            }
        };
        let mut effects = self.desk().answered(pending, &run, &commands);
        let full = effects.as_mut().ok().map(|effects| self.too_much(effects));
        match full.transpose() {
            Ok(None | Some(None)) => {}
            Ok(Some(Some(Full::Doubtful))) => {
                return Some(Slice::State(Wanted::Kept { again: true }));
            }
            Ok(Some(Some(Full::Refused(events)))) => {
                run.refused = events;
                effects = self.desk().answered(pending, &run, &commands);
            }
            Err(refusal) => effects = Err(refusal),
        }
        match (&effects, then) {
            // Nothing to commit: what stopped the batch was its first event.
            (Ok(effects), Then::Retry(cause)) if effects.rows == 0 => {
                self.retry(cause);
                None
            }
            (Ok(effects), Then::Stop(why)) if effects.rows == 0 => Some(Slice::Stop(why)),
            (_, then) => self.prepare(effects, rows, then),
        }
    }

    /// Why the call counts as failed, if it emitted more events than it may.
    fn emits_too_much(&self, commands: &Commands<'_>) -> Option<Cause> {
        let most = self.deployment.manifest.limits.output_events;
        let emitted = commands.emits();
        (emitted > most as usize).then(|| Cause {
            reason: Reason::OutputLimit,
            error: format!("output_events limit of {most}: the call emitted {emitted}"),
        })
    }

    /// An answer that breaks the contract is treated like a trap.
    pub(super) fn nonsense(&mut self, rows: Range<usize>, wrong: &str) {
        self.guest.instance = None;
        let failure = Failure {
            kind: FailureKind::Trap,
            message: format!("the function's answer makes no sense: {wrong}"),
        };
        self.failed(rows, failure.into());
    }

    fn keep_line(&self, line: LogLine) {
        let row = self.guest.sent.get(line.event as usize).copied();
        let found = row.and_then(|row| self.pending.as_ref()?.event(row).ok());
        let key = found.as_ref().and_then(|(event, _)| event.row.key);
        let input = row
            .zip(self.pending.as_ref())
            .map_or(0, |(row, pending)| pending.input(row));
        let (topic, partition, offset) = match &found {
            Some((_, Some(origin))) => (self.named(input), origin.partition, origin.offset),
            Some((event, None)) if !self.fires() => {
                (self.named(input), self.partition(), event.offset)
            }
            // A timer is of no topic; it is told by where the task stands in its first.
            _ => (None, self.partition(), self.position.first()),
        };
        self.lines.push_within(
            &self.deployment.manifest.limits,
            FunctionLogLine {
                time: self.parts.clock.now(),
                level: line.level,
                version: self.deployment.version,
                topic,
                partition,
                offset,
                key: FunctionLogLine::key_of(key),
                message: self.guest.mask().text(&line.message).into_owned(),
            },
        );
    }

    /// Says once per task why events without key are passed over.
    fn tell_keyless(&mut self, first: usize) {
        if std::mem::replace(&mut self.guest.told_keyless, true) {
            return;
        }
        let place = self.place(first);
        let input = self
            .pending
            .as_ref()
            .map_or(0, |pending| pending.input(first));
        self.warn(input, format!(
            "events without a key are skipped, for this function keeps state or timers by key; the first one was seen with or after {place}. Give the topic a key, or the function's input a `key` pointer."
        ));
    }
}

/// Why a call brought no answer.
enum Called {
    /// There is no instance to call.
    Unstartable(String),
    /// It needs more memory than it was granted.
    Short,
    /// A call to the outside has to be made first.
    Outside(Box<calls::Wanted>),
    /// State that it asked for can't be read now.
    Unreadable(Error),
    /// The call failed.
    Failed(Cause),
}

impl Cause {
    /// The function's own words.
    fn guest(why: &str) -> Self {
        Self {
            reason: Reason::Guest,
            error: why.to_owned(),
        }
    }
}

impl From<Failure> for Cause {
    fn from(failure: Failure) -> Self {
        Self {
            reason: failure.kind.into(),
            error: failure.message,
        }
    }
}

/// Seeds by input: two of them have events of the same offset, which must not draw the same numbers.
fn seeds(deployment: &Deployment, partition: u32) -> Vec<u64> {
    let owner = deployment.owner.as_str();
    let inputs = deployment.inputs.iter().enumerate();
    inputs
        .map(|(at, input)| match at {
            0 => seed(owner, partition),
            _ => seed(&format!("{owner}\0{}", input.topic.name), partition),
        })
        .collect()
}

/// Seed of a task's random numbers: the same on every machine (FNV-1a of name and partition).
fn seed(name: &str, partition: u32) -> u64 {
    let bytes = name.bytes().chain([0]).chain(partition.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
