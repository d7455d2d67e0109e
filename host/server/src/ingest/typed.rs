//! Typed events: `{"key", "value", "headers", "time", "partition"}`, each in text or base64.

use super::intake::{Intake, KeyFrom, TimeSource};
use super::pick::pick;
use super::rows::{Place, Row, Rows, Wrong};
use super::times::read_time;
use crate::problem::Answer;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use tidemill_log::{Format, TimeUnit};

/// An event as its sender writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypedEvent<'t> {
    #[serde(borrow, default, deserialize_with = "given")]
    key: Option<Option<Cow<'t, str>>>,
    #[serde(borrow, default)]
    key_base64: Option<Cow<'t, str>>,
    #[serde(borrow, default, deserialize_with = "given")]
    value: Option<&'t RawValue>,
    #[serde(borrow, default)]
    value_base64: Option<Cow<'t, str>>,
    #[serde(default)]
    tombstone: bool,
    #[serde(borrow, default)]
    headers: Vec<(Cow<'t, str>, HeaderValue<'t>)>,
    #[serde(borrow, default)]
    time: Option<Cow<'t, str>>,
    #[serde(default)]
    time_ms: Option<i64>,
    #[serde(default)]
    time_us: Option<i64>,
    #[serde(default)]
    partition: Option<u32>,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a header's value is text or {\"base64\": \"…\"}"
)]
enum HeaderValue<'t> {
    Text(#[serde(borrow)] Cow<'t, str>),
    Bytes {
        #[serde(borrow)]
        base64: Cow<'t, str>,
    },
}

/// Keeps a `null` apart from an absent member.
fn given<'t, D: Deserializer<'t>, T: Deserialize<'t>>(json: D) -> Result<Option<T>, D::Error> {
    T::deserialize(json).map(Some)
}

/// A header's name and value.
type Header<'e> = (&'e str, Cow<'e, [u8]>);

/// The value on its way into a row.
enum Body<'t> {
    Tombstone,
    /// Lies in the request's body.
    Here(&'t str),
    Bytes(Cow<'t, [u8]>),
}

/// Takes one typed event whose text lies at `at` in the payload.
pub(super) fn take(
    intake: &Intake,
    rows: &mut Rows,
    text: &str,
    at: usize,
    line: Option<u64>,
) -> Answer<()> {
    let index = rows.seen;
    rows.seen += 1;
    match row(intake, rows, text, at) {
        Ok((row, partition, wrong)) => Ok(rows.push(row, partition, wrong)?),
        Err(wrong) => {
            rows.refuse(index, line, wrong);
            Ok(())
        }
    }
}

/// A row, its partition, and what is wrong with it if it is for the dead letters.
type Checked = (Row, u32, Option<Wrong>);

fn row(intake: &Intake, rows: &mut Rows, text: &str, at: usize) -> Result<Checked, Wrong> {
    // The depth is checked before anything recursive reads the text.
    pick(text, None, None).map_err(Wrong::event)?;
    let event: TypedEvent<'_> =
        serde_json::from_str(text).map_err(|error| Wrong::event(error.to_string()))?;
    let body = body(intake, &event)?;
    let headers = headers(&event)?;
    let inner: &str = match &body {
        Body::Tombstone => "null",
        Body::Here(json) => json,
        Body::Bytes(bytes) if intake.format == Format::Json => {
            std::str::from_utf8(bytes).map_err(|_| Wrong::at("/value_base64", "not UTF-8"))?
        }
        Body::Bytes(_) => "null",
    };
    let found = pick(
        inner,
        key_pointer(intake, &event),
        time_pointer(intake, &event),
    )
    .map_err(|reason| Wrong::at(value_name(&event), reason))?;
    let time = time(intake, &event, &headers, found.time)?;
    let decoded_key = own_key(&event)?;
    let value_len = match &body {
        Body::Tombstone => 0,
        Body::Here(json) => json.len(),
        Body::Bytes(bytes) => bytes.len(),
    };
    let headers_len: usize = headers
        .iter()
        .map(|(name, value)| 6 + name.len() + value.len())
        .sum();
    intake.fits(
        value_len
            + headers_len
            + decoded_key
                .as_ref()
                .and_then(Option::as_ref)
                .map_or(0, |key| key.len()),
    )?;

    let (key, partition) = match decoded_key {
        Some(key) => (
            key.as_ref().map(|key| rows.put(key)),
            Rows::partition(key.as_deref(), intake.partitions, intake.sticky),
        ),
        None => {
            let in_body = matches!(body, Body::Here(_))
                .then(|| at + (inner.as_ptr().addr() - text.as_ptr().addr()));
            intake.key(rows, inner, in_body, found.key)?
        }
    };
    intake.has_key(key.is_some())?;
    let partition = explicit_partition(intake, &event)?.unwrap_or(partition);
    let is_value = !matches!(body, Body::Tombstone);
    let wrong = intake.fitting(is_value.then_some(inner.as_bytes()))?;
    let (value, headers_at) = place(rows, &body, text, at, headers.is_empty());
    let mut written = 0;
    for (name, value) in &headers {
        written += rows
            .put_header(name, value)
            .map_err(|error| Wrong::at("/headers", error.detail))?;
    }
    Ok((
        Row {
            time,
            key,
            value,
            headers_len: written,
            headers_at,
        },
        partition,
        wrong,
    ))
}

/// Where the value lies: in the body as it came, or, when headers have to follow it, behind the body.
fn place(
    rows: &mut Rows,
    body: &Body<'_>,
    text: &str,
    at: usize,
    in_place: bool,
) -> (Option<Place>, usize) {
    match body {
        Body::Tombstone => (None, rows.put(b"").at),
        Body::Here(json) if in_place => (
            Some(Place {
                at: at + (json.as_ptr().addr() - text.as_ptr().addr()),
                len: json.len(),
            }),
            0,
        ),
        Body::Here(json) => (Some(rows.put(json.as_bytes())), 0),
        Body::Bytes(bytes) => (Some(rows.put(bytes)), 0),
    }
}

fn value_name(event: &TypedEvent<'_>) -> &'static str {
    if event.value_base64.is_some() {
        "/value_base64"
    } else {
        "/value"
    }
}

fn body<'e>(intake: &Intake, event: &'e TypedEvent<'_>) -> Result<Body<'e>, Wrong> {
    match (event.value, &event.value_base64, event.tombstone) {
        (None, None, true) => Ok(Body::Tombstone),
        (Some(value), None, true) if value.get() == "null" => Ok(Body::Tombstone),
        (None, None, false) => Err(Wrong::event(
            "\"value\" is missing; say \"value\", \"value_base64\" or \"tombstone\": true",
        )),
        (Some(value), None, false) if intake.format == Format::Json => Ok(Body::Here(value.get())),
        (Some(value), None, false) => match serde_json::from_str::<String>(value.get()) {
            Ok(text) => Ok(Body::Bytes(Cow::Owned(text.into_bytes()))),
            Err(_) => Err(Wrong::at(
                "/value",
                "values of this topic are bytes: give text, or \"value_base64\"",
            )),
        },
        (None, Some(base64), false) => Ok(Body::Bytes(Cow::Owned(
            decode(base64).map_err(|reason| Wrong::at("/value_base64", reason))?,
        ))),
        _ => Err(Wrong::event(
            "give one of \"value\", \"value_base64\" and \"tombstone\": true",
        )),
    }
}

fn own_key<'e>(event: &'e TypedEvent<'_>) -> Result<Option<Option<Cow<'e, [u8]>>>, Wrong> {
    match (&event.key, &event.key_base64) {
        (None, None) => Ok(None),
        (Some(key), None) => Ok(Some(key.as_ref().map(|key| Cow::Borrowed(key.as_bytes())))),
        (None, Some(base64)) => Ok(Some(Some(Cow::Owned(
            decode(base64).map_err(|reason| Wrong::at("/key_base64", reason))?,
        )))),
        (Some(_), Some(_)) => Err(Wrong::event("give one of \"key\" and \"key_base64\"")),
    }
}

fn headers<'e>(event: &'e TypedEvent<'_>) -> Result<Vec<Header<'e>>, Wrong> {
    let value = |(at, (name, value)): (usize, &'e (Cow<'_, str>, HeaderValue<'_>))| {
        let bytes = match value {
            HeaderValue::Text(text) => Cow::Borrowed(text.as_bytes()),
            HeaderValue::Bytes { base64 } => Cow::Owned(
                decode(base64)
                    .map_err(|reason| Wrong::at(format!("/headers/{at}/1/base64"), reason))?,
            ),
        };
        Ok((name.as_ref(), bytes))
    };
    event.headers.iter().enumerate().map(value).collect()
}

fn decode(base64: &str) -> Result<Vec<u8>, String> {
    STANDARD
        .decode(base64)
        .map_err(|error| format!("not base64: {error}"))
}

fn key_pointer<'i>(
    intake: &'i Intake,
    event: &TypedEvent<'_>,
) -> Option<&'i super::pointer::Pointer> {
    match &intake.key {
        KeyFrom::Pointer(pointer) if event.key.is_none() && event.key_base64.is_none() => {
            Some(pointer)
        }
        _ => None,
    }
}

