//! `GET /v1/topics/{topic}/events`: a page, a long poll, or a stream of server-sent events.

mod cursor;
mod event;
mod gather;
mod packed;
mod parts;
mod position;
mod sse;
#[cfg(test)]
mod tests;
mod unpack;

pub(crate) use cursor::Cursor;
pub(crate) use event::{Layout, json_or_base64, json_or_object, number, parts, text_or_base64};
pub(crate) use position::out_of_range;
pub use unpack::{PackedEvent, PackedPage};

use crate::app::{App, Shared};
use crate::budget::Hold;
use crate::problem::{Answer, Problem};
use crate::query::Params;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use bytes::Bytes;
use gather::{Page, Want};
use parts::Parts;
use std::fmt::Write;
use std::time::Duration;
use tidemill_env::Buffers;
use tidemill_log::{ReadLimit, Topic};
use tidemill_types::{ByteSize, limits, parse_duration};

/// Query parameters.
pub(crate) const QUERY: &[&str] = &[
    "partition",
    "offset",
    "cursor",
    "from",
    "time",
    "time_of",
    "limit",
    "max_bytes",
    "wait",
    "clamp",
];
/// Content types of answers.
pub(crate) const TYPES: &[&str] = &[
    "application/json",
    "application/x-ndjson",
    "application/vnd.tidemill.batch",
    "text/event-stream",
];

/// The cursor to go on with, where the body has no place for it.
const NEXT: HeaderName = HeaderName::from_static("tidemill-next");
const DEFAULT_EVENTS: usize = 100;
const DEFAULT_BYTES: usize = 1 << 20;
/// Most key, value and header bytes of one answer.
const MOST_BYTES: u64 = 16 << 20;

/// How the answer looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Json,
    Lines,
    Packed,
    Events,
}

/// Reads events.
pub(crate) async fn get(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    let topic = app.topic(&name)?;
    let params = Params::read(query.as_deref(), QUERY)?;
    let form = form_of(&headers)?;
    let want = Want {
        limit: limit(&params)?,
        wait: wait(&params)?,
    };
    let cursor = position::start(&app, &topic, &params, last_event_id(&headers, form)?).await?;
    match form {
        Form::Events => Ok(sse::answer(app, topic, cursor, want.limit)),
        Form::Json | Form::Lines | Form::Packed => {
            let mut hold = app.leaving.hold();
            let page = gather::page(&app, &topic, cursor, want, &mut hold).await?;
            let parts = match form {
                Form::Packed => packed::render(&page, &app.answers)?,
                _ => render(&topic, &page, form, &app.answers),
            };
            Ok(answer(parts, &page, form, hold))
        }
    }
}

fn limit(params: &Params<'_>) -> Answer<ReadLimit> {
    let events = params
        .parse::<usize>("limit", "write a whole number")?
        .unwrap_or(DEFAULT_EVENTS);
    if !(1..=limits::READ_EVENTS).contains(&events) {
        return Err(Problem::because(
            "invalid-request",
            format!(
                "limit={events}: 1 to {} events can be asked for",
                limits::READ_EVENTS
            ),
        ));
    }
    let bytes = params.parse_own("max_bytes", str::parse::<ByteSize>)?;
    if let Some(bytes) = bytes.filter(|bytes| bytes.0 > MOST_BYTES) {
        return Err(Problem::because(
            "invalid-request",
            format!(
                "max_bytes={bytes}: {} can be asked for at most",
                ByteSize(MOST_BYTES)
            ),
        ));
    }
    Ok(ReadLimit {
        events,
        bytes: bytes.map_or(DEFAULT_BYTES, ByteSize::as_usize),
    })
}

fn wait(params: &Params<'_>) -> Answer<Duration> {
    let wait = params
        .parse_own("wait", parse_duration)?
        .unwrap_or_default();
    if wait > Duration::from_secs(limits::READ_WAIT_SECONDS) {
        return Err(Problem::because(
            "invalid-request",
            format!("wait: {}s can be waited at most", limits::READ_WAIT_SECONDS),
        ));
    }
    Ok(wait)
}

/// The form that `Accept` asks for; the first that we have, whatever its weight.
fn form_of(headers: &HeaderMap) -> Answer<Form> {
    let Some(accept) = headers.get(header::ACCEPT) else {
        return Ok(Form::Json);
    };
    let text = accept.to_str().unwrap_or_default();
    for range in text.split(',') {
        match range.split(';').next().unwrap_or_default().trim() {
            "application/json" | "application/*" | "*/*" | "" => return Ok(Form::Json),
            "application/x-ndjson" | "application/ndjson" => return Ok(Form::Lines),
            "application/vnd.tidemill.batch" => return Ok(Form::Packed),
            "text/event-stream" => return Ok(Form::Events),
            _ => {}
        }
    }
    Err(Problem::because(
        "not-acceptable",
        format!("Accept {text:?}: events come as {}", TYPES.join(", ")),
    ))
}

/// Where a stream was left: only streams resume by header.
fn last_event_id(headers: &HeaderMap, form: Form) -> Answer<Option<Cursor>> {
    match headers
        .get("last-event-id")
        .filter(|_| form == Form::Events)
    {
        None => Ok(None),
        Some(id) => Ok(Some(Cursor::read(id.to_str().unwrap_or("?"))?)),
    }
}

/// A page as text.
fn render(topic: &Topic, page: &Page, form: Form, buffers: &Buffers) -> Vec<Bytes> {
    let mut parts = Parts::new(buffers, 256 + page.text_bytes());
    let format = topic.settings.format;
    if form == Form::Lines {
        for (partition, event) in page.events() {
            let out = parts.out();
            event::write(out, format, partition, &event, event::Layout::OneLine);
            out.push(b'\n');
        }
        return parts.finish();
    }
    parts.out().extend_from_slice(b"{\"events\":[");
    for (nth, (partition, event)) in page.events().enumerate() {
        let out = parts.out();
        if nth > 0 {
            out.push(b',');
        }
        event::write(out, format, partition, &event, event::Layout::AsStored);
    }
    let mut rest = format!("],\"next\":\"{}\",\"ends\":{{", page.next);
    for (nth, (partition, end)) in page.ends().enumerate() {
        let comma = if nth == 0 { "" } else { "," };
        let _ = write!(rest, "{comma}\"{partition}\":{end}");
    }
    rest.push_str("}}");
    parts.out().extend_from_slice(rest.as_bytes());
    parts.finish()
}

fn answer(parts: Vec<Bytes>, page: &Page, form: Form, mut hold: Hold) -> Response<Body> {
    hold.shrink(parts.iter().map(Bytes::len).sum());
    let mut answer = Response::new(hold.of_parts(parts));
    let content_type = match form {
        Form::Lines => "application/x-ndjson",
        Form::Packed => "application/vnd.tidemill.batch",
        Form::Json | Form::Events => "application/json",
    };
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    if form != Form::Json
        && let Ok(next) = HeaderValue::try_from(page.next.to_string())
    {
        headers.insert(NEXT, next);
    }
    answer
}

/// Bounds of a partition, for those who look at one.
fn bounds(app: &App, topic: &Topic) -> Answer<Vec<tidemill_log::Range>> {
    Ok(app.log.ranges(topic.id)?)
}
