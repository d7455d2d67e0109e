//! Tests of a function, natively and without a server: events in, outputs and state out.
//!
//! The events go through the same code as in a component: packed into batches, handled, the answer
//! read back. They do so three times (one by one; in batches, with a crash; all at once), and the three
//! runs must agree.

mod agree;
#[cfg(test)]
mod cases;
mod given;
mod inputs;
mod model;
mod outside;
mod run;
#[cfg(test)]
mod tests;

pub use given::{DeadLetter, Emitted, Given, PendingTimer};

use crate::guest::{OnBatch, on_batch};
use crate::map_key::MapKey;
use crate::{Function, HttpAnswer, HttpError, HttpRequest, LogLine, Slot, Time};
use given::Step;
use outside::Outside;
use run::{Outcome, Run};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Feeds a function and looks at what comes out.
///
/// Nothing runs before a result is asked for. Events may be sent after that, too: everything is then run
/// again from the start. Methods that look at results panic, with the place in the test, when the three
/// runs disagree or something is asked for that the function doesn't have.
pub struct Driver {
    function: Described,
    config: String,
    steps: Vec<Step>,
    disorder: i64,
    seed: u64,
    outside: Outside,
    done: Option<Run>,
}

/// What the driver knows of a function.
#[derive(Clone, Copy)]
struct Described {
    name: &'static str,
    inputs: &'static [&'static str],
    key: Option<&'static str>,
    outputs: &'static [(&'static str, &'static str)],
    slots: &'static [Slot],
    timers: bool,
    on_batch: OnBatch,
}

impl Driver {
    /// A driver of an annotated function: `Driver::of(carrier_delays)`.
    pub fn of<F: Function>(_function: impl FnOnce() -> F) -> Self {
        let function = Described {
            name: F::NAME,
            inputs: F::INPUTS,
            key: F::KEY,
            outputs: F::OUTPUTS,
            slots: F::SLOTS,
            timers: F::TIMERS,
            on_batch: on_batch::<F>,
        };
        Self {
            function,
            config: "{}".to_owned(),
            steps: Vec::new(),
            disorder: 300_000_000,
            seed: 0,
            outside: Outside::default(),
            done: None,
        }
    }

    /// Gives the function a configuration (`[config]` of a manifest).
    ///
    /// # Panics
    /// When it can't be written as JSON.
    #[must_use]
    #[track_caller]
    pub fn with_config(mut self, config: impl Serialize) -> Self {
        self.config = written(&config);
        self.done = None;
        self
    }

    /// Gives the function a secret.
    #[must_use]
    pub fn with_secret(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref().to_vec();
        self.outside.secrets.insert(name.to_owned(), value);
        self.done = None;
        self
    }

    /// Answers the function's calls. As on a host, an outcome is on record until its event has its fate, so that the
    /// same call isn't made twice; one without an answer, or with a status such as 503, is made again once the
    /// event has failed with it. The number says how often it was made before. The answer should depend on nothing
    /// else, for each of the three runs makes its calls.
    #[must_use]
    pub fn with_http(
        mut self,
        answer: impl Fn(&HttpRequest, u32) -> std::result::Result<HttpAnswer, HttpError> + 'static,
    ) -> Self {
        self.outside.answering = Some(std::rc::Rc::new(answer));
        self.done = None;
        self
    }

    /// The calls that were made while the events went through one by one, in order.
    #[track_caller]
    pub fn calls(&mut self) -> Vec<HttpRequest> {
        self.results().calls.clone()
    }

