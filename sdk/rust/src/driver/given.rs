//! Events on their way in and out of a test.

use super::{complain, written};
use crate::Time;
use crate::abi::{HeaderBytes, PackedEvent, encode_header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::collections::HashMap;

/// An event to send: `Given::json(json!({"n": 1})).key("UA").header("source", "gate-3")`.
#[derive(Clone, Debug)]
pub struct Given {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<u8>,
    time: Option<Time>,
    topic: Option<String>,
}

impl Given {
    /// An event whose value is written as JSON.
    ///
    /// # Panics
    /// When it can't be written as JSON.
    #[must_use]
    #[track_caller]
    pub fn json(value: impl Serialize) -> Self {
        Self::raw(written(&value))
    }

    /// An event with these bytes as its value.
    #[must_use]
    pub fn raw(value: impl Into<Vec<u8>>) -> Self {
        Self {
            key: None,
            value: Some(value.into()),
            headers: Vec::new(),
            time: None,
            topic: None,
        }
    }

    /// An event without a value.
    #[must_use]
    pub fn tombstone() -> Self {
        Self {
            key: None,
            value: None,
            headers: Vec::new(),
            time: None,
            topic: None,
        }
    }

    /// Sends it to this one of the topics that the function reads; without one to the first.
    #[must_use]
    pub fn topic(mut self, topic: &str) -> Self {
        self.topic = Some(topic.to_owned());
        self
    }

    /// The topic it is for.
    pub(super) fn to(&self) -> Option<&str> {
        self.topic.as_deref()
    }

    /// Gives it a key; without one it is null.
    #[must_use]
    pub fn key(mut self, key: impl AsRef<[u8]>) -> Self {
        self.key = Some(key.as_ref().to_vec());
        self
    }

    /// Adds a header.
    ///
    /// # Panics
    /// When the name has more than 65,535 bytes.
    #[must_use]
    #[track_caller]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        if encode_header(&mut self.headers, name, value.as_ref()).is_none() {
            complain("a header's name may have 65,535 bytes");
        }
        self
    }

    /// Gives it an event time: a [`Time`], or RFC 3339 text. Without one the events of a test are a second
    /// apart from 2000-01-01T00:00:00Z on.
    ///
    /// # Panics
    /// When the text is no time.
    #[must_use]
    #[track_caller]
    pub fn time<T: TryInto<Time, Error: std::fmt::Display>>(mut self, time: T) -> Self {
        match time.try_into() {
            Ok(time) => self.time = Some(time),
            Err(why) => complain(&why.to_string()),
        }
        self
    }

    /// The event as it lies at an offset of its topic, as the `nth` of a test; `pointer` says what to key it by
    /// instead of its own key. It is received at its time, or at `received` if that is later.
    pub(super) fn packed(
        &self,
        (nth, offset): (u64, u64),
        pointer: Option<&str>,
        received: i64,
    ) -> PackedEvent {
        let age = i64::try_from(nth)
            .unwrap_or(i64::MAX / SECOND)
            .saturating_mul(SECOND);
        let time = self.time.map_or(START + age, Time::micros);
        let key = match pointer {
            None => self.key.clone(),
            Some(pointer) => self
                .value
                .as_deref()
                .and_then(|value| pointed_at(value, pointer)),
        };
        PackedEvent {
            time,
            key,
            value: self.value.clone(),
            headers: self.headers.clone(),
            offset,
            ingest_time: received.max(time),
        }
    }
}

/// What a test lets happen.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// An event of an input.
    Event(usize, Given),
    /// Time goes on to here without an event.
    Time(i64),
}

/// A timer that is set and not due yet.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PendingTimer {
    /// The key it was set for.
    pub key: Vec<u8>,
    /// Its tag.
    pub tag: String,
    /// When it is due.
    pub time: Time,
    /// Whether that is in processing time.
    pub processing: bool,
}

const SECOND: i64 = 1_000_000;
/// 2000-01-01T00:00:00Z.
pub(super) const START: i64 = 946_684_800 * SECOND;

/// Text as it is, numbers and booleans as they are written; anything else is no key.
fn pointed_at(value: &[u8], pointer: &str) -> Option<Vec<u8>> {
    let mut at: &RawValue = serde_json::from_slice(value).ok()?;
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        at = if at.get().starts_with('[') {
            let index = part
                .parse()
                .ok()
                .filter(|index: &usize| index.to_string() == part)?;
            serde_json::from_str::<Vec<&RawValue>>(at.get())
                .ok()?
                .get(index)
                .copied()?
        } else {
            serde_json::from_str::<HashMap<String, &RawValue>>(at.get())
                .ok()?
                .get(&part)
                .copied()?
        };
    }
    match at.get().as_bytes().first()? {
        b'"' => serde_json::from_str::<String>(at.get())
            .ok()
            .map(String::into_bytes),
        b'{' | b'[' | b'n' => None,
        _ => Some(at.get().as_bytes().to_vec()),
    }
}

/// An event that a function emitted.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Emitted<T> {
    /// The key; `None` = null.
    pub key: Option<Vec<u8>>,
    /// The value.
    pub value: T,
    /// Headers in order.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Event time: its own, or that of the event it came from.
    pub time: Time,
}

impl<T> Emitted<T> {
    /// The key as text; `None` when it is null or no UTF-8.
    pub fn key_str(&self) -> Option<&str> {
        std::str::from_utf8(self.key.as_deref()?).ok()
    }
}

/// An event that was given up.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Which event it was, counted from 0 in the order sent; of a timer, the event it came before.
    pub event: usize,
    /// The tag of the timer, if it was one.
    pub timer: Option<String>,
    /// `guest` (the function said so, or no attempt helped), `decode` or `trap`.
    pub reason: &'static str,
    /// The function's or the parser's words.
    pub error: String,
    /// How often it was tried.
    pub attempts: u32,
}

/// An emitted event as its bytes.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Raw {
    pub(super) event: usize,
    pub(super) output: usize,
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
    pub(super) headers: Vec<u8>,
    pub(super) time: i64,
}

impl Raw {
    #[track_caller]
    pub(super) fn read<T: DeserializeOwned>(&self, topic: &str) -> Emitted<T> {
        let bytes = self.value.as_deref().unwrap_or(b"null");
        let value = match serde_json::from_slice(bytes) {
            Ok(value) => value,
            Err(why) => complain(&format!(
                "an event in {topic:?} is {}, which doesn't read as asked: {why}",
                String::from_utf8_lossy(bytes)
            )),
        };
        let headers = HeaderBytes(&self.headers)
            .map(|(name, value)| (name.to_owned(), value.to_vec()))
            .collect();
        Emitted {
            key: self.key.clone(),
            value,
            headers,
            time: Time::from_micros(self.time),
        }
    }
}
