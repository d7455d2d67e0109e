//! One run of all events through a function, as a host would do it.

use super::Described;
use super::given::{DeadLetter, Raw, START, Step};
use super::inputs::Inputs;
use super::model::{self, Model};
use super::outside::{Course, Outside};
use crate::abi::{
    Clock, Extras, HeaderBytes, PackedEvent, Reply, ReplyCommand, ReplyStop, outcome, pack_with,
};
use crate::guest::{Call, Instance, MapPage, Surroundings};
use crate::{HttpAnswer, HttpError, HttpRequest, LogLine, log};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// How often a host tries an event by default, the first attempt included.
const ATTEMPTS: u32 = 5;
/// Timers draw other random numbers than events.
const TIMER_SEED: u64 = 0x7469_6d65_7273_0001;
/// Most events of a batch by default.
const BATCH: usize = 256;

/// What became of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Effect,
    Filtered,
    Skipped,
    DeadLettered,
}

/// Everything that a run left.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Run {
    /// By event, with the reason if there is one.
    pub(super) outcomes: Vec<(Outcome, String)>,
    pub(super) emitted: Vec<Raw>,
    pub(super) model: Model,
    /// Timers that had their turn.
    pub(super) fired: u64,
    pub(super) dead_letters: Vec<DeadLetter>,
    pub(super) stopped: Option<String>,
    pub(super) logs: Vec<LogLine>,
    /// Calls to the outside that were made.
    pub(super) calls: Vec<HttpRequest>,
}

/// Where batches end and where the process dies.
pub(super) struct Plan {
    pub(super) sizes: Sizes,
    /// The batch, counted from 0, whose effects are lost the first time.
    pub(super) crash: Option<usize>,
}

pub(super) enum Sizes {
    Fixed(usize),
    Random { state: u64, most: usize },
}

impl Sizes {
    fn next(&mut self) -> usize {
        match self {
            Self::Fixed(size) => *size,
            Self::Random { state, most } => 1 + below(state, *most),
        }
    }
}

/// The next number below `bound` of a linear congruential generator.
pub(super) fn below(state: &mut u64, bound: usize) -> usize {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*state >> 33).unwrap_or_default() % bound.max(1)
}

/// What a host would answer an instance.
#[derive(Clone)]
struct Settings {
    config: String,
    topics: &'static [&'static str],
    committed: Rc<RefCell<Model>>,
    course: Rc<RefCell<Course>>,
}

impl Surroundings for Settings {
    fn config(&self) -> String {
        self.config.clone()
    }

    fn input_topic(&self, input: u32) -> String {
        let topic = self.topics.get(input as usize).copied();
        topic.unwrap_or_default().to_owned()
    }

    fn map_get(&self, slot: u32, key: &[u8], entry: &[u8]) -> Vec<u8> {
        self.committed.borrow().map_get(slot, key, entry)
    }

    fn map_scan(&self, slot: u32, key: &[u8], page: &MapPage<'_>) -> Vec<u8> {
        self.committed.borrow().map_scan(slot, key, page)
    }

    fn secret(&self, name: &str) -> Result<Vec<u8>, String> {
        self.course.borrow().secret(name)
    }

    fn http(&self, event: u32, request: &HttpRequest) -> Result<HttpAnswer, HttpError> {
        self.course.borrow_mut().http(event, request)
    }
}

impl Settings {
    fn instance(&self) -> Instance {
        Instance::new(Box::new(self.clone()))
    }
}

