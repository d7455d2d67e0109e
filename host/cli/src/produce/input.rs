//! Reads files of events into batches of JSON lines.

use crate::failure::{Failure, Result};
use clap::ValueEnum;
use flate2::bufread::MultiGzDecoder;
use indicatif::ProgressBar;
use serde::de::{DeserializeSeed, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use tokio::sync::mpsc;

/// About the most bytes of a request.
const BATCH_BYTES: usize = 256 << 10;
/// No line is longer; the host takes no event near it.
const LINE_BYTES: u64 = 64 << 20;
const BUFFER: usize = 64 << 10;

/// What a file is.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    /// One JSON value a line.
    Ndjson,
    /// A JSON document, or several; an array is taken apart.
    Json,
    /// Rows with a header; each becomes an object of texts.
    Csv,
}

impl Format {
    /// By the file's name, without `.gz`.
    fn of(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        match name.strip_suffix(".gz").unwrap_or(&name).rsplit_once('.') {
            Some((_, "json")) => Self::Json,
            Some((_, "csv")) => Self::Csv,
            _ => Self::Ndjson,
        }
    }
}

/// A run of events for one request.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// One JSON value a line.
    pub(crate) body: Vec<u8>,
    /// Where each event stands in the file: its line, or its number in a JSON document.
    pub(crate) places: Vec<u64>,
}

impl Batch {
    /// Takes another batch in behind this one.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.body.append(&mut other.body);
        self.places.append(&mut other.places);
    }

    /// Room for more.
    pub(crate) fn fits(&self, other: &Self, most: u64) -> bool {
        self.body.len() + other.body.len() <= BATCH_BYTES
            && (self.places.len() + other.places.len()) as u64 <= most
    }
}

/// Where batches go as they fill.
pub(crate) struct Batches {
    most: u64,
    open: Batch,
    give: mpsc::Sender<Batch>,
}

impl Batches {
    pub(crate) fn new(most: u64, give: mpsc::Sender<Batch>) -> Self {
        Self {
            most,
            open: Batch::default(),
            give,
        }
    }

    /// The body to write an event to; [`Batches::written`] must follow.
    fn body(&mut self) -> &mut Vec<u8> {
        &mut self.open.body
    }

    /// An event was written to the body, without the end of its line.
    fn written(&mut self, place: u64) -> Result<()> {
        self.open.body.push(b'\n');
        self.open.places.push(place);
        if self.open.body.len() >= BATCH_BYTES || self.open.places.len() as u64 >= self.most {
            self.flush()?;
        }
        Ok(())
    }

    /// Hands over what there is; waits while the network is behind.
    fn flush(&mut self) -> Result<()> {
        if self.open.places.is_empty() {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.open);
        self.give
            .blocking_send(batch)
            .map_err(|_| Failure::failed("stopped", "nothing is sent any more"))
    }
}

/// A file or standard input, and what it holds.
pub(crate) struct Source {
    name: String,
    format: Format,
    from: Box<dyn Read + Send>,
    length: Option<u64>,
    /// Somebody may be typing: do not wait for a batch to fill.
    live: bool,
}

impl Source {
    /// Opens a file; `-` is standard input.
    pub(crate) fn new(file: &Path, format: Option<Format>) -> Result<Self> {
        if file == Path::new("-") {
            return Ok(Self {
                name: "standard input".into(),
                format: format.unwrap_or(Format::Ndjson),
                from: Box::new(std::io::stdin()),
                length: None,
                live: true,
            });
        }
        let name = file.display().to_string();
        let opened = File::open(file).and_then(|opened| Ok((opened.metadata()?, opened)));
        let (metadata, opened) = opened.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Failure::not_found("no-file", format!("there is no file {name}"))
            }
            _ => Failure::failed("io", format!("cannot read {name}: {error}")),
        })?;
        if metadata.is_dir() {
            return Err(Failure::usage(
                "not-a-file",
                format!("{name} is a directory"),
            ));
        }
        Ok(Self {
            format: format.unwrap_or_else(|| Format::of(&name)),
            from: Box::new(opened),
            length: metadata.is_file().then_some(metadata.len()),
            live: !metadata.is_file(),
            name,
        })
    }

    /// Bytes of the file as it lies there.
    pub(crate) fn length(&self) -> Option<u64> {
        self.length
    }

    /// Reads everything into batches.
    pub(crate) fn read(self, bar: &ProgressBar, to: &mut Batches) -> Result<()> {
        let mut plain = BufReader::with_capacity(BUFFER, bar.wrap_read(self.from));
        let compressed = plain.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        let result = if compressed {
            let unpacked = BufReader::with_capacity(BUFFER, MultiGzDecoder::new(plain));
            read(unpacked, self.format, false, to)
        } else {
            read(plain, self.format, self.live, to)
        };
        result
            .and_then(|()| to.flush())
            .map_err(|failure| failure.at(&self.name))
    }
}

