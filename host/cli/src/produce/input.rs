//! Reads files of events into batches of JSON lines.

mod parse;
#[cfg(test)]
mod tests;

use crate::failure::{Failure, Result};
use clap::ValueEnum;
use flate2::bufread::MultiGzDecoder;
use indicatif::ProgressBar;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use tokio::sync::mpsc;

/// About the most bytes of a request.
const BATCH_BYTES: usize = 256 << 10;
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
            parse::read(unpacked, self.format, false, to)
        } else {
            parse::read(plain, self.format, self.live, to)
        };
        result
            .and_then(|()| to.flush())
            .map_err(|failure| failure.at(&self.name))
    }
}
