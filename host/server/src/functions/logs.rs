//! Log lines of a function: the last ones, and with `follow` those to come.

use super::{found, view};
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
use tidemill_processor::FunctionLogLine;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

/// Query parameters.
pub(crate) const LOGS_QUERY: &[&str] = &["follow", "limit"];
/// Content types of answers.
pub(crate) const LOGS_TYPES: &[&str] = &["application/json", "application/x-ndjson"];

const LINES: HeaderValue = HeaderValue::from_static("application/x-ndjson");

/// Shows log lines.
pub(crate) async fn logs(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    let params = Params::read(query.as_deref(), LOGS_QUERY)?;
    let follow = params.flag("follow")?;
    let limit = params
        .parse::<usize>("limit", "write a whole number")?
        .unwrap_or(usize::MAX);
    if limit == 0 {
        return Err(Problem::because(
            "invalid-request",
            "limit=0: ask for one line at least",
        ));
    }
    let (lines, coming) = found(&app, &name, app.processor.logs(&name))?;
    let last = &lines[lines.len().saturating_sub(limit)..];
    let wants_lines = headers
        .get(header::ACCEPT)
        .is_some_and(|accept| accept.to_str().unwrap_or_default().contains("ndjson"));
    if !follow && !wants_lines {
        let shown: Vec<Value> = last.iter().map(view::line).collect();
        return Ok(json_answer(StatusCode::OK, &json!({"lines": shown})));
    }
    let known: String = last
        .iter()
        .map(|line| format!("{}\n", view::line(line)))
        .collect();
    let body = if follow {
        following(app, known, coming)
    } else {
        Body::from(known)
    };
    let mut answer = Response::new(body);
    answer.headers_mut().insert(header::CONTENT_TYPE, LINES);
    Ok(answer)
}

/// A body that goes on with each new line until the reader leaves, the function goes or the host stops.
fn following(app: Arc<App>, known: String, coming: Receiver<FunctionLogLine>) -> Body {
    let rest = futures::stream::unfold((app, coming), |(app, mut coming)| async move {
        let line = tokio::select! {
            biased;
            () = app.stopping.cancelled() => return None,
            line = coming.recv() => line,
        };
        let shown = match line {
            Ok(line) => view::line(&line),
            Err(RecvError::Lagged(missed)) => json!({"missed": missed}),
            Err(RecvError::Closed) => return None,
        };
        Some((format!("{shown}\n"), (app, coming)))
    });
    let all = futures::stream::once(async move { known }).chain(rest);
    Body::from_stream(all.map(|text| Ok::<_, Infallible>(Bytes::from(text))))
}
