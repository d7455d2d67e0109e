//! What a handler may know besides its event.

use crate::guest::Running;
use crate::log::{self, Level};
use crate::{Http, Result, Secret, Shared, Time};
use serde::de::DeserializeOwned;
use std::cell::Cell;

/// The surroundings of one event. Everything in it but a secret is the same when the event is handled again. A function
/// over whole batches asks it inside `each`; outside, it speaks of the batch's first event.
pub struct Context<'a> {
    running: &'a Running<'a>,
    /// The event that numbers are drawn for, and how far they are.
    random: Cell<Option<(u32, u64)>>,
}

impl<'a> Context<'a> {
    #[doc(hidden)]
    pub fn new(running: &'a Running<'a>) -> Self {
        Self {
            random: Cell::new(None),
            running,
        }
    }

    /// The event's time: the only present a function knows.
    pub fn now(&self) -> Time {
        self.running.time()
    }

    /// Processing time: when the event was received, or the timer's turn came. The same when the event is
    /// handled again.
    pub fn processing_time(&self) -> Time {
        self.running.processing_time()
    }

    /// The next random number of this event, drawn from (function, partition, offset): the same when
    /// the event is handled again, others for every event.
    pub fn random(&self) -> u64 {
        let event = self.running.near();
        let state = match self.random.get() {
            Some((of, state)) if of == event => state,
            _ => mix(self.running.call().seed ^ mix(self.running.offset())),
        };
        let state = state.wrapping_add(GOLDEN);
        self.random.set(Some((event, state)));
        mix(state)
    }

    /// A random number from 0 (inclusive) to 1 (exclusive).
    pub fn random_unit(&self) -> f64 {
        #[expect(
            clippy::cast_precision_loss,
            reason = "53 bits are what a float holds exactly"
        )]
        let bits = (self.random() >> 11) as f64;
        bits / 9_007_199_254_740_992.0
    }

    /// The function's configuration (`[config]` of its manifest). Read once, then shared.
    ///
    /// # Errors
    /// When it doesn't read as `T`.
    pub fn config<T: DeserializeOwned + 'static>(&self) -> Result<Shared<T>> {
        self.running.config()
    }

    /// The watermark when the event's turn came: no event before it is expected any more; `None` while
    /// there is none.
    pub fn watermark(&self) -> Option<Time> {
        let micros = self.running.watermark_at(self.running.near());
        (micros != i64::MIN).then(|| Time::from_micros(micros))
    }

    /// How often this event was tried before. Not for deciding what to emit.
    pub fn attempt(&self) -> u32 {
        if self.running.near() == 0 {
            self.running.call().attempt
        } else {
            0
        }
    }

    /// The value of a secret now; the attribute names it, `secrets("stripe")`, and the host grants it. It is masked
    /// in what the function logs and in its errors; what it emits or remembers is its own affair.
    ///
    /// # Errors
    /// When it wasn't granted, or can't be read now: with `?` the event is tried again.
    pub fn secret(&self, name: &str) -> Result<Secret> {
        Secret::of(name, self.running.secret(name))
    }

    /// Calls to the outside; the attribute says where to, `http("https://api.example.com/v1/")`, and the host grants
    /// it.
    pub fn http(&self) -> Http<'a> {
        Http::new(self.running)
    }

    /// Writes a line to the function's log; [`crate::info!`] and its sisters do the same with formatting.
    pub fn log(&self, level: Level, message: &str) {
        log::line(level, format_args!("{message}"));
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output step of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
fn mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
