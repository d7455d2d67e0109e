//! What a handler says when an event did not go through.

use std::borrow::Cow;
use std::fmt;

/// The result of a handler and of everything it asks of the SDK.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an event did not go through, and what is to become of it.
///
/// Any [`std::error::Error`] turns into one by `?` and then means *retry with backoff*; [`skip`],
/// [`dead_letter`] and [`fatal`] say something else on purpose. Whatever it is, the event leaves no
/// output and no state change; its neighbours' stay.
#[derive(Clone)]
pub struct Error {
    kind: Kind,
    message: Cow<'static, str>,
}

/// What is to become of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Skip,
    DeadLetter,
    Undecodable,
    Retry,
    Fatal,
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// Try the event again later, with growing pauses. What `?` does to any other error.
    pub fn retry(why: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Retry, why)
    }

    /// Pass over the event; it is counted as skipped, with this reason.
    pub fn skip(why: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Skip, why)
    }

    /// Give the event up: it goes to the function's dead letter topic, whole, with this reason.
    pub fn dead_letter(why: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::DeadLetter, why)
    }

    /// Stop the function at this event, until somebody looks at it.
    pub fn fatal(why: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Fatal, why)
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The reason in words.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

// `Error` itself is no `std::error::Error`: only so can every other error turn into it by `?`.
impl<E: std::error::Error> From<E> for Error {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        Self::retry(message)
    }
}

/// `return skip("why")`: passes over the event; it is counted as skipped, with this reason.
///
/// # Errors
/// Always: that is its purpose.
pub fn skip<T>(why: impl Into<Cow<'static, str>>) -> Result<T> {
    Err(Error::skip(why))
}

/// `return dead_letter("why")`: gives the event up; it goes to the function's dead letter topic, whole,
/// with this reason.
///
/// # Errors
/// Always: that is its purpose.
pub fn dead_letter<T>(why: impl Into<Cow<'static, str>>) -> Result<T> {
    Err(Error::dead_letter(why))
}

/// `return fatal("why")`: stops the function at this event, until somebody looks at it.
///
/// # Errors
/// Always: that is its purpose.
pub fn fatal<T>(why: impl Into<Cow<'static, str>>) -> Result<T> {
    Err(Error::fatal(why))
}
