//! Ranges of a segment back into packed rows: only the pages that are needed are fetched and decoded.

use super::rows::Rows;
use super::{SegmentMeta, schema};
use crate::{ReadLimit, TimeOf};
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use bytes::Bytes;
use futures::future::try_join_all;
use parquet::DecodeResult;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use parquet::arrow::push_decoder::ParquetPushDecoderBuilder;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataPushDecoder};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::Statistics;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tidemill_env::objects::Objects;
use tidemill_types::{Batch, Error, Result, Timestamp};

/// Bytes at the end of a file that are fetched at once: footer and page index of most segments.
const TAIL_BYTES: u64 = 64 << 10;
/// Ranges closer than this are fetched as one: a request costs more than these bytes.
const GAP_BYTES: u64 = 256 << 10;
/// Most event bytes of one answer, whatever the limit says; a packed block has a largest size.
const ANSWER_BYTES: usize = 16 << 20;
/// The code of the error for an object that isn't there: compaction or retention may have taken it
/// away while it was read.
pub(crate) const ABSENT: &str = "segment-absent";
/// Rows decoded at a time.
const ROWS: usize = 1024;

/// Events of a segment with offsets from `from` on: at least one if there is one, else as many as the
/// limit allows or fewer; empty only if none has such an offset.
///
/// # Errors
/// `Corrupt` when the object is absent or isn't what was written; `Unavailable`.
pub(crate) async fn read(
    objects: &Objects,
    meta: &SegmentMeta,
    from: u64,
    limit: ReadLimit,
) -> Result<Vec<Batch>> {
    let file = File::open(objects, meta).await?;
    let Some((group, row)) = file.locate(from).await? else {
        return Ok(Vec::new());
    };
    let limit = ReadLimit {
        events: limit.events.max(1),
        bytes: limit.bytes.min(ANSWER_BYTES),
    };
    let wanted = rows_wanted(&file.value_pages(group)?, row, limit);
    let mut rows = Rows::new(limit);
    let columns = &schema::COLUMNS[schema::OFFSET..];
    file.decode(group, row..row + wanted, columns, |columns| {
        rows.push(columns)
    })
    .await?;
    Ok(vec![rows.into_batch()])
}

