//! What one run of a function comes to: outputs, dead letters, state changes and counts of one
//! transaction. Decides everything, commits nothing.

use crate::dead_letter::{self, Letter, Reason};
use crate::deployment::Deployment;
use crate::mask::Mask;
use crate::note::Note;
use crate::parked::{self, Parked, ParkedChange};
use crate::pending::Pending;
use crate::sources::Tale;
use crate::timers::TimerChange;
use crate::usage::Growth;
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use tidemill_log::{Format, OnMismatch, Topic};
use tidemill_state::{Changes, Scope};
use tidemill_types::{
    Error, ErrorKind, PackedRows, ROW_HEAD_BYTES, Result, Timestamp, limits, partition_of_key,
};
use tidemill_wasm::{Command, Commands, Emit, Outcome, Volume};

mod keep;
mod park;
mod spare;

pub(crate) use park::Tries;
pub(crate) use spare::Spare;

/// The run that was made.
pub(crate) struct Run<'a> {
    /// Rows of the batch it covered.
    pub(crate) rows: Range<usize>,
    /// Those of them that the guest was given, in order.
    pub(crate) sent: &'a [usize],
    /// Number of each sent event's key among the batch's distinct keys; empty without slots.
    pub(crate) keys: &'a [u32],
    /// Watermark at each sent event's turn; empty where nothing is kept.
    pub(crate) clock: &'a [i64],
    /// For each distinct key and slot, what a counter held.
    pub(crate) counts: &'a [Option<i64>],
    /// For each distinct key and slot, the bytes of its key and its value; of maps' slots, 0.
    pub(crate) sizes: &'a [u64],
    /// Timers that are set.
    pub(crate) timers: usize,
    /// Earlier tries of the first of them.
    pub(crate) attempt: u32,
    /// Secrets that no reason may show.
    pub(crate) mask: &'a Mask,
    /// Memory for its effects.
    pub(crate) spare: Cell<Spare>,
    /// Sent events that can't be accepted, with the reason, whatever they want.
    pub(crate) refused: BTreeMap<usize, String>,
}

/// Effects of a transaction.
pub(crate) struct Effects {
    /// Rows and their partitions for each output.
    pub(crate) outputs: Vec<(PackedRows, Vec<u32>)>,
    /// Dead letters and their partitions.
    pub(crate) letters: (PackedRows, Vec<u32>),
    /// Changes of state: the first `turns` of them take timers away that had their turn, each of the
    /// others is what the event of the same number in `owners` wants.
    pub(crate) changes: Changes,
    /// By how much the changes make state grow, as far as that was counted with them; `None`: they are to
    /// be looked through.
    pub(crate) growth: Option<Growth>,
    /// For each distinct key and slot, the bytes it takes with the changes so far.
    pub(crate) sizes: Vec<u64>,
    /// How many timers had their turn.
    pub(crate) turns: usize,
    /// The sent events that want the changes.
    pub(crate) owners: Vec<usize>,
    /// Timers set and gone; they are among the changes of state, too.
    pub(crate) timers: Vec<TimerChange>,
    /// Changes of what is parked, in the store and in its order.
    pub(crate) parked: (Changes, Vec<ParkedChange>),
    /// The task's totals after it.
    pub(crate) note: Note,
    /// What it tells of time to partitions of an internal topic.
    pub(crate) tale: Tale,
    /// Events from so far in the future that they don't move time.
    pub(crate) future: u64,
    /// Rows it gives a fate to, from the run's first on.
    pub(crate) rows: usize,
}

/// Bytes of a key, where they aren't known.
const KEY_BYTES: usize = 24;

impl Effects {
    /// Makes room for what an answer holds.
    fn expect(&mut self, volume: &Volume) {
        if let [(rows, partitions)] = self.outputs.as_mut_slice() {
            rows.reserve(volume.emits, volume.emitted);
            partitions.reserve(volume.emits);
        }
        let keys = volume.changes * KEY_BYTES;
        self.changes.reserve(volume.changes, volume.changed + keys);
        self.owners.reserve(volume.changes);
    }

