//! `POST /v1/topics/{topic}/events`: a body is read straight into a frame, checked once, its events
//! found in place, and the frame committed; the answer goes out when it is durable.

mod answer;
mod asked;
mod forms;
mod intake;
mod letters;
mod packed;
mod pick;
mod plan;
mod pointer;
mod rows;
mod stream;
mod terms;
#[cfg(test)]
mod tests;
mod times;
mod typed;

pub(crate) use answer::ack_name;
pub(crate) use asked::{ASKED_QUERY, asked};
pub(crate) use letters::dead_letter_topic;
pub(crate) use pointer::{Pointer, Pointers};
pub(crate) use terms::HEADERS;

use crate::app::{App, Shared};
use crate::body::{self, BodyReader, Encoding, Patience, content_length, decompress};
use crate::problem::Answer;
use answer::{Landed, accepted, refused};
use axum::extract::{Path, Request, State};
use axum::http::Method;
use letters::Letters;
use packed::Front;
use plan::{Form, Plan};
use rows::Rows;
use tidemill_log::{AckMode, Draft, Ticket, Topic};
use tidemill_types::ErrorKind;

/// Query parameters.
pub(crate) const QUERY: &[&str] = &["key", "key_pointer", "on_error"];
/// Content types of bodies; for topics of format bytes any other type is one raw event.
pub(crate) const TYPES: &[&str] = &[
    "application/json",
    "application/x-ndjson",
    "application/vnd.tidemill.events+json",
    "application/vnd.tidemill.events+ndjson",
    "application/vnd.tidemill.batch",
];

/// NDJSON of known length up to this is appended as a whole; longer or unknown ones in chunks.
const WHOLE_LINES_BYTES: usize = 4 << 20;

/// The address of appends.
pub(crate) const ROUTE: &str = "/v1/topics/{topic}/events";

/// Appends the events of a request.
pub(crate) async fn post(State(app): Shared, Path(name): Path<String>, request: Request) -> Answer {
    let topic = app.topic(&name)?;
    append(&app, &topic, request).await
}

/// The topic that a request appends to, if its path says so without anything to decode: most requests
/// are of this kind, and finding their way through the router costs as much as reading a small event.
pub(crate) fn topic_of_append(request: &Request) -> Option<&str> {
    let path = request.uri().path();
    let name = path.strip_prefix("/v1/topics/")?.strip_suffix("/events")?;
    let is_plain = !name.is_empty() && !name.bytes().any(|byte| matches!(byte, b'/' | b'%'));
    (is_plain && request.method() == Method::POST).then_some(name)
}

/// Appends the events of a request to a topic.
pub(crate) async fn append(app: &App, topic: &Topic, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let mut plan = Plan::of(app, topic, &parts)?;
    let length = content_length(&parts.headers);
    let streamed = matches!(plan.form, Form::Lines(_))
        && plan.terms.is_none()
        && plan.encoding == Encoding::Identity
        && length.is_none_or(|length| length > WHOLE_LINES_BYTES);
    let wait = app.http.body_timeout;
    if let (true, Form::Lines(each)) = (streamed, plan.form) {
        let reader =
            BodyReader::new(body, app.clock.clone(), Patience::Pause(wait)).counted(&app.arriving);
        return stream::append(app, topic, plan.intake, each, reader).await;
    }
    let most = app.http.body_bytes.as_usize();
    if length.is_some_and(|length| length > most) {
        return Err(body::too_large(most, ""));
    }
    let reader =
        BodyReader::new(body, app.clock.clone(), Patience::Whole(wait)).counted(&app.arriving);
    whole(app, topic, &mut plan, reader, length).await
}

