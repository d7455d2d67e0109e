//! The forms of files, taken apart into events.

use super::{Batches, Format};
use crate::failure::{Failure, Result};
use serde::de::{DeserializeSeed, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use std::io::{BufRead, BufReader, Read};

/// No line is longer; the host takes no event near it.
const LINE_BYTES: u64 = 64 << 20;

/// Reads everything; `live` input is handed over as it comes.
pub(super) fn read<R: Read>(
    mut from: BufReader<R>,
    format: Format,
    live: bool,
    to: &mut Batches,
) -> Result<()> {
    if from.fill_buf()?.starts_with(b"\xef\xbb\xbf") {
        from.consume(3);
    }
    match format {
        Format::Ndjson => lines(from, live, to),
        Format::Json => json(from, to),
        Format::Csv => csv(from, to),
    }
}

/// Lines as they are; the host says what is wrong with one. Empty lines are passed over.
fn lines<R: Read>(mut from: BufReader<R>, live: bool, to: &mut Batches) -> Result<()> {
    let mut line = 0;
    loop {
        let start = to.body().len();
        let read = (&mut from).take(LINE_BYTES).read_until(b'\n', to.body())?;
        if read == 0 {
            return Ok(());
        }
        line += 1;
        if read as u64 == LINE_BYTES {
            return Err(Failure::failed(
                "too-large",
                format!("line {line} is longer than {} MiB", LINE_BYTES >> 20),
            ));
        }
        let body = to.body();
        while body.len() > start && body.last().is_some_and(u8::is_ascii_whitespace) {
            body.pop();
        }
        if body.len() > start {
            to.written(line)?;
        }
        if live && from.buffer().is_empty() {
            to.flush()?;
        }
    }
}

/// Each row an object of texts, fields in the header's order.
fn csv(from: impl Read, to: &mut Batches) -> Result<()> {
    let mut reader = csv::Reader::from_reader(from);
    let wrong = |error: csv::Error| {
        Failure::failed("invalid-csv", format!("not CSV: {error}"))
            .hint("the first line must name the columns, and every row have as many fields")
    };
    let names: Vec<String> = reader
        .headers()
        .map_err(wrong)?
        .iter()
        .map(|name| format!("{}:", text(name)))
        .collect();
    if let Some(twice) = (1..names.len()).find(|&at| names[..at].contains(&names[at])) {
        return Err(Failure::failed(
            "invalid-csv",
            format!(
                "two columns are called {}",
                names[twice].trim_end_matches(':')
            ),
        ));
    }
    let mut row = csv::StringRecord::new();
    while reader.read_record(&mut row).map_err(wrong)? {
        let body = to.body();
        for (at, (name, field)) in names.iter().zip(&row).enumerate() {
            body.push(if at == 0 { b'{' } else { b',' });
            body.extend_from_slice(name.as_bytes());
            quote(body, field)?;
        }
        body.push(b'}');
        to.written(row.position().map_or(0, csv::Position::line))?;
    }
    Ok(())
}

fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Writes a JSON text.
fn quote(body: &mut Vec<u8>, text: &str) -> Result<()> {
    serde_json::to_writer(body, text).map_err(|error| Failure::failed("io", error.to_string()))
}

/// One array, whose elements are events, or values one behind the other.
fn json<R: Read>(mut from: BufReader<R>, to: &mut Batches) -> Result<()> {
    while from
        .fill_buf()?
        .first()
        .is_some_and(u8::is_ascii_whitespace)
    {
        from.consume(1);
    }
    let array = from.fill_buf()?.first() == Some(&b'[');
    let mut elements = Elements {
        to,
        number: 0,
        failure: None,
    };
    let mut reader = serde_json::Deserializer::from_reader(from);
    let result = if array {
        (&mut elements)
            .deserialize(&mut reader)
            .and_then(|()| reader.end())
    } else {
        reader
            .into_iter::<Box<RawValue>>()
            .try_for_each(|value| elements.take(&value?))
    };
    match (elements.failure, result) {
        (Some(failure), _) => Err(failure),
        (None, Err(error)) => Err(Failure::failed(
            "invalid-json",
            format!("not JSON: {error}"),
        )),
        (None, Ok(())) => Ok(()),
    }
}

/// Takes the elements of an array as they are read, however long it is.
struct Elements<'a> {
    to: &'a mut Batches,
    number: u64,
    failure: Option<Failure>,
}

impl Elements<'_> {
    /// Writes one element on one line: line ends in JSON stand between tokens only.
    fn take(&mut self, value: &RawValue) -> serde_json::Result<()> {
        self.number += 1;
        self.to.body().extend(value.get().bytes().map(|byte| {
            if matches!(byte, b'\n' | b'\r') {
                b' '
            } else {
                byte
            }
        }));
        self.to.written(self.number).map_err(|failure| {
            self.failure = Some(failure);
            serde::de::Error::custom("stopped")
        })
    }
}

impl<'de> DeserializeSeed<'de> for &mut Elements<'_> {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(
        self,
        from: D,
    ) -> std::result::Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for &mut Elements<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of events")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> std::result::Result<(), A::Error> {
        while let Some(value) = elements.next_element::<Box<RawValue>>()? {
            self.take(&value).map_err(serde::de::Error::custom)?;
        }
        Ok(())
    }
}