    /// Bytes they take in a frame, about.
    pub(crate) fn room(&self) -> usize {
        const BESIDE: usize = 256;
        let rows = |rows: &PackedRows| rows.payload.len() + rows.len() * ROW_HEAD_BYTES;
        let outputs: usize = self.outputs.iter().map(|(output, _)| rows(output)).sum();
        let changes = self.changes.as_bytes().len() + self.parked.0.as_bytes().len();
        outputs + rows(&self.letters.0) + changes + BESIDE
    }
}

/// Why a run's answer can't become a transaction.
pub(crate) enum Refusal {
    /// This row wants what can't be done, and its state changes can't be told from its neighbours':
    /// it must be run alone.
    Apart(usize),
    /// It doesn't fit into one transaction.
    TooLarge,
    /// It breaks the contract, in words.
    Nonsense(String),
    /// A fault, not the guest's.
    Fault(tidemill_types::Error),
}

impl From<tidemill_types::Error> for Refusal {
    fn from(error: tidemill_types::Error) -> Self {
        match error.kind {
            ErrorKind::TooLarge => Self::TooLarge,
            _ => Self::Fault(error),
        }
    }
}

/// Where the effects of a task's runs go.
pub(crate) struct Desk<'a> {
    /// The deployment.
    pub(crate) deployment: &'a Deployment,
    /// Partition of the task.
    pub(crate) partition: u32,
    /// The task's totals before the run.
    pub(crate) note: Note,
    /// What the task has parked.
    pub(crate) parked: &'a Parked,
    /// The time of day.
    pub(crate) now: Timestamp,
}

