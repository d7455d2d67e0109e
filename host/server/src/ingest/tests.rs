mod fuzz;
mod json;
mod packed;
mod rows;
mod typed;

use super::forms::{Each, take_document, take_lines};
use super::intake::{Intake, KeyFrom, TimeSource};
use super::plan::{Form, form_of};
use super::pointer::Pointer;
use super::rows::Rows;
use crate::body::{Encoding, decompress};
use axum::http::{HeaderMap, HeaderValue, header};
use serde_json::{Value, json};
use std::io::Write;
use tidemill_log::Format;
use tidemill_types::RowView;

fn pointer(text: &str) -> Pointer {
    Pointer::read(text).unwrap()
}

fn intake(key: KeyFrom, time: TimeSource) -> Intake {
    Intake {
        partitions: 4,
        format: Format::Json,
        key,
        time,
        now: 7,
        single: false,
        event_bytes: 1 << 20,
        continue_on_error: false,
        sticky: 3,
        keyed: false,
        schema: None,
    }
}

/// Takes a body; gives key, value, headers, time and partition of each event, or the refusals.
fn taken(
    intake: &Intake,
    body: &str,
    take: impl Fn(&Intake, &mut Rows, &[u8]),
) -> Result<Vec<Value>, Vec<String>> {
    let mut rows = Rows::over(body.len());
    take(intake, &mut rows, body.as_bytes());
    if rows.refused > 0 {
        let line = |line: Option<u64>| line.map_or(String::new(), |line| format!(" line {line}"));
        return Err(rows
            .refusals
            .iter()
            .map(|r| format!("{}{} {}: {}", r.index, line(r.line), r.pointer, r.reason))
            .collect());
    }
    let mut payload = body.as_bytes().to_vec();
    rows.finish(&mut payload);
    let text =
        |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let shown = rows
        .heads
        .iter()
        .zip(&rows.partitions)
        .map(|(head, partition)| {
            assert!(head.fits(payload.len()));
            let row = RowView::new(*head, &payload);
            assert!(row.headers.are_valid());
            let headers: Vec<_> = row
                .headers
                .map(|(name, value)| json!([name, text(Some(value))]))
                .collect();
            json!([
                text(row.key),
                text(row.value),
                headers,
                row.time.micros(),
                partition
            ])
        });
    Ok(shown.collect())
}

fn lines(intake: &Intake, body: &str) -> Result<Vec<Value>, Vec<String>> {
    taken(intake, body, |intake, rows, body| {
        let _ = take_lines(intake, rows, body, Each::Value, 1).unwrap();
    })
}

fn document(intake: &Intake, body: &str, each: Each) -> Result<Vec<Value>, Vec<String>> {
    taken(intake, body, |intake, rows, body| {
        drop(take_document(intake, rows, body, each))
    })
}

#[test]
fn content_types_name_forms() {
    let form = |given: Option<&'static str>, format: Format| {
        let mut headers = HeaderMap::new();
        if let Some(given) = given {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(given));
        }
        form_of(&headers, format).map_err(|problem| problem.code)
    };
    for (given, expected) in [
        ("application/json", Form::Document(Each::Value)),
        (
            "Application/JSON; charset=utf-8",
            Form::Document(Each::Value),
        ),
        ("application/x-ndjson", Form::Lines(Each::Value)),
        (
            "application/vnd.tidemill.events+json",
            Form::Document(Each::Typed),
        ),
        (
            "application/vnd.tidemill.events+ndjson",
            Form::Lines(Each::Typed),
        ),
        ("application/vnd.tidemill.batch", Form::Packed),
    ] {
        assert_eq!(form(Some(given), Format::Json), Ok(expected));
        assert_eq!(form(Some(given), Format::Bytes), Ok(expected));
    }
    for other in [
        Some("text/html"),
        Some("application/octet-stream"),
        Some(""),
        None,
    ] {
        assert_eq!(
            form(other, Format::Json),
            Err("unsupported-media-type"),
            "{other:?}"
        );
        assert_eq!(form(other, Format::Bytes), Ok(Form::Raw), "{other:?}");
    }
}

#[test]
fn decompression_is_bounded_and_complete() {
    let body = b"{\"a\":1}\n".repeat(1000);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&body).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = zstd::encode_all(&body[..], 3).unwrap();
    for (encoding, packed) in [(Encoding::Gzip, &gzip), (Encoding::Zstd, &zstd)] {
        let unpack = |bytes: &[u8], most: usize| {
            let mut out = Vec::new();
            decompress(encoding, bytes, most, |part| out.extend_from_slice(part))
                .map(|()| out)
                .map_err(|problem| problem.code)
        };
        assert_eq!(
            unpack(packed, body.len()).as_deref(),
            Ok(&body[..]),
            "{encoding:?}"
        );
        assert_eq!(
            unpack(&packed.repeat(2), 2 * body.len()).as_deref(),
            Ok(&body.repeat(2)[..]),
            "{encoding:?}"
        );
        assert_eq!(
            unpack(packed, body.len() - 1),
            Err("too-large"),
            "{encoding:?}"
        );
        assert_eq!(
            unpack(b"not compressed at all", 100),
            Err("incomplete-body"),
            "{encoding:?}"
        );
        for cut in 1..packed.len() {
            assert_eq!(
                unpack(&packed[..cut], body.len()),
                Err("incomplete-body"),
                "{encoding:?} cut at {cut}"
            );
        }
    }
}
