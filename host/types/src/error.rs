//! The one error that crosses façades: what the caller should do (kind), which fact it is (code),
//! and a sentence for people (detail).

use std::fmt;

/// What the caller can do about it. A kind exists only where callers act differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// The request is wrong as it stands; repeating it won't help.
    Invalid,
    /// Something named doesn't exist.
    NotFound,
    /// It contradicts what exists.
    Conflict,
    /// A position below the start or above the end.
    OutOfRange,
    /// Larger than a limit.
    TooLarge,
    /// Too much is waiting; come again. Nothing happened.
    Busy,
    /// The disk is full; reads go on. Nothing happened.
    StorageFull,
    /// A newer owner exists; stop.
    Fenced,
    /// It may have happened or not: storage failed on the way, or the host is stopping.
    Unavailable,
    /// Stored bytes are not what was written; a person has to look.
    Corrupt,
    /// A fault of ours.
    Internal,
}

/// An error with its public code (`topic-not-found`) and a sentence that says what, where and what to do.
#[derive(Clone, Debug)]
pub struct Error {
    /// What the caller can do.
    pub kind: ErrorKind,
    /// Stable identifier, kebab case; the last part of the problem type's address.
    pub code: &'static str,
    /// What happened, where, and what to do.
    pub detail: String,
    /// Numbers of the detail that programs act on, by name.
    pub numbers: Vec<(&'static str, u64)>,
}

/// A result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of any kind.
    pub fn new(kind: ErrorKind, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            kind,
            code,
            detail: detail.into(),
            numbers: Vec::new(),
        }
    }
    /// [`ErrorKind::Invalid`].
    pub fn invalid(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, code, detail)
    }
    /// [`ErrorKind::NotFound`].
    pub fn not_found(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, code, detail)
    }
    /// [`ErrorKind::Conflict`].
    pub fn conflict(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, code, detail)
    }
    /// [`ErrorKind::Unavailable`].
    pub fn unavailable(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, code, detail)
    }
    /// [`ErrorKind::Corrupt`].
    pub fn corrupt(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, "corrupt", detail)
    }
    /// [`ErrorKind::Internal`].
    pub fn internal(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, "internal", detail)
    }
    /// The same error with a number that programs act on.
    #[must_use]
    pub fn with(mut self, name: &'static str, number: u64) -> Self {
        self.numbers.push((name, number));
        self
    }
    /// The same error, its sentence preceded by where it happened.
    #[must_use]
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.detail = format!("{place}: {}", self.detail);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.detail, self.code)
    }
}

impl std::error::Error for Error {}
