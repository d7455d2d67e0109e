//! Files in, batches out.

use super::*;
use crate::failure::Exit;
use std::io::Write;

/// Reads `bytes` as `format` and gives back the batches.
fn batches(bytes: &[u8], format: Format, most: u64) -> Result<Vec<(String, Vec<u64>)>> {
    let (give, mut take) = mpsc::channel(1000);
    let source = Source {
        name: "x".into(),
        format,
        from: Box::new(std::io::Cursor::new(bytes.to_vec())),
        length: None,
        live: false,
    };
    source.read(&ProgressBar::hidden(), &mut Batches::new(most, give))?;
    let mut batches = Vec::new();
    while let Ok(batch) = take.try_recv() {
        batches.push((String::from_utf8(batch.body).expect("text"), batch.places));
    }
    Ok(batches)
}

fn all(bytes: &[u8], format: Format) -> Vec<(String, u64)> {
    let batches = batches(bytes, format, 2).expect("reads");
    batches
        .iter()
        .flat_map(|(body, places)| body.lines().map(String::from).zip(places.iter().copied()))
        .collect()
}

#[test]
fn formats_are_told_by_name() {
    for (name, format) in [
        ("a.csv", Format::Csv),
        ("b/a.CSV.gz", Format::Csv),
        ("a.json", Format::Json),
        ("a.ndjson.gz", Format::Ndjson),
        ("a.jsonl", Format::Ndjson),
        ("a", Format::Ndjson),
    ] {
        assert_eq!(Format::of(name), format, "{name}");
    }
}

#[test]
fn lines_keep_their_numbers_and_empty_ones_are_passed_over() {
    let read = all(
        b"\xef\xbb\xbf{\"a\":1}\r\n\n  \n2\n\"three\"",
        Format::Ndjson,
    );
    assert_eq!(
        read,
        [
            ("{\"a\":1}".into(), 1),
            ("2".into(), 4),
            ("\"three\"".into(), 5)
        ]
    );
}

#[test]
fn rows_become_objects_of_texts() {
    let read = all(
        "name,of \"it\"\n\"a,\"\"b\"\"\nc\",1\nü,\n".as_bytes(),
        Format::Csv,
    );
    assert_eq!(
        read[0],
        (r#"{"name":"a,\"b\"\nc","of \"it\"":"1"}"#.into(), 2)
    );
    assert_eq!(read[1], (r#"{"name":"ü","of \"it\"":""}"#.into(), 4));
}

#[test]
fn bad_csv_names_the_line() {
    let failure = batches(b"a,b\n1,2\n3\n", Format::Csv, 9).expect_err("ragged");
    assert!(
        failure.message.contains("x: ") && failure.message.contains("line: 3"),
        "{}",
        failure.message
    );
    assert!(
        batches(b"a,a\n1,2\n", Format::Csv, 9)
            .expect_err("twice")
            .message
            .contains("\"a\"")
    );
}

#[test]
fn arrays_are_taken_apart_by_one_level() {
    let read = all(b" [ {\"a\":\n 1}, [2, 3],\n\"x\\ny\" ]\n", Format::Json);
    assert_eq!(
        read,
        [
            ("{\"a\":  1}".into(), 1),
            ("[2, 3]".into(), 2),
            ("\"x\\ny\"".into(), 3)
        ]
    );
    assert_eq!(
        all(b"{\"a\":1} 2", Format::Json),
        [("{\"a\":1}".into(), 1), ("2".into(), 2)]
    );
    assert_eq!(all(b"[]", Format::Json), []);
}

#[test]
fn bad_json_is_refused() {
    for bad in ["[1, 2", "[1] x", "{\"a\":", "[1,,2]"] {
        let failure = batches(bad.as_bytes(), Format::Json, 9).expect_err(bad);
        assert_eq!(failure.code, "invalid-json", "{bad}: {}", failure.message);
    }
}

#[test]
fn compressed_files_are_read_as_they_are() {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(b"1\n2\n").expect("packs");
    let packed = packed.finish().expect("packs");
    assert_eq!(all(&packed, Format::Ndjson).len(), 2);
    assert!(
        batches(&packed[..packed.len() - 6], Format::Ndjson, 9).is_err(),
        "a cut file must not pass for a whole one"
    );
}

#[test]
fn batches_are_bounded_by_count_and_bytes() {
    let batches_of = |bytes: &[u8], most| batches(bytes, Format::Ndjson, most).expect("reads");
    assert_eq!(
        batches_of(b"1\n2\n3\n4\n5\n", 2)
            .iter()
            .map(|(_, places)| places.len())
            .collect::<Vec<_>>(),
        [2, 2, 1]
    );
    let long = format!("\"{}\"\n", "x".repeat(100_000)).repeat(7);
    for (body, _) in batches_of(long.as_bytes(), 500) {
        assert!(body.len() < BATCH_BYTES + 100_010);
    }
}

#[test]
fn a_missing_file_is_not_found() {
    let failure = Source::new(Path::new("no/such/file"), None)
        .err()
        .expect("missing");
    assert_eq!(failure.exit, Exit::NotFound);
}
