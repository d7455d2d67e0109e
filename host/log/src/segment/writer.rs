//! Packed rows in, one Parquet file out.

use super::columns::Columns;
use super::group::Groups;
use super::schema::ROW_GROUP_BYTES;
use super::{SegmentMeta, schema};
use crate::Topic;
use crc_fast::{CrcAlgorithm, Digest};
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use tidemill_env::files::FreshFile;
use tidemill_env::objects::Objects;
use tidemill_types::{Batch, ByteSize, Error, ErrorKind, Result};

/// Rows whose columns are encoded together.
const ROWS: usize = 4096;
/// Event bytes of such rows, for their keys, headers and typed columns are in memory.
const BYTES: usize = 8 << 20;

/// The code of the error for a value that isn't text in a topic whose values are: the file is to be
/// written again with binary values, because sealing must never be stuck.
pub(crate) const NOT_TEXT: &str = "value-not-text";

/// What files segments become.
#[derive(Clone)]
pub(crate) struct Kind {
    /// Where they will be uploaded.
    objects: Objects,
    /// Encoded bytes of a row group, which is in memory until it is written.
    group_bytes: usize,
}

impl Kind {
    /// Files with row groups as large as so much memory has room for, and no larger than a reader likes.
    pub(crate) fn within(objects: &Objects, memory: ByteSize) -> Self {
        Self {
            objects: objects.clone(),
            group_bytes: memory.as_usize().min(ROW_GROUP_BYTES),
        }
    }
}

/// Writes one segment to a local file. Blocking; memory is bounded by one row group, encoded.
pub(crate) struct SegmentWriter {
    groups: Groups<Summed>,
    topic: Topic,
    partition: u32,
    /// Rows whose values are in the file in the making, and their other columns not yet.
    columns: Columns,
    /// Their bytes.
    bytes: usize,
    seen: Option<Seen>,
    events: u64,
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
    file: FreshFile,
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
    /// Begins a local file that is to be uploaded, in the place of one that a crash left there.
    ///
    /// # Errors
    /// `StorageFull`, `Unavailable` when the file can't be written.
    pub(crate) fn create(kind: &Kind, path: &Path, topic: &Topic, partition: u32) -> Result<Self> {
        let file = kind.objects.begin_file(path);
        let file = file.map_err(|error| not_written(&error).at(path.display()))?;
        let digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        let to = Summed { file, digest };
        Ok(Self {
            groups: Groups::new(to, topic, kind.group_bytes)?,
            topic: topic.clone(),
            partition,
            columns: Columns::new(topic, partition, ROWS),
            bytes: 0,
            seen: None,
            events: 0,
        })
    }

    /// Appends events; their offsets must rise above those written before.
    ///
    /// # Errors
    /// `StorageFull`, `Unavailable`; `Invalid` with code [`NOT_TEXT`].
    /// After an error the file is useless.
    pub(crate) fn write(&mut self, batch: &Batch) -> Result<()> {
        self.see(batch)?;
        self.events += batch.len() as u64;
        let mut from = 0;
        while from < batch.len() {
            let to = batch.len().min(from + ROWS - self.columns.len());
            let rows = batch.slice(from..to);
            self.groups.write_values(&rows)?;
            self.columns.push(&rows)?;
            self.bytes += rows.event_bytes();
            if self.columns.len() >= ROWS || self.bytes >= BYTES {
                self.settle()?;
            }
            from = to;
        }
        Ok(())
    }

    /// Encodes the columns of the rows so far.
    fn settle(&mut self) -> Result<()> {
        if self.columns.len() == 0 {
            return Ok(());
        }
        self.bytes = 0;
        let arrays = self.columns.finish(&self.topic)?;
        self.groups.write(&arrays)
    }

    fn see(&mut self, batch: &Batch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let first = batch.offset(0);
        let (time, ingest) = (batch.head(0).time, batch.ingest_time(0).micros());
        let seen = self.seen.get_or_insert(Seen {
            first,
            end: first,
            time: time..time,
            ingest: ingest..ingest,
        });
        let before = seen.end;
        let (mut time, mut ingest) = (seen.time.clone(), seen.ingest.clone());
        let widen = |all: &mut Range<i64>, one: i64| {
            (all.start, all.end) = (all.start.min(one), all.end.max(one));
        };
        for row in 0..batch.len() {
            widen(&mut time, batch.head(row).time);
            let offset = batch.offset(row);
            if offset < seen.end {
                return Err(Error::internal(format!(
                    "offset {offset} of topic {:?} was to be sealed behind offset {before}",
                    self.topic.name.as_str()
                )));
            }
            seen.end = offset + 1;
        }
        match batch.same_ingest_time() {
            Some(same) => widen(&mut ingest, same.micros()),
            None => {
                (0..batch.len()).for_each(|row| widen(&mut ingest, batch.ingest_time(row).micros()))
            }
        }
        (seen.time, seen.ingest) = (time, ingest);
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
        let says = schema::key_values(&self.topic, self.partition, seen.first, seen.end);
        let Summed { file, digest } = self.groups.finish(says)?;
        let bytes = file.finish().map_err(|error| not_written(&error))?;
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
pub(super) fn not_written(error: &(dyn std::error::Error + 'static)) -> Error {
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