    /// Seeds the function's random numbers, the place of the crash and the sizes of batches.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self.done = None;
        self
    }

    /// Sends an event: a key and a value that is written as JSON.
    ///
    /// # Panics
    /// When the value can't be written as JSON.
    #[track_caller]
    pub fn send(&mut self, key: impl AsRef<[u8]>, value: impl Serialize) {
        self.send_event(Given::raw(written(&value)).key(key));
    }

    /// Sends an event to one of the topics that the function reads; the others go to the first. Events are
    /// handled in the order in which they are sent, whichever topics they go to.
    ///
    /// # Panics
    /// When the function doesn't read the topic, or the value can't be written as JSON.
    #[track_caller]
    pub fn send_to(&mut self, topic: &str, key: impl AsRef<[u8]>, value: impl Serialize) {
        self.send_event(Given::raw(written(&value)).key(key).topic(topic));
    }

    /// Sends an event of any form.
    ///
    /// # Panics
    /// When it is for a topic that the function doesn't read.
    #[track_caller]
    pub fn send_event(&mut self, event: Given) {
        let topics = self.function.inputs;
        let input = match event.to() {
            None => Some(0),
            Some(topic) => topics.iter().position(|other| *other == topic),
        };
        let Some(input) = input else {
            complain(&format!(
                "`{}` doesn't read {:?}; it reads {topics:?}",
                self.function.name,
                event.to().unwrap_or_default()
            ))
        };
        self.steps.push(Step::Event(input, event));
        self.done = None;
    }

    /// Lets time go on to a moment without an event, in event time as in processing time: timers that are due
    /// by then take their turn, and state that has expired by then is gone. Otherwise the watermark follows
    /// the events' times, and processing time is that of the latest event.
    ///
    /// # Panics
    /// When the text is no time.
    #[track_caller]
    pub fn advance_time<T: TryInto<Time, Error: std::fmt::Display>>(&mut self, time: T) {
        match time.try_into() {
            Ok(time) => self.steps.push(Step::Time(time.micros())),
            Err(why) => complain(&why.to_string()),
        }
        self.done = None;
    }

    /// Lets events be so far behind the newest one (`[time] disorder` of a manifest); five minutes otherwise.
    #[must_use]
    pub fn with_disorder(mut self, disorder: std::time::Duration) -> Self {
        self.disorder = i64::try_from(disorder.as_micros()).unwrap_or(i64::MAX);
        self.done = None;
        self
    }

    /// The timers that are set and not due yet, those due first in front.
    #[track_caller]
    pub fn timers(&mut self) -> Vec<PendingTimer> {
        self.results().model.pending()
    }

    /// What was emitted to a topic, in order. Tombstones need an `Option`: `output::<Option<T>>`.
    ///
    /// # Panics
    /// When the function has no such output, or a value doesn't read as `T`.
    #[track_caller]
    pub fn output<T: DeserializeOwned>(&mut self, topic: &str) -> Vec<Emitted<T>> {
        let position = self
            .function
            .outputs
            .iter()
            .position(|(_, other)| *other == topic);
        let Some(position) = position else {
            let topics: Vec<_> = self
                .function
                .outputs
                .iter()
                .map(|(_, topic)| *topic)
                .collect();
            complain(&format!(
                "`{}` has no output to {topic:?}; its outputs are {topics:?}",
                self.function.name
            ))
        };
        self.results()
            .emitted
            .iter()
            .filter(|emitted| emitted.output == position)
            .map(|emitted| emitted.read(topic))
            .collect()
    }

    /// The value of a slot for a key: of a counter a number, of a list all of it.
    ///
    /// # Panics
    /// When the function has no such slot, or the value doesn't read as `T`.
    #[track_caller]
    pub fn state<T: DeserializeOwned>(&mut self, slot: &str, key: impl AsRef<[u8]>) -> Option<T> {
        let number = self.slot(slot);
        let stored = self.results().model.value(key.as_ref(), number)?;
        Some(stored_as(slot, stored))
    }

    /// The entries of a map for a key, in order.
    ///
    /// # Panics
    /// When the function has no such slot, or an entry doesn't read as `K` and `T`.
    #[track_caller]
    pub fn entries<K: MapKey, T: DeserializeOwned>(
        &mut self,
        slot: &str,
        key: impl AsRef<[u8]>,
    ) -> Vec<(K, T)> {
        let number = self.slot(slot);
        let entries = self.results().model.entries(key.as_ref(), number);
        let read = |(entry, value): (&[u8], &[u8])| match K::read(entry) {
            Some(entry) => (entry, stored_as(slot, value)),
            None => complain(&format!("an entry of {slot:?} has another type of key")),
        };
        entries.map(read).collect()
    }

    #[track_caller]
    fn slot(&self, slot: &str) -> usize {
        let slots = self.function.slots;
        match slots.iter().position(|other| other.name == slot) {
            Some(number) => number,
            None => {
                let names: Vec<_> = slots.iter().map(|slot| slot.name).collect();
                complain(&format!(
                    "`{}` has no slot {slot:?}; its slots are {names:?}",
                    self.function.name
                ))
            }
        }
    }

    /// Number of events that were skipped, events without a key for a function with state among them.
    #[track_caller]
    pub fn skipped(&mut self) -> usize {
        self.count(Outcome::Skipped)
    }

    /// Number of events that were handled without any effect.
    #[track_caller]
    pub fn filtered(&mut self) -> usize {
        self.count(Outcome::Filtered)
    }

    /// Events that were given up, in order.
    #[track_caller]
    pub fn dead_letters(&mut self) -> Vec<DeadLetter> {
        self.results().dead_letters.clone()
    }

    /// Why the function stopped, if it said `fatal`; later events were not handled.
    #[track_caller]
    pub fn stopped(&mut self) -> Option<String> {
        self.results().stopped.clone()
    }

    /// Lines that were logged while the events went through one by one; `event` counts them from 0 in the
    /// order sent.
    #[track_caller]
    pub fn logs(&mut self) -> Vec<LogLine> {
        self.results().logs.clone()
    }

    #[track_caller]
    fn count(&mut self, outcome: Outcome) -> usize {
        self.results()
            .outcomes
            .iter()
            .filter(|(other, _)| *other == outcome)
            .count()
    }

    #[track_caller]
    fn results(&mut self) -> &Run {
        if self.done.is_none() {
            match agree::three_runs(
                &self.function,
                &self.config,
                &self.steps,
                self.disorder,
                self.seed,
                &self.outside,
            ) {
                Ok(run) => self.done = Some(run),
                Err(why) => complain(&why),
            }
        }
        match &self.done {
            Some(run) => run,
            None => complain("nothing was run"),
        }
    }
}

#[track_caller]
fn stored_as<T: DeserializeOwned>(slot: &str, stored: &[u8]) -> T {
    match serde_json::from_slice(stored) {
        Ok(value) => value,
        Err(why) => complain(&format!(
            "slot {slot:?} holds {}, which doesn't read as asked: {why}",
            String::from_utf8_lossy(stored)
        )),
    }
}

#[track_caller]
fn written(value: &impl Serialize) -> String {
    match serde_json::to_string(value) {
        Ok(text) => text,
        Err(why) => complain(&format!("can't be written as JSON: {why}")),
    }
}

/// A test is to fail here.
#[track_caller]
#[expect(clippy::panic, reason = "this is how a test fails")]
fn complain(what: &str) -> ! {
    panic!("{what}")
}