fn has_time(event: &TypedEvent<'_>) -> bool {
    event.time.is_some() || event.time_ms.is_some() || event.time_us.is_some()
}

fn time_pointer<'i>(
    intake: &'i Intake,
    event: &TypedEvent<'_>,
) -> Option<&'i super::pointer::Pointer> {
    match &intake.time {
        TimeSource::Pointer(pointer, _) if !has_time(event) => Some(pointer),
        _ => None,
    }
}

fn time(
    intake: &Intake,
    event: &TypedEvent<'_>,
    headers: &[(&str, Cow<'_, [u8]>)],
    found: Option<&str>,
) -> Result<i64, Wrong> {
    match (&event.time, event.time_ms, event.time_us) {
        (Some(text), None, None) => {
            read_time(text, TimeUnit::Rfc3339).map_err(|reason| Wrong::at("/time", reason))
        }
        (None, Some(ms), None) => ms
            .checked_mul(1000)
            .ok_or_else(|| Wrong::at("/time_ms", "out of range")),
        (None, None, Some(us)) => Ok(us),
        (None, None, None) => match &intake.time {
            TimeSource::Header(name, unit) => {
                let (_, value) = headers
                    .iter()
                    .rfind(|(other, _)| other == name)
                    .ok_or_else(|| {
                        Wrong::at(
                            "/headers",
                            format!(
                                "the event time is missing: the header {name:?} should give it"
                            ),
                        )
                    })?;
                let text = std::str::from_utf8(value).map_err(|_| {
                    Wrong::at("/headers", format!("the header {name:?} is no text"))
                })?;
                read_time(text, *unit).map_err(|reason| Wrong::at("/headers", reason))
            }
            _ => intake.time(found),
        },
        _ => Err(Wrong::event(
            "give one of \"time\", \"time_ms\" and \"time_us\"",
        )),
    }
}

fn explicit_partition(intake: &Intake, event: &TypedEvent<'_>) -> Result<Option<u32>, Wrong> {
    match event.partition {
        Some(partition) if partition >= intake.partitions => Err(Wrong::at(
            "/partition",
            format!(
                "the topic has {} partitions, counted from 0",
                intake.partitions
            ),
        )),
        other => Ok(other),
    }
}
