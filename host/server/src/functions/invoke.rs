//! Asking a function what it would do with events: nothing is written.

use super::{emitted, found, view};
use crate::app::{App, Shared};
use crate::body::json_text_answer;
use crate::ingest::{ASKED_QUERY, asked};
use crate::problem::Answer;
use crate::query::Params;
use crate::read::{json_or_object, text_or_base64};
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::StatusCode;
use serde_json::Value;
use std::io::Write;
use tidemill_processor::{Fate, Invoked, KeepState, StateDifference};

/// Query parameters.
pub(crate) const INVOKE_QUERY: &[&str] =
    &["version", "state", "topic", ASKED_QUERY[0], ASKED_QUERY[1]];

/// Hands events to a version of a function; answers what they would lead to.
pub(crate) async fn invoke(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Answer {
    let params = Params::read(query.as_deref(), INVOKE_QUERY)?;
    let version = params.parse::<u32>("version", "write the number of a version")?;
    let state = params
        .one_of(
            "state",
            &[("present", KeepState::Keep), ("empty", KeepState::Reset)],
        )?
        .unwrap_or(KeepState::Keep);
    let manifest = found(&app, &name, app.processor.manifest(&name))?;
    let named = params.get("topic");
    // One that the function doesn't read is refused where its inputs are known.
    let mut inputs = manifest.inputs.iter().map(|input| input.topic.as_str());
    let read = inputs.find(|topic| named.is_none_or(|named| named == *topic));
    let topic = app.topic(read.unwrap_or(manifest.inputs[0].topic.as_str()))?;
    let (rows, body) = asked(&app, &topic, &params, request).await?;
    let invoking = app.processor.invoke(&name, version, state, rows, named);
    let invoked = invoking.await;
    let invoked = found(&app, &name, invoked)?;
    drop(body);
    Ok(json_text_answer(
        StatusCode::OK,
        shown(&app, (&name, state), &invoked),
    ))
}

fn shown(app: &App, (name, state): (&str, KeepState), invoked: &Invoked) -> Vec<u8> {
    let mut out = Vec::new();
    let state = match state {
        KeepState::Reset => "empty",
        KeepState::Keep | KeepState::Restore { .. } => "present",
    };
    put(
        &mut out,
        format_args!(
            "{{\"function\":{},\"version\":{},\"state\":\"{state}\",\"events\":[",
            Value::from(name),
            invoked.version
        ),
    );
    for (nth, event) in invoked.events.iter().enumerate() {
        comma(&mut out, nth);
        let outcome = event.fate.map_or(Value::Null, |fate| outcome(fate).into());
        put(
            &mut out,
            format_args!("{{\"outcome\":{outcome},\"emitted\":["),
        );
        for (nth, event) in event.emitted.iter().enumerate() {
            comma(&mut out, nth);
            emitted::write(app, &mut out, event);
        }
        out.extend_from_slice(b"]}");
    }
    let changes = &invoked.state;
    put(
        &mut out,
        format_args!(
            "],\"counts\":{},\"changed\":{},\"changes\":[",
            view::counts(&invoked.counts),
            changes.different + changes.only_left + changes.only_right
        ),
    );
    for (nth, change) in changes.examples.iter().enumerate() {
        comma(&mut out, nth);
        write_change(&mut out, change);
    }
    let stopped = Value::from(invoked.stopped.clone());
    put(&mut out, format_args!("],\"stopped\":{stopped}}}"));
    out
}

fn outcome(fate: Fate) -> &'static str {
    match fate {
        Fate::Effective => "effective",
        Fate::Filtered => "filtered",
        Fate::Skipped => "skipped",
        Fate::DeadLettered => "dead-lettered",
        Fate::Late => "late",
    }
}

fn write_change(out: &mut Vec<u8>, change: &StateDifference) {
    put(
        out,
        format_args!(
            "{{\"slot\":{},\"partition\":{},",
            Value::from(change.slot.as_str()),
            change.partition
        ),
    );
    text_or_base64(out, "key", &change.key);
    if let Some(entry) = &change.entry {
        out.push(b',');
        text_or_base64(out, "entry", entry);
    }
    for (name, value) in [("before", &change.left), ("after", &change.right)] {
        put(out, format_args!(",\"{name}\":"));
        match value {
            Some(value) => json_or_object(out, value),
            None => out.extend_from_slice(b"null"),
        }
    }
    out.push(b'}');
}

fn comma(out: &mut Vec<u8>, nth: usize) {
    if nth > 0 {
        out.push(b',');
    }
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to memory can't fail.
    let _ = out.write_fmt(text);
}
