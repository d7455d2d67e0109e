//! What other readers find in a segment.

use super::*;
use crate::{OnMismatch, Schema};
use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampMicrosecondType};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::properties::ReaderProperties;
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::{ReadOptionsBuilder, SerializedFileReader};

/// The footer of what a topic with these settings writes, and the file.
fn written(settings: TopicSettings, events: &[Full]) -> (ParquetMetaData, Bytes) {
    let topic = Topic {
        settings,
        ..topic(Format::Json)
    };
    written_in(&topic, events)
}

fn written_in(topic: &Topic, events: &[Full]) -> (ParquetMetaData, Bytes) {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("segment");
    let mut writer = SegmentWriter::create(&nowhere(), &file, topic, 0).expect("create");
    writer.write(&batch(events)).expect("write");
    writer.finish().expect("finish");
    let bytes = Bytes::from(std::fs::read(&file).expect("read"));
    let footer = ParquetMetaDataReader::new()
        .with_page_index_policy(PageIndexPolicy::Required)
        .parse_and_finish(&bytes)
        .expect("a footer with its page index");
    (footer, bytes)
}

#[test]
fn readers_find_their_pages_and_nothing_is_said_of_values() {
    let (footer, _) = written(TopicSettings::default(), &plain(0, 60_000, 100));
    for group in 0..footer.num_row_groups() {
        let index = footer.page_index_for_row_group(group);
        for column in [schema::OFFSET, schema::INGEST_TS, schema::EVENT_TS] {
            let Some(ColumnIndexMetaData::INT64(pages)) = index.column_index(column) else {
                panic!("column {column} has no index of its pages");
            };
            let mins: Vec<i64> = pages.min_values().to_vec();
            assert!(mins.len() > 1 && mins.is_sorted(), "{mins:?}");
        }
        let value = footer.row_group(group).column(schema::VALUE);
        assert!(value.statistics().is_none(), "values have no bounds");
        let index = index.column_index(schema::VALUE);
        assert!(index.is_none());
        let key = footer.row_group(group).column(schema::KEY);
        assert_eq!(key.bloom_filter_offset(), None, "only when asked for");
    }
}

#[test]
fn a_bloom_filter_knows_the_keys_that_are_there() {
    // As many keys as events: no dictionary that would say it too.
    let mut events = plain(0, 50_000, 10);
    for event in &mut events {
        event.key = Some(format!("key-{}", event.offset).into_bytes());
    }
    let settings = TopicSettings {
        bloom: true,
        ..TopicSettings::default()
    };
    let (footer, bytes) = written(settings, &events);
    let (without, _) = written(TopicSettings::default(), &events);
    let sizes = |footer: &ParquetMetaData| footer.row_group(0).compressed_size();
    assert_eq!(sizes(&footer), sizes(&without), "columns are the same");
    let reader = SerializedFileReader::new_with_options(
        bytes,
        ReadOptionsBuilder::new()
            .with_reader_properties(
                ReaderProperties::builder()
                    .set_read_bloom_filter(true)
                    .build(),
            )
            .build(),
    )
    .expect("a file");
    let group = reader.get_row_group(0).expect("a row group");
    let filter = group
        .get_column_bloom_filter(schema::KEY)
        .expect("a bloom filter");
    assert!(
        events
            .iter()
            .all(|event| filter.check(event.key.as_deref().expect("key")))
    );
    let wrong = (0..10_000).filter(|n| filter.check(format!("other-{n}").as_bytes()));
    assert!(wrong.count() < 300, "1 % are expected");
}

