//! Why a command did not do what it was asked to, and the exit code that tells a script so.

use serde::Deserialize;
use std::fmt;

/// Result of a command.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Exit codes. A kind exists only where a script would act differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// Nothing is wrong: whoever read the output has seen enough and closed the pipe.
    Done,
    Failed,
    Usage,
    NotFound,
    NotAllowed,
    Conflict,
    Unreachable,
}

impl Exit {
    /// The number the process exits with.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::NotAllowed => 4,
            Self::Conflict => 5,
            Self::Unreachable => 6,
        }
    }

    /// What an HTTP status means for a script.
    pub(crate) const fn of_status(status: u16) -> Self {
        match status {
            400 => Self::Usage,
            401 | 403 => Self::NotAllowed,
            404 | 410 => Self::NotFound,
            409 | 412 => Self::Conflict,
            _ => Self::Failed,
        }
    }
}

/// A failure: one line of what happened, a hint what to do, a stable code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// What the host said, if it was the host that refused.
    pub(crate) problem: Option<Box<Problem>>,
}

/// The host's description of an error (`application/problem+json`).
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Problem {
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) title: String,
    pub(crate) detail: String,
    pub(crate) retryable: bool,
    pub(crate) no_side_effects: bool,
    /// Events that are wrong, by their place in the request.
    pub(crate) errors: Vec<WrongEvent>,
    /// Seconds to wait before trying again, from `Retry-After`.
    #[serde(skip)]
    pub(crate) retry_after: Option<u64>,
}

/// One event that the host refused.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WrongEvent {
    pub(crate) index: u64,
    pub(crate) pointer: Option<String>,
    pub(crate) reason: String,
}

impl Failure {
    /// Whether the host only has no answer or takes no body of the form that was asked for.
    pub(crate) fn is_about_form(&self) -> bool {
        let status = self.problem.as_ref().map(|problem| problem.status);
        matches!(status, Some(406 | 415))
    }

    fn new(exit: Exit, code: &str, message: impl Into<String>) -> Self {
        Self {
            exit,
            code: code.into(),
            message: message.into(),
            hint: None,
            problem: None,
        }
    }

    /// Something went wrong.
    pub(crate) fn failed(code: &str, message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, code, message)
    }

    /// What was typed makes no sense.
    pub(crate) fn usage(code: &str, message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, code, message)
    }

    /// Something that was named does not exist.
    pub(crate) fn not_found(code: &str, message: impl Into<String>) -> Self {
        Self::new(Exit::NotFound, code, message)
    }

    /// Something is in the way.
    pub(crate) fn conflict(code: &str, message: impl Into<String>) -> Self {
        Self::new(Exit::Conflict, code, message)
    }

    /// The host cannot be reached: nothing was sent.
    pub(crate) fn unreachable(host: &str, reason: impl fmt::Display) -> Self {
        Self::new(
            Exit::Unreachable,
            "unreachable",
            format!("no host answers at {host}: {reason}"),
        )
        .hint("start one with `tidemill serve`, or name another by --host or TIDEMILL_HOST")
    }

    /// The host refused.
    pub(crate) fn refused(problem: Problem) -> Self {
        let message = if problem.detail.is_empty() {
            problem.title.clone()
        } else {
            problem.detail.clone()
        };
        let mut failure = Self::new(Exit::of_status(problem.status), &problem.code, message);
        failure.hint = remedy(&problem.code).map(Into::into);
        failure.problem = Some(Box::new(problem));
        failure
    }

    /// Adds what to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Puts where it happened before the message.
    pub(crate) fn at(mut self, place: impl fmt::Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }
}

/// What to type about the host's commonest refusals; the rest is explained by the host's own pages.
fn remedy(code: &str) -> Option<&'static str> {
    Some(match code {
        "topic-not-found" => {
            "`tidemill topic list` shows the topics; `tidemill topic create` makes one"
        }
        "topic-exists" => {
            "`tidemill topic describe` shows its settings; delete it first or choose another name"
        }
        "topic-in-use" => "delete those functions first, or delete the topic with --force",
        "function-not-found" => {
            "`tidemill functions list` shows the functions; `tidemill deploy` adds one"
        }
        "invalid-component" => {
            "build it with `tidemill build`, which makes a component out of cargo's module"
        }
        "offset-out-of-range" => "`tidemill topic describe` shows which offsets there are",
        "runs-again" => "`--dry-run` shows what it comes to, `--yes` says that it is meant",
        "storage-full" => "free space on the host's disk or shorten retention",
        _ => return None,
    })
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::new(
                Exit::Done,
                "closed-pipe",
                "nobody reads the output any more",
            ),
            _ => Self::failed("io", error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_become_exit_codes() {
        for (status, code) in [
            (400, 2),
            (401, 4),
            (403, 4),
            (404, 3),
            (410, 3),
            (409, 5),
            (412, 5),
            (416, 1),
            (422, 1),
            (429, 1),
            (500, 1),
            (503, 1),
            (507, 1),
        ] {
            let failure = Failure::refused(Problem {
                status,
                ..Problem::default()
            });
            assert_eq!(failure.exit.code(), code, "status {status}");
        }
        assert_eq!(Failure::unreachable("http://x", "refused").exit.code(), 6);
    }

    #[test]
    fn a_problem_is_read_as_the_host_writes_it() {
        let problem: Problem = serde_json::from_str(
            r#"{"type": "/v1/errors/invalid-events", "title": "invalid events", "status": 422, "code": "invalid-events",
                "detail": "1 of 3 events is wrong.", "retryable": false, "no_side_effects": true, "request_id": "r",
                "errors": [{"index": 2, "pointer": "/time", "reason": "not a time"}]}"#,
        )
        .expect("parses");
        assert!(problem.no_side_effects && !problem.retryable);
        assert_eq!(problem.errors[0].index, 2);
        let failure = Failure::refused(problem);
        assert_eq!(
            (failure.message.as_str(), failure.code.as_str()),
            ("1 of 3 events is wrong.", "invalid-events")
        );
    }

    #[test]
    fn a_closed_pipe_is_not_an_error() {
        let failure = Failure::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(failure.exit.code(), 0);
        assert_eq!(Failure::from(std::io::Error::other("x")).exit.code(), 1);
    }
}
