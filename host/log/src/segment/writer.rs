//! Packed rows in, one Parquet file out.

use super::letters::{self, Letters};
use super::typed::Typed;
use super::{SegmentMeta, columns, schema};
use crate::{Format, Topic};
use arrow_array::RecordBatch;
use arrow_schema::Schema;
use crc_fast::{CrcAlgorithm, Digest};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use tidemill_types::{Batch, Error, ErrorKind, Result};

/// Rows turned into columns at a time.
const ROWS: usize = 4096;
/// Event bytes turned into columns at a time: few enough that they are still in the processor's cache when
/// they are encoded.
const BYTES: usize = 512 << 10;
/// Bytes of payloads of which rows become columns together, for those of whole frames stay in memory as long
/// as rows point into them.
const PAYLOADS: usize = 4 << 20;

/// The code of the error for a value that isn't text in a topic whose values are: the file is to be
/// written again with binary values, because sealing must never be stuck.
pub(crate) const NOT_TEXT: &str = "value-not-text";

/// Writes one segment to a local file. Blocking; memory is bounded by one row group.
pub(crate) struct SegmentWriter {
    writer: ArrowWriter<BufWriter<Summed>>,
    schema: Arc<Schema>,
    text: bool,
    topic: Topic,
    partition: u32,
    gathered: Gathered,
    seen: Option<Seen>,
    events: u64,
}

/// Rows that become columns together. A partition's share of a frame may be a few rows, and columns of a
/// few rows cost nearly as much as those of many.
#[derive(Default)]
struct Gathered {
    batches: Vec<Batch>,
    rows: usize,
    bytes: usize,
    payloads: usize,
}

impl Gathered {
    /// Takes rows of a batch from one on, at least one, as long as there is room; gives where it stopped.
    fn take(&mut self, batch: &Batch, from: usize) -> usize {
        let mut to = from;
        while to == from || (to < batch.len() && self.rows < ROWS && self.bytes < BYTES) {
            self.bytes += batch.head(to).bytes();
            self.rows += 1;
            to += 1;
        }
        self.payloads += batch.payload().len();
        self.batches.push(batch.slice(from..to));
        to
    }

    fn is_full(&self) -> bool {
        self.rows >= ROWS || self.bytes >= BYTES || self.payloads >= PAYLOADS
    }
}

/// A segment that was written.
pub(crate) struct Finished {
    /// What the manifest is to know of it. The path is empty: the caller knows where it will lie.
    pub(crate) meta: SegmentMeta,
    /// The crc32c of the file.
    pub(crate) checksum: u32,
}

/// A file, and the checksum of what was written to it from its beginning on.
struct Summed {
    file: File,
    digest: Digest,
}

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.digest.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// What of the events goes into the manifest.
struct Seen {
    first: u64,
    end: u64,
    time: Range<i64>,
    ingest: Range<i64>,
}

