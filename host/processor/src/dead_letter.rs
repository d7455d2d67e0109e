//! What a dead letter carries: the event untouched, and headers that say why, after how many tries,
//! and where it came from.

use std::fmt::Write;
use tidemill_types::{FunctionName, PackedRows, Result, RowView, Timestamp};
use tidemill_wasm::FailureKind;

/// Longest error text kept, in bytes.
const ERROR_BYTES: usize = 4096;

/// Why an event became a dead letter (`tidemill-reason`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// The function said so, or asked to be tried again too often.
    Guest,
    /// It trapped.
    Trap,
    /// Its deadline passed.
    Deadline,
    /// It wanted too much memory.
    Memory,
    /// Its answer was too large.
    OutputLimit,
    /// Its value didn't parse.
    Decode,
}

impl Reason {
    /// As written in the header and in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Guest => "guest",
            Self::Trap => "trap",
            Self::Deadline => "deadline",
            Self::Memory => "memory",
            Self::OutputLimit => "output-limit",
            Self::Decode => "decode",
        }
    }
}

impl Reason {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 6] = [
        Self::Guest,
        Self::Trap,
        Self::Deadline,
        Self::Memory,
        Self::OutputLimit,
        Self::Decode,
    ];

    /// Its number in what is stored, from 1.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Guest => 1,
            Self::Trap => 2,
            Self::Deadline => 3,
            Self::Memory => 4,
            Self::OutputLimit => 5,
            Self::Decode => 6,
        }
    }

    /// The reason of a number.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|reason| reason.number() == number)
    }
}

impl From<FailureKind> for Reason {
    fn from(kind: FailureKind) -> Self {
        match kind {
            FailureKind::Trap => Self::Trap,
            FailureKind::Deadline => Self::Deadline,
            FailureKind::Memory | FailureKind::Short => Self::Memory,
            FailureKind::OutputLimit => Self::OutputLimit,
        }
    }
}

/// Why an event failed, in a word and in a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cause {
    /// The word.
    pub(crate) reason: Reason,
    /// The sentence.
    pub(crate) error: String,
}

/// One dead letter: everything but the event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Letter<'a> {
    /// Whose.
    pub(crate) function: &'a FunctionName,
    /// Version that failed.
    pub(crate) version: u32,
    /// In a word.
    pub(crate) reason: Reason,
    /// In a sentence.
    pub(crate) error: &'a str,
    /// Tries.
    pub(crate) attempts: u32,
    /// Original topic.
    pub(crate) topic: &'a str,
    /// Original partition.
    pub(crate) partition: u32,
    /// Original offset; of a timer, the position at its turn.
    pub(crate) offset: u64,
    /// The tag of the timer, if it was one: its payload stands for the event, and its key.
    pub(crate) timer: Option<&'a [u8]>,
    /// When it failed first and last, if it was tried more than once.
    pub(crate) failed: Option<(Timestamp, Timestamp)>,
    /// How often it had been a dead letter before.
    pub(crate) redriven: u32,
}

