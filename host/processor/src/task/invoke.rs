//! Calling the function on some rows of a batch.

use super::transaction::Then;
use super::{Slice, Task};
use crate::FunctionLogLine;
use crate::dead_letter::Cause;
use crate::deployment::Deployment;
use crate::effects::Run;
use crate::keys::KeyNumbers;
use crate::parts::Parts;
use crate::pending::Pending;
use crate::services::Services;
use std::ops::Range;
use std::sync::Arc;
use tidemill_state::{Missing, Reader, Scope, Store};
use tidemill_types::Result;
use tidemill_wasm::{
    BatchPacker, Call, Commands, Failure, FailureKind, Instance, LogLevel, LogLine, StateCell, Stop,
};

/// The live copy of a component and the buffers its calls use.
pub(super) struct Guest {
    services: Arc<Services>,
    instance: Option<Instance>,
    packer: BatchPacker,
    numbers: KeyNumbers,
    /// Rows that are sent.
    sent: Vec<usize>,
    /// Number of each sent row's key.
    keys: Vec<u32>,
    /// For each distinct key: the first row that has it.
    first_rows: Vec<usize>,
    seed: u64,
    told_keyless: bool,
}

impl Guest {
    pub(super) fn new(parts: &Parts, deployment: &Deployment, partition: u32) -> Self {
        Self {
            services: Arc::new(Services::new(deployment, partition, parts.state.clone())),
            instance: None,
            packer: BatchPacker::default(),
            numbers: KeyNumbers::default(),
            sent: Vec::new(),
            keys: Vec::new(),
            first_rows: Vec::new(),
            seed: seed(deployment.name.as_str(), partition),
            told_keyless: false,
        }
    }

    pub(super) fn is_warm(&self) -> bool {
        self.instance.is_some()
    }

    pub(super) fn rest(&mut self) {
        self.instance = None;
        self.packer = BatchPacker::default();
    }

    /// Chooses the rows to send and numbers their keys. A function with state gets no events without
    /// a key. Answers how many were left out.
    fn choose(&mut self, pending: &Pending, rows: Range<usize>, stateful: bool) -> usize {
        let all = rows.len();
        self.sent.clear();
        self.keys.clear();
        self.first_rows.clear();
        if !stateful {
            self.sent.extend(rows);
            return 0;
        }
        self.numbers.begin(all);
        for row in rows {
            let Some(key) = pending.key(row) else {
                continue;
            };
            let first_rows = &self.first_rows;
            let known = |number: u32| pending.key(first_rows[number as usize]).unwrap_or_default();
            let (number, fresh) = self.numbers.number(key, known);
            if fresh {
                self.first_rows.push(row);
            }
            self.sent.push(row);
            self.keys.push(number);
        }
        all - self.sent.len()
    }

    /// Lays out the batch: the events, then the state of their keys. What isn't in memory is answered;
    /// then the batch isn't whole.
    fn pack(
        &mut self,
        pending: &Pending,
        state: &Store,
        scope: Scope,
        slots: &[u16],
    ) -> Result<Vec<Missing>> {
        self.packer.begin(slots.len());
        for (at, row) in self.sent.iter().enumerate() {
            let (event, _) = pending.event(*row)?;
            let number = self.keys.get(at).copied().unwrap_or_default();
            self.packer.push(&event, number);
        }
        if slots.is_empty() {
            return Ok(Vec::new());
        }
        Ok(state.read(scope, |reader| self.pack_state(pending, reader, slots)))
    }

    fn pack_state(
        &mut self,
        pending: &Pending,
        reader: &Reader<'_>,
        slots: &[u16],
    ) -> Vec<Missing> {
        let mut missing = Vec::new();
        let mut cells = Vec::with_capacity(slots.len());
        for row in &self.first_rows {
            let key = pending.key(*row).unwrap_or_default();
            cells.clear();
            for slot in slots {
                match reader.get(*slot, key) {
                    Ok(Some(value)) => cells.push(StateCell::Value(value)),
                    Ok(None) => cells.push(StateCell::Absent),
                    Err(wanted) => missing.push(wanted),
                }
            }
            if missing.is_empty() {
                self.packer.state(&cells);
            }
        }
        missing
    }
}

impl Task {
    pub(super) fn invoke(&mut self, rows: Range<usize>, attempt: u32) -> Option<Slice> {
        let pending = self.pending.as_ref()?;
        let slots = &self.deployment.slots;
        let left_out = self.guest.choose(pending, rows.clone(), !slots.is_empty());
        let scope = self.scope();
        match self.guest.pack(pending, &self.parts.state, scope, slots) {
            Ok(missing) if missing.is_empty() => {}
            Ok(missing) => return Some(Slice::Load(missing)),
            Err(fault) => return Some(Slice::Fault(fault)),
        }
        if left_out > 0 {
            self.tell_keyless(rows.start);
        }
        if self.guest.sent.is_empty() {
            return self.keyless(rows);
        }
        match self.call(attempt) {
            Ok(answer) => self.answered(rows, attempt, &answer),
            Err(Called::Unstartable(why)) => Some(Slice::Stop(why)),
            Err(Called::Failed(cause)) => {
                self.failed(rows, cause);
                None
            }
        }
    }

