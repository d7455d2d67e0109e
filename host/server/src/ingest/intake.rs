//! How JSON values of one request become rows: which key, which time, which partition.

use super::pick::pick;
use super::pointer::Pointer;
use super::rows::{Place, Row, Rows, Wrong};
use super::times::read_time;
use crate::problem::{Answer, Problem};
use std::borrow::Cow;
use std::sync::Arc;
use tidemill_log::{Format, OnMismatch, Schema, TimeUnit};
use tidemill_types::partition_of_key;

/// Where keys come from when an event doesn't name its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum KeyFrom {
    Null,
    Fixed(Vec<u8>),
    Pointer(Pointer),
}

/// Where times come from when an event doesn't name its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TimeSource {
    /// The same for all: the time of acceptance, or what a header of the request says.
    Given(i64),
    Pointer(Pointer, TimeUnit),
    /// A header of each event; the request has none of this name.
    Header(String, TimeUnit),
}

/// How events of one request are taken.
#[derive(Clone, Debug)]
pub(crate) struct Intake {
    pub(crate) partitions: u32,
    pub(crate) format: Format,
    pub(crate) key: KeyFrom,
    pub(crate) time: TimeSource,
    /// Time of acceptance.
    pub(crate) now: i64,
    /// Whether a header of the request names the time, which only makes sense for one event.
    pub(crate) single: bool,
    /// Most key, value and header bytes of an event.
    pub(crate) event_bytes: usize,
    /// Whether good events are written although others are refused.
    pub(crate) continue_on_error: bool,
    /// Where events without key go.
    pub(crate) sticky: u32,
    /// Whether events without key are refused: the topic is compacted by key.
    pub(crate) keyed: bool,
    /// What values have to fit, if that is checked.
    pub(crate) schema: Option<Arc<Schema>>,
}

/// A key on its way into a row: its place in the payload and its partition.
type KeyAndPartition = (Option<Place>, u32);

impl Intake {
    /// Takes one JSON text that lies at `at` in the payload; counts it, refused or not.
    pub(crate) fn take_json(
        &self,
        rows: &mut Rows,
        text: &str,
        at: usize,
        line: Option<u64>,
    ) -> Answer<()> {
        let index = rows.seen;
        rows.seen += 1;
        let row = self.json_row(rows, text, at);
        let checked = row.and_then(|row| Ok((row, self.fitting(Some(text.as_bytes()))?)));
        match checked {
            Ok(((row, partition), wrong)) => Ok(rows.push(row, partition, wrong)?),
            Err(wrong) => {
                rows.refuse(index, line, wrong);
                Ok(())
            }
        }
    }

    fn json_row(&self, rows: &mut Rows, text: &str, at: usize) -> Result<(Row, u32), Wrong> {
        self.fits(text.len())?;
        let key_pointer = match &self.key {
            KeyFrom::Pointer(pointer) => Some(pointer),
            _ => None,
        };
        let time_pointer = match &self.time {
            TimeSource::Pointer(pointer, _) => Some(pointer),
            _ => None,
        };
        let found = pick(text, key_pointer, time_pointer).map_err(Wrong::event)?;
        let (key, partition) = self.key(rows, text, Some(at), found.key)?;
        self.has_key(key.is_some())?;
        let time = self.time(found.time)?;
        self.fits(text.len() + key.map_or(0, |key| key.len))?;
        let value = Some(Place {
            at,
            len: text.len(),
        });
        Ok((
            Row {
                time,
                key,
                value,
                headers_len: 0,
                headers_at: 0,
            },
            partition,
        ))
    }

    /// The key that the request or the pointer gives; `at` says where `text` lies in the payload, if it does.
    pub(crate) fn key(
        &self,
        rows: &mut Rows,
        text: &str,
        at: Option<usize>,
        found: Option<&str>,
    ) -> Result<KeyAndPartition, Wrong> {
        match &self.key {
            KeyFrom::Null => Ok((None, self.sticky)),
            KeyFrom::Fixed(key) => Ok((
                Some(rows.fixed_key(key)),
                partition_of_key(key, self.partitions),
            )),
            KeyFrom::Pointer(pointer) => match key_text(found.unwrap_or("null")) {
                Ok(None) => Ok((None, self.sticky)),
                Ok(Some(key)) => {
                    let partition =
                        Rows::partition(Some(key.as_bytes()), self.partitions, self.sticky);
                    let place = match (&key, at) {
                        (Cow::Borrowed(key), Some(at)) => Place {
                            at: at + (key.as_ptr().addr() - text.as_ptr().addr()),
                            len: key.len(),
                        },
                        _ => rows.put(key.as_bytes()),
                    };
                    Ok((Some(place), partition))
                }
                Err(reason) => Err(Wrong::at(pointer, reason)),
            },
        }
    }

