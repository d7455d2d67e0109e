//! Timers: what a function sets, and what its handler is given when one is due.

use crate::abi::{Clock, Row};
use crate::guest::Running;
use crate::{Error, Key, Result, Time};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Sets and cancels timers of the event's key.
///
/// A timer has a tag, and a key has at most one of each tag: setting it again replaces it. It is handed to
/// the function's handler (`on_timer`) once: in event time when the watermark has reached its time, and in
/// processing time when the time at which events are received has; those due first go first. A timer that
/// is due when it is set takes its turn right behind the event that set it. Timers are state: they take
/// effect with the event's outputs or not at all, and outlast restarts.
///
/// ```
/// use std::time::Duration;
/// use tidemill::prelude::*;
///
/// /// Says when a key has been silent for ten minutes.
/// #[tidemill::function(input = "beats", output = "silences", on_timer = silent)]
/// fn watch(beat: Event<Value>, seen: Counter, timers: Timers, silences: Output<i64>) -> Result<()> {
///     seen.add(1)?;
///     timers.set("silence", beat.time + Duration::from_secs(600))
/// }
///
/// #[tidemill::on_timer]
/// fn silent(timer: Timer, seen: Counter, silences: Output<i64>) -> Result<()> {
///     silences.emit(timer.key, seen.get()?)
/// }
///
/// # #[cfg(not(target_arch = "wasm32"))]
/// # fn main() {
/// let mut t = Driver::of(watch);
/// for time in ["2013-01-01T10:00:00Z", "2013-01-01T10:05:00Z"] {
///     t.send_event(Given::json(1).key("a").time(time));
/// }
/// t.advance_time("2013-01-01T10:14:59Z");
/// assert!(t.output::<i64>("silences").is_empty());
/// t.advance_time("2013-01-01T10:15:00Z");
/// let silences = t.output::<i64>("silences");
/// assert_eq!((silences[0].value, silences[0].time.to_string()), (2, "2013-01-01T10:15:00Z".to_owned()));
/// # }
/// ```
pub struct Timers<'a> {
    running: &'a Running<'a>,
}

impl<'a> Timers<'a> {
    #[doc(hidden)]
    pub fn new(running: &'a Running<'a>) -> Self {
        Self { running }
    }

    /// Sets a timer, in place of the one with the same tag: at a [`Time`] (in event time), or
    /// [`When::processing`].
    ///
    /// # Errors
    /// When the event has no key.
    pub fn set(&self, tag: &str, when: impl Into<When>) -> Result<()> {
        let When { clock, time } = when.into();
        self.running
            .set_timer(tag, Some((clock, time.micros(), None)))
    }

    /// Sets a timer that brings a value along, which is written as JSON.
    ///
    /// # Errors
    /// When the event has no key. The event becomes a dead letter when the value can't be written.
    pub fn set_with(
        &self,
        tag: &str,
        when: impl Into<When>,
        payload: impl Serialize,
    ) -> Result<()> {
        let When { clock, time } = when.into();
        let payload = serde_json::to_vec(&payload).map_err(|why| {
            Error::dead_letter(format!("a timer's payload can't be written as JSON: {why}"))
        })?;
        self.running
            .set_timer(tag, Some((clock, time.micros(), Some(payload))))
    }

    /// Cancels a timer; nothing happens if there is none.
    ///
    /// # Errors
    /// When the event has no key.
    pub fn cancel(&self, tag: &str) -> Result<()> {
        self.running.set_timer(tag, None)
    }
}

/// When a timer is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct When {
    clock: Clock,
    time: Time,
}

impl When {
    /// In event time: once no event from before it is expected any more.
    pub fn event(time: Time) -> Self {
        Self {
            clock: Clock::Event,
            time,
        }
    }

    /// In processing time, which is that of events' receipt ([`Event::ingest_time`](crate::Event),
    /// [`Context::processing_time`](crate::Context::processing_time)) and goes on by the clock while
    /// there are none.
    pub fn processing(time: Time) -> Self {
        Self {
            clock: Clock::Processing,
            time,
        }
    }
}

impl From<Time> for When {
    fn from(time: Time) -> Self {
        Self::event(time)
    }
}

/// A timer that is due, its payload read as `T` (`Timer` alone: it has none).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Timer<'a, T = ()> {
    /// The key it was set for.
    pub key: Key<'a>,
    /// Its tag.
    pub tag: &'a str,
    /// When it was due: the time it was set to.
    pub time: Time,
    /// What it brings along.
    pub payload: T,
}

impl<'a, T: DeserializeOwned> Timer<'a, T> {
    #[doc(hidden)]
    pub fn new(running: &Running<'a>) -> Result<Self> {
        let row = running.row(running.index()?)?;
        let payload = row.value.unwrap_or(b"null");
        let payload = crate::event::read_json(payload)
            .map_err(|why| Error::new(crate::error::Kind::Undecodable, why))?;
        Ok(Self {
            key: row.key.map_or(Key::NULL, Key::of),
            tag: tag(&row).unwrap_or_default(),
            time: Time::from_micros(row.time),
            payload,
        })
    }

    /// The key as text; `None` when it is no UTF-8.
    pub fn key_str(&self) -> Option<&'a str> {
        self.key.as_str()
    }
}

fn tag<'a>(row: &Row<'a>) -> Option<&'a str> {
    let (_, tag) = row.headers.last()?;
    std::str::from_utf8(tag).ok()
}