/// Appends a body as one frame.
async fn whole(
    app: &App,
    topic: &Topic,
    plan: &mut Plan,
    mut reader: BodyReader,
    length: Option<usize>,
) -> Answer {
    const UNKNOWN_LENGTH: usize = 16 << 10;
    // A length that is announced is not yet there.
    const BEFOREHAND: usize = 1 << 20;
    // Most events shrink to a tenth or less.
    const UNPACKED: usize = 16;
    let most = app.http.body_bytes.as_usize();
    let mut draft = app.log.draft();
    let payload = draft.payload(length.unwrap_or(UNKNOWN_LENGTH).min(BEFOREHAND));
    let mut front = Front::default();
    let is_packed = plan.form == Form::Packed;
    let mut take = |bytes: &[u8]| {
        if is_packed {
            front.take(bytes, payload);
        } else {
            payload.extend_from_slice(bytes);
        }
    };
    if plan.encoding == Encoding::Identity {
        reader.read_whole(most, take).await?;
    } else {
        let mut compressed = Vec::new();
        reader
            .read_whole(most, |bytes| compressed.extend_from_slice(bytes))
            .await?;
        if let Some(hold) = reader.hold() {
            hold.grow(most.min(compressed.len().saturating_mul(UNPACKED)))
                .await?;
        }
        // Compressed bytes say nothing about how much work they are.
        off_path(usize::MAX, || {
            decompress(plan.encoding, &compressed, most, &mut take)
        })?;
    }
    if let Some(terms) = plan.terms.as_mut().filter(|terms| terms.wants_body()) {
        off_path(payload.len(), || {
            terms.take_body(&[front.bytes(), &payload[..]])
        });
    }
    let mut rows = Rows::over(payload.len());
    off_path(payload.len(), || parse(plan, &mut rows, front, payload))?;
    app.counted.refused.inc_by(rows.refused);
    if rows.is_empty() || rows.refused > 0 && !plan.intake.continue_on_error {
        return Err(Box::new(refused(rows.refused, &rows.refusals)));
    }
    rows.finish(payload);
    let letters = Letters::of(app, topic, &rows.letters, payload).await?;
    draft.append_in_place(topic.id, &rows.heads, &rows.partitions)?;
    if let Some(letters) = letters {
        letters.add_to(&mut draft)?;
    }
    if let Some(terms) = &plan.terms {
        terms.add_to(&mut draft, topic, &rows.partitions)?;
    }
    let ticket = match (commit(app, draft).await, &plan.terms) {
        (Err(problem), Some(terms)) => return Err(terms.refusal(app, topic, problem).await),
        (sequenced, _) => sequenced?,
    };
    // From here on the log counts them.
    drop(reader);
    let mut landed = Landed::default();
    landed.add(topic, &rows, &ticket.written);
    let replayed = ticket.replayed;
    acknowledge(topic, ticket).await?;
    if !replayed {
        count(app, rows.heads.len() + rows.letters.len(), rows.bytes);
    }
    let answer = accepted(&landed, topic.settings.ack, rows.refused, &rows.refusals);
    Ok(match &plan.terms {
        Some(terms) => terms.answer(&landed, replayed, answer),
        None => answer,
    })
}

fn parse(plan: &Plan, rows: &mut Rows, front: Front, payload: &[u8]) -> Answer<()> {
    match plan.form {
        Form::Document(each) => forms::take_document(&plan.intake, rows, payload, each),
        Form::Lines(each) => forms::take_lines(&plan.intake, rows, payload, each, 1).map(drop),
        Form::Packed => front.finish(&plan.intake, rows, payload),
        Form::Raw if payload.is_empty() => Ok(()),
        Form::Raw => packed::take_raw(&plan.intake, rows, payload),
    }
}

/// Sequences a draft; waits for room as long as the settings allow.
async fn commit(app: &App, mut draft: Draft) -> Answer<Ticket> {
    let mut late = None;
    loop {
        match app.log.commit(draft) {
            Ok(ticket) => return Ok(ticket),
            // Only this kind of busy is over when there is room.
            Err((error, back)) if error.kind == ErrorKind::Busy && error.code == "busy" => {
                draft = back;
                let late =
                    late.get_or_insert_with(|| Box::pin(app.clock.sleep(app.http.busy_wait)));
                tokio::select! {
                    biased;
                    () = app.log.room() => {}
                    () = late => return Err(error.into()),
                }
            }
            Err((error, _)) => return Err(error.into()),
        }
    }
}

/// Waits for what the topic's mode promises.
async fn acknowledge(topic: &Topic, ticket: Ticket) -> Answer<()> {
    match topic.settings.ack {
        AckMode::Fsync => Ok(ticket.durable().await?),
        AckMode::Memory => Ok(()),
    }
}

fn count(app: &App, events: usize, bytes: u64) {
    app.counted.events.inc_by(events as u64);
    app.counted.event_bytes.inc_by(bytes);
}

/// Runs work that takes long for a runtime thread so that others take over its connections.
fn off_path<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    const LONG_WORK_BYTES: usize = 512 << 10;
    let several_threads = || {
        tokio::runtime::Handle::try_current().is_ok_and(|handle| {
            handle.runtime_flavor() == tokio::runtime::RuntimeFlavor::MultiThread
        })
    };
    if bytes > LONG_WORK_BYTES && several_threads() {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}