impl SegmentWriter {
    /// Begins a file, replacing one that a crash left there.
    ///
    /// # Errors
    /// `StorageFull`, `Unavailable` when the file can't be written.
    pub(crate) fn create(path: &Path, topic: &Topic, partition: u32) -> Result<Self> {
        // Never truncate: what a crash left may be another name of an object.
        let file = std::fs::remove_file(path)
            .or_else(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })
            .and_then(|()| File::create_new(path))
            .map_err(|error| not_written(&error).at(path.display()))?;
        let (schema, stored) = schema::schema(topic)?;
        let options = ArrowWriterOptions::new()
            .with_properties(schema::properties(&topic.settings)?)
            .with_parquet_schema(stored)
            .with_skip_arrow_metadata(true);
        let digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        let to = BufWriter::new(Summed { file, digest });
        let writer = ArrowWriter::try_new_with_options(to, schema.clone(), options);
        Ok(Self {
            writer: writer.map_err(|error| not_written(&error))?,
            schema,
            text: topic.settings.format == Format::Json,
            topic: topic.clone(),
            partition,
            gathered: Gathered::default(),
            seen: None,
            events: 0,
        })
    }

    /// Appends events; their offsets must rise above those written before.
    ///
    /// # Errors
    /// `StorageFull`, `Unavailable`; `Invalid` with code [`NOT_TEXT`], perhaps for events appended earlier.
    /// After an error the file is useless.
    pub(crate) fn write(&mut self, batch: &Batch) -> Result<()> {
        for row in 0..batch.len() {
            self.see(batch, row)?;
        }
        self.events += batch.len() as u64;
        let mut from = 0;
        while from < batch.len() {
            from = self.gathered.take(batch, from);
            if self.gathered.is_full() {
                self.settle()?;
            }
        }
        Ok(())
    }

    /// Turns what was appended into columns now: what is wrong with it is known afterwards.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub(crate) fn settle(&mut self) -> Result<()> {
        let Gathered { batches, rows, .. } = std::mem::take(&mut self.gathered);
        if rows == 0 {
            return Ok(());
        }
        let mut arrays = columns::of(&batches, self.partition, self.text)?;
        if let Some(schema) = &self.topic.settings.schema {
            let mut typed = Typed::new(schema, rows);
            let events = batches.iter().flat_map(Batch::iter);
            events.for_each(|event| typed.push(event.row.value));
            arrays.extend(typed.finish());
        } else if letters::are_in(&self.topic) {
            let mut letters = Letters::new(rows);
            let events = batches.iter().flat_map(Batch::iter);
            events.for_each(|event| letters.push(event.row.headers));
            arrays.extend(letters.finish());
        }
        let record_batch = RecordBatch::try_new(self.schema.clone(), arrays).map_err(|error| {
            Error::internal(format!("columns of a segment don't fit together: {error}"))
        })?;
        self.writer
            .write(&record_batch)
            .map_err(|error| not_written(&error))
    }

    fn see(&mut self, batch: &Batch, row: usize) -> Result<()> {
        let offset = batch.offset(row);
        let (time, ingest) = (batch.head(row).time, batch.ingest_time(row).micros());
        let seen = self.seen.get_or_insert(Seen {
            first: offset,
            end: offset,
            time: time..time,
            ingest: ingest..ingest,
        });
        if offset < seen.end {
            return Err(Error::internal(format!(
                "offset {offset} of topic {:?} was to be sealed behind offset {}",
                self.topic.name.as_str(),
                seen.end
            )));
        }
        seen.end = offset + 1;
        seen.time = seen.time.start.min(time)..seen.time.end.max(time);
        seen.ingest = seen.ingest.start.min(ingest)..seen.ingest.end.max(ingest);
        Ok(())
    }

    /// Ends the file. Not synced: an upload makes it durable.
    ///
    /// # Errors
    /// As [`Self::write`]; `Internal` when nothing was written.
    pub(crate) fn finish(mut self) -> Result<Finished> {
        self.settle()?;
        let Some(seen) = self.seen else {
            return Err(Error::internal(
                "a segment without events was to be written",
            ));
        };
        for pair in schema::key_values(&self.topic, self.partition, seen.first, seen.end) {
            self.writer.append_key_value_metadata(pair);
        }
        let file = self
            .writer
            .into_inner()
            .map_err(|error| not_written(&error))?;
        let Summed { file, digest } = file
            .into_inner()
            .map_err(|error| not_written(error.error()))?;
        let bytes = file.metadata().map_err(|error| not_written(&error))?.len();
        let meta = SegmentMeta {
            topic: self.topic.id,
            partition: self.partition,
            first: seen.first,
            end: seen.end,
            events: self.events,
            bytes,
            path: String::new(),
            min_time: seen.time.start,
            max_time: seen.time.end,
            min_ingest: seen.ingest.start,
            max_ingest: seen.ingest.end,
        };
        let checksum = u32::try_from(digest.finalize()).unwrap_or(u32::MAX);
        Ok(Finished { meta, checksum })
    }
}

/// Our error for a file that couldn't be written.
fn not_written(error: &(dyn std::error::Error + 'static)) -> Error {
    if tidemill_env::files::is_out_of_space(error) {
        return Error::new(
            ErrorKind::StorageFull,
            "storage-full",
            "no space left to write a segment; make room",
        );
    }
    Error::unavailable(
        "segment-not-written",
        format!("a segment can't be written: {error}"),
    )
}
