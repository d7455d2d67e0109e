//! Log lines of a function: the last ones, and with `follow` those to come.

use super::{found, state, view};
use crate::app::{App, Shared};
use crate::body::json_answer;
use crate::problem::{Answer, Problem};
use crate::query::Params;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use futures::StreamExt;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use tidemill_env::Clock;
use tidemill_processor::{FunctionLogLine, LogLevel, LogQuery, LogReader};
use tidemill_types::{Result, Timestamp, parse_duration};

/// Query parameters.
pub(crate) const LOGS_QUERY: &[&str] = &[
    "follow",
    "limit",
    "level",
    "version",
    "topic",
    "partition",
    "key",
    "key_base64",
    "since",
];
/// Content types of answers.
pub(crate) const LOGS_TYPES: &[&str] = &["application/json", "application/x-ndjson"];

const LINES: HeaderValue = HeaderValue::from_static("application/x-ndjson");
const DEFAULT_LINES: usize = 1_000;
const MOST_LINES: usize = 10_000;

/// Shows log lines.
pub(crate) async fn logs(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    let params = Params::read(query.as_deref(), LOGS_QUERY)?;
    let follow = params.flag("follow")?;
    let query = wanted(&params, &app.clock)?;
    let mut reader = found(&app, &name, app.processor.logs(&name, query))?;
    let last = reader.last().await?;
    let wants_lines = headers
        .get(header::ACCEPT)
        .is_some_and(|accept| accept.to_str().unwrap_or_default().contains("ndjson"));
    if !follow && !wants_lines {
        let shown: Vec<Value> = last.iter().map(view::line).collect();
        return Ok(json_answer(StatusCode::OK, &json!({"lines": shown})));
    }
    let body = if follow {
        following(app, text(&last), reader)
    } else {
        Body::from(text(&last))
    };
    let mut answer = Response::new(body);
    answer.headers_mut().insert(header::CONTENT_TYPE, LINES);
    Ok(answer)
}

fn wanted(params: &Params<'_>, clock: &Clock) -> Answer<LogQuery> {
    let whole = "write a whole number";
    let limit = params.parse::<usize>("limit", whole)?;
    let limit = limit.unwrap_or(DEFAULT_LINES);
    if !(1..=MOST_LINES).contains(&limit) {
        return Err(Problem::because(
            "invalid-request",
            format!("limit={limit}: 1 to {MOST_LINES} lines can be asked for"),
        ));
    }
    Ok(LogQuery {
        level: params.one_of("level", &LogLevel::ALL.map(|level| (level.as_str(), level)))?,
        version: params.parse("version", whole)?,
        topic: params.get("topic").map(str::to_owned),
        partition: params.parse("partition", whole)?,
        key: state::text_or_bytes(params, "key", "key_base64")?.map(Bytes::from),
        since: params.parse_own("since", |text| since(text, clock))?,
        limit,
    })
}

/// A time, or how long ago it was.
fn since(text: &str, clock: &Clock) -> Result<Timestamp> {
    match parse_duration(text) {
        Ok(ago) => {
            let ago = i64::try_from(ago.as_micros()).unwrap_or(i64::MAX);
            let then = clock.now().micros().saturating_sub(ago);
            Ok(Timestamp::from_micros(then))
        }
        Err(_) => text.parse(),
    }
}

fn text(lines: &[FunctionLogLine]) -> String {
    let mut text = String::new();
    for line in lines {
        text.push_str(&view::line(line).to_string());
        text.push('\n');
    }
    text
}

/// A body that goes on with each new line until the reader leaves or the host stops.
fn following(app: Arc<App>, known: String, reader: LogReader) -> Body {
    let rest = futures::stream::unfold((app, reader), |(app, mut reader)| async move {
        let lines = tokio::select! {
            biased;
            () = app.stopping.cancelled() => return None,
            lines = reader.next() => lines,
        };
        match lines {
            Ok(Some(lines)) => Some((text(&lines), (app, reader))),
            Ok(None) | Err(_) => None,
        }
    });
    let all = futures::stream::once(async move { known }).chain(rest);
    Body::from_stream(all.map(|text| Ok::<_, Infallible>(Bytes::from(text))))
}
