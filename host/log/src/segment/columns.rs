//! Packed rows as columns. Keys and values aren't copied: their columns are views into the payloads.

use super::schema;
use super::writer::NOT_TEXT;
use arrow_array::builder::{BinaryBuilder, ListBuilder, StringBuilder, StructBuilder, make_view};
use arrow_array::{
    ArrayRef, BinaryViewArray, Int32Array, Int64Array, ListArray, RecordBatch, StructArray,
    TimestampMicrosecondArray,
};
use arrow_buffer::{Buffer, NullBufferBuilder, OffsetBuffer};
use std::sync::Arc;
use tidemill_types::{Batch, Error, Result, RowFlags};

/// The columns of the rows of some batches in the order of the schema, without those of the topic's own.
///
/// # Errors
/// `Invalid` with code [`NOT_TEXT`] when values are to be `text` and one isn't; `Corrupt`.
pub(super) fn of(batches: &[Batch], partition: u32, text: bool) -> Result<Vec<ArrayRef>> {
    let count = batches.iter().map(Batch::len).sum();
    let numbers = || Vec::with_capacity(count);
    let (mut offsets, mut ingested, mut commits, mut times) =
        (numbers(), numbers(), numbers(), numbers());
    let (mut keys, mut values) = (Views::new(count), Views::new(count));
    let mut headers = 0_usize;
    for (buffer, batch) in (0..).zip(batches) {
        let payload = batch.payload();
        for row in 0..batch.len() {
            let head = batch.head(row);
            offsets.push(batch.offset(row).cast_signed());
            ingested.push(batch.ingest_time(row).micros());
            commits.push(batch.commit(row).0.cast_signed());
            times.push(head.time);
            let has_key = head.flags.has(RowFlags::KEY);
            keys.push(buffer, payload, (head.key_at, head.key_len), has_key)?;
            let has_value = !head.flags.has(RowFlags::TOMBSTONE);
            let value = values.push(buffer, payload, (head.value_at, head.value_len), has_value)?;
            if text && let Err(error) = simdutf8::basic::from_utf8(value) {
                return Err(Error::invalid(NOT_TEXT, error.to_string()));
            }
            headers += head.headers_len as usize;
        }
    }
    let payloads = batches
        .iter()
        .map(|batch| Buffer::from(batch.payload().clone()));
    let buffer: Arc<[Buffer]> = payloads.collect();
    let headers: ArrayRef = match headers {
        0 => Arc::new(no_headers(count)?),
        _ => Arc::new(list_of_headers(batches, count)?),
    };
    let time = |micros: Vec<i64>| TimestampMicrosecondArray::from(micros).with_timezone("UTC");
    Ok(vec![
        Arc::new(Int32Array::from(vec![partition.cast_signed(); count])),
        Arc::new(Int64Array::from(offsets)),
        Arc::new(time(ingested)),
        Arc::new(time(times)),
        Arc::new(keys.into_binary(&buffer)?),
        Arc::new(values.into_binary(&buffer)?),
        headers,
        Arc::new(Int64Array::from(commits)),
    ])
}

/// Where parts of payloads lie.
struct Views {
    views: Vec<u128>,
    nulls: NullBufferBuilder,
}

impl Views {
    fn new(count: usize) -> Self {
        Self {
            views: Vec::with_capacity(count),
            nulls: NullBufferBuilder::new(count),
        }
    }

    /// One more: where it lies in the payload that is the buffer of this number, and how long it is. Its
    /// bytes.
    fn push<'p>(
        &mut self,
        buffer: u32,
        payload: &'p [u8],
        (at, len): (u32, u32),
        is_there: bool,
    ) -> Result<&'p [u8]> {
        if !is_there {
            self.views.push(0);
            self.nulls.append_null();
            return Ok(&[]);
        }
        let part = payload.get(at as usize..at as usize + len as usize);
        let part = part.ok_or_else(|| Error::corrupt("an event points outside its payload"))?;
        self.views.push(make_view(part, buffer, at));
        self.nulls.append_non_null();
        Ok(part)
    }

    fn into_binary(mut self, buffer: &Arc<[Buffer]>) -> Result<BinaryViewArray> {
        let (views, nulls) = (self.views.into(), self.nulls.finish());
        BinaryViewArray::try_new(views, buffer.clone(), nulls).map_err(apart)
    }
}

fn no_headers(count: usize) -> Result<ListArray> {
    let fields = arrow_schema::Schema::new(schema::header_fields());
    let none = StructArray::from(RecordBatch::new_empty(Arc::new(fields)));
    let ends = OffsetBuffer::new_zeroed(count);
    ListArray::try_new(schema::header(), ends, Arc::new(none), None).map_err(apart)
}

fn list_of_headers(batches: &[Batch], count: usize) -> Result<ListArray> {
    let header = StructBuilder::new(
        schema::header_fields(),
        vec![
            Box::new(StringBuilder::new()),
            Box::new(BinaryBuilder::new()),
        ],
    );
    let mut list = ListBuilder::with_capacity(header, count).with_field(schema::header());
    for event in batches.iter().flat_map(Batch::iter) {
        let mut rest = event.row.headers;
        while !rest.as_bytes().is_empty() {
            let (name, value) = rest
                .next()
                .ok_or_else(|| Error::corrupt("an event's headers aren't in the packed form"))?;
            let builder = list.values();
            if let Some(names) = builder.field_builder::<StringBuilder>(0) {
                names.append_value(name);
            }
            if let Some(values) = builder.field_builder::<BinaryBuilder>(1) {
                values.append_value(value);
            }
            builder.append(true);
        }
        list.append(true);
    }
    Ok(list.finish())
}

fn apart(error: arrow_schema::ArrowError) -> Error {
    Error::internal(format!("columns of a segment don't fit together: {error}"))
}
