//! Columns back into packed rows.

use crate::buffers::Buffers;
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int64Type, TimestampMicrosecondType};
use arrow_array::{
    Array, BinaryArray, BinaryViewArray, ListArray, PrimitiveArray, RecordBatch, StringArray,
    StringViewArray,
};
use arrow_buffer::Buffer;
use std::ops::Range;
use tidemill_types::{
    Batch, CommitSeq, Commits, Error, IngestTimes, Offsets, ROW_HEAD_BYTES, Result, RowFlags,
    RowHead, Timestamp, encode_header,
};

/// Values of a page that lie no farther apart are copied together: the length of each is between them.
const GAP: usize = 8;

/// Rows in the making, without gaps between them.
#[derive(Default)]
pub(super) struct Rows {
    heads: Vec<u8>,
    payload: Vec<u8>,
    offsets: Vec<u64>,
    ingest_times: Vec<Timestamp>,
    commits: Vec<CommitSeq>,
}

impl Rows {
    /// None, with room for so many and for so many bytes of values.
    pub(super) fn with_room(rows: usize, bytes: usize, buffers: &Buffers) -> Self {
        Self {
            heads: Vec::with_capacity(rows * ROW_HEAD_BYTES),
            // Keys, headers and the lengths of values lie there too.
            payload: buffers.take(bytes + bytes / 8 + rows * GAP),
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

    /// Rows without headers: their values as they lie in their pages, and behind them their keys.
    fn push_whole(&mut self, columns: &Columns<'_>) -> Result<()> {
        let (views, pages) = columns.value.parts();
        let first = self.heads.len();
        let mut stretch = Stretch::default();
        for (row, time) in columns.time.values().iter().enumerate() {
            let view = View::of(views[row]);
            let value_at = stretch.take(&mut self.payload, view, pages, || columns.value.get(row));
            let head = RowHead {
                time: *time,
                value_at: u32::try_from(value_at).map_err(|_| too_large())?,
                value_len: view.length,
                flags: columns.flags(row),
                ..RowHead::default()
            };
            self.heads.extend_from_slice(&head.to_bytes());
        }
        stretch.copy(&mut self.payload);
        let heads = self.heads[first..].chunks_exact_mut(ROW_HEAD_BYTES);
        for (row, head) in heads.enumerate() {
            let key = columns.key.value(row);
            let keyed = RowHead {
                key_at: here(&self.payload)?,
                key_len: u32::try_from(key.len()).map_err(|_| too_large())?,
                ..RowHead::read(head, 0)
            };
            self.payload.extend_from_slice(key);
            head.copy_from_slice(&keyed.to_bytes());
        }
        here(&self.payload).map(drop)
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

    pub(super) fn into_batch(self, buffers: &Buffers) -> Batch {
        let (first, last) = (self.offsets.first(), self.offsets.last());
        let dense = first.zip(last).filter(|(first, last)| {
            last.checked_sub(**first) == Some(self.offsets.len() as u64 - 1)
        });
        Batch::new(
            self.heads.into(),
            buffers.lend(self.payload),
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
    u32::try_from(payload.len()).map_err(|_| too_large())
}

fn too_large() -> Error {
    Error::corrupt("its pages are too large")
}

/// Values of at most so many bytes lie in their views.
const INLINE: u32 = 12;

/// Where a value lies, by the layout of Arrow's views.
#[derive(Clone, Copy)]
struct View {
    length: u32,
    buffer: u32,
    offset: u32,
}

impl View {
    fn of(view: u128) -> Self {
        let bytes = view.to_le_bytes();
        let field = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Self {
            length: field(0),
            buffer: field(8),
            offset: field(12),
        }
    }
}

/// Values that lie one behind the other in a page, to be copied with one copy.
#[derive(Default)]
struct Stretch<'a> {
    page: &'a [u8],
    buffer: u32,
    from: usize,
    to: usize,
}

impl<'a> Stretch<'a> {
    /// Where in the payload a value will lie: in this stretch, in one that begins with it, or, if the page
    /// isn't known because the value is short enough to lie in the view itself, by itself.
    fn take(
        &mut self,
        payload: &mut Vec<u8>,
        view: View,
        pages: &'a [Buffer],
        value: impl Fn() -> &'a [u8],
    ) -> usize {
        if view.length <= INLINE {
            if view.length > 0 {
                self.copy(payload);
            }
            let at = payload.len();
            payload.extend_from_slice(value());
            return at;
        }
        let (from, len) = (view.offset as usize, view.length as usize);
        let goes_on =
            self.to > 0 && self.buffer == view.buffer && (self.to..=self.to + GAP).contains(&from);
        if !goes_on {
            self.copy(payload);
            // An array's views lie within its buffers, or it couldn't have been made.
            let page = pages.get(view.buffer as usize);
            self.page = page.map_or(&[], Buffer::as_slice);
            (self.buffer, self.from) = (view.buffer, from);
        }
        self.to = from + len;
        payload.len() + from - self.from
    }

    /// Copies what was taken.
    fn copy(&mut self, payload: &mut Vec<u8>) {
        payload.extend_from_slice(self.page.get(self.from..self.to).unwrap_or_default());
        *self = Self::default();
    }
}

struct Columns<'a> {
    offset: &'a PrimitiveArray<Int64Type>,
    ingest: &'a PrimitiveArray<TimestampMicrosecondType>,
    time: &'a PrimitiveArray<TimestampMicrosecondType>,
    key: &'a BinaryViewArray,
    value: Values<'a>,
    headers: &'a ListArray,
    header_names: &'a StringArray,
    header_values: &'a BinaryArray,
    commit: &'a PrimitiveArray<Int64Type>,
}

enum Values<'a> {
    Text(&'a StringViewArray),
    Binary(&'a BinaryViewArray),
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

    /// Where each value lies, and the pages.
    fn parts(&self) -> (&'a [u128], &'a [Buffer]) {
        match self {
            Self::Text(all) => (all.views(), all.data_buffers()),
            Self::Binary(all) => (all.views(), all.data_buffers()),
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
            key: columns.column_by_name("key")?.as_binary_view_opt()?,
            value: match value.as_string_view_opt() {
                Some(text) => Values::Text(text),
                None => Values::Binary(value.as_binary_view_opt()?),
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