    /// A run of nothing but events without key.
    fn keyless(&mut self, rows: Range<usize>) -> Option<Slice> {
        let effects = self.desk().keyless(self.pending.as_ref()?, rows.clone());
        self.prepare(Ok(effects), rows, Then::Go)
    }

    fn call(&mut self, attempt: u32) -> Result<Vec<u8>, Called> {
        let deployment = &self.deployment;
        let instance = match &mut self.guest.instance {
            Some(instance) => instance,
            empty => {
                let services: Arc<Services> = Arc::clone(&self.guest.services);
                let made = self.parts.sandbox.instantiate(
                    &deployment.component,
                    deployment.limits(),
                    services,
                );
                empty.insert(made.map_err(|failure| {
                    Called::Unstartable(format!("it can't be started: {}", failure.message))
                })?)
            }
        };
        let disorder = deployment.manifest.time.disorder;
        let call = Call {
            input: 0,
            partition: self.at.partition,
            attempt,
            watermark: self
                .note
                .watermark(disorder)
                .map_or(i64::MIN, |time| time.micros()),
            seed: self.guest.seed,
        };
        let begun = self.parts.clock.elapsed();
        let answer = instance.on_batch(call, self.guest.packer.finish());
        self.meter
            .called(self.parts.clock.elapsed().saturating_sub(begun));
        let lines = instance.take_log();
        if answer.is_err() {
            self.guest.instance = None;
        }
        for line in lines {
            self.keep_line(line);
        }
        answer.map_err(|failure| Called::Failed(failure.into()))
    }

    fn answered(&mut self, rows: Range<usize>, attempt: u32, answer: &[u8]) -> Option<Slice> {
        let pending = self.pending.as_ref()?;
        let (slots, outputs) = (self.deployment.slots.len(), self.deployment.outputs.len());
        let commands = match Commands::parse(answer, self.guest.sent.len(), slots, outputs) {
            Ok(commands) => commands,
            Err(wrong) => {
                self.guest.instance = None;
                let message = format!("the function's answer makes no sense: {wrong}");
                self.failed(
                    rows,
                    Failure {
                        kind: FailureKind::Trap,
                        message,
                    }
                    .into(),
                );
                return None;
            }
        };
        let run = Run {
            rows: rows.clone(),
            sent: &self.guest.sent,
            keys: &self.guest.keys,
            attempt,
        };
        let then = match commands.stopped() {
            None => Then::Go,
            Some(Stop::Retry(why)) => Then::Retry(Cause::guest(why)),
            Some(Stop::Fatal(why)) => {
                let row = self.guest.sent.get(commands.processed()).copied();
                Then::Stop(format!("{}: {why}", self.place(row.unwrap_or(rows.start))))
            }
        };
        let effects = self.desk().answered(pending, &run, &commands);
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

    fn keep_line(&self, line: LogLine) {
        let row = self.guest.sent.get(line.event as usize).copied();
        let found = row.and_then(|row| self.pending.as_ref()?.event(row).ok());
        let (partition, offset) = match found {
            Some((_, Some(origin))) => (origin.partition, origin.offset),
            Some((event, None)) => (self.at.partition, event.offset),
            None => (self.at.partition, self.position),
        };
        let level = match line.level {
            LogLevel::Trace => "trace",
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
        };
        self.lines.push(FunctionLogLine {
            time: self.parts.clock.now(),
            level,
            version: self.deployment.version,
            partition,
            offset,
            message: line.message,
        });
    }

    /// Says once per task why events without key are passed over.
    fn tell_keyless(&mut self, first: usize) {
        if std::mem::replace(&mut self.guest.told_keyless, true) {
            return;
        }
        let place = self.place(first);
        self.warn(format!(
            "events without a key are skipped, for this function keeps state by key; the first one was seen with or after {place}. Give the topic a key, or the function's input a `key` pointer."
        ));
    }
}

/// Why a call brought no answer.
enum Called {
    /// There is no instance to call.
    Unstartable(String),
    /// The call failed.
    Failed(Cause),
}

impl Cause {
    /// The function's own words.
    fn guest(why: &str) -> Self {
        Self {
            reason: crate::dead_letter::Reason::Guest,
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

/// Seed of a task's random numbers: the same on every machine (FNV-1a of name and partition).
fn seed(name: &str, partition: u32) -> u64 {
    let bytes = name.bytes().chain([0]).chain(partition.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
