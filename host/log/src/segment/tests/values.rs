//! Values: what other readers find of ours, and what we find of what earlier versions wrote.

use super::*;
use crate::segment::columns::Columns;
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, BinaryViewArray, RecordBatch};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaDataReader};

/// Events of several pages: values of all sizes, some none, some without keys, some with headers.
fn varied(with_headers: bool) -> Vec<Full> {
    let mut events = plain(7, 30_000, 90);
    for (nth, event) in events.iter_mut().enumerate() {
        match nth % 1000 {
            0 => event.value = Some(Vec::new()),
            // A run of tombstones, and rows that alternate.
            10..40 => event.value = None,
            60..160 if nth % 2 == 0 => event.value = None,
            200 => event.value = Some(vec![b'l'; 70_000]),
            300 => event.key = None,
            310 => event.key = Some(Vec::new()),
            // The key is part of the value.
            400..900 => event.value = Some(format!("{{\"k\":\"key{}\"}}", (nth + 7) % 100).into()),
            _ => {}
        }
        if with_headers && nth % 3000 == 1 {
            event.headers = vec![("a".into(), b"b".to_vec()), ("c".into(), vec![])];
        }
    }
    events
}

/// A segment as versions before wrote it: all columns by the library's writer.
fn earlier(events: &[Full], file: &Path) {
    let topic = topic(Format::Json);
    let (schema, stored) = schema::schema(&topic).expect("schema");
    let properties = schema::properties(&topic.settings).expect("properties");
    let options = ArrowWriterOptions::new()
        .with_properties(properties)
        .with_parquet_schema(stored)
        .with_skip_arrow_metadata(true);
    let to = std::fs::File::create(file).expect("file");
    let writer = ArrowWriter::try_new_with_options(to, schema.clone(), options);
    let mut writer = writer.expect("writer");
    for events in events.chunks(4096) {
        let mut columns = Columns::new(&topic, 2, events.len());
        columns.push(&batch(events)).expect("taken");
        let mut arrays = columns.finish(&topic).expect("columns");
        let values: BinaryViewArray = events.iter().map(|event| event.value.as_deref()).collect();
        arrays.insert(schema::VALUE, Arc::new(values) as ArrayRef);
        let rows = RecordBatch::try_new(schema.clone(), arrays).expect("rows");
        writer.write(&rows).expect("written");
    }
    writer.close().expect("closed");
}

#[tokio::test]
async fn segments_of_earlier_versions_are_read() {
    for with_headers in [false, true] {
        let events = varied(with_headers);
        let stored = store(Format::Json, &[batch(&events)]).await;
        let folder = tempfile::tempdir().expect("folder");
        let file = folder.path().join("segment");
        earlier(&events, &file);
        let bytes = Bytes::from(std::fs::read(file).expect("read"));
        let meta = SegmentMeta {
            bytes: bytes.len() as u64,
            ..stored.meta.clone()
        };
        stored.memory.tamper("a.parquet", Some(bytes));
        let segments = Segments::new(Objects::new(stored.memory.clone()), 64 << 20, None);
        for from in [0, 20_011] {
            let read = full(&segments.read(&meta, from, ALL).await.expect("read"));
            let expected = events.iter().filter(|event| event.offset >= from);
            assert!(read.iter().eq(expected.take(read.len())), "from {from}");
            assert!(read.len() > 1000);
        }
    }
}

#[tokio::test]
async fn what_has_many_pages_comes_back_and_other_readers_find_it() {
    for with_headers in [false, true] {
        let events = varied(with_headers);
        let stored = store(Format::Json, &[batch(&events)]).await;
        let limit = ReadLimit {
            events: 7000,
            bytes: 1 << 20,
        };
        assert!(stored.read_on(0, limit).await == events);

        let bytes = stored.memory.tamper("a.parquet", None).expect("stored");
        let footer = ParquetMetaDataReader::new()
            .with_page_index_policy(PageIndexPolicy::Required)
            .parse_and_finish(&bytes)
            .expect("a footer with its page index");
        let index = footer.page_index_for_row_group(0);
        let pages = index.page_locations(schema::VALUE).map_or(0, Vec::len);
        assert!(pages > 3, "{pages} pages");
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).expect("a file");
        let mut seen = Vec::new();
        for rows in reader.build().expect("reader") {
            let rows = rows.expect("good");
            let values = rows.column(schema::VALUE).as_string::<i32>();
            seen.extend(values.iter().map(|it| it.map(|it| it.as_bytes().to_vec())));
        }
        let values: Vec<_> = events.into_iter().map(|event| event.value).collect();
        assert!(seen == values);
    }
}
