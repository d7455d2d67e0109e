//! The columns of a segment and how each is encoded.

use super::{letters, typed};
use crate::{Format, Topic, TopicSettings};
use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};
use parquet::arrow::ArrowSchemaConverter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::{ColumnPath, SchemaDescriptor};
use std::sync::Arc;
use tidemill_types::{Error, Result};

/// Names of the columns that every segment has, in file order; those of the topic's schema, or of dead
/// letters, follow.
pub(crate) const COLUMNS: [&str; 8] = [
    "partition",
    "offset",
    "ingest_ts",
    "event_ts",
    "key",
    "value",
    "headers",
    "commit",
];
/// Place of a column in [`COLUMNS`].
pub(super) const OFFSET: usize = 1;
/// See [`OFFSET`].
pub(super) const INGEST_TS: usize = 2;
/// See [`OFFSET`].
pub(super) const EVENT_TS: usize = 3;
/// See [`OFFSET`].
pub(super) const KEY: usize = 4;
/// See [`OFFSET`].
pub(super) const VALUE: usize = 5;

/// Encoded bytes of one row group: what a writer holds in memory and a reader can skip.
pub(crate) const ROW_GROUP_BYTES: usize = 16 << 20;
/// How often a bloom filter says yes for a key that isn't there.
const BLOOM_FALSE: f64 = 0.01;
/// Distinct keys of a row group that a bloom filter has room for while it grows; it is folded to what is
/// there when it is written.
const BLOOM_KEYS: u64 = 1 << 20;
/// The version of these columns, in the file's metadata.
const FORMAT: &str = "1";

/// The Arrow schema that a segment is written with, and the Parquet schema that says in the file what it
/// means. Values are bytes on their way into it, also where the file says that they are text: whether they are is
/// looked at once, when they are taken.
pub(super) fn schema(topic: &Topic) -> Result<(Arc<Schema>, SchemaDescriptor)> {
    let stored = match topic.settings.format {
        Format::Json => DataType::Utf8View,
        Format::Bytes => DataType::BinaryView,
    };
    let stored = ArrowSchemaConverter::new().convert(&with_values(topic, stored));
    let stored = stored
        .map_err(|error| Error::internal(format!("columns that Parquet can't have: {error}")))?;
    Ok((Arc::new(with_values(topic, DataType::BinaryView)), stored))
}

fn with_values(topic: &Topic, value_type: DataType) -> Schema {
    let settings = &topic.settings;
    let [
        partition,
        offset,
        ingest_ts,
        event_ts,
        key,
        value,
        headers,
        commit,
    ] = COLUMNS;
    let time = || DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let mut fields = vec![
        Field::new(partition, DataType::Int32, false),
        Field::new(offset, DataType::Int64, false),
        Field::new(ingest_ts, time(), false),
        Field::new(event_ts, time(), false),
        Field::new(key, DataType::Binary, true),
        Field::new(value, value_type, true),
        Field::new(headers, DataType::List(header()), false),
        Field::new(commit, DataType::Int64, false),
    ];
    fields.extend(
        settings
            .schema
            .iter()
            .flat_map(|schema| typed::fields(schema)),
    );
    if letters::are_in(topic) {
        fields.extend(letters::fields());
    }
    Schema::new(fields)
}

/// One element of the column `headers`.
pub(super) fn header() -> Arc<Field> {
    Arc::new(Field::new(
        "element",
        DataType::Struct(header_fields()),
        false,
    ))
}

pub(super) fn header_fields() -> Fields {
    vec![
        Field::new("name", DataType::Utf8, false),
        Field::new("value", DataType::Binary, false),
    ]
    .into()
}

/// Encodings as measured: zstd 1 is as small as higher levels here and faster; deltas shrink rising
/// numbers to nothing; a dictionary pays for keys and typed columns; statistics over values help nobody.
pub(super) fn properties(settings: &TopicSettings) -> Result<WriterProperties> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level()?))
        .set_dictionary_enabled(false)
        .set_column_dictionary_enabled(ColumnPath::from("key"), true)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_created_by(concat!("tidemill ", env!("CARGO_PKG_VERSION")).to_owned());
    for property in settings
        .schema
        .iter()
        .flat_map(|schema| schema.properties())
    {
        let column = ColumnPath::new(vec![property.name.clone()]);
        properties = properties.set_column_dictionary_enabled(column, true);
    }
    if settings.bloom {
        let key = ColumnPath::from("key");
        properties = properties
            .set_column_bloom_filter_fpp(key.clone(), BLOOM_FALSE)
            .set_column_bloom_filter_max_ndv(key, BLOOM_KEYS);
    }
    for rising in ["partition", "offset", "ingest_ts", "event_ts", "commit"] {
        properties =
            properties.set_column_encoding(ColumnPath::from(rising), Encoding::DELTA_BINARY_PACKED);
    }
    let header = |part: &str| {
        ["headers", "list", "element", part]
            .map(str::to_owned)
            .to_vec()
    };
    for opaque in [vec!["value".to_owned()], header("name"), header("value")] {
        properties = properties
            .set_column_statistics_enabled(ColumnPath::new(opaque), EnabledStatistics::None);
    }
    Ok(properties.build())
}

/// How hard columns are compressed.
pub(super) fn level() -> Result<ZstdLevel> {
    ZstdLevel::try_new(1).map_err(|error| Error::internal(error.to_string()))
}

/// What the file says of itself, beside its columns.
pub(super) fn key_values(topic: &Topic, partition: u32, first: u64, end: u64) -> [KeyValue; 6] {
    let pair = |key: &str, value: String| KeyValue::new(format!("tidemill.{key}"), value);
    [
        pair("format", FORMAT.to_owned()),
        pair("topic", topic.name.as_str().to_owned()),
        pair("topic_id", topic.id.0.to_string()),
        pair("partition", partition.to_string()),
        pair("first", first.to_string()),
        pair("end", end.to_string()),
    ]
}