/// Runs all steps.
///
/// # Errors
/// When the function's answer can't be read: a fault of the SDK, not of the function.
pub(super) fn run(
    function: &Described,
    config: &str,
    steps: &[Step],
    disorder: i64,
    seed: u64,
    outside: &Outside,
    plan: Plan,
) -> Result<Run, String> {
    let settings = Settings {
        config: config.to_owned(),
        topics: function.inputs,
        committed: Rc::new(RefCell::new(Model::new())),
        course: Course::new(outside.clone()),
    };
    let mut host = Host {
        function,
        disorder,
        seed,
        plan,
        instance: settings.instance(),
        settings,
        run: Run {
            outcomes: Vec::new(),
            emitted: Vec::new(),
            model: Model::new(),
            fired: 0,
            dead_letters: Vec::new(),
            stopped: None,
            logs: Vec::new(),
            calls: Vec::new(),
        },
        inputs: Inputs::new(function.inputs.len()),
        attempt: 0,
        most: BATCH,
        batches: 0,
    };
    let mut at = 0;
    let (mut nth, mut received) = (0, START);
    let mut offsets = vec![0; function.inputs.len()];
    while at < steps.len() && host.run.stopped.is_none() {
        let (mut events, mut inputs) = (Vec::new(), Vec::new());
        while let Some(Step::Event(input, given)) = steps.get(at) {
            let place = (nth, offsets[*input]);
            let event = given.packed(place, function.key, received);
            received = event.ingest_time.saturating_add(1);
            (nth, offsets[*input]) = (nth + 1, offsets[*input] + 1);
            events.push(event);
            inputs.push(*input);
            at += 1;
        }
        host.events(&events, &inputs)?;
        while let Some(Step::Time(time)) = steps.get(at) {
            received = received.max(*time);
            host.time(*time)?;
            at += 1;
        }
    }
    host.run.calls = host.settings.course.borrow().made();
    Ok(host.run)
}

/// One run on its way.
struct Host<'h> {
    function: &'h Described,
    disorder: i64,
    seed: u64,
    plan: Plan,
    settings: Settings,
    instance: Instance,
    run: Run,
    inputs: Inputs,
    /// Earlier tries of what is in front.
    attempt: u32,
    /// Most events of the next batch.
    most: usize,
    batches: usize,
}

