//! What a request says about its events before its body is read: form, encoding, keys, times.

use super::forms::Each;
use super::intake::{Intake, KeyFrom, TimeSource};
use super::pointer::Pointer;
use super::terms::Terms;
use super::times::read_time;
use super::{QUERY, TYPES};
use crate::app::App;
use crate::body::Encoding;
use crate::problem::{Answer, Problem};
use crate::query::Params;
use axum::http::{HeaderMap, header, request::Parts};
use tidemill_log::{Format, OnMismatch, TimeFrom, TimeUnit, Topic};

/// Form of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// One JSON value, or an array of them.
    Document(Each),
    /// A JSON value a line.
    Lines(Each),
    /// Row heads and payload.
    Packed,
    /// One event as it is.
    Raw,
}

/// How a request's body is taken.
pub(super) struct Plan {
    pub(super) form: Form,
    pub(super) encoding: Encoding,
    pub(super) intake: Intake,
    pub(super) terms: Option<Box<Terms>>,
}

impl Plan {
    /// Reads the head of a request to append.
    pub(super) fn of(app: &App, topic: &Topic, parts: &Parts) -> Answer<Self> {
        let params = Params::read(parts.uri.query(), QUERY)?;
        let terms = Terms::of(topic, parts)?;
        Self::with(app, topic, (&parts.headers, &params), terms)
    }

    /// How the events of a request are taken as if they were appended to a topic.
    pub(super) fn with(
        app: &App,
        topic: &Topic,
        (headers, params): (&HeaderMap, &Params<'_>),
        terms: Option<Box<Terms>>,
    ) -> Answer<Self> {
        let settings = &topic.settings;
        let form = form_of(headers, settings.format)?;
        let encoding = Encoding::of(headers)?;
        let now = app.clock.now().micros();
        let event_time = header_time(headers, "event-time", TimeUnit::Rfc3339)?;
        if event_time.is_some() && form == Form::Packed {
            return Err(Problem::because(
                "invalid-request",
                "the header Event-Time is for a single event; packed rows carry their times",
            ));
        }
        let time = match (event_time, &settings.time) {
            (Some(time), _) => TimeSource::Given(time),
            (None, TimeFrom::Ingest) => TimeSource::Given(now),
            (None, TimeFrom::Value { pointer, unit }) => {
                TimeSource::Pointer(app.pointers.get(pointer)?, *unit)
            }
            (None, TimeFrom::Header { name, unit }) => match header_time(headers, name, *unit)? {
                Some(time) => TimeSource::Given(time),
                None => TimeSource::Header(name.clone(), *unit),
            },
        };
        let intake = Intake {
            partitions: settings.partitions,
            format: settings.format,
            key: key_from(app, params, topic)?,
            time,
            now,
            single: event_time.is_some(),
            event_bytes: app.http.event_bytes.as_usize(),
            continue_on_error: params
                .one_of("on_error", &[("refuse", false), ("continue", true)])?
                .unwrap_or(false),
            sticky: terms
                .as_ref()
                .and_then(|terms| terms.partition())
                .unwrap_or_else(|| app.sticky_partition(settings.partitions)),
            keyed: settings.cleanup.compacts(),
            schema: settings
                .schema
                .clone()
                .filter(|schema| schema.on_mismatch() != OnMismatch::Null),
        };
        Ok(Self {
            form,
            encoding,
            intake,
            terms,
        })
    }
}

fn key_from(app: &App, params: &Params<'_>, topic: &Topic) -> Answer<KeyFrom> {
    match (
        params.get("key"),
        params.parse_own("key_pointer", Pointer::read)?,
    ) {
        (Some(_), Some(_)) => Err(Problem::because(
            "invalid-request",
            "give key or key_pointer, not both",
        )),
        (Some(key), None) => Ok(KeyFrom::Fixed(key.as_bytes().to_vec())),
        (None, Some(pointer)) => Ok(KeyFrom::Pointer(pointer)),
        (None, None) => match &topic.settings.key {
            Some(pointer) => Ok(KeyFrom::Pointer(app.pointers.get(pointer)?)),
            None => Ok(KeyFrom::Null),
        },
    }
}

fn header_time(headers: &HeaderMap, name: &str, unit: TimeUnit) -> Answer<Option<i64>> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or("?");
    read_time(text, unit).map(Some).map_err(|reason| {
        Problem::because("invalid-time", format!("the header {name:?}: {reason}"))
    })
}

/// Content types whose form is known.
const FORMS: [(&str, Form); 6] = [
    ("application/json", Form::Document(Each::Value)),
    ("application/x-ndjson", Form::Lines(Each::Value)),
    ("application/ndjson", Form::Lines(Each::Value)),
    (
        "application/vnd.tidemill.events+json",
        Form::Document(Each::Typed),
    ),
    (
        "application/vnd.tidemill.events+ndjson",
        Form::Lines(Each::Typed),
    ),
    ("application/vnd.tidemill.batch", Form::Packed),
];

/// The form that `Content-Type` names.
pub(super) fn form_of(headers: &HeaderMap, format: Format) -> Answer<Form> {
    let given = headers
        .get(header::CONTENT_TYPE)
        .map(|value| value.to_str().unwrap_or("?"));
    let essence = given.map(|value| value.split(';').next().unwrap_or_default().trim());
    let known = essence.and_then(|essence| {
        FORMS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(essence))
    });
    match known {
        Some((_, form)) => Ok(*form),
        None if format == Format::Json => {
            let got = essence.map_or_else(
                || "The header Content-Type is missing".to_owned(),
                |other| format!("Content-Type {other:?} is not taken"),
            );
            Err(Problem::because(
                "unsupported-media-type",
                format!("{got}; this topic takes {}", TYPES.join(", ")),
            ))
        }
        None => Ok(Form::Raw),
    }
}
