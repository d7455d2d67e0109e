//! What a handler is given: one event.

use crate::Time;
use crate::abi::{HeaderBytes, Row};
use serde::Deserialize;
use std::fmt;
use std::ops::Deref;

/// One event, its value read as `T`: from JSON by serde, or untouched as [`Bytes`].
///
/// A value that doesn't parse never reaches the handler: the event becomes a dead letter with the
/// parser's message and the place in the text. `T` may borrow from the event (`&str` fields).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event<'a, T> {
    /// The value.
    pub value: T,
    /// The key; may be null.
    pub key: Key<'a>,
    /// The headers, in order.
    pub headers: Headers<'a>,
    /// Event time: when it happened.
    pub time: Time,
    /// The topic it was read from.
    pub topic: &'a str,
    /// The partition it was read from.
    pub partition: u32,
    /// Its offset in the partition.
    pub offset: u64,
    /// When it was committed to the topic.
    pub ingest_time: Time,
    tombstone: bool,
}

impl<'a, T> Event<'a, T> {
    pub(crate) fn new(value: T, row: &Row<'a>, topic: &'a str, partition: u32) -> Self {
        Self {
            value,
            key: Key(row.key),
            headers: Headers(row.headers),
            time: Time::from_micros(row.time),
            topic,
            partition,
            offset: row.offset,
            ingest_time: Time::from_micros(row.ingest_time),
            tombstone: row.value.is_none(),
        }
    }

    /// The key as text; `None` when it is null or no UTF-8.
    pub fn key_str(&self) -> Option<&'a str> {
        self.key.as_str()
    }

    /// Whether the event has no value: its key is to be forgotten. `Event<Option<T>>` and
    /// `Event<Bytes>` take such events, any other makes them dead letters.
    pub fn is_tombstone(&self) -> bool {
        self.tombstone
    }
}

/// The key of an event: bytes, or null. The empty key and null are not the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key<'a>(Option<&'a [u8]>);

impl<'a> Key<'a> {
    /// No key.
    pub const NULL: Key<'static> = Key(None);

    /// A key of these bytes.
    pub fn of(bytes: &'a [u8]) -> Self {
        Self(Some(bytes))
    }

    /// The bytes; `None` when it is null.
    pub fn bytes(self) -> Option<&'a [u8]> {
        self.0
    }

    /// As text; `None` when it is null or no UTF-8.
    pub fn as_str(self) -> Option<&'a str> {
        self.0.and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    /// Whether there is none.
    pub fn is_null(self) -> bool {
        self.0.is_none()
    }
}

impl fmt::Debug for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("null"),
            Some(bytes) => fmt::Debug::fmt(&String::from_utf8_lossy(bytes), f),
        }
    }
}

/// The headers of an event: names and values in order; a name may come more than once. They are read
/// when they are asked for.
#[derive(Clone, Copy)]
pub struct Headers<'a>(pub(crate) HeaderBytes<'a>);

impl<'a> Headers<'a> {
    /// All of them in order.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.0
    }

    /// The last value under a name.
    pub fn get(self, name: &str) -> Option<&'a [u8]> {
        self.0
            .filter(|(other, _)| *other == name)
            .last()
            .map(|(_, value)| value)
    }

    /// The last value under a name as text; `None` also when it is no UTF-8.
    pub fn get_str(self, name: &str) -> Option<&'a str> {
        std::str::from_utf8(self.get(name)?).ok()
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0.0.is_empty()
    }
}

impl fmt::Debug for Headers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(
                self.0
                    .map(|(name, value)| (name, String::from_utf8_lossy(value))),
            )
            .finish()
    }
}

/// A value as it lies in the topic, untouched: `Event<Bytes>`, `Output<Bytes>`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0
    }
}

impl<'a, B: AsRef<[u8]> + ?Sized> From<&'a B> for Bytes<'a> {
    fn from(bytes: &'a B) -> Self {
        Self(bytes.as_ref())
    }
}

/// What an event's value can be read as: anything that serde reads from JSON, and [`Bytes`].
#[diagnostic::on_unimplemented(
    message = "an event's value can't be read as `{Self}`",
    label = "can't be read from JSON",
    note = "put #[derive(Deserialize)] on `{Self}`, or take `Event<Bytes>` for the raw value"
)]
pub trait Payload<'a>: Sized {
    /// Reads a value; `None` is a tombstone.
    ///
    /// # Errors
    /// What doesn't parse, and where.
    fn read(value: Option<&'a [u8]>) -> Result<Self, String>;
}

impl<'a, T: Deserialize<'a>> Payload<'a> for T {
    fn read(value: Option<&'a [u8]>) -> Result<Self, String> {
        match value {
            Some(value) => read_json(value),
            None => serde_json::from_str("null")
                .map_err(|_| "the event is a tombstone, it has no value; `Event<Option<T>>` takes such events too".to_owned()),
        }
    }
}

/// Reads JSON. Checked as a whole, UTF-8 costs far less than string by string; what the fast reader
/// declines serde_json reads, and finds the words for what is wrong.
pub(crate) fn read_json<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    let text = tidemill_json::text(bytes).map_err(|error| format!("not UTF-8: {error}"))?;
    tidemill_json::from_str(text)
        .or_else(|_| serde_json::from_str(text).map_err(|error| error.to_string()))
}

impl<'a> Payload<'a> for Bytes<'a> {
    fn read(value: Option<&'a [u8]>) -> Result<Self, String> {
        Ok(Self(value.unwrap_or_default()))
    }
}