impl Host<'_> {
    /// Events, each of an input, one batch after the other.
    fn events(&mut self, events: &[PackedEvent], inputs: &[usize]) -> Result<(), String> {
        let first = self.run.outcomes.len();
        while self.run.stopped.is_none() {
            let at = self.run.outcomes.len() - first;
            let Some(event) = events.get(at) else {
                break;
            };
            // A batch has events of one input.
            let input = inputs[at];
            let same = inputs[at..].iter().take_while(|of| **of == input).count();
            let rest = &events[at..at + same];
            if self.attempt == 0 {
                self.fire(event.ingest_time)?;
            }
            if self.keyless(event) {
                self.pass(event, input);
                self.run
                    .outcomes
                    .push((Outcome::Skipped, "the event has no key".to_owned()));
                continue;
            }
            let (batch, clock) = self.batch(rest, input);
            let extras = Extras {
                clock,
                ..Extras::default()
            };
            self.call(batch, extras, None, input)?;
        }
        self.fire(self.run.model.processing)
    }

    /// The next events that can be handled together, and the watermarks at their turns.
    fn batch<'e>(
        &mut self,
        rest: &'e [PackedEvent],
        input: usize,
    ) -> (&'e [PackedEvent], Vec<i64>) {
        let size = match self.attempt {
            0 => self.plan.sizes.next().min(self.most),
            _ => 1,
        };
        let mut clock: Vec<i64> = Vec::new();
        let (mut watermark, mut inputs) = (self.run.model.watermark, self.inputs.clone());
        for event in rest.iter().take(size) {
            watermark = watermark.max(inputs.reached(event.ingest_time));
            let due = self.run.model.is_due(Clock::Event, watermark)
                || self.run.model.is_due(Clock::Processing, event.ingest_time);
            if self.keyless(event) || (due && !clock.is_empty()) {
                break;
            }
            clock.push(watermark);
            inputs.observe(input, self.watermark_of(event), event.ingest_time);
            watermark = watermark.max(inputs.reached(event.ingest_time));
        }
        (&rest[..clock.len()], clock)
    }

    /// Time goes on without an event.
    fn time(&mut self, time: i64) -> Result<(), String> {
        self.run.model.watermark = self.run.model.watermark.max(time);
        self.fire(time)
    }

    /// All timers whose turn it is.
    fn fire(&mut self, processing: i64) -> Result<(), String> {
        let processing = self.run.model.processing.max(processing);
        self.run.model.processing = processing;
        let reached = self.inputs.reached(processing);
        self.run.model.watermark = self.run.model.watermark.max(reached);
        while self.run.stopped.is_none() && self.function.timers {
            let size = match self.attempt {
                0 => self.plan.sizes.next().min(self.most),
                _ => 1,
            };
            let Some((time, mut rows)) = self.run.model.due(processing, size) else {
                return Ok(());
            };
            for (offset, row) in (self.run.fired..).zip(&mut rows) {
                row.offset = offset;
            }
            let extras = Extras {
                clock: vec![self.run.model.watermark; rows.len()],
                ..Extras::default()
            };
            self.call(&rows, extras, Some(time), 0)?;
        }
        Ok(())
    }

    /// One call, and what it comes to.
    fn call(
        &mut self,
        rows: &[PackedEvent],
        extras: Extras<'_>,
        timers: Option<Clock>,
        input: usize,
    ) -> Result<(), String> {
        let ttls = model::ttls(self.function.slots);
        let clock = extras.clock;
        let extras = Extras {
            clock: if self.function.timers || !ttls.is_empty() {
                clock.clone()
            } else {
                Vec::new()
            },
            ttls: &ttls,
            timers,
        };
        self.settings.committed.replace(self.run.model.clone());
        let packed = pack_with(
            rows,
            self.function.slots.len(),
            |key, slot| self.run.model.cell(key, slot),
            &extras,
        );
        let call = Call {
            input: u32::try_from(input).unwrap_or_default(),
            partition: 0,
            attempt: self.attempt,
            watermark: self.run.model.watermark,
            // Events of one offset of two inputs draw other numbers.
            seed: self.seed
                ^ if timers.is_some() { TIMER_SEED } else { 0 }
                ^ (input as u64).rotate_left(32),
        };
        let offsets = rows.iter().map(|row| row.offset).collect();
        self.settings.course.borrow_mut().begin(
            timers.is_none().then_some(input),
            offsets,
            self.attempt,
        );
        log::keep_lines();
        let answer = (self.function.on_batch)(&self.instance, call, &packed);
        let first = u32::try_from(self.run.outcomes.len()).unwrap_or(u32::MAX);
        let lines = log::take_lines().into_iter();
        self.run.logs.extend(lines.map(|line| LogLine {
            event: line.event.saturating_add(first),
            ..line
        }));
        if let Some(fault) = self.settings.course.borrow().fault() {
            return Err(fault);
        }
        self.batches += 1;
        if self.plan.crash == Some(self.batches - 1) {
            self.instance = self.settings.instance();
            return Ok(());
        }
        match answer {
            Ok(answer) => {
                self.most = BATCH;
                let reply = Reply::parse(&answer, rows.len())?;
                self.apply(&reply, rows, &clock, timers.is_some(), input)
            }
            // The whole call failed: halve the batch until the culprit stands alone.
            Err(why) => {
                self.instance = self.settings.instance();
                if rows.len() > 1 {
                    self.most = rows.len() / 2;
                } else {
                    self.attempt = self.fail(
                        "trap",
                        &why,
                        self.attempt + 1,
                        (rows, input),
                        timers.is_some(),
                    );
                }
                Ok(())
            }
        }
    }

    /// A function that keeps something by key is given no event without one.
    fn keyless(&self, event: &PackedEvent) -> bool {
        event.key.is_none() && (!self.function.slots.is_empty() || self.function.timers)
    }

    /// An event has its outcome: time is as far as it.
    fn pass(&mut self, event: &PackedEvent, input: usize) {
        let watermark = self.watermark_of(event);
        self.inputs.observe(input, watermark, event.ingest_time);
        let reached = self.inputs.reached(event.ingest_time);
        let model = &mut self.run.model;
        model.watermark = model.watermark.max(reached);
        model.processing = model.processing.max(event.ingest_time);
    }

    /// How far an event alone brings time.
    fn watermark_of(&self, event: &PackedEvent) -> i64 {
        event.time.saturating_sub(self.disorder + 1)
    }

    /// Commits what an answer says.
    fn apply(
        &mut self,
        reply: &Reply<'_>,
        rows: &[PackedEvent],
        clock: &[i64],
        timers: bool,
        input: usize,
    ) -> Result<(), String> {
        let first = self.run.outcomes.len();
        let mut reasons = BTreeMap::new();
        if timers {
            for row in &rows[..reply.outcomes.len()] {
                self.run.model.timers.remove(&name(row));
            }
        }
        for (event, command) in &reply.commands {
            let event = *event as usize;
            let source = rows.get(event).ok_or("a command belongs to no event")?;
            match command {
                ReplyCommand::Emit {
                    output,
                    key,
                    value,
                    headers,
                    time,
                } => self.run.emitted.push(Raw {
                    event: if timers { first } else { first + event },
                    output: usize::from(*output),
                    key: key.map(<[u8]>::to_vec),
                    value: value.map(<[u8]>::to_vec),
                    headers: headers.0.to_vec(),
                    time: time.unwrap_or(source.time),
                }),
                ReplyCommand::Reason(reason) => {
                    reasons.insert(event, (*reason).to_owned());
                }
                other => {
                    let slots = self.function.slots;
                    self.run.model.apply(other, source, clock[event], slots)?;
                }
            }
        }
        let attempt = self.attempt;
        for (event, outcome) in reply.outcomes.iter().enumerate() {
            let reason = reasons.remove(&event).unwrap_or_default();
            let attempts = if event == 0 { attempt + 1 } else { 1 };
            let outcome = match *outcome {
                outcome::FILTERED => Outcome::Filtered,
                outcome::EFFECT => Outcome::Effect,
                outcome::SKIP => Outcome::Skipped,
                outcome::DEAD_LETTER => {
                    self.letter("guest", &reason, attempts, &rows[event], timers);
                    Outcome::DeadLettered
                }
                outcome::UNDECODABLE => {
                    self.letter("decode", &reason, attempts, &rows[event], timers);
                    Outcome::DeadLettered
                }
                other => return Err(format!("unknown outcome {other}")),
            };
            self.has_outcome(&rows[event], (outcome, reason), timers, input);
        }
        if !reply.outcomes.is_empty() {
            self.attempt = 0;
        }
        let rest = &rows[reply.outcomes.len()..];
        match reply.stop {
            None => self.attempt = 0,
            Some(ReplyStop::Timers) => {}
            Some(ReplyStop::Retry(why)) => {
                self.attempt = self.fail("guest", why, self.attempt + 1, (rest, input), timers);
            }
            Some(ReplyStop::Fatal(why)) => self.run.stopped = Some(why.to_owned()),
        }
        Ok(())
    }

    fn has_outcome(
        &mut self,
        row: &PackedEvent,
        outcome: (Outcome, String),
        timers: bool,
        input: usize,
    ) {
        let course = &self.settings.course;
        course
            .borrow_mut()
            .forget((!timers).then_some(input), row.offset);
        if timers {
            self.run.fired += 1;
        } else {
            self.pass(row, input);
            self.run.outcomes.push(outcome);
        }
    }

    /// What is in front failed for the `attempts`-th time; gives the number of failures it has then.
    fn fail(
        &mut self,
        reason: &'static str,
        why: &str,
        attempts: u32,
        (rest, input): (&[PackedEvent], usize),
        timers: bool,
    ) -> u32 {
        let Some(row) = rest.first().filter(|_| attempts >= ATTEMPTS) else {
            return attempts;
        };
        self.letter(reason, why, attempts, row, timers);
        if timers {
            self.run.model.timers.remove(&name(row));
        }
        self.has_outcome(row, (Outcome::DeadLettered, why.to_owned()), timers, input);
        0
    }

    fn letter(
        &mut self,
        reason: &'static str,
        error: &str,
        attempts: u32,
        row: &PackedEvent,
        timers: bool,
    ) {
        let tag = || String::from_utf8_lossy(&name(row).1).into_owned();
        self.run.dead_letters.push(DeadLetter {
            event: self.run.outcomes.len(),
            timer: timers.then(tag),
            reason,
            error: error.to_owned(),
            attempts,
        });
    }
}

/// Key and tag of a timer that had its turn.
fn name(row: &PackedEvent) -> (Vec<u8>, Vec<u8>) {
    let tag = HeaderBytes(&row.headers).last();
    let tag = tag.map_or_else(Vec::new, |(_, tag)| tag.to_vec());
    (row.key.clone().unwrap_or_default(), tag)
}