/// The first offset from `from` on whose time of that kind is at least `time`.
///
/// # Errors
/// As [`read`].
pub(crate) async fn offset_at(
    objects: &Objects,
    meta: &SegmentMeta,
    from: u64,
    time: Timestamp,
    time_of: TimeOf,
) -> Result<Option<u64>> {
    let time = time.micros();
    let (latest, column) = match time_of {
        TimeOf::Event => (meta.max_time, schema::EVENT_TS),
        TimeOf::Ingest => (meta.max_ingest, schema::INGEST_TS),
    };
    if latest < time || meta.end <= from {
        return Ok(None);
    }
    let file = File::open(objects, meta).await?;
    for group in 0..file.metadata.num_row_groups() {
        let (_, last_offset) = file.bounds(group, schema::OFFSET)?;
        let (_, latest) = file.bounds(group, column)?;
        if last_offset.cast_unsigned() < from || latest < time {
            continue;
        }
        let mut found = None;
        let columns = [schema::COLUMNS[schema::OFFSET], schema::COLUMNS[column]];
        file.decode(group, 0..file.rows(group), &columns, |columns| {
            let offsets = columns.column(0).as_primitive_opt::<Int64Type>();
            let times = columns
                .column(1)
                .as_primitive_opt::<TimestampMicrosecondType>();
            let (offsets, times) = offsets
                .zip(times)
                .ok_or_else(|| Error::corrupt("it has other columns"))?;
            let mut events = offsets.values().iter().zip(times.values());
            found = events
                .find(|(offset, at)| offset.cast_unsigned() >= from && **at >= time)
                .map(|(offset, _)| offset.cast_unsigned());
            Ok(found.is_none())
        })
        .await?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Key and offset of each event from an offset on, in order, until `each` says `false`. Nothing else
/// is fetched.
///
/// # Errors
/// As [`read`].
pub(crate) async fn scan_keys(
    objects: &Objects,
    meta: &SegmentMeta,
    from: u64,
    mut each: impl FnMut(Option<&[u8]>, u64) -> bool,
) -> Result<bool> {
    let file = File::open(objects, meta).await?;
    let columns = [
        schema::COLUMNS[schema::OFFSET],
        schema::COLUMNS[schema::KEY],
    ];
    let mut more = true;
    for group in 0..file.metadata.num_row_groups() {
        let (_, last) = file.bounds(group, schema::OFFSET)?;
        if last.cast_unsigned() < from {
            continue;
        }
        file.decode(group, 0..file.rows(group), &columns, |columns| {
            let offsets = columns.column(0).as_primitive_opt::<Int64Type>();
            let keys = columns.column(1).as_binary_opt::<i32>();
            let (offsets, keys) = offsets
                .zip(keys)
                .ok_or_else(|| Error::corrupt("it has other columns"))?;
            let rows = offsets.values().iter().zip(keys.iter());
            let mut rows = rows.map(|(offset, key)| (offset.cast_unsigned(), key));
            more = rows.all(|(offset, key)| offset < from || each(key, offset));
            Ok(more)
        })
        .await?;
        if !more {
            break;
        }
    }
    Ok(more)
}

/// What the pages of a segment come to when they are unpacked; only its footer is fetched.
///
/// # Errors
/// As [`read`].
pub(crate) async fn unpacked_bytes(objects: &Objects, meta: &SegmentMeta) -> Result<u64> {
    let file = File::open(objects, meta).await?;
    let groups = file.metadata.row_groups().iter();
    Ok(groups
        .map(|group| group.total_byte_size().max(0).cast_unsigned())
        .sum())
}

/// A run of rows of the value column and the event bytes in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Page {
    first: usize,
    rows: usize,
    bytes: usize,
}

/// How many rows from `from` on will about fill the limit; at least one.
fn rows_wanted(pages: &[Page], from: usize, limit: ReadLimit) -> usize {
    let (mut rows, mut bytes) = (0, 0);
    for page in pages.iter().filter(|page| page.first + page.rows > from) {
        let here = page.first + page.rows - page.first.max(from);
        let each = page.bytes / page.rows.max(1);
        let fitting = limit
            .bytes
            .saturating_sub(bytes)
            .checked_div(each)
            .unwrap_or(here)
            .min(here);
        rows += fitting;
        bytes += fitting * each;
        if fitting < here || rows >= limit.events {
            break;
        }
    }
    rows.min(limit.events).max(1)
}

/// An opened segment.
struct File<'a> {
    objects: &'a Objects,
    meta: &'a SegmentMeta,
    metadata: Arc<ParquetMetaData>,
}

impl<'a> File<'a> {
    async fn open(objects: &'a Objects, meta: &'a SegmentMeta) -> Result<Self> {
        let range = meta.bytes.saturating_sub(TAIL_BYTES)..meta.bytes;
        let tail = fetch(objects, meta, std::slice::from_ref(&range)).await?;
        let mut decoder = guard(meta, || {
            let mut decoder = ParquetMetaDataPushDecoder::try_new(meta.bytes)?
                .with_page_index_policy(PageIndexPolicy::Required);
            decoder.push_ranges(vec![range], tail)?;
            Ok(decoder)
        })?;
        loop {
            match guard(meta, || decoder.try_decode())? {
                DecodeResult::Data(metadata) => {
                    return Ok(Self {
                        objects,
                        meta,
                        metadata: Arc::new(metadata),
                    });
                }
                DecodeResult::NeedsData(ranges) => {
                    let bytes = fetch(objects, meta, &ranges).await?;
                    guard(meta, || decoder.push_ranges(ranges, bytes))?;
                }
                DecodeResult::Finished => return Err(corrupt(meta, "it has no footer")),
            }
        }
    }

    fn rows(&self, group: usize) -> usize {
        usize::try_from(self.metadata.row_group(group).num_rows()).unwrap_or(0)
    }

    /// Least and greatest of a column of integers.
    fn bounds(&self, group: usize, column: usize) -> Result<(i64, i64)> {
        let column = self.metadata.row_group(group).columns().get(column);
        match column.and_then(|column| column.statistics()) {
            Some(Statistics::Int64(values)) => {
                values.min_opt().copied().zip(values.max_opt().copied())
            }
            _ => None,
        }
        .ok_or_else(|| corrupt(self.meta, "it has no statistics of its offsets and times"))
    }