impl Desk<'_> {
    /// Effects of nothing.
    pub(crate) fn empty(&self) -> Effects {
        self.empty_in(Spare::default())
    }

    fn empty_in(&self, spare: Spare) -> Effects {
        let function = self.deployment.function;
        let scope = Scope {
            function,
            partition: self.partition,
        };
        let mut outputs = spare.outputs;
        outputs.resize_with(self.deployment.outputs.len(), Default::default);
        Effects {
            outputs,
            letters: Default::default(),
            changes: Changes::new(scope),
            growth: Some(Growth::default()),
            sizes: spare.sizes,
            turns: 0,
            owners: spare.owners,
            timers: Vec::new(),
            parked: (Changes::new(parked::scope(scope)), Vec::new()),
            note: self.note,
            tale: Tale::default(),
            future: 0,
            rows: 0,
        }
    }

    /// The effects of a checked answer: of all rows up to the one that stopped the batch.
    pub(crate) fn answered(
        &self,
        pending: &Pending,
        run: &Run<'_>,
        commands: &Commands<'_>,
    ) -> Result<Effects, Refusal> {
        if self.deployment.slots.timers
            && let Some(wrong) = keep::out_of_turn(pending, run, commands)
        {
            return Err(Refusal::Nonsense(wrong));
        }
        // Nearly always everything can be accepted; what can't is looked for only once something is found.
        if run.refused.is_empty()
            && let Ok(Some(effects)) = self.accepted(pending, run, commands, None)
        {
            return Ok(effects);
        }
        let refused = self.refused(pending, run, commands);
        apart(run, commands, &refused)?;
        let effects = self.accepted(pending, run, commands, Some(&refused))?;
        effects.ok_or_else(|| Refusal::Fault(Error::internal("a refusal that was known")))
    }

    /// The effects of what isn't refused; without knowing what is, `None` at the first that has to be.
    fn accepted(
        &self,
        pending: &Pending,
        run: &Run<'_>,
        commands: &Commands<'_>,
        refused: Option<&BTreeMap<usize, String>>,
    ) -> Result<Option<Effects>, Refusal> {
        let mut effects = self.empty_in(run.spare.take());
        effects.expect(&commands.volume());
        effects.sizes.extend_from_slice(run.sizes);
        let processed = commands.processed();
        let end = run.sent.get(processed).copied().unwrap_or(run.rows.end);
        if pending.timers_of().is_some() {
            self.had_their_turn(&mut effects, pending, run.rows.start..end);
        }
        let mut timers = run.timers;
        for (event, command) in commands.iter() {
            match refused {
                Some(refused) if refused.contains_key(&event) => continue,
                Some(_) => {}
                None => {
                    if self
                        .unacceptable(pending, run, (event, &command), &mut timers)
                        .is_some()
                    {
                        return Ok(None);
                    }
                }
            }
            match command {
                Command::Emit(emit) => self.emit(&mut effects, pending, run.sent[event], &emit)?,
                kept => {
                    self.keep(&mut effects, pending, (run, event), kept)?;
                    effects.owners.push(event);
                }
            }
        }
        let mut sent = (0..processed).zip(run.sent).peekable();
        for row in run.rows.start..end {
            match sent.next_if(|(_, sent)| **sent == row) {
                None => self.left_out(&mut effects, pending, row),
                Some((event, _)) => {
                    let refused = refused.and_then(|refused| refused.get(&event));
                    let (outcome, reason) = match refused {
                        Some(why) => (Outcome::DeadLetter, why.as_str()),
                        None => told(commands, event),
                    };
                    let attempts = if row == run.rows.start {
                        run.attempt + 1
                    } else {
                        1
                    };
                    let reason = match reason {
                        "" => Cow::Borrowed(reason),
                        reason => run.mask.text(reason),
                    };
                    self.fate(&mut effects, pending, row, (outcome, &reason, attempts))?;
                }
            }
        }
        effects.rows = end - run.rows.start;
        Ok(Some(effects))
    }

    /// The effects of rows that are none of the function's now: they lack a key, or theirs is parked.
    pub(crate) fn passed_over(&self, pending: &Pending, rows: Range<usize>) -> Effects {
        let mut effects = self.empty();
        effects.rows = rows.len();
        for row in rows {
            self.left_out(&mut effects, pending, row);
        }
        effects
    }

    /// The effects of giving the row at the front up: a dead letter, or passing it over.
    pub(crate) fn given_up(
        &self,
        pending: &Pending,
        row: usize,
        attempts: u32,
        letter: bool,
    ) -> Result<Effects, Refusal> {
        let mut effects = self.empty();
        let is_timer = pending.timers_of().is_some();
        if is_timer {
            self.had_their_turn(&mut effects, pending, row..row + 1);
        }
        self.taken_up(&mut effects, pending, row);
        if letter {
            let cause = pending.cause.as_ref();
            let reason = cause.map_or(Reason::Guest, |cause| cause.reason);
            let error = cause.map_or("", |cause| cause.error.as_str());
            self.letter(&mut effects, pending, row, (reason, error, attempts))?;
        } else if !is_timer {
            effects.note.counts.skipped += 1;
        }
        effects.rows = 1;
        Ok(effects)
    }

    /// Events that want what can't be accepted, with the reason.
    fn refused(
        &self,
        pending: &Pending,
        run: &Run<'_>,
        commands: &Commands<'_>,
    ) -> BTreeMap<usize, String> {
        let mut refused = run.refused.clone();
        let mut timers = run.timers;
        for (event, command) in commands.iter() {
            if let Some(why) = self.unacceptable(pending, run, (event, &command), &mut timers) {
                refused.entry(event).or_insert(why);
            }
        }
        refused
    }

    /// Why what an event wants can't be accepted; `timers` are set before it.
    fn unacceptable(
        &self,
        pending: &Pending,
        run: &Run<'_>,
        (event, command): (usize, &Command<'_>),
        timers: &mut usize,
    ) -> Option<String> {
        match command {
            Command::Emit(emit) => {
                let topic = self.deployment.outputs.get(usize::from(emit.output));
                topic.and_then(|topic| unacceptable(topic, emit))
            }
            kept => {
                *timers += usize::from(matches!(kept, Command::SetTimer { .. }));
                let key = || pending.key(run.sent[event]).unwrap_or_default();
                self.unkeepable(key, kept, *timers)
            }
        }
    }

    fn emit(
        &self,
        effects: &mut Effects,
        pending: &Pending,
        row: usize,
        emit: &Emit<'_>,
    ) -> Result<(), Refusal> {
        let (rows, partitions) = &mut effects.outputs[usize::from(emit.output)];
        let topic = &self.deployment.outputs[usize::from(emit.output)];
        let count = topic.settings.partitions;
        let time = match emit.time {
            Some(time) => time,
            None => pending.times(row).0,
        };
        rows.push(time, emit.key, emit.value, emit.headers)?;
        partitions.push(partition_of(emit.key, self.partition, count));
        effects.note.counts.emitted += 1;
        Ok(())
    }

    fn fate(
        &self,
        effects: &mut Effects,
        pending: &Pending,
        row: usize,
        (outcome, reason, attempts): (Outcome, &str, u32),
    ) -> Result<(), Refusal> {
        let is_timer = pending.timers_of().is_some();
        self.taken_up(effects, pending, row);
        let counts = &mut effects.note.counts;
        match outcome {
            Outcome::Filtered | Outcome::Effect | Outcome::Skip if is_timer => {}
            Outcome::Filtered => counts.filtered += 1,
            Outcome::Effect => counts.effective += 1,
            Outcome::Skip => counts.skipped += 1,
            Outcome::DeadLetter => {
                self.letter(effects, pending, row, (Reason::Guest, reason, attempts))?;
            }
            Outcome::Undecodable => {
                self.letter(effects, pending, row, (Reason::Decode, reason, attempts))?;
            }
        }
        Ok(())
    }

    /// An event that the function wasn't given: one behind a parked event of its key is parked, too; one
    /// without key can't have state, and is passed over and counted.
    fn left_out(&self, effects: &mut Effects, pending: &Pending, row: usize) {
        if pending.is_mark(row) {
            return self.observe(effects, pending, row);
        }
        if self.parked.holds(pending.key(row)) {
            return self.park(effects, pending, row, None);
        }
        self.read(effects, pending, row);
        effects.note.counts.skipped += 1;
    }

    /// A row gets its fate: an event counts as read, one that was parked isn't any more.
    fn taken_up(&self, effects: &mut Effects, pending: &Pending, row: usize) {
        if pending.timers_of().is_some() {
            effects.note.counts.timers += 1;
            effects.note.front = None;
        } else if let Some(fired) = pending.fired(row) {
            self.gone(effects, fired.number);
        } else {
            self.read(effects, pending, row);
        }
    }

    /// Counts an event as read and takes its times into account.
    pub(crate) fn read(&self, effects: &mut Effects, pending: &Pending, row: usize) {
        effects.note.counts.events_in += 1;
        self.observe(effects, pending, row);
    }

    fn observe(&self, effects: &mut Effects, pending: &Pending, row: usize) {
        effects.note.front = None;
        let limits = &self.deployment.manifest.time;
        let is_future = pending.observe(row, &mut effects.note, limits);
        effects.future += u64::from(is_future);
    }

    /// The topic that the event of a row was read from.
    fn topic_of<'p>(&'p self, pending: &'p Pending, row: usize) -> &'p str {
        match pending.fired(row).map(|fired| &fired.input) {
            Some(Err(gone)) => gone,
            _ => self.deployment.inputs[pending.input(row)]
                .topic
                .name
                .as_str(),
        }
    }

    fn letter(
        &self,
        effects: &mut Effects,
        pending: &Pending,
        row: usize,
        (reason, error, attempts): (Reason, &str, u32),
    ) -> Result<(), Refusal> {
        let (event, origin) = pending.event(row)?;
        let is_timer = pending.timers_of().is_some();
        let (key, partition, offset) = match origin {
            None if is_timer => {
                let position = pending.position_after(0).first();
                (event.row.key, self.partition, position)
            }
            Some(origin) => (origin.key, origin.partition, origin.offset),
            None => (event.row.key, self.partition, event.offset),
        };
        let letter = Letter {
            function: &self.deployment.name,
            version: self.deployment.version,
            reason,
            error,
            attempts,
            topic: self.topic_of(pending, row),
            partition,
            offset,
            timer: is_timer.then(|| pending.tag(row)),
            failed: (attempts > 1).then_some((self.first_failure(pending, row), self.now)),
            redriven: pending.fired(row).map_or(0, |fired| fired.redriven),
        };
        let (rows, partitions) = &mut effects.letters;
        dead_letter::push(rows, event.row, key, &letter)?;
        partitions.push(partition % self.deployment.dead_letters.settings.partitions.max(1));
        let counts = &mut effects.note.counts;
        if is_timer {
            counts.timers_dead_lettered += 1;
        } else {
            counts.dead_lettered += 1;
        }
        Ok(())
    }
}