fn read<R: Read>(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;
    use std::io::Write;

    /// Reads `bytes` as `format` and gives back the batches.
    fn batches(bytes: &[u8], format: Format, most: u64) -> Result<Vec<(String, Vec<u64>)>> {
        let (give, mut take) = mpsc::channel(1000);
        let source = Source {
            name: "x".into(),
            format,
            from: Box::new(std::io::Cursor::new(bytes.to_vec())),
            length: None,
            live: false,
        };
        source.read(&ProgressBar::hidden(), &mut Batches::new(most, give))?;
        let mut batches = Vec::new();
        while let Ok(batch) = take.try_recv() {
            batches.push((String::from_utf8(batch.body).expect("text"), batch.places));
        }
        Ok(batches)
    }

    fn all(bytes: &[u8], format: Format) -> Vec<(String, u64)> {
        let batches = batches(bytes, format, 2).expect("reads");
        batches
            .iter()
            .flat_map(|(body, places)| body.lines().map(String::from).zip(places.iter().copied()))
            .collect()
    }

    #[test]
    fn formats_are_told_by_name() {
        for (name, format) in [
            ("a.csv", Format::Csv),
            ("b/a.CSV.gz", Format::Csv),
            ("a.json", Format::Json),
            ("a.ndjson.gz", Format::Ndjson),
            ("a.jsonl", Format::Ndjson),
            ("a", Format::Ndjson),
        ] {
            assert_eq!(Format::of(name), format, "{name}");
        }
    }

    #[test]
    fn lines_keep_their_numbers_and_empty_ones_are_passed_over() {
        let read = all(
            b"\xef\xbb\xbf{\"a\":1}\r\n\n  \n2\n\"three\"",
            Format::Ndjson,
        );
        assert_eq!(
            read,
            [
                ("{\"a\":1}".into(), 1),
                ("2".into(), 4),
                ("\"three\"".into(), 5)
            ]
        );
    }

    #[test]
    fn rows_become_objects_of_texts() {
        let read = all(
            "name,of \"it\"\n\"a,\"\"b\"\"\nc\",1\nü,\n".as_bytes(),
            Format::Csv,
        );
        assert_eq!(
            read[0],
            (r#"{"name":"a,\"b\"\nc","of \"it\"":"1"}"#.into(), 2)
        );
        assert_eq!(read[1], (r#"{"name":"ü","of \"it\"":""}"#.into(), 4));
    }

    #[test]
    fn bad_csv_names_the_line() {
        let failure = batches(b"a,b\n1,2\n3\n", Format::Csv, 9).expect_err("ragged");
        assert!(
            failure.message.contains("x: ") && failure.message.contains("line: 3"),
            "{}",
            failure.message
        );
        assert!(
            batches(b"a,a\n1,2\n", Format::Csv, 9)
                .expect_err("twice")
                .message
                .contains("\"a\"")
        );
    }

    #[test]
    fn arrays_are_taken_apart_by_one_level() {
        let read = all(b" [ {\"a\":\n 1}, [2, 3],\n\"x\\ny\" ]\n", Format::Json);
        assert_eq!(
            read,
            [
                ("{\"a\":  1}".into(), 1),
                ("[2, 3]".into(), 2),
                ("\"x\\ny\"".into(), 3)
            ]
        );
        assert_eq!(
            all(b"{\"a\":1} 2", Format::Json),
            [("{\"a\":1}".into(), 1), ("2".into(), 2)]
        );
        assert_eq!(all(b"[]", Format::Json), []);
    }

    #[test]
    fn bad_json_is_refused() {
        for bad in ["[1, 2", "[1] x", "{\"a\":", "[1,,2]"] {
            let failure = batches(bad.as_bytes(), Format::Json, 9).expect_err(bad);
            assert_eq!(failure.code, "invalid-json", "{bad}: {}", failure.message);
        }
    }

    #[test]
    fn compressed_files_are_read_as_they_are() {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(b"1\n2\n").expect("packs");
        let packed = packed.finish().expect("packs");
        assert_eq!(all(&packed, Format::Ndjson).len(), 2);
        assert!(
            batches(&packed[..packed.len() - 6], Format::Ndjson, 9).is_err(),
            "a cut file must not pass for a whole one"
        );
    }

    #[test]
    fn batches_are_bounded_by_count_and_bytes() {
        let batches_of = |bytes: &[u8], most| batches(bytes, Format::Ndjson, most).expect("reads");
        assert_eq!(
            batches_of(b"1\n2\n3\n4\n5\n", 2)
                .iter()
                .map(|(_, places)| places.len())
                .collect::<Vec<_>>(),
            [2, 2, 1]
        );
        let long = format!("\"{}\"\n", "x".repeat(100_000)).repeat(7);
        for (body, _) in batches_of(long.as_bytes(), 500) {
            assert!(body.len() < BATCH_BYTES + 100_010);
        }
    }

    #[test]
    fn a_missing_file_is_not_found() {
        let failure = Source::new(Path::new("no/such/file"), None)
            .err()
            .expect("missing");
        assert_eq!(failure.exit, Exit::NotFound);
    }
}
