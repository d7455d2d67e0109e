//! One run of all events through a function, as a host would do it.

use super::Described;
use super::given::{DeadLetter, Given, Raw};
use crate::abi::{PackedEvent, Reply, ReplyCommand, ReplyStop, outcome, pack};
use crate::guest::{Call, Instance, Surroundings};
use crate::{LogLine, log};
use std::collections::BTreeMap;

/// How often a host tries an event by default, the first attempt included.
const ATTEMPTS: u32 = 5;
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
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Run {
    /// By event, with the reason if there is one.
    pub(super) outcomes: Vec<(Outcome, String)>,
    pub(super) emitted: Vec<Raw>,
    pub(super) state: BTreeMap<(Vec<u8>, usize), Vec<u8>>,
    pub(super) dead_letters: Vec<DeadLetter>,
    pub(super) stopped: Option<String>,
    pub(super) logs: Vec<LogLine>,
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
    topic: String,
}

impl Surroundings for Settings {
    fn config(&self) -> String {
        self.config.clone()
    }

    fn input_topic(&self, _input: u32) -> String {
        self.topic.clone()
    }
}

impl Settings {
    fn instance(&self) -> Instance {
        Instance::new(Box::new(self.clone()))
    }
}

/// Runs all events.
///
/// # Errors
/// When the function's answer can't be read: a fault of the SDK, not of the function.
pub(super) fn run(
    function: &Described,
    config: &str,
    given: &[Given],
    seed: u64,
    mut plan: Plan,
) -> Result<Run, String> {
    let events: Vec<PackedEvent> = (0..)
        .zip(given)
        .map(|(offset, event)| event.packed(offset, function.key))
        .collect();
    let settings = Settings {
        config: config.to_owned(),
        topic: function.input.to_owned(),
    };
    let mut instance = settings.instance();
    let mut run = Run::default();
    let mut attempt = 0;
    let mut most = BATCH;
    let mut batches = 0;
    while run.outcomes.len() < events.len() && run.stopped.is_none() {
        let rest = &events[run.outcomes.len()..];
        if keyless(&rest[0], function) {
            run.outcomes
                .push((Outcome::Skipped, "the event has no key".to_owned()));
            continue;
        }
        let size = if attempt > 0 {
            1
        } else {
            plan.sizes.next().min(most)
        };
        let batch = &rest[..rest
            .iter()
            .take(size)
            .take_while(|event| !keyless(event, function))
            .count()];
        let packed = pack(batch, function.slots.len(), |key, slot| {
            run.state.get(&(key?.to_vec(), slot)).map(Vec::as_slice)
        });
        let call = Call {
            input: 0,
            partition: 0,
            attempt,
            watermark: i64::MIN,
            seed,
        };
        log::keep_lines();
        let answer = (function.on_batch)(&instance, call, &packed);
        let first = u32::try_from(run.outcomes.len()).unwrap_or(u32::MAX);
        let lines = log::take_lines().into_iter();
        run.logs.extend(lines.map(|line| LogLine {
            event: line.event.saturating_add(first),
            ..line
        }));
        batches += 1;
        if plan.crash == Some(batches - 1) {
            instance = settings.instance();
            continue;
        }
        match answer {
            Ok(answer) => {
                most = BATCH;
                let reply = Reply::parse(&answer, batch.len())?;
                attempt = run.apply(&reply, batch, attempt)?;
            }
            // The whole call failed: halve the batch until the culprit stands alone.
            Err(why) => {
                instance = settings.instance();
                if batch.len() > 1 {
                    most = batch.len() / 2;
                } else {
                    attempt = run.fail("trap", &why, attempt + 1);
                }
            }
        }
    }
    Ok(run)
}

/// A function with state is given no event without a key.
fn keyless(event: &PackedEvent, function: &Described) -> bool {
    event.key.is_none() && !function.slots.is_empty()
}

impl Run {
    /// Commits what an answer says; gives the number of attempts at the next event.
    fn apply(
        &mut self,
        reply: &Reply<'_>,
        batch: &[PackedEvent],
        attempt: u32,
    ) -> Result<u32, String> {
        let first = self.outcomes.len();
        let mut reasons = BTreeMap::new();
        for (event, command) in &reply.commands {
            let event = *event as usize;
            let source = batch.get(event).ok_or("a command belongs to no event")?;
            match command {
                ReplyCommand::Emit {
                    output,
                    key,
                    value,
                    headers,
                    time,
                } => self.emitted.push(Raw {
                    event: first + event,
                    output: usize::from(*output),
                    key: key.map(<[u8]>::to_vec),
                    value: value.map(<[u8]>::to_vec),
                    headers: headers.0.to_vec(),
                    time: time.unwrap_or(source.time),
                }),
                ReplyCommand::Set { slot, value } => {
                    let key = source.key.clone().ok_or("state without a key")?;
                    self.state.insert((key, usize::from(*slot)), value.to_vec());
                }
                ReplyCommand::Delete { slot } => {
                    let key = source.key.clone().ok_or("state without a key")?;
                    self.state.remove(&(key, usize::from(*slot)));
                }
                ReplyCommand::Reason(reason) => {
                    reasons.insert(event, (*reason).to_owned());
                }
            }
        }
        for (event, outcome) in reply.outcomes.iter().enumerate() {
            let reason = reasons.remove(&event).unwrap_or_default();
            let attempts = if event == 0 { attempt + 1 } else { 1 };
            match *outcome {
                outcome::FILTERED => self.outcomes.push((Outcome::Filtered, reason)),
                outcome::EFFECT => self.outcomes.push((Outcome::Effect, reason)),
                outcome::SKIP => self.outcomes.push((Outcome::Skipped, reason)),
                outcome::DEAD_LETTER => self.give_up("guest", &reason, attempts),
                outcome::UNDECODABLE => self.give_up("decode", &reason, attempts),
                other => return Err(format!("unknown outcome {other}")),
            }
        }
        let attempt = if reply.outcomes.is_empty() {
            attempt
        } else {
            0
        };
        match reply.stop {
            None => Ok(0),
            Some(ReplyStop::Retry(why)) => Ok(self.fail("guest", why, attempt + 1)),
            Some(ReplyStop::Fatal(why)) => {
                self.stopped = Some(why.to_owned());
                Ok(0)
            }
        }
    }

    /// The next event failed for the `attempts`-th time.
    fn fail(&mut self, reason: &'static str, why: &str, attempts: u32) -> u32 {
        if attempts < ATTEMPTS {
            return attempts;
        }
        self.give_up(reason, why, attempts);
        0
    }

    fn give_up(&mut self, reason: &'static str, error: &str, attempts: u32) {
        self.dead_letters.push(DeadLetter {
            event: self.outcomes.len(),
            reason,
            error: error.to_owned(),
            attempts,
        });
        self.outcomes
            .push((Outcome::DeadLettered, error.to_owned()));
    }
}