/// Refuses an answer in which a refused event shares its key with changed state, unless it is alone:
/// the guest gives one final value per key, so what it did can't be taken out of it.
fn apart(
    run: &Run<'_>,
    commands: &Commands<'_>,
    refused: &BTreeMap<usize, String>,
) -> Result<(), Refusal> {
    if refused.is_empty() || run.rows.len() == 1 || run.keys.is_empty() {
        return Ok(());
    }
    let changed: Vec<u32> = commands
        .iter()
        .filter(|(_, command)| !matches!(command, Command::Emit(_)))
        .map(|(event, _)| run.keys[event])
        .collect();
    match refused
        .keys()
        .find(|event| changed.contains(&run.keys[**event]))
    {
        Some(event) => Err(Refusal::Apart(run.sent[*event])),
        None => Ok(()),
    }
}

/// An event's outcome with its words; most have none, and they aren't looked for.
fn told<'c>(commands: &Commands<'c>, event: usize) -> (Outcome, &'c str) {
    match commands.outcome(event) {
        plain @ (Outcome::Filtered | Outcome::Effect) => (plain, ""),
        outcome => (outcome, commands.reason(event)),
    }
}

/// Why an output can't be accepted by its topic.
fn unacceptable(topic: &Topic, emit: &Emit<'_>) -> Option<String> {
    let length = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len);
    let bytes = length(emit.key) + length(emit.value) + emit.headers.as_bytes().len();
    if bytes > limits::EVENT_BYTES {
        let most = limits::EVENT_BYTES;
        return Some(format!(
            "an event of {bytes} bytes for topic {:?} is larger than an event may be ({most} bytes)",
            topic.name
        ));
    }
    if emit.key.is_none() && topic.settings.cleanup.compacts() {
        return Some(format!(
            "topic {:?} is compacted by key, but an event emitted to it has none",
            topic.name
        ));
    }
    if topic.settings.format != Format::Json {
        return None;
    }
    let wrong = match std::str::from_utf8(emit.value?) {
        Ok(text) if is_plain_json(text) => return misfit(topic, text),
        Ok(text) => match serde_json::from_str::<serde::de::IgnoredAny>(text) {
            Ok(_) => return misfit(topic, text),
            Err(wrong) => wrong.to_string(),
        },
        Err(wrong) => wrong.to_string(),
    };
    Some(format!(
        "topic {:?} takes JSON, but an event emitted to it is not: {wrong}",
        topic.name
    ))
}

/// Whether a text is JSON for sure; if not, it may be all the same.
fn is_plain_json(text: &str) -> bool {
    let mut at = tidemill_json::Cursor::new(text);
    at.skip().and_then(|()| at.end()).is_ok()
}

/// Why an output doesn't fit its topic's schema. Whether the topic refuses such events or keeps them as
/// dead letters: here the event that led to it becomes the function's dead letter, because that is what
/// can be put back once the function is mended.
fn misfit(topic: &Topic, value: &str) -> Option<String> {
    let schema = topic.settings.schema.as_ref()?;
    if schema.on_mismatch() == OnMismatch::Null {
        return None;
    }
    let wrong = schema.check(value.as_bytes()).err()?;
    let place = match wrong.pointer.as_str() {
        "" => String::new(),
        pointer => format!(" at {pointer}"),
    };
    Some(format!(
        "an event emitted to topic {:?} doesn't fit its schema{place}: {}",
        topic.name, wrong.reason
    ))
}

/// Where an output goes: by its key, or without one beside its input.
pub(crate) fn partition_of(key: Option<&[u8]>, input: u32, partitions: u32) -> u32 {
    match key {
        Some(key) => partition_of_key(key, partitions),
        None => input % partitions.max(1),
    }
}
