//! Replays of a function: begun, looked after, cancelled.

use super::{accepted, found};
use crate::app::Shared;
use crate::body::{json_answer, read_json};
use crate::problem::{Answer, Problem};
use crate::query::Params;
use axum::body::Body;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{Response, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tidemill_processor::{
    Diff, Emitted, Outcome, Point, Replay, ReplayMode, ReplayReport, ReplayStatus, StateSummary,
    Told, Verified,
};
use tidemill_types::Timestamp;

/// Examples of differences, if nobody says how many.
pub(super) const EXAMPLES: usize = 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    version: Option<u32>,
    from: Option<Value>,
    to: Option<Value>,
    into: Option<String>,
    diff: Option<u32>,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    verify: bool,
    examples: Option<usize>,
}

/// Begins a replay; with `stream` the answer is what it emits.
pub(crate) async fn replay(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Answer {
    Params::read(query.as_deref(), &[])?;
    let asked: Asked = read_json(&app, request).await?;
    let mode = match (asked.into, asked.diff, asked.verify, asked.stream) {
        (Some(topic), None, false, false) => ReplayMode::Into(topic),
        (None, Some(version), false, false) => ReplayMode::Diff(version),
        (None, None, true, false) => ReplayMode::Verify,
        (None, None, false, true) => ReplayMode::Stream,
        _ => {
            let detail = "say one of \"into\": a topic, \"stream\": true, \"diff\": a version to compare with, or \"verify\": true";
            return Err(Problem::because("invalid-replay", detail));
        }
    };
    let narrowed = asked.from.is_some() || asked.to.is_some() || asked.version.is_some();
    if mode == ReplayMode::Verify && narrowed {
        let detail = "verify goes from the function's beginning to where it stands, over all versions; it takes neither from, to nor version";
        return Err(Problem::because("invalid-replay", detail));
    }
    let replay = Replay {
        version: asked.version,
        from: point("from", asked.from, Point::Earliest)?,
        to: point("to", asked.to, Point::Latest)?,
        mode,
        examples: asked.examples.unwrap_or(EXAMPLES),
    };
    if replay.mode == ReplayMode::Stream {
        return super::stream::answer(app, &name, replay).await;
    }
    let begun = accepted(&app, &name, app.processor.replay(&name, replay).await)?;
    Ok(json_answer(StatusCode::ACCEPTED, &report(&begun)))
}

/// `earliest`, `latest`, an offset or a time.
fn point(name: &str, asked: Option<Value>, absent: Point) -> Answer<Point> {
    let wrong = || {
        let detail =
            format!("{name}: write \"earliest\", \"latest\", an offset as a number, or a time");
        Problem::because("invalid-replay", detail)
    };
    match asked {
        None => Ok(absent),
        Some(Value::Number(offset)) => offset.as_u64().map(Point::Offset).ok_or_else(wrong),
        Some(Value::String(text)) => match text.as_str() {
            "earliest" => Ok(Point::Earliest),
            "latest" => Ok(Point::Latest),
            time => time
                .parse::<Timestamp>()
                .map(Point::Time)
                .map_err(|_| wrong()),
        },
        Some(_) => Err(wrong()),
    }
}

/// How far a replay is, and what it came to.
pub(crate) async fn describe_replay(
    State(app): Shared,
    Path((name, id)): Path<(String, u64)>,
    RawQuery(query): RawQuery,
) -> Answer {
    Params::read(query.as_deref(), &[])?;
    let shown = app.processor.replay_report(&name, id);
    let shown = found(&app, &name, shown)?;
    Ok(json_answer(StatusCode::OK, &report(&shown)))
}

/// Asks a replay to stop.
pub(crate) async fn cancel_replay(
    State(app): Shared,
    Path((name, id)): Path<(String, u64)>,
    RawQuery(query): RawQuery,
) -> Answer {
    Params::read(query.as_deref(), &[])?;
    found(&app, &name, app.processor.cancel_replay(&name, id))?;
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    Ok(answer)
}

pub(super) fn report(report: &ReplayReport) -> Value {
    let (status, result) = match &report.status {
        ReplayStatus::Running => ("running", Value::Null),
        ReplayStatus::Failed(error) => (
            "failed",
            json!({"code": error.code, "detail": error.detail}),
        ),
        ReplayStatus::Done(outcome) => ("done", result(outcome)),
    };
    json!({
        "id": report.id,
        "function": report.function.as_str(),
        "version": report.version,
        "status": status,
        "events": report.events,
        "of": report.of,
        "result": result,
    })
}

fn result(outcome: &Outcome) -> Value {
    match outcome {
        Outcome::Into {
            topic,
            emitted,
            stopped,
        } => json!({"into": topic, "emitted": emitted, "stopped": ends(stopped)}),
        Outcome::Diff(found) => diff(found),
        Outcome::Verified(found) => verified(found),
    }
}

fn diff(diff: &Diff) -> Value {
    let examples = diff.examples.iter().map(|example| {
        json!({
            "topic": example.topic,
            "partition": example.partition,
            "offset": example.offset,
            "key": text(example.key.as_deref()),
            "value": text(example.value.as_deref()),
            "left": example.left.iter().map(emitted).collect::<Vec<_>>(),
            "right": example.right.iter().map(emitted).collect::<Vec<_>>(),
        })
    });
    json!({
        "equal": diff.different == 0 && diff.state.is_same(),
        "events": diff.events,
        "same": diff.same,
        "different": diff.different,
        "left": told(&diff.left),
        "right": told(&diff.right),
        "examples": examples.collect::<Vec<_>>(),
        "state": state(&diff.state),
    })
}

fn told(told: &Told) -> Value {
    json!({"version": told.version, "emitted": told.emitted, "dead_lettered": told.dead_lettered,
           "stopped": ends(&told.stopped)})
}

fn verified(verified: &Verified) -> Value {
    let totals = verified.totals.iter().map(|(partition, kept, replayed)| {
        json!({"partition": partition, "kept": super::view::counts(kept), "replayed": super::view::counts(replayed)})
    });
    json!({
        "equal": verified.is_same(),
        "versions": [verified.versions.0, verified.versions.1],
        "events": verified.events,
        "found": verified.found,
        "missing": verified.missing,
        "unsought": verified.unsought,
        "gone": verified.gone,
        "examples": verified.examples.iter().map(emitted).collect::<Vec<_>>(),
        "totals": totals.collect::<Vec<_>>(),
        "stopped": ends(&verified.stopped),
        "state": state(&verified.state),
    })
}

fn state(state: &StateSummary) -> Value {
    let examples = state.examples.iter().map(|example| {
        json!({
            "partition": example.partition,
            "slot": example.slot,
            "key": text(Some(&example.key)),
            "entry": text(example.entry.as_deref()),
            "left": text(example.left.as_deref()),
            "right": text(example.right.as_deref()),
        })
    });
    json!({
        "same": state.same,
        "different": state.different,
        "only_left": state.only_left,
        "only_right": state.only_right,
        "examples": examples.collect::<Vec<_>>(),
    })
}

fn emitted(event: &Emitted) -> Value {
    let headers = event.headers.iter();
    let headers: Vec<Value> = headers
        .map(|(name, value)| json!([name, text(Some(value))]))
        .collect();
    json!({
        "topic": event.topic,
        "partition": event.partition,
        "key": text(event.key.as_deref()),
        "value": text(event.value.as_deref()),
        "headers": headers,
        "time": event.time.to_string(),
    })
}

pub(super) fn ends(stopped: &[(u32, String)]) -> Value {
    let ends = stopped.iter();
    ends.map(|(partition, why)| json!({"partition": partition, "why": why}))
        .collect()
}

/// Text as it is, anything else in base64.
fn text(bytes: Option<&[u8]>) -> Value {
    let Some(bytes) = bytes else {
        return Value::Null;
    };
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => {
            let mut shown = Map::new();
            shown.insert("base64".into(), STANDARD.encode(bytes).into());
            shown.into()
        }
    }
}
