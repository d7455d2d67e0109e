//! Tests of a function, natively and without a server: events in, outputs and state out.
//!
//! The events go through the same code as in a component: packed into batches, handled, the answer
//! read back. They do so three times (one by one; in batches, with a crash; all at once), and the three
//! runs must agree.

mod agree;
mod given;
mod run;
#[cfg(test)]
mod tests;

pub use given::{DeadLetter, Emitted, Given};

use crate::guest::{OnBatch, on_batch};
use crate::{Function, LogLine};
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
    given: Vec<Given>,
    seed: u64,
    done: Option<Run>,
}

/// What the driver knows of a function.
#[derive(Clone, Copy)]
struct Described {
    name: &'static str,
    input: &'static str,
    key: Option<&'static str>,
    outputs: &'static [(&'static str, &'static str)],
    slots: &'static [&'static str],
    on_batch: OnBatch,
}

impl Driver {
    /// A driver of an annotated function: `Driver::of(carrier_delays)`.
    pub fn of<F: Function>(_function: impl FnOnce() -> F) -> Self {
        let function = Described {
            name: F::NAME,
            input: F::INPUT,
            key: F::KEY,
            outputs: F::OUTPUTS,
            slots: F::SLOTS,
            on_batch: on_batch::<F>,
        };
        Self {
            function,
            config: "{}".to_owned(),
            given: Vec::new(),
            seed: 0,
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

    /// Sends an event of any form.
    pub fn send_event(&mut self, event: Given) {
        self.given.push(event);
        self.done = None;
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

    /// The value of a slot for a key.
    ///
    /// # Panics
    /// When the function has no such slot, or the value doesn't read as `T`.
    #[track_caller]
    pub fn state<T: DeserializeOwned>(&mut self, slot: &str, key: impl AsRef<[u8]>) -> Option<T> {
        let position = self.function.slots.iter().position(|other| *other == slot);
        let Some(position) = position else {
            complain(&format!(
                "`{}` has no slot {slot:?}; its slots are {:?}",
                self.function.name, self.function.slots
            ))
        };
        let stored = self
            .results()
            .state
            .get(&(key.as_ref().to_vec(), position))?;
        match serde_json::from_slice(stored) {
            Ok(value) => Some(value),
            Err(why) => complain(&format!(
                "slot {slot:?} holds {}, which doesn't read as asked: {why}",
                String::from_utf8_lossy(stored)
            )),
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
            match agree::three_runs(&self.function, &self.config, &self.given, self.seed) {
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