    /// Row group and row of the first event from an offset on.
    async fn locate(&self, from: u64) -> Result<Option<(usize, usize)>> {
        for group in 0..self.metadata.num_row_groups() {
            let (first, last) = self.bounds(group, schema::OFFSET)?;
            let (first, last) = (first.cast_unsigned(), last.cast_unsigned());
            if last < from {
                continue;
            }
            let before = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
            if before == 0 || (last - first).checked_add(1) == Some(self.rows(group) as u64) {
                return Ok(Some((group, before)));
            }
            return self.search(group, from).await.map(|row| Some((group, row)));
        }
        Ok(None)
    }

    /// The row of the first event from an offset on, where there are gaps between offsets.
    async fn search(&self, group: usize, from: u64) -> Result<usize> {
        let mut row = self.page_of(group, from);
        let rows = row..self.rows(group);
        file_order(rows.clone(), self.meta)?;
        self.decode(group, rows, &[schema::COLUMNS[schema::OFFSET]], |columns| {
            let offsets = columns.column(0).as_primitive_opt::<Int64Type>();
            let offsets = offsets
                .ok_or_else(|| Error::corrupt("it has other columns"))?
                .values();
            let before = offsets.partition_point(|offset| offset.cast_unsigned() < from);
            row += before;
            Ok(before == offsets.len())
        })
        .await?;
        Ok(row)
    }

    /// First row of the page in which the first event from an offset on lies.
    fn page_of(&self, group: usize, from: u64) -> usize {
        let index = self.metadata.page_index_for_row_group(group);
        let Some((ColumnIndexMetaData::INT64(offsets), pages)) = index
            .column_index(schema::OFFSET)
            .zip(index.page_locations(schema::OFFSET))
        else {
            return 0;
        };
        let last = offsets
            .max_values()
            .partition_point(|last| last.cast_unsigned() < from);
        pages
            .get(last)
            .and_then(|page| usize::try_from(page.first_row_index).ok())
            .unwrap_or(0)
    }

    /// The pages of the value column, with the bytes of keys and headers spread evenly over the rows.
    fn value_pages(&self, group: usize) -> Result<Vec<Page>> {
        let rows = self.rows(group);
        let index = self.metadata.page_index_for_row_group(group);
        let value = index.offset_index(schema::VALUE);
        let value =
            value.ok_or_else(|| corrupt(self.meta, "it has no page index of its values"))?;
        let unsigned = |n: i64| usize::try_from(n).unwrap_or(0);
        let beside: usize = (self.metadata.row_group(group).columns().iter().enumerate())
            .filter(|(column, _)| *column != schema::VALUE)
            .filter_map(|(_, column)| column.unencoded_byte_array_data_bytes().map(unsigned))
            .sum();
        let starts = value
            .page_locations()
            .iter()
            .map(|page| unsigned(page.first_row_index));
        let ends = starts.clone().skip(1).chain([rows]);
        let sizes = value.unencoded_byte_array_data_bytes();
        let pages = starts.zip(ends).enumerate().map(|(page, (first, end))| {
            let rows_here = end.saturating_sub(first);
            let values = sizes
                .and_then(|sizes| sizes.get(page))
                .map_or(0, |size| unsigned(*size));
            Page {
                first,
                rows: rows_here,
                bytes: values + beside / rows.max(1) * rows_here,
            }
        });
        Ok(pages.collect())
    }

    /// Decodes some rows of a row group and hands them on until `each` has enough.
    async fn decode(
        &self,
        group: usize,
        rows: Range<usize>,
        columns: &[&str],
        mut each: impl FnMut(&RecordBatch) -> Result<bool>,
    ) -> Result<()> {
        let all = self.rows(group);
        file_order(rows.start..all, self.meta)?;
        let rows = rows.start..rows.end.min(all);
        let selection = RowSelection::from(vec![
            RowSelector::skip(rows.start),
            RowSelector::select(rows.len()),
            RowSelector::skip(all - rows.end),
        ]);
        let mut decoder = guard(self.meta, || {
            let builder = ParquetPushDecoderBuilder::try_new_decoder(self.metadata.clone())?;
            let schema = self.metadata.file_metadata().schema_descr();
            let wanted = (0..schema.num_columns())
                .filter(|leaf| columns.contains(&schema.get_column_root(*leaf).name()));
            builder
                .with_row_groups(vec![group])
                .with_row_selection(selection)
                .with_projection(ProjectionMask::leaves(schema, wanted.collect::<Vec<_>>()))
                .with_batch_size(ROWS.min(rows.len()).max(1))
                .build()
        })?;
        loop {
            match guard(self.meta, || decoder.try_decode())? {
                DecodeResult::Data(columns) => {
                    if !each(&columns).map_err(|error| error.at(&self.meta.path))? {
                        return Ok(());
                    }
                }
                DecodeResult::NeedsData(ranges) => {
                    let bytes = fetch(self.objects, self.meta, &ranges).await?;
                    guard(self.meta, || decoder.push_ranges(ranges, bytes))?;
                }
                DecodeResult::Finished => return Ok(()),
            }
        }
    }
}

