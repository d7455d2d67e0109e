//! Packed rows as columns, all but their values.

use super::letters::{self, Letters};
use super::schema;
use super::typed::Typed;
use crate::Topic;
use arrow_array::builder::{BinaryBuilder, ListBuilder, StringBuilder, StructBuilder};
use arrow_array::{
    ArrayRef, Int32Array, Int64Array, ListArray, RecordBatch, StructArray,
    TimestampMicrosecondArray,
};
use arrow_buffer::OffsetBuffer;
use std::sync::Arc;
use tidemill_types::{Batch, Error, Event, Headers, Result, RowFlags};

/// Columns in the making: what is taken of a row is copied at once, while the row is still in the processor's cache.
pub(super) struct Columns {
    partition: u32,
    /// Most rows that are taken before they are finished.
    most: usize,
    offsets: Vec<i64>,
    ingested: Vec<i64>,
    times: Vec<i64>,
    commits: Vec<i64>,
    keys: BinaryBuilder,
    /// Since the first row with headers.
    headers: Option<ListBuilder<StructBuilder>>,
    own: Own,
}

/// The columns of a topic's own.
enum Own {
    None,
    Typed(Typed),
    Letters(Box<Letters>),
}

impl Own {
    fn of(topic: &Topic, rows: usize) -> Self {
        match &topic.settings.schema {
            Some(schema) => Self::Typed(Typed::new(schema.clone(), rows)),
            None if letters::are_in(topic) => Self::Letters(Box::new(Letters::new(rows))),
            None => Self::None,
        }
    }

    fn push(&mut self, event: &Event<'_>) {
        match self {
            Self::None => {}
            Self::Typed(typed) => typed.push(event.row.value),
            Self::Letters(letters) => letters.push(event.row.headers),
        }
    }
}

impl Columns {
    /// None yet, of a topic's partition; about so many rows are taken until they are finished.
    pub(super) fn new(topic: &Topic, partition: u32, most: usize) -> Self {
        let numbers = || Vec::with_capacity(most);
        Self {
            partition,
            most,
            offsets: numbers(),
            ingested: numbers(),
            times: numbers(),
            commits: numbers(),
            keys: BinaryBuilder::with_capacity(most, 0),
            headers: None,
            own: Own::of(topic, most),
        }
    }

    /// Rows so far.
    pub(super) fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Takes rows.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(super) fn push(&mut self, batch: &Batch) -> Result<()> {
        let before = self.len();
        let rows = 0..batch.len();
        let offsets = rows.clone().map(|row| batch.offset(row).cast_signed());
        self.offsets.extend(offsets);
        let ingested = rows.clone().map(|row| batch.ingest_time(row).micros());
        self.ingested.extend(ingested);
        let commits = rows.clone().map(|row| batch.commit(row).0.cast_signed());
        self.commits.extend(commits);
        let payload = batch.payload();
        let mut headers = 0_usize;
        for row in rows {
            let head = batch.head(row);
            self.times.push(head.time);
            headers += head.headers_len as usize;
            if head.flags.has(RowFlags::KEY) {
                let (at, len) = (head.key_at as usize, head.key_len as usize);
                let key = payload.get(at..at + len);
                self.keys.append_value(
                    key.ok_or_else(|| Error::corrupt("an event points outside its payload"))?,
                );
            } else {
                self.keys.append_null();
            }
        }
        if headers > 0 || self.headers.is_some() {
            let list = self.headers.get_or_insert_with(|| no_headers_yet(before));
            for event in batch.iter() {
                push_headers(list, event.row.headers)?;
            }
        }
        if !matches!(self.own, Own::None) {
            batch.iter().for_each(|event| self.own.push(&event));
        }
        Ok(())
    }

    /// The columns of the rows so far in the order of the schema, without values. The next ones begin.
    ///
    /// # Errors
    /// `Internal`.
    pub(super) fn finish(&mut self, topic: &Topic) -> Result<Vec<ArrayRef>> {
        let next = Self::new(topic, self.partition, self.most);
        let Self {
            partition,
            offsets,
            ingested,
            times,
            commits,
            mut keys,
            headers,
            own,
            ..
        } = std::mem::replace(self, next);
        let count = offsets.len();
        let headers: ArrayRef = match headers {
            None => Arc::new(no_headers(count)?),
            Some(mut list) => Arc::new(list.finish()),
        };
        let time = |micros: Vec<i64>| TimestampMicrosecondArray::from(micros).with_timezone("UTC");
        let mut all: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(vec![partition.cast_signed(); count])),
            Arc::new(Int64Array::from(offsets)),
            Arc::new(time(ingested)),
            Arc::new(time(times)),
            Arc::new(keys.finish()),
            headers,
            Arc::new(Int64Array::from(commits)),
        ];
        match own {
            Own::None => {}
            Own::Typed(typed) => all.extend(typed.finish()),
            Own::Letters(letters) => all.extend(letters.finish()),
        }
        Ok(all)
    }
}

fn no_headers(count: usize) -> Result<ListArray> {
    let fields = arrow_schema::Schema::new(schema::header_fields());
    let none = StructArray::from(RecordBatch::new_empty(Arc::new(fields)));
    let ends = OffsetBuffer::new_zeroed(count);
    ListArray::try_new(schema::header(), ends, Arc::new(none), None).map_err(apart)
}

/// The headers of so many rows that have none.
fn no_headers_yet(rows: usize) -> ListBuilder<StructBuilder> {
    let header = StructBuilder::new(
        schema::header_fields(),
        vec![
            Box::new(StringBuilder::new()),
            Box::new(BinaryBuilder::new()),
        ],
    );
    let mut list = ListBuilder::new(header).with_field(schema::header());
    (0..rows).for_each(|_| list.append(true));
    list
}

fn push_headers(list: &mut ListBuilder<StructBuilder>, headers: Headers<'_>) -> Result<()> {
    let mut rest = headers;
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
    Ok(())
}

fn apart(error: arrow_schema::ArrowError) -> Error {
    Error::internal(format!("columns of a segment don't fit together: {error}"))
}
