//! An opened segment: where its events lie, and its columns decoded.

use super::fetch::Fetch;
use super::rows::{LENGTH, ROW_BYTES};
use super::{SegmentMeta, schema};
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_schema::{DataType, Field, Schema};
use bytes::Bytes;
use parquet::DecodeResult;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, RowSelection, RowSelector,
};
use parquet::arrow::push_decoder::{ParquetPushDecoder, ParquetPushDecoderBuilder};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataPushDecoder,
};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::Statistics;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tidemill_types::{Error, Result};

/// A footer, and how its columns are decoded.
pub(super) type Footer = ArrowReaderMetadata;

/// Bytes at the end of a file that are fetched at once: footer and page index of most segments.
const TAIL_BYTES: u64 = 64 << 10;
/// Rows decoded at a time.
const ROWS: usize = 4096;
/// What most units come to: a page of values, which has this many bytes with the length of each value.
const UNIT_BYTES: usize = 1 << 20;
/// Pages are decoded together until they have this many event bytes, or rows. One full page is enough.
const ENOUGH_BYTES: usize = UNIT_BYTES / 4 * 3;
/// See [`ENOUGH_BYTES`].
const UNIT_ROWS: usize = 16 << 10;

/// What is decoded together: whole pages of values.
#[derive(Clone)]
pub(super) struct Unit {
    /// Rows of the row group.
    pub(super) rows: Range<usize>,
    /// Bytes of their values.
    pub(super) bytes: usize,
    /// Where the pages lie in the file.
    pub(super) pages: Range<u64>,
}

impl Unit {
    /// About what it takes in memory.
    pub(super) fn memory(&self) -> usize {
        self.bytes + self.rows.len() * (ROW_BYTES + LENGTH)
    }
}

/// An opened segment.
pub(super) struct File<'a> {
    fetch: &'a Fetch,
    meta: &'a SegmentMeta,
    footer: Footer,
}

/// Fetches and reads a footer with its page index.
pub(super) async fn footer(fetch: &Fetch, meta: &SegmentMeta) -> Result<Footer> {
    let range = meta.bytes.saturating_sub(TAIL_BYTES)..meta.bytes;
    let tail = fetch.ranges(meta, std::slice::from_ref(&range)).await?;
    let mut decoder = guard(&meta.path, || {
        let mut decoder = ParquetMetaDataPushDecoder::try_new(meta.bytes)?
            .with_page_index_policy(PageIndexPolicy::Required);
        decoder.push_ranges(vec![range], tail)?;
        Ok(decoder)
    })?;
    loop {
        match guard(&meta.path, || decoder.try_decode())? {
            DecodeResult::Data(footer) => return guard(&meta.path, || as_views(footer)),
            DecodeResult::NeedsData(ranges) => {
                let bytes = fetch.ranges(meta, &ranges).await?;
                guard(&meta.path, || decoder.push_ranges(ranges, bytes))?;
            }
            DecodeResult::Finished => return Err(corrupt(meta, "it has no footer")),
        }
    }
}

/// Keys are decoded to views into the pages they lie in.
fn as_views(footer: ParquetMetaData) -> Result<Footer, ParquetError> {
    let footer = Arc::new(footer);
    let stored = ArrowReaderMetadata::try_new(footer.clone(), ArrowReaderOptions::new())?;
    let viewed = |field: &Arc<Field>| {
        let is_ours = |column: usize| field.name() == schema::COLUMNS[column];
        let view = match field.data_type() {
            DataType::Binary if is_ours(schema::KEY) => DataType::BinaryView,
            _ => return field.clone(),
        };
        Arc::new(field.as_ref().clone().with_data_type(view))
    };
    let fields: Vec<_> = stored.schema().fields().iter().map(viewed).collect();
    let options = ArrowReaderOptions::new().with_schema(Arc::new(Schema::new(fields)));
    ArrowReaderMetadata::try_new(footer, options)
}

