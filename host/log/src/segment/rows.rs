//! Columns back into packed rows.

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, BinaryArray, ListArray, PrimitiveArray, RecordBatch, StringArray};
use std::ops::Range;
use tidemill_types::{
    Batch, CommitSeq, Commits, Error, IngestTimes, Offsets, ROW_HEAD_BYTES, Result, RowFlags,
    RowHead, Timestamp, encode_header,
};

/// Rows in the making, without gaps between them.
pub(super) struct Rows {
    heads: Vec<u8>,
    payload: Vec<u8>,
    offsets: Vec<u64>,
    ingest_times: Vec<Timestamp>,
    commits: Vec<CommitSeq>,
}

impl Rows {
    /// None, with room for so many and for so many bytes of values.
    pub(super) fn with_capacity(rows: usize, bytes: usize) -> Self {
        Self {
            heads: Vec::with_capacity(rows * ROW_HEAD_BYTES),
            // Keys and headers lie there too.
            payload: Vec::with_capacity(bytes + bytes / 8),
            offsets: Vec::with_capacity(rows),
            ingest_times: Vec::with_capacity(rows),
            commits: Vec::with_capacity(rows),
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Takes rows.
    pub(super) fn push(&mut self, columns: &RecordBatch) -> Result<()> {
        let columns = Columns::of(columns)?;
        let rows = columns.offset.len();
        match columns.headers_of(0..rows)?.is_empty() {
            true => self.push_whole(&columns)?,
            false => (0..rows).try_for_each(|row| self.push_one(&columns, row))?,
        }
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

    /// Rows without headers: their values as they lie, and behind them their keys.
    fn push_whole(&mut self, columns: &Columns<'_>) -> Result<()> {
        let (values, value_ends) = columns.value.parts();
        let values_at = here(&self.payload)?;
        self.payload.extend_from_slice(values);
        let (keys, key_ends) = parts(columns.key.value_data(), columns.key.value_offsets());
        let keys_at = here(&self.payload)?;
        self.payload.extend_from_slice(keys);
        here(&self.payload)?;
        let nowhere = || Error::corrupt("its values are out of order");
        let place = |ends: &[i32], row: usize, at: u32| {
            let from = u32::try_from(ends[row] - ends[0]).ok()?;
            let len = u32::try_from(ends[row + 1] - ends[row]).ok()?;
            Some((at + from, len))
        };
        for (row, time) in columns.time.values().iter().enumerate() {
            let (value_at, value_len) = place(value_ends, row, values_at).ok_or_else(nowhere)?;
            let (key_at, key_len) = place(key_ends, row, keys_at).ok_or_else(nowhere)?;
            let head = RowHead {
                time: *time,
                key_at,
                key_len,
                value_at,
                value_len,
                headers_len: 0,
                flags: columns.flags(row),
            };
            self.heads.extend_from_slice(&head.to_bytes());
        }
        Ok(())
    }

    fn push_one(&mut self, columns: &Columns<'_>, row: usize) -> Result<()> {
        let key_at = here(&self.payload)?;
        self.payload.extend_from_slice(columns.key.value(row));
        let value_at = here(&self.payload)?;
        self.payload.extend_from_slice(columns.value.get(row));
        let headers_at = here(&self.payload)?;
        for header in columns.headers_of(row..row + 1)? {
            let (name, value) = (&columns.header_names, &columns.header_values);
            encode_header(&mut self.payload, name.value(header), value.value(header))?;
        }
        let head = RowHead {
            time: columns.time.value(row),
            key_at,
            key_len: value_at - key_at,
            value_at,
            value_len: headers_at - value_at,
            headers_len: here(&self.payload)? - headers_at,
            flags: columns.flags(row),
        };
        self.heads.extend_from_slice(&head.to_bytes());
        Ok(())
    }

    pub(super) fn into_batch(self) -> Batch {
        let (first, last) = (self.offsets.first(), self.offsets.last());
        let dense = first.zip(last).filter(|(first, last)| {
            last.checked_sub(**first) == Some(self.offsets.len() as u64 - 1)
        });
        Batch::new(
            self.heads.into(),
            self.payload.into(),
            match dense {
                Some((first, _)) => Offsets::From(*first),
                None => Offsets::Each(self.offsets.into()),
            },
            IngestTimes::Each(self.ingest_times.into()),
            Commits::Each(self.commits.into()),
        )
    }
}

fn here(payload: &[u8]) -> Result<u32> {
    u32::try_from(payload.len()).map_err(|_| Error::corrupt("its pages are too large"))
}

/// The bytes of all values of an array, and where each ends.
fn parts<'a>(bytes: &'a [u8], ends: &'a [i32]) -> (&'a [u8], &'a [i32]) {
    let at = |end: Option<&i32>| end.and_then(|end| usize::try_from(*end).ok()).unwrap_or(0);
    let range = at(ends.first())..at(ends.last());
    (bytes.get(range).unwrap_or_default(), ends)
}

struct Columns<'a> {
    offset: &'a PrimitiveArray<Int64Type>,
    ingest: &'a PrimitiveArray<TimestampMicrosecondType>,
    time: &'a PrimitiveArray<TimestampMicrosecondType>,
    key: &'a BinaryArray,
    value: Values<'a>,
    headers: &'a ListArray,
    header_names: &'a StringArray,
    header_values: &'a BinaryArray,
    commit: &'a PrimitiveArray<Int64Type>,
}

enum Values<'a> {
    Text(&'a StringArray),
    Binary(&'a BinaryArray),
}

impl<'a> Values<'a> {
    /// The bytes of one; none of a tombstone.
    fn get(&self, row: usize) -> &'a [u8] {
        match self {
            Self::Text(all) => all.value(row).as_bytes(),
            Self::Binary(all) => all.value(row),
        }
    }

    fn is_null(&self, row: usize) -> bool {
        match self {
            Self::Text(all) => all.is_null(row),
            Self::Binary(all) => all.is_null(row),
        }
    }

    fn parts(&self) -> (&'a [u8], &'a [i32]) {
        match self {
            Self::Text(all) => parts(all.value_data(), all.value_offsets()),
            Self::Binary(all) => parts(all.value_data(), all.value_offsets()),
        }
    }
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
        let value = columns.column_by_name("value")?;
        let headers = columns.column_by_name("headers")?.as_list_opt::<i32>()?;
        let header = headers.values().as_struct_opt()?;
        Some(Self {
            offset: numbers(columns, "offset")?,
            ingest: numbers(columns, "ingest_ts")?,
            time: numbers(columns, "event_ts")?,
            key: columns.column_by_name("key")?.as_binary_opt()?,
            value: match value.as_string_opt() {
                Some(text) => Values::Text(text),
                None => Values::Binary(value.as_binary_opt()?),
            },
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

    fn flags(&self, row: usize) -> RowFlags {
        let mut flags = RowFlags::default();
        if self.key.is_valid(row) {
            flags = flags.with(RowFlags::KEY);
        }
        if self.value.is_null(row) {
            flags = flags.with(RowFlags::TOMBSTONE);
        }
        flags
    }
}
