//! The forms of JSON bodies: one value, an array of values, a value a line.

use super::intake::Intake;
use super::rows::{Rows, Wrong};
use super::typed;
use crate::problem::{Answer, Problem};
use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// What a JSON value of the body is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Each {
    /// The event's value.
    Value,
    /// An event with key, value, headers and time.
    Typed,
}

impl Each {
    fn take(
        self,
        intake: &Intake,
        rows: &mut Rows,
        text: &str,
        at: usize,
        line: Option<u64>,
    ) -> Answer<()> {
        match self {
            Self::Value => intake.take_json(rows, text, at, line),
            Self::Typed => typed::take(intake, rows, text, at, line),
        }
    }
}

/// Takes a value a line; blank lines are passed over. `first_line` is the number of the first one.
/// Gives the number of lines.
pub(crate) fn take_lines(
    intake: &Intake,
    rows: &mut Rows,
    body: &[u8],
    each: Each,
    first_line: u64,
) -> Answer<u64> {
    let mut lines = 0;
    match simdutf8::basic::from_utf8(body) {
        Ok(text) => {
            let mut start = 0;
            while start < text.len() {
                let end =
                    memchr::memchr(b'\n', &body[start..]).map_or(text.len(), |len| start + len);
                take_line(
                    intake,
                    rows,
                    &text[start..end],
                    start,
                    each,
                    first_line + lines,
                )?;
                lines += 1;
                start = end + 1;
            }
        }
        Err(_) => {
            let mut start = 0;
            for line in body.split_inclusive(|byte| *byte == b'\n') {
                match std::str::from_utf8(line) {
                    Ok(text) => take_line(intake, rows, text, start, each, first_line + lines)?,
                    Err(error) => {
                        let wrong = Wrong::event(format!(
                            "not UTF-8 at byte {} of the line",
                            error.valid_up_to() + 1
                        ));
                        let index = rows.seen;
                        rows.seen += 1;
                        rows.refuse(index, Some(first_line + lines), wrong);
                    }
                }
                lines += 1;
                start += line.len();
            }
        }
    }
    Ok(lines)
}

fn take_line(
    intake: &Intake,
    rows: &mut Rows,
    line: &str,
    start: usize,
    each: Each,
    number: u64,
) -> Answer<()> {
    let text = trim_start(line);
    if text.is_empty() {
        return Ok(());
    }
    if rows.seen > 0 {
        intake.several()?;
    }
    let at = start + (line.len() - text.len());
    each.take(intake, rows, trim_end(text), at, Some(number))
}

/// Takes one JSON value, or the elements of an array.
pub(crate) fn take_document(
    intake: &Intake,
    rows: &mut Rows,
    body: &[u8],
    each: Each,
) -> Answer<()> {
    let text = simdutf8::compat::from_utf8(body).map_err(|error| {
        Problem::because(
            "invalid-events",
            format!("The body is not UTF-8 at byte {}.", error.valid_up_to() + 1),
        )
    })?;
    let inside = trim_start(text);
    let at = text.len() - inside.len();
    if !inside.starts_with('[') {
        return if inside.is_empty() {
            Ok(())
        } else {
            each.take(intake, rows, trim_end(inside), at, None)
        };
    }
    intake.several()?;
    let mut failure = None;
    let mut json = serde_json::Deserializer::from_str(inside);
    let elements = Elements {
        intake,
        rows,
        each,
        body: inside,
        at,
        failure: &mut failure,
    };
    let read = json.deserialize_seq(elements).and_then(|()| json.end());
    match (failure, read) {
        (Some(problem), _) => Err(problem),
        (None, Ok(())) => Ok(()),
        // Where the array itself breaks off, nothing behind it can be told apart.
        (None, Err(error)) => {
            let wrong = Wrong::event(error.to_string());
            let index = rows.seen;
            rows.refuse(index, None, wrong);
            Err(Box::new(super::answer::refused(
                rows.refused,
                &rows.refusals,
            )))
        }
    }
}

/// Takes the elements of an array one by one.
struct Elements<'a, 'r> {
    intake: &'a Intake,
    rows: &'r mut Rows,
    each: Each,
    body: &'a str,
    at: usize,
    failure: &'r mut Option<Box<Problem>>,
}

impl<'t> Visitor<'t> for Elements<'t, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of events")
    }

    fn visit_seq<A: SeqAccess<'t>>(self, mut elements: A) -> Result<(), A::Error> {
        while let Some(text) = elements.next_element_seed(Text)? {
            let at = self.at + (text.as_ptr().addr() - self.body.as_ptr().addr());
            if self.failure.is_none()
                && let Err(problem) = self.each.take(self.intake, self.rows, text, at, None)
            {
                *self.failure = Some(problem);
            }
        }
        Ok(())
    }
}

/// A value's text.
struct Text;

impl<'t> DeserializeSeed<'t> for Text {
    type Value = &'t str;
    fn deserialize<D: Deserializer<'t>>(self, json: D) -> Result<&'t str, D::Error> {
        <&RawValue as serde::Deserialize>::deserialize(json).map(RawValue::get)
    }
}

/// JSON's white space only: anything else is left for the parser to refuse.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn trim_start(text: &str) -> &str {
    text.trim_start_matches(is_space)
}

fn trim_end(text: &str) -> &str {
    text.trim_end_matches(is_space)
}