    /// Whether a value fits the topic's schema: refused if it doesn't, or what is wrong with it if it goes
    /// to the dead letters. A tombstone always fits.
    pub(crate) fn fitting(&self, value: Option<&[u8]>) -> Result<Option<Wrong>, Wrong> {
        let (Some(schema), Some(value)) = (&self.schema, value) else {
            return Ok(None);
        };
        let Err(mismatch) = schema.check(value) else {
            return Ok(None);
        };
        let wrong = Wrong::at(mismatch.pointer, mismatch.reason);
        match schema.on_mismatch() {
            OnMismatch::Reject => Err(wrong),
            OnMismatch::DeadLetter => Ok(Some(wrong)),
            OnMismatch::Null => Ok(None),
        }
    }

    /// Refuses an event without key where one is needed.
    pub(crate) fn has_key(&self, has_key: bool) -> Result<(), Wrong> {
        match has_key || !self.keyed {
            true => Ok(()),
            false => Err(Wrong::event(
                "the event has no key, and the topic is compacted by key: give it one, with ?key, ?key_pointer or as a typed event",
            )),
        }
    }

    /// The time that the request or the pointer gives.
    pub(crate) fn time(&self, found: Option<&str>) -> Result<i64, Wrong> {
        match &self.time {
            TimeSource::Given(time) => Ok(*time),
            TimeSource::Pointer(pointer, unit) => {
                let Some(raw) = found else {
                    return Err(Wrong::at(pointer, "the event time is missing"));
                };
                time_text(raw)
                    .and_then(|text| read_time(&text, *unit))
                    .map_err(|reason| Wrong::at(pointer, reason))
            }
            TimeSource::Header(name, _) => Err(Wrong::event(format!(
                "the event time is missing: the header {name:?} should give it"
            ))),
        }
    }

    /// Refuses an event above the limit.
    pub(crate) fn fits(&self, bytes: usize) -> Result<(), Wrong> {
        if bytes <= self.event_bytes {
            return Ok(());
        }
        let reason = format!(
            "the event has {bytes} bytes of key, value and headers; {} are allowed",
            self.event_bytes
        );
        Err(Wrong {
            pointer: String::new(),
            reason,
            too_large: true,
        })
    }

    /// Refuses several events where one time is given for all.
    pub(crate) fn several(&self) -> Answer<()> {
        if self.single {
            return Err(Problem::because(
                "invalid-request",
                "the header Event-Time is for a single event; typed events carry \"time\" each",
            ));
        }
        Ok(())
    }
}

/// The key in a JSON text: a string's characters, a number or truth value as it is written, null as none.
fn key_text(raw: &str) -> Result<Option<Cow<'_, str>>, &'static str> {
    match raw.as_bytes().first() {
        Some(b'"') => string_text(raw)
            .map(Some)
            .map_err(|()| "the key is a string that is no text (half of a surrogate pair)"),
        Some(b'n') => Ok(None),
        Some(b'{' | b'[') => {
            Err("the key is an object or an array; point at a string, a number or a truth value")
        }
        _ => Ok(Some(Cow::Borrowed(raw))),
    }
}

/// The time in a JSON text.
fn time_text(raw: &str) -> Result<Cow<'_, str>, String> {
    match raw.as_bytes().first() {
        Some(b'"') => {
            string_text(raw).map_err(|()| "the event time is a string that is no text".into())
        }
        Some(b'-' | b'0'..=b'9') => Ok(Cow::Borrowed(raw)),
        _ => Err(format!(
            "the event time is {}; a string or a number is needed",
            kind_of(raw)
        )),
    }
}

fn kind_of(raw: &str) -> &'static str {
    match raw.as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'n') => "null",
        _ => "a truth value",
    }
}

/// A JSON string's characters, borrowed when nothing is escaped.
fn string_text(raw: &str) -> Result<Cow<'_, str>, ()> {
    let inside = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
    if memchr::memchr(b'\\', inside.as_bytes()).is_none() {
        return Ok(Cow::Borrowed(inside));
    }
    serde_json::from_str(raw).map(Cow::Owned).map_err(|_| ())
}
