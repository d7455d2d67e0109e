//! Calls to the outside and secrets, for functions that were granted them.

use crate::guest::Running;
use crate::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::time::Duration;

/// Makes calls for the event that is handled: `ctx.http().post(url).bearer(&token).json(&order).send()?`.
///
/// Which addresses may be called is said in the attribute, `http("https://api.example.com/v1/")`, and granted by the
/// host. A call is made once its event is durable, and its outcome is on record before it is seen here: whenever
/// the event is handled again, after a crash or because something else failed, it sees the same outcome and
/// nothing is sent. It carries a header `Idempotency-Key` that stays the same for it, for the one case in which
/// it is sent twice: the host ended after sending and before the outcome was on record.
///
/// Where there is no answer, or one with a status such as 429 or 503, and the event fails with it (`?`), the call
/// is made again when the event's next try is due (`[retry]`).
#[derive(Clone, Copy)]
pub struct Http<'a> {
    running: &'a Running<'a>,
}

impl<'a> Http<'a> {
    pub(crate) fn new(running: &'a Running<'a>) -> Self {
        Self { running }
    }

    /// A `GET`.
    pub fn get(&self, url: impl Into<String>) -> HttpCall<'a> {
        self.call("GET", url)
    }

    /// A `POST`.
    pub fn post(&self, url: impl Into<String>) -> HttpCall<'a> {
        self.call("POST", url)
    }

    /// A `PUT`.
    pub fn put(&self, url: impl Into<String>) -> HttpCall<'a> {
        self.call("PUT", url)
    }

    /// A `DELETE`.
    pub fn delete(&self, url: impl Into<String>) -> HttpCall<'a> {
        self.call("DELETE", url)
    }

    /// A call with any of the methods GET, HEAD, POST, PUT, PATCH, DELETE and OPTIONS.
    pub fn call(&self, method: &str, url: impl Into<String>) -> HttpCall<'a> {
        HttpCall {
            running: self.running,
            asked: HttpRequest {
                method: method.to_owned(),
                url: url.into(),
                headers: Vec::new(),
                body: Vec::new(),
                timeout_ms: 0,
            },
            unwritable: None,
        }
    }
}

/// What a call asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HttpRequest {
    /// Its method.
    pub method: String,
    /// Its address.
    pub url: String,
    /// Its headers, in order.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Its body.
    pub body: Vec<u8>,
    /// How long it may take, in ms; 0: as long as the grant allows.
    pub timeout_ms: u32,
}

impl HttpRequest {
    /// The body, read as JSON.
    ///
    /// # Errors
    /// When it doesn't read as `T`.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        Ok(serde_json::from_slice(&self.body)?)
    }

    /// The first header of this name, whatever its case, as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

/// A call that is put together.
#[must_use = "nothing is called before `send`"]
pub struct HttpCall<'a> {
    running: &'a Running<'a>,
    asked: HttpRequest,
    unwritable: Option<String>,
}

impl HttpCall<'_> {
    /// Adds a header.
    pub fn header(mut self, name: impl Into<String>, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref().to_vec();
        self.asked.headers.push((name.into(), value));
        self
    }

    /// Adds `Authorization: Bearer …`.
    pub fn bearer(self, token: &Secret) -> Self {
        let value = [b"Bearer ", token.as_bytes()].concat();
        self.header("authorization", value)
    }

    /// Gives it a body.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.asked.body = body.into();
        self
    }

    /// Gives it a body that is written as JSON, and says so.
    pub fn json(mut self, value: &(impl Serialize + ?Sized)) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => self.asked.body = body,
            Err(why) => self.unwritable = Some(why.to_string()),
        }
        self.header("content-type", "application/json")
    }

    /// Lets it take so long at most; the grant says how long that may be.
    pub fn timeout(mut self, time: Duration) -> Self {
        let ms = time.as_millis().max(1);
        self.asked.timeout_ms = u32::try_from(ms).unwrap_or(u32::MAX);
        self
    }

    /// What the call came to.
    ///
    /// # Errors
    /// [`HttpError`] where there is no answer; an answer with any status is one. With `?` the event is tried again,
    /// and then so is the call.
    pub fn send(self) -> Result<HttpAnswer, HttpError> {
        if let Some(why) = self.unwritable {
            let message = format!("the body can't be written as JSON: {why}");
            return Err(HttpError::new(HttpErrorKind::Denied, message));
        }
        let Ok(event) = self.running.index() else {
            return Err(HttpError::new(
                HttpErrorKind::Denied,
                "no event is handled here: calls belong to an event, make them inside `each`",
            ));
        };
        self.running.http(event, &self.asked)
    }
}

/// What was answered.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HttpAnswer {
    /// The status.
    pub status: u16,
    /// Headers in order, names in lower case.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body.
    pub body: Vec<u8>,
}

impl HttpAnswer {
    /// An answer, for tests.
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.into(),
        }
    }

    /// The same with one more header.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref().to_vec();
        self.headers.push((name.to_ascii_lowercase(), value));
        self
    }

    /// The answer, if its status is one of success (2xx).
    ///
    /// # Errors
    /// With the status and how the body begins.
    pub fn ok(self) -> Result<Self, HttpError> {
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        let text = String::from_utf8_lossy(&self.body);
        let begins: String = text.chars().take(200).collect();
        Err(HttpError::new(
            HttpErrorKind::Status(self.status),
            format!("the answer has status {}: {begins}", self.status),
        ))
    }

    /// The body, read as JSON.
    ///
    /// # Errors
    /// When it doesn't read as `T`.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, HttpError> {
        serde_json::from_slice(&self.body).map_err(|why| {
            HttpError::new(
                HttpErrorKind::Unreadable,
                format!("the answer doesn't read as asked: {why}"),
            )
        })
    }

    /// The first header of this name, whatever its case, as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

fn header<'h>(headers: &'h [(String, Vec<u8>)], name: &str) -> Option<&'h str> {
    let found = headers
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name));
    std::str::from_utf8(&found?.1).ok()
}

/// Why a call has no answer, or not the one that was wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HttpError {
    /// The kind.
    pub kind: HttpErrorKind,
    /// What happened, where, and what to do.
    pub message: String,
}

/// Kinds of [`HttpError`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HttpErrorKind {
    /// It may not be made; nothing was sent.
    Denied,
    /// No connection was made; nothing was sent.
    Connect,
    /// There was no whole answer in time; what was asked for may have been done.
    Timeout,
    /// The answer is larger than it may be; what was asked for may have been done.
    TooLarge,
    /// The connection broke, or what came was no HTTP; what was asked for may have been done.
    Broken,
    /// [`HttpAnswer::ok`]: the answer's status isn't one of success.
    Status(u16),
    /// [`HttpAnswer::json`]: the answer doesn't read as asked.
    Unreadable,
}

impl HttpError {
    /// An error, for tests.
    pub fn new(kind: HttpErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for HttpError {}

/// The value of a secret. It shows itself to nobody unless it is asked to.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    pub(crate) fn of(name: &str, value: Result<Vec<u8>, String>) -> Result<Self> {
        match value {
            Ok(value) => Ok(Self(value)),
            Err(why) => Err(Error::retry(format!("secret {name:?}: {why}"))),
        }
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its text.
    ///
    /// # Errors
    /// When it isn't UTF-8.
    pub fn as_str(&self) -> Result<&str> {
        std::str::from_utf8(&self.0).map_err(|_| Error::retry("the secret is no text"))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