impl<'a> File<'a> {
    pub(super) fn new(fetch: &'a Fetch, meta: &'a SegmentMeta, footer: Footer) -> Self {
        Self {
            fetch,
            meta,
            footer,
        }
    }

    fn parquet(&self) -> &ParquetMetaData {
        self.footer.metadata()
    }

    /// What its pages come to when they are unpacked.
    pub(super) fn unpacked_bytes(&self) -> u64 {
        let groups = self.parquet().row_groups().iter();
        groups
            .map(|group| group.total_byte_size().max(0).cast_unsigned())
            .sum()
    }

    /// Number of row groups.
    pub(super) fn groups(&self) -> usize {
        self.parquet().num_row_groups()
    }

    /// Rows of a row group.
    pub(super) fn rows(&self, group: usize) -> usize {
        usize::try_from(self.parquet().row_group(group).num_rows()).unwrap_or(0)
    }

    /// What the footer says of a column.
    pub(super) fn column(&self, group: usize, column: usize) -> Result<&ColumnChunkMetaData> {
        let column = self.parquet().row_group(group).columns().get(column);
        column.ok_or_else(|| corrupt(self.meta, CONTRADICTION))
    }

    /// Least and greatest of a column of integers.
    pub(super) fn bounds(&self, group: usize, column: usize) -> Result<(i64, i64)> {
        match self.column(group, column)?.statistics() {
            Some(Statistics::Int64(values)) => {
                values.min_opt().copied().zip(values.max_opt().copied())
            }
            _ => None,
        }
        .ok_or_else(|| corrupt(self.meta, "it has no statistics of its offsets and times"))
    }

