//! Columns back into packed rows.

use crate::ReadLimit;
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, BinaryArray, ListArray, PrimitiveArray, RecordBatch, StringArray};
use tidemill_types::{
    Batch, CommitSeq, Commits, Error, IngestTimes, Offsets, PackedRows, Result, RowHead, Timestamp,
};

/// Rows gathered until a limit.
pub(super) struct Rows {
    limit: ReadLimit,
    bytes: usize,
    rows: PackedRows,
    offsets: Vec<u64>,
    ingest_times: Vec<Timestamp>,
    commits: Vec<CommitSeq>,
}

impl Rows {
    pub(super) fn new(limit: ReadLimit) -> Self {
        Self {
            limit,
            bytes: 0,
            rows: PackedRows::default(),
            offsets: Vec::new(),
            ingest_times: Vec::new(),
            commits: Vec::new(),
        }
    }

    /// Takes rows; `false` when the limit is reached.
    pub(super) fn push(&mut self, columns: &RecordBatch) -> Result<bool> {
        let columns = Columns::of(columns)?;
        for row in 0..columns.offset.len() {
            let key = columns.key.is_valid(row).then(|| columns.key.value(row));
            let value = columns.value.get(row);
            let headers = columns.headers(row)?;
            let time = Timestamp::from_micros(columns.time.value(row));
            self.rows.push(time, key, value, headers)?;
            let bytes = self.rows.heads.last().copied().map_or(0, RowHead::bytes);
            if !self.offsets.is_empty() && self.bytes + bytes > self.limit.bytes {
                self.rows.heads.pop();
                return Ok(false);
            }
            self.bytes += bytes;
            self.offsets.push(columns.offset.value(row).cast_unsigned());
            self.ingest_times
                .push(Timestamp::from_micros(columns.ingest.value(row)));
            self.commits
                .push(CommitSeq(columns.commit.value(row).cast_unsigned()));
            if self.offsets.len() >= self.limit.events {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn into_batch(self) -> Batch {
        let heads: Vec<u8> = self
            .rows
            .heads
            .iter()
            .flat_map(|head| head.to_bytes())
            .collect();
        Batch::new(
            heads.into(),
            self.rows.payload.into(),
            Offsets::Each(self.offsets.into()),
            IngestTimes::Each(self.ingest_times.into()),
            Commits::Each(self.commits.into()),
        )
    }
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
    fn get(&self, row: usize) -> Option<&'a [u8]> {
        match self {
            Self::Text(all) => all.is_valid(row).then(|| all.value(row).as_bytes()),
            Self::Binary(all) => all.is_valid(row).then(|| all.value(row)),
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

    fn headers(&self, row: usize) -> Result<impl Iterator<Item = (&'a str, &'a [u8])> + use<'a>> {
        let ends = self.headers.value_offsets();
        let at =
            |n: i32| usize::try_from(n).map_err(|_| Error::corrupt("its headers are out of order"));
        let (from, to) = (at(ends[row])?, at(ends[row + 1])?);
        let (names, values) = (self.header_names, self.header_values);
        Ok((from..to).map(move |header| (names.value(header), values.value(header))))
    }
}