fn file_order(rows: Range<usize>, meta: &SegmentMeta) -> Result<()> {
    match rows.start < rows.end {
        true => Ok(()),
        false => Err(corrupt(
            meta,
            "its row groups and its page index contradict each other",
        )),
    }
}

/// Fetches ranges of the object, neighbouring ones in one request.
async fn fetch(objects: &Objects, meta: &SegmentMeta, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
    let merged = merge(ranges);
    let parts = try_join_all(
        merged
            .iter()
            .map(|range| objects.get_range(&meta.path, range.clone())),
    )
    .await;
    let parts = parts.map_err(|error| match error.kind {
        tidemill_types::ErrorKind::NotFound => {
            let mut error = corrupt(meta, "the manifest names it, but the object is not there");
            error.code = ABSENT;
            error
        }
        _ => error,
    })?;
    let cut = |wanted: &Range<u64>| {
        let at = merged
            .iter()
            .position(|range| range.start <= wanted.start && wanted.end <= range.end)?;
        let start = usize::try_from(wanted.start - merged[at].start).ok()?;
        let end = usize::try_from(wanted.end - merged[at].start).ok()?;
        Some(parts[at].slice(start..end))
    };
    let whole: Option<Vec<Bytes>> = ranges.iter().map(cut).collect();
    whole.ok_or_else(|| corrupt(meta, "its page index points outside of it"))
}

fn merge(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted = ranges.to_vec();
    sorted.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match merged.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(GAP_BYTES) => {
                last.end = last.end.max(range.end)
            }
            _ => merged.push(range),
        }
    }
    merged
}

/// Runs the decoder on bytes that may be damaged: its errors and its panics say so.
fn guard<T>(
    meta: &SegmentMeta,
    decode: impl FnOnce() -> Result<T, parquet::errors::ParquetError>,
) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(decode)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(corrupt(meta, &error.to_string())),
        Err(_) => Err(corrupt(meta, "its bytes make no sense")),
    }
}

fn corrupt(meta: &SegmentMeta, what: &str) -> Error {
    Error::corrupt(format!("segment {:?} can't be read: {what}", meta.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_merged_when_near() {
        let far = GAP_BYTES * 10;
        assert_eq!(
            merge(&[far..far + 5, 10..20, 0..5, far + 2..far + 9]),
            [0..20, far..far + 9]
        );
        assert_eq!(merge(&[]), []);
    }

    #[test]
    fn rows_are_chosen_by_the_bytes_of_their_pages() {
        let pages = [
            Page {
                first: 0,
                rows: 100,
                bytes: 1000,
            },
            Page {
                first: 100,
                rows: 10,
                bytes: 10_000,
            },
        ];
        let wanted = |from, events, bytes| rows_wanted(&pages, from, ReadLimit { events, bytes });
        assert_eq!(wanted(0, 50, 100_000), 50, "by events");
        assert_eq!(wanted(0, 1000, 100), 10, "by bytes");
        assert_eq!(wanted(90, 1000, 3100), 13, "over the border of two pages");
        assert_eq!(wanted(105, 1000, 1), 1, "at least one");
        assert_eq!(wanted(90, 1000, usize::MAX), 20, "all that is there");
        assert_eq!(
            rows_wanted(
                &[Page {
                    first: 0,
                    rows: 5,
                    bytes: 0
                }],
                1,
                ReadLimit {
                    events: 9,
                    bytes: 0
                }
            ),
            4
        );
    }
}
