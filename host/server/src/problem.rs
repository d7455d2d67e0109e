//! Every error's way to the outside: a problem (RFC 9457) with a code that has a page.

mod pages;
#[cfg(test)]
mod tests;

pub(crate) use pages::{Page, all as pages, page};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use serde_json::{Map, Value, json};
use tidemill_types::{Error, ErrorKind};

/// An error on its way to a client.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    /// Stable identifier; the last part of the problem type's address.
    pub(crate) code: &'static str,
    /// What happened, where, and what to do.
    pub(crate) detail: String,
    /// HTTP status.
    pub(crate) status: StatusCode,
    /// Whether the same request may succeed later.
    pub(crate) retryable: bool,
    /// Whether certainly nothing was changed.
    pub(crate) no_side_effects: bool,
    members: Map<String, Value>,
    headers: HeaderMap,
}

/// A result with [`Problem`].
pub(crate) type Answer<T = Response<Body>> = Result<T, Box<Problem>>;

impl Problem {
    /// A problem whose status is the one on its page.
    pub(crate) fn new(code: &'static str, detail: impl Into<String>) -> Self {
        let status = page(code).map_or(500, |page| page.status);
        Self {
            code,
            detail: detail.into(),
            status: StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            retryable: false,
            no_side_effects: status < 500,
            members: Map::new(),
            headers: HeaderMap::new(),
        }
    }

    /// The same, ready to be returned as an error.
    pub(crate) fn because(code: &'static str, detail: impl Into<String>) -> Box<Self> {
        Box::new(Self::new(code, detail))
    }

    /// With another status.
    #[must_use]
    pub(crate) fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// With one more member in the body.
    #[must_use]
    pub(crate) fn member(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    /// A number among the members.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.members.get(name)?.as_u64()
    }

    /// With one more header.
    #[must_use]
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Something was changed before it failed.
    #[must_use]
    pub(crate) fn after_changes(mut self) -> Self {
        self.no_side_effects = false;
        self
    }

    /// The answer, with the request's number in it.
    pub(crate) fn into_answer(self, request_id: &str) -> Response<Body> {
        let title = page(self.code).map_or(self.code, |page| page.title);
        let mut body = json!({
            "type": format!("/v1/errors/{}", self.code),
            "title": title,
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.detail,
            "retryable": self.retryable,
            "no_side_effects": self.no_side_effects,
            "request_id": request_id,
        });
        if let Value::Object(all) = &mut body {
            all.extend(self.members);
        }
        let mut answer = Response::new(Body::from(body.to_string()));
        *answer.status_mut() = self.status;
        *answer.headers_mut() = self.headers;
        answer.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        answer
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let known = page(error.code).is_some();
        let mut problem = Self::new(error.code, error.detail);
        if !known {
            problem.status = status_of(error.kind);
        }
        let number = |name| error.numbers.iter().find(|(known, _)| *known == name);
        let retry_after = number("retry_after").map(|(_, seconds)| *seconds);
        let numbers = error.numbers.into_iter();
        let numbers = numbers.map(|(name, number)| (name.to_owned(), Value::from(number)));
        problem.members.extend(numbers);
        problem.retryable = matches!(
            error.kind,
            ErrorKind::Busy | ErrorKind::StorageFull | ErrorKind::Unavailable
        );
        problem.no_side_effects = !matches!(
            error.kind,
            ErrorKind::Unavailable | ErrorKind::Internal | ErrorKind::Corrupt
        );
        if problem.retryable {
            let usual = if error.kind == ErrorKind::Busy { 1 } else { 5 };
            let seconds = HeaderValue::from(retry_after.unwrap_or(usual));
            problem.headers.insert(header::RETRY_AFTER, seconds);
        }
        problem
    }
}

impl From<Error> for Box<Problem> {
    fn from(error: Error) -> Self {
        Self::new(error.into())
    }
}

/// The status of an error whose code has no page of its own.
fn status_of(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::Invalid => StatusCode::BAD_REQUEST,
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::Conflict => StatusCode::CONFLICT,
        ErrorKind::OutOfRange => StatusCode::RANGE_NOT_SATISFIABLE,
        ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorKind::StorageFull => StatusCode::INSUFFICIENT_STORAGE,
        ErrorKind::Busy | ErrorKind::Fenced | ErrorKind::Unavailable => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        ErrorKind::Corrupt | ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for Box<Problem> {
    /// An empty answer that carries the problem; the body is written at the edge, where the request's
    /// number is known.
    fn into_response(self) -> Response<Body> {
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = self.status;
        answer.extensions_mut().insert(self);
        answer
    }
}