/// Appends an event as a dead letter; `key` is its original key.
///
/// # Errors
/// `too-large` when the frame is full.
pub(crate) fn push(
    rows: &mut PackedRows,
    event: RowView<'_>,
    key: Option<&[u8]>,
    letter: &Letter<'_>,
) -> Result<()> {
    let mut text = String::new();
    let mut number = |n: u64| -> std::ops::Range<usize> {
        let start = text.len();
        // Writing to a String can't fail.
        let _ = write!(text, "{n}");
        start..text.len()
    };
    let version = number(letter.version.into());
    let attempts = number(letter.attempts.into());
    let partition = number(letter.partition.into());
    let offset = number(letter.offset);
    let redriven = number(letter.redriven.into());
    let time = event.time.to_string();
    let failed = letter
        .failed
        .map(|(first, last)| (first.to_string(), last.to_string()));
    let shown = |range: std::ops::Range<usize>| text[range].as_bytes();
    let headers = [
        ("tidemill-function", letter.function.as_str().as_bytes()),
        ("tidemill-version", shown(version)),
        ("tidemill-reason", letter.reason.as_str().as_bytes()),
        ("tidemill-error", cut(letter.error, ERROR_BYTES).as_bytes()),
        ("tidemill-attempts", shown(attempts)),
        ("tidemill-topic", letter.topic.as_bytes()),
        ("tidemill-partition", shown(partition)),
        ("tidemill-offset", shown(offset)),
        ("tidemill-time", time.as_bytes()),
    ];
    let timer = letter.timer.map(|tag| ("tidemill-timer", tag));
    let failed = failed.iter().flat_map(|(first, last)| {
        [
            ("tidemill-first-failure", first.as_bytes()),
            ("tidemill-last-failure", last.as_bytes()),
        ]
    });
    let redriven = (letter.redriven > 0).then(|| ("tidemill-redriven", shown(redriven)));
    // A timer has no headers of its own.
    let own = event
        .headers
        .take(if timer.is_some() { 0 } else { usize::MAX });
    rows.push(
        event.time,
        key,
        event.value,
        own.chain(headers)
            .chain(failed)
            .chain(redriven)
            .chain(timer),
    )
}

/// The first `most` bytes of a text, at a character's border.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_event_is_untouched_and_the_headers_say_why() {
        let mut input = PackedRows::default();
        let own = [("source", b"gate-3".as_slice()), ("source", b"\xff")];
        let time = Timestamp::from_micros(1_357_035_300_000_000);
        input
            .push(time, Some(b"UA"), Some(b"{oops"), own)
            .expect("push");
        let name: FunctionName = "parse-flights".parse().expect("a name");
        let error = "x".repeat(ERROR_BYTES - 1) + "é";
        let letter = Letter {
            function: &name,
            version: 2,
            reason: Reason::OutputLimit,
            error: &error,
            attempts: 5,
            topic: "flights",
            partition: 3,
            offset: 17,
            timer: None,
            failed: None,
            redriven: 0,
        };
        let mut rows = PackedRows::default();
        push(&mut rows, input.event(0), None, &letter).expect("push");
        let event = rows.event(0);
        assert_eq!(
            (event.time, event.key, event.value),
            (time, None, Some(b"{oops".as_slice()))
        );
        let mut expected: Vec<(&str, &[u8])> = own.to_vec();
        expected.extend([
            ("tidemill-function", b"parse-flights".as_slice()),
            ("tidemill-version", b"2"),
            ("tidemill-reason", b"output-limit"),
            ("tidemill-error", &error.as_bytes()[..ERROR_BYTES - 1]),
            ("tidemill-attempts", b"5"),
            ("tidemill-topic", b"flights"),
            ("tidemill-partition", b"3"),
            ("tidemill-offset", b"17"),
            ("tidemill-time", b"2013-01-01T10:15:00Z"),
        ]);
        assert_eq!(event.headers.collect::<Vec<_>>(), expected);
        let tried = Letter {
            failed: Some((Timestamp::from_micros(0), Timestamp::from_micros(1_500_000))),
            redriven: 2,
            ..letter
        };
        push(&mut rows, input.event(0), None, &tried).expect("push");
        let more = rows.event(1).headers.skip(expected.len());
        let more_expected = [
            ("tidemill-first-failure", b"1970-01-01T00:00:00Z".as_slice()),
            ("tidemill-last-failure", b"1970-01-01T00:00:01.5Z"),
            ("tidemill-redriven", b"2"),
        ];
        assert_eq!(more.collect::<Vec<_>>(), more_expected);
        let timer = Letter {
            timer: Some(b"expiry"),
            ..letter
        };
        push(&mut rows, input.event(0), Some(b"UA"), &timer).expect("push");
        let mut headers = rows.event(2).headers;
        assert_eq!(headers.next().expect("headers").0, "tidemill-function");
        assert_eq!(
            headers.last(),
            Some(("tidemill-timer", b"expiry".as_slice()))
        );
    }
}
