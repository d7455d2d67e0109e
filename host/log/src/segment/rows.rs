//! Columns back into packed rows.

use super::pages::{self, Unpackers};
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int64Type, TimestampMicrosecondType};
use arrow_array::{
    Array, BinaryArray, BinaryViewArray, ListArray, PrimitiveArray, RecordBatch, StringArray,
};
use bytes::Bytes;
use parquet::file::metadata::ColumnChunkMetaData;
use std::ops::Range;
use tidemill_env::Buffers;
use tidemill_types::{
    Batch, CommitSeq, Commits, Error, IngestTimes, Offsets, ROW_HEAD_BYTES, Result, RowFlags,
    RowHead, Timestamp, encode_header,
};

/// Offset, ingest time and commit of an event, and its row head.
pub(super) const ROW_BYTES: usize = 24 + ROW_HEAD_BYTES;
/// What a page has beside a value: its length.
pub(super) const LENGTH: usize = 4;
/// What it has beside its values.
const LEVELS: usize = 16;
/// A key is looked for in so many bytes of its value.
const NEAR: usize = 128;
/// And in the values of so many rows, until one is found.
const LOOKS: u8 = 8;

/// The memory that rows are made in.
#[derive(Clone)]
pub(super) struct Memory {
    pub(super) buffers: Buffers,
    pub(super) unpackers: Unpackers,
}

/// Rows in the making. They begin with their values, where these were unpacked to; all else comes later.
pub(super) struct Rows {
    heads: Vec<u8>,
    payload: Vec<u8>,
    /// The values, if they have to be copied because headers stand behind them.
    unpacked: Option<Vec<u8>>,
    /// Where in the values of the first rows their keys were found.
    key_in_value: Option<usize>,
    looks: u8,
    offsets: Vec<u64>,
    ingest_times: Vec<Timestamp>,
    commits: Vec<CommitSeq>,
}

impl Rows {
    /// So many, with the values of these pages, which have so many bytes.
    ///
    /// # Errors
    /// `Corrupt` when the pages aren't what was written, or have other rows.
    pub(super) fn of_values(
        pages: Bytes,
        column: &ColumnChunkMetaData,
        path: &str,
        (count, bytes): (usize, usize),
        memory: &Memory,
    ) -> Result<Self> {
        let mut heads = memory.buffers.take(count * ROW_HEAD_BYTES);
        // Keys lie there, too, where they aren't part of their values.
        let room = bytes + bytes / 8 + count * LENGTH + LEVELS;
        let mut payload = memory.buffers.take(room);
        let each = |value: Option<Range<usize>>| {
            let head = match value {
                Some(value) => RowHead {
                    value_at: u32::try_from(value.start).map_err(|_| too_large())?,
                    value_len: u32::try_from(value.len()).map_err(|_| too_large())?,
                    ..RowHead::default()
                },
                None => RowHead {
                    flags: RowFlags::TOMBSTONE,
                    ..RowHead::default()
                },
            };
            heads.extend_from_slice(&head.to_bytes());
            match heads.len() > count * ROW_HEAD_BYTES {
                true => Err(other_rows()),
                false => Ok(()),
            }
        };
        pages::unpack(pages, column, path, &memory.unpackers, &mut payload, each)?;
        if heads.len() != count * ROW_HEAD_BYTES {
            return Err(other_rows());
        }
        Ok(Self {
            heads,
            payload,
            unpacked: None,
            key_in_value: None,
            looks: LOOKS,
            offsets: Vec::with_capacity(count),
            ingest_times: Vec::with_capacity(count),
            commits: Vec::with_capacity(count),
        })
    }

    /// How many have their other columns.
    pub(super) fn len(&self) -> usize {
        self.offsets.len()
    }

    /// The other columns of the next rows.
    pub(super) fn push(&mut self, columns: &RecordBatch, memory: &Memory) -> Result<()> {
        let columns = Columns::of(columns)?;
        let (first, rows) = (self.len(), columns.offset.len());
        let headers = columns.headers_of(0..rows)?;
        if first == 0 && !headers.is_empty() {
            let room = self.payload.capacity();
            let unpacked = std::mem::replace(&mut self.payload, memory.buffers.take(room));
            self.unpacked = Some(unpacked);
        }
        let mut heads = std::mem::take(&mut self.heads);
        let open = heads.get_mut(first * ROW_HEAD_BYTES..).unwrap_or_default();
        let open = open.chunks_exact_mut(ROW_HEAD_BYTES).take(rows);
        let times = columns.time.values().iter();
        for ((row, open), time) in open.enumerate().zip(times) {
            let head = RowHead {
                time: *time,
                ..RowHead::read(open, 0)
            };
            let of_row = columns.headers_of(row..row + 1)?;
            let head = if self.unpacked.is_none() && of_row.is_empty() {
                self.with_key(head, columns.key_of(row))?
            } else {
                self.copied(head, &columns, row, of_row)?
            };
            open.copy_from_slice(&head.to_bytes());
        }
        self.heads = heads;
        let offsets = columns.offset.values().iter();
        self.offsets.extend(offsets.map(|it| it.cast_unsigned()));
        let times = columns.ingest.values().iter();
        self.ingest_times
            .extend(times.map(|it| Timestamp::from_micros(*it)));
        let commits = columns.commit.values().iter();
        self.commits
            .extend(commits.map(|it| CommitSeq(it.cast_unsigned())));
        Ok(())
    }