#[tokio::test]
async fn typed_columns_stand_beside_values_that_stay_as_they_are() {
    let declared = serde_json::json!({"type": "object", "properties": {
        "n": {"type": "integer"}, "x": {"type": "string"}, "d": {"type": "number"},
        "b": {"type": "boolean"}, "t": {"type": "string", "format": "date-time"},
        "list": {"type": "array"}
    }});
    let schema = Schema::read(declared, OnMismatch::Null).expect("a schema");
    let settings = TopicSettings {
        schema: Some(Arc::new(schema)),
        ..TopicSettings::default()
    };
    let mut events = plain(0, 6, 0);
    let values: [Option<&str>; 6] = [
        Some(r#"{"n":1,"x":"a","d":0.5,"b":true,"t":"1970-01-01T00:00:01Z","list":[1, {"a":2}]}"#),
        Some(r#" { "x" : "\u0061", "n" : 2.0 } "#),
        Some(r#"{"n":"no","x":null}"#),
        None,
        Some("[]"),
        Some("{}"),
    ];
    for (event, value) in events.iter_mut().zip(values) {
        event.value = value.map(|value| value.as_bytes().to_vec());
    }
    let (_, bytes) = written(settings, &events);
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes.clone()).expect("a file");
    let names: Vec<String> = reader
        .schema()
        .fields()
        .iter()
        .map(|f| f.name().clone())
        .collect();
    assert_eq!(names[8..], ["b", "d", "list", "n", "t", "x"]);
    let columns = reader
        .build()
        .expect("reader")
        .next()
        .expect("rows")
        .expect("good");
    let n = columns.column(11).as_primitive::<Int64Type>();
    assert_eq!(
        n.iter().collect::<Vec<_>>(),
        [Some(1), Some(2), None, None, None, None]
    );
    let x = columns.column(13).as_string::<i32>();
    assert_eq!(
        x.iter().collect::<Vec<_>>(),
        [Some("a"), Some("a"), None, None, None, None]
    );
    assert_eq!(
        columns.column(10).as_string::<i32>().value(0),
        r#"[1, {"a":2}]"#
    );
    assert_eq!(
        columns.column(9).as_primitive::<Float64Type>().value(0),
        0.5
    );
    assert!(columns.column(8).as_boolean().value(0));
    let t = columns
        .column(12)
        .as_primitive::<TimestampMicrosecondType>();
    assert_eq!((t.value(0), t.null_count()), (1_000_000, 5));

    let memory = Arc::new(MemoryObjects::new(Random::seeded(1)));
    memory.tamper("a.parquet", Some(bytes.clone()));
    let segments = Segments::new(Objects::new(memory), 0, None);
    let meta = SegmentMeta {
        bytes: bytes.len() as u64,
        path: "a.parquet".into(),
        ..store(Format::Json, &[batch(&events)]).await.meta
    };
    let read = segments.read(&meta, 0, ALL).await.expect("read");
    assert_eq!(full(&read), events);
}

#[test]
fn dead_letters_tell_their_story_in_columns() {
    let mut events = plain(0, 3, 0);
    let story: [(&str, &[u8]); 10] = [
        ("tidemill-function", b"of the event itself"),
        ("tidemill-function", b"f"),
        ("tidemill-version", b"2"),
        ("tidemill-reason", b"trap"),
        ("tidemill-error", b"unreachable"),
        ("tidemill-attempts", b"5"),
        ("tidemill-topic", b"orders"),
        ("tidemill-partition", b"1"),
        ("tidemill-offset", b"18446744073709551615"),
        ("tidemill-time", b"1970-01-01T00:00:01Z"),
    ];
    let owned = |(name, value): &(&str, &[u8])| ((*name).to_owned(), value.to_vec());
    events[0].headers = story.iter().map(owned).collect();
    events[1].headers = vec![
        ("tidemill-version".into(), b"two".to_vec()),
        ("tidemill-error".into(), vec![0xff]),
        ("tidemill-reason".into(), b"schema".to_vec()),
    ];
    events[2].headers = Vec::new();
    let letters = |format| Topic {
        name: "f.dead-letters".parse().expect("name"),
        ..topic(format)
    };
    let (_, bytes) = written_in(&letters(Format::Bytes), &events);
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).expect("a file");
    let fields = reader.schema().fields().clone();
    let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
    assert_eq!(
        names[8..],
        [
            "tidemill_function",
            "tidemill_version",
            "tidemill_reason",
            "tidemill_error",
            "tidemill_attempts",
            "tidemill_topic",
            "tidemill_partition",
            "tidemill_offset",
            "tidemill_time"
        ]
    );
    let mut reader = reader.build().expect("reader");
    let columns = reader.next().expect("rows").expect("good");
    let text = |nth: usize| {
        let column = columns.column(nth).as_string::<i32>();
        column.iter().map(|text| text.map(str::to_owned)).collect()
    };
    let number = |nth: usize| {
        let column = columns.column(nth).as_primitive::<Int64Type>();
        column.iter().collect::<Vec<_>>()
    };
    let some = |text: &str| Some(text.to_owned());
    let function: Vec<Option<String>> = text(8);
    assert_eq!(function, [some("f"), None, None]);
    assert_eq!(number(9), [Some(2), None, None]);
    let reason: Vec<Option<String>> = text(10);
    assert_eq!(reason, [some("trap"), some("schema"), None]);
    let error: Vec<Option<String>> = text(11);
    assert_eq!(error, [some("unreachable"), None, None]);
    assert_eq!(number(12), [Some(5), None, None]);
    assert_eq!(number(14), [Some(1), None, None]);
    assert_eq!(number(15), [None; 3], "more than a column holds");
    let times = columns
        .column(16)
        .as_primitive::<TimestampMicrosecondType>();
    assert_eq!(
        times.iter().collect::<Vec<_>>(),
        [Some(1_000_000), None, None]
    );

    // Anybody may call a topic so, for values of their own.
    for event in &mut events {
        event.value = Some(b"{}".to_vec());
    }
    let (_, bytes) = written_in(&letters(Format::Json), &events);
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).expect("a file");
    assert_eq!(reader.schema().fields().len(), 8);
}
