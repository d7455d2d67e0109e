//! What operators and tools ask: error pages, health, metrics, the description of the API.

use crate::app::{App, Shared};
use crate::body::json_answer;
use crate::problem::{Answer, Page, Problem, page, pages};
use crate::query::Params;
use crate::routes::{OPERATIONS, Operation};
use crate::suggest::nearest;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Map, Value, json};

/// Lists the error codes.
pub(crate) async fn errors(RawQuery(query): RawQuery) -> Answer {
    Params::read(query.as_deref(), &[])?;
    let all: Vec<Value> = pages().map(page_json).collect();
    Ok(json_answer(StatusCode::OK, &json!({"errors": all})))
}

/// Explains an error code.
pub(crate) async fn error(Path(code): Path<String>, RawQuery(query): RawQuery) -> Answer {
    Params::read(query.as_deref(), &[])?;
    match page(&code) {
        Some(page) => Ok(json_answer(StatusCode::OK, &page_json(page))),
        None => {
            let near = nearest(&code, pages().map(|page| page.code));
            Err(Problem::because(
                "error-not-found",
                crate::app::not_found("error code", &code, near),
            ))
        }
    }
}

fn page_json(page: &Page) -> Value {
    json!({
        "type": format!("/v1/errors/{}", page.code),
        "code": page.code,
        "status": page.status,
        "title": page.title,
        "meaning": page.meaning,
        "remedy": page.remedy,
    })
}

fn text(content_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut answer = Response::new(body.into());
    answer
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// The process answers.
pub(crate) async fn livez() -> Response<Body> {
    text("text/plain; charset=utf-8", "ok\n")
}

/// Requests will be served, or why not.
pub(crate) async fn readyz(State(app): Shared) -> Answer {
    let reasons = reasons(&app);
    if reasons.is_empty() {
        // Without object storage appends go on as long as the journal may grow.
        let degraded = app.objects.failing().map(|failing| {
            format!(
                "object storage has failed since {}: {}",
                failing.since, failing.detail
            )
        });
        let degraded: Vec<String> = degraded.into_iter().collect();
        let answer = json!({"ready": true, "degraded": degraded});
        return Ok(json_answer(StatusCode::OK, &answer));
    }
    Err(Box::new(
        Problem::new("not-ready", reasons.join("; ")).member("reasons", reasons),
    ))
}

fn reasons(app: &App) -> Vec<&'static str> {
    let mut reasons = Vec::new();
    if app.stopping.is_cancelled() {
        reasons.push("the host is stopping");
    }
    if app.log.durable().has_changed().is_err() {
        reasons.push("the log has stopped");
    }
    reasons
}

/// Metrics.
pub(crate) async fn metrics(State(app): Shared) -> Response<Body> {
    app.memory.look();
    app.processor.observe();
    text(
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
        app.metrics.render(),
    )
}

/// The API, described.
pub(crate) async fn openapi() -> Response<Body> {
    json_answer(StatusCode::OK, &document())
}

/// The description, made of the table of operations.
pub(crate) fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for operation in OPERATIONS {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = operation_json(operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tidemill",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Stream functions on WebAssembly. Every error is a problem (RFC 9457) whose code is explained at /v1/errors/{code}; every answer carries X-Request-Id."
        },
        "paths": paths,
        "components": {"schemas": {"Problem": {
            "type": "object",
            "required": ["type", "title", "status", "code", "detail", "retryable", "no_side_effects", "request_id"],
            "properties": {
                "type": {"type": "string"}, "title": {"type": "string"}, "status": {"type": "integer"},
                "code": {"enum": pages().map(|page| page.code).collect::<Vec<_>>()},
                "detail": {"type": "string"}, "retryable": {"type": "boolean"}, "no_side_effects": {"type": "boolean"},
                "request_id": {"type": "string"}
            }
        }}}
    })
}

fn operation_json(operation: &Operation) -> Value {
    let in_path = operation
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameters: Vec<Value> = in_path
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .chain(operation.query.iter().map(|name| json!({"name": name, "in": "query", "schema": {"type": "string"}})))
        .chain(operation.headers.iter().map(|name| json!({"name": name, "in": "header", "schema": {"type": "string"}})))
        .collect();
    let content = |types: &[&str]| -> Map<String, Value> {
        types
            .iter()
            .map(|name| ((*name).to_owned(), json!({})))
            .collect()
    };
    let mut shown = json!({
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {
            "2XX": {"description": "Done.", "content": content(operation.answer)},
            "default": {
                "description": "A problem.",
                "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
            }
        }
    });
    if !operation.body.is_empty() {
        shown["requestBody"] = json!({"content": content(operation.body)});
    }
    shown
}