    /// A row whose value stays where it is: so does its key, if that is part of it.
    fn with_key(&mut self, head: RowHead, key: Option<&[u8]>) -> Result<RowHead> {
        let Some(key) = key else { return Ok(head) };
        let head = RowHead {
            flags: head.flags.with(RowFlags::KEY),
            key_len: u32::try_from(key.len()).map_err(|_| too_large())?,
            ..head
        };
        let from = head.value_at as usize;
        let value = self.payload.get(from..from + head.value_len as usize);
        let value = value.unwrap_or_default();
        if self.key_in_value.is_none() && self.looks > 0 {
            self.looks -= 1;
            self.key_in_value = find(value, key);
        }
        let place = self.key_in_value;
        let place = place.filter(|place| value.get(*place..*place + key.len()) == Some(key));
        let key_at = match place {
            Some(place) => u32::try_from(from + place).map_err(|_| too_large())?,
            None => {
                let at = here(&self.payload)?;
                self.payload.extend_from_slice(key);
                at
            }
        };
        Ok(RowHead { key_at, ..head })
    }

    /// A row whose value is copied, so that its headers stand behind it.
    fn copied(
        &mut self,
        head: RowHead,
        columns: &Columns<'_>,
        row: usize,
        headers: Range<usize>,
    ) -> Result<RowHead> {
        let key_at = here(&self.payload)?;
        let key = columns.key_of(row);
        self.payload.extend_from_slice(key.unwrap_or_default());
        let value_at = here(&self.payload)?;
        let from = head.value_at as usize;
        let value = from..from + head.value_len as usize;
        match &self.unpacked {
            Some(unpacked) => {
                let value = unpacked.get(value).ok_or_else(too_large)?;
                self.payload.extend_from_slice(value);
            }
            None if value.end <= self.payload.len() => self.payload.extend_from_within(value),
            None => return Err(too_large()),
        }
        let headers_at = here(&self.payload)?;
        for header in headers {
            let (name, value) = (&columns.header_names, &columns.header_values);
            encode_header(&mut self.payload, name.value(header), value.value(header))?;
        }
        let mut flags = head.flags;
        if key.is_some() {
            flags = flags.with(RowFlags::KEY);
        }
        Ok(RowHead {
            key_at,
            key_len: value_at - key_at,
            value_at,
            headers_len: here(&self.payload)? - headers_at,
            flags,
            ..head
        })
    }

    pub(super) fn into_batch(self, memory: &Memory) -> Batch {
        let (first, last) = (self.offsets.first(), self.offsets.last());
        let dense = first.zip(last).filter(|(first, last)| {
            last.checked_sub(**first) == Some(self.offsets.len() as u64 - 1)
        });
        if let Some(unpacked) = self.unpacked {
            memory.buffers.give_back(unpacked);
        }
        Batch::new(
            memory.buffers.lend(self.heads),
            memory.buffers.lend(self.payload),
            match dense {
                Some((first, _)) => Offsets::From(*first),
                None => Offsets::Each(self.offsets.into()),
            },
            IngestTimes::Each(self.ingest_times.into()),
            Commits::Each(self.commits.into()),
        )
    }
}

/// Where a key lies in the first part of its value.
fn find(value: &[u8], key: &[u8]) -> Option<usize> {
    let near = &value[..value.len().min(NEAR)];
    let mut places = near.windows(key.len().max(1));
    places.position(|part| part == key)
}

fn here(payload: &[u8]) -> Result<u32> {
    u32::try_from(payload.len()).map_err(|_| too_large())
}

fn other_rows() -> Error {
    Error::corrupt("its pages have other rows than it says")
}

fn too_large() -> Error {
    Error::corrupt("its pages are too large")
}

/// All columns but values.
struct Columns<'a> {
    offset: &'a PrimitiveArray<Int64Type>,
    ingest: &'a PrimitiveArray<TimestampMicrosecondType>,
    time: &'a PrimitiveArray<TimestampMicrosecondType>,
    key: &'a BinaryViewArray,
    headers: &'a ListArray,
    header_names: &'a StringArray,
    header_values: &'a BinaryArray,
    commit: &'a PrimitiveArray<Int64Type>,
}

impl<'a> Columns<'a> {
    fn of(columns: &'a RecordBatch) -> Result<Self> {
        Self::find(columns).ok_or_else(|| Error::corrupt("it has other columns than were written"))
    }

    fn find(columns: &'a RecordBatch) -> Option<Self> {
        fn numbers<'a, T: ArrowPrimitiveType>(
            columns: &'a RecordBatch,
            name: &str,
        ) -> Option<&'a PrimitiveArray<T>> {
            columns
                .column_by_name(name)?
                .as_primitive_opt()
                .filter(|numbers| numbers.null_count() == 0)
        }
        let headers = columns.column_by_name("headers")?.as_list_opt::<i32>()?;
        let header = headers.values().as_struct_opt()?;
        Some(Self {
            offset: numbers(columns, "offset")?,
            ingest: numbers(columns, "ingest_ts")?,
            time: numbers(columns, "event_ts")?,
            key: columns.column_by_name("key")?.as_binary_view_opt()?,
            headers,
            header_names: header.column_by_name("name")?.as_string_opt()?,
            header_values: header.column_by_name("value")?.as_binary_opt()?,
            commit: numbers(columns, "commit")?,
        })
    }

    /// Which headers some rows have.
    fn headers_of(&self, rows: Range<usize>) -> Result<Range<usize>> {
        let ends = self.headers.value_offsets();
        let at =
            |n: i32| usize::try_from(n).map_err(|_| Error::corrupt("its headers are out of order"));
        Ok(at(ends[rows.start])?..at(ends[rows.end])?)
    }

    fn key_of(&self, row: usize) -> Option<&'a [u8]> {
        self.key.is_valid(row).then(|| self.key.value(row))
    }
}