    /// Row group and row of the first event from an offset on.
    pub(super) async fn locate(&self, from: u64) -> Result<Option<(usize, usize)>> {
        for group in 0..self.groups() {
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
        let index = self.parquet().page_index_for_row_group(group);
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

    /// The units of a row group, in order.
    pub(super) fn units(&self, group: usize) -> Result<Vec<Unit>> {
        let rows = self.rows(group);
        let index = self.parquet().page_index_for_row_group(group);
        let value = index.offset_index(schema::VALUE);
        let value =
            value.ok_or_else(|| corrupt(self.meta, "it has no page index of its values"))?;
        let unsigned = |n: i64| usize::try_from(n).unwrap_or(0);
        let sizes = value.unencoded_byte_array_data_bytes();
        let pages = value.page_locations();
        let (mut units, mut from, mut bytes, mut at) = (Vec::new(), 0, 0, None);
        let starts = pages.iter().map(|page| unsigned(page.first_row_index));
        for (nth, (page, end)) in pages.iter().zip(starts.skip(1).chain([rows])).enumerate() {
            let place = u64::try_from(page.offset)
                .ok()
                .zip(u64::try_from(page.compressed_page_size).ok());
            let place = place.and_then(|(at, size)| Some(at..at.checked_add(size)?));
            let place = place.filter(|it| it.end <= self.meta.bytes && end >= from && end <= rows);
            let place = place.ok_or_else(|| corrupt(self.meta, CONTRADICTION))?;
            let start = *at.get_or_insert(place.start);
            bytes += sizes
                .and_then(|sizes| sizes.get(nth))
                .map_or(0, |size| unsigned(*size));
            if end > from && (bytes >= ENOUGH_BYTES || end - from >= UNIT_ROWS || end == rows) {
                if start >= place.end {
                    return Err(corrupt(self.meta, CONTRADICTION));
                }
                units.push(Unit {
                    rows: from..end,
                    bytes,
                    pages: start..place.end,
                });
                (from, bytes, at) = (end, 0, None);
            }
        }
        Ok(units)
    }

    /// Decodes some rows of a row group and hands them on until `each` has enough.
    pub(super) async fn decode(
        &self,
        group: usize,
        rows: Range<usize>,
        columns: &[&str],
        mut each: impl FnMut(&RecordBatch) -> Result<bool>,
    ) -> Result<()> {
        let mut decoder = self.decoder(group, rows, columns)?;
        loop {
            match decoder.step()? {
                Step::Rows(columns) => {
                    if !each(&columns).map_err(|error| error.at(&self.meta.path))? {
                        return Ok(());
                    }
                }
                Step::Needs(ranges) => {
                    let bytes = self.fetch(&ranges).await?;
                    decoder.give(ranges, bytes)?;
                }
                Step::End => return Ok(()),
            }
        }
    }

    /// Some ranges of it, in the order they are asked for.
    pub(super) async fn fetch(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.fetch.ranges(self.meta, ranges).await
    }

    /// A decoder of some rows of a row group.
    pub(super) fn decoder(
        &self,
        group: usize,
        rows: Range<usize>,
        columns: &[&str],
    ) -> Result<Decoder> {
        let all = self.rows(group);
        let rows = rows.start..rows.end.min(all);
        if rows.is_empty() {
            return Err(corrupt(self.meta, CONTRADICTION));
        }
        let selection = RowSelection::from(vec![
            RowSelector::skip(rows.start),
            RowSelector::select(rows.len()),
            RowSelector::skip(all - rows.end),
        ]);
        let decoder = guard(&self.meta.path, || {
            let builder = ParquetPushDecoderBuilder::new_with_metadata(self.footer.clone());
            let schema = self.parquet().file_metadata().schema_descr();
            let wanted = (0..schema.num_columns())
                .filter(|leaf| columns.contains(&schema.get_column_root(*leaf).name()));
            builder
                .with_row_groups(vec![group])
                .with_row_selection(selection)
                .with_projection(ProjectionMask::leaves(schema, wanted.collect::<Vec<_>>()))
                .with_batch_size(ROWS.min(rows.len()).max(1))
                .build()
        })?;
        Ok(Decoder {
            decoder,
            path: self.meta.path.as_str().into(),
        })
    }
}

/// Decodes rows step by step. It fetches nothing itself, so that it can run on any thread.
pub(super) struct Decoder {
    decoder: ParquetPushDecoder,
    path: Arc<str>,
}

/// How far a decoder came.
pub(super) enum Step {
    /// The next rows.
    Rows(RecordBatch),
    /// It can't go on without these bytes.
    Needs(Vec<Range<u64>>),
    /// There are no more rows.
    End,
}

impl Decoder {
    /// Goes on to the next rows.
    pub(super) fn step(&mut self) -> Result<Step> {
        let step = guard(&self.path, || self.decoder.try_decode())?;
        Ok(match step {
            DecodeResult::Data(columns) => Step::Rows(columns),
            DecodeResult::NeedsData(ranges) => Step::Needs(ranges),
            DecodeResult::Finished => Step::End,
        })
    }

    /// Gives it what it needs.
    pub(super) fn give(&mut self, ranges: Vec<Range<u64>>, bytes: Vec<Bytes>) -> Result<()> {
        guard(&self.path, || self.decoder.push_ranges(ranges, bytes))
    }

    /// Which object it reads.
    pub(super) fn path(&self) -> &Arc<str> {
        &self.path
    }
}

const CONTRADICTION: &str = "its row groups and its page index contradict each other";

/// Runs the decoder on bytes that may be damaged: its errors and its panics say so.
pub(super) fn guard<T>(path: &str, decode: impl FnOnce() -> Result<T, ParquetError>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(decode)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(unreadable(path, &error.to_string())),
        Err(_) => Err(unreadable(path, "its bytes make no sense")),
    }
}

/// The error for a segment that isn't what was written.
pub(super) fn corrupt(meta: &SegmentMeta, what: &str) -> Error {
    unreadable(&meta.path, what)
}

fn unreadable(path: &str, what: &str) -> Error {
    Error::corrupt(format!("segment {path:?} can't be read: {what}"))
}
