//! Around every request: its number, its bounds, its problem's body, its metrics.

use crate::app::App;
use crate::ingest;
use crate::problem::Problem;
use crate::routes::route_of;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use axum::response::IntoResponse;
use std::sync::Arc;
use tower::ServiceExt;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Most bytes of a request's headers.
const HEADER_BYTES: usize = 32 << 10;
/// Longest request number taken over from a client.
const REQUEST_ID_BYTES: usize = 128;

/// Answers one request.
pub(crate) async fn respond(
    app: Arc<App>,
    router: Router,
    request: Request<Body>,
) -> Response<Body> {
    let start = app.clock.elapsed();
    let appends_to = ingest::topic_of_append(&request).map(|name| app.topic(name));
    let route = match &appends_to {
        Some(_) => ingest::ROUTE,
        None => route_of(request.uri().path()),
    };
    let request_id = request_id(&app, request.headers());
    let answer = if header_bytes(request.headers()) + request.uri().path().len() > HEADER_BYTES {
        refuse(Problem::new(
            "headers-too-large",
            format!("the request's headers are larger than {HEADER_BYTES} bytes"),
        ))
    } else if let Some(topic) = appends_to {
        let answer = match topic {
            Ok(topic) => ingest::append(&app, &topic, request).await,
            Err(problem) => Err(problem),
        };
        answer.into_response()
    } else {
        match router.oneshot(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        }
    };
    let mut answer = with_problem(answer, request_id.to_str().unwrap_or_default());
    answer.headers_mut().insert(REQUEST_ID, request_id);
    app.counted.answered(
        route,
        answer.status().as_u16(),
        (app.clock.elapsed() - start).as_secs_f64(),
    );
    answer
}

fn refuse(problem: Problem) -> Response<Body> {
    Box::new(problem).into_response()
}

fn header_bytes(headers: &HeaderMap) -> usize {
    headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum()
}

/// The client's number for the request, if it is short visible text, else one of ours.
fn request_id(app: &App, headers: &HeaderMap) -> HeaderValue {
    let sane = |value: &&HeaderValue| {
        (1..=REQUEST_ID_BYTES).contains(&value.len())
            && value.as_bytes().iter().all(u8::is_ascii_graphic)
    };
    headers
        .get(REQUEST_ID)
        .filter(sane)
        .cloned()
        .or_else(|| HeaderValue::try_from(app.random.nonce()).ok())
        .unwrap_or(HeaderValue::from_static("-"))
}

/// Writes the body of a problem; refusals of the router itself become problems too.
fn with_problem(mut answer: Response<Body>, request_id: &str) -> Response<Body> {
    if let Some(problem) = answer.extensions_mut().remove::<Box<Problem>>() {
        log_fault(&problem, request_id);
        return problem.into_answer(request_id);
    }
    let status = answer.status();
    if !status.is_client_error() && !status.is_server_error() {
        return answer;
    }
    let mut problem = match status {
        StatusCode::NOT_FOUND => Problem::new(
            "path-not-found",
            "Nothing answers at this path; /v1/openapi.json lists what there is.",
        ),
        StatusCode::METHOD_NOT_ALLOWED => Problem::new(
            "method-not-allowed",
            "This address takes other methods; the header Allow lists them.",
        ),
        other => Problem::new("invalid-request", "The request was not understood.").status(other),
    };
    if let Some(allow) = answer.headers_mut().remove(header::ALLOW) {
        problem = problem.header(header::ALLOW, allow);
    }
    problem.into_answer(request_id)
}

/// Only what a person has to look at is logged; clients' mistakes are theirs.
fn log_fault(problem: &Problem, request_id: &str) {
    if problem.status == StatusCode::INTERNAL_SERVER_ERROR {
        tracing::error!(code = problem.code, request_id, "{}", problem.detail);
    }
}
