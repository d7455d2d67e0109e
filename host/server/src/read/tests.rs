use super::event::{Layout, write};
use super::{Form, form_of};
use axum::http::{HeaderMap, HeaderValue, header};
use proptest::prelude::*;
use serde_json::{Value, json};
use tidemill_log::Format;
use tidemill_types::{CommitSeq, Event, PackedRows, Timestamp};

fn shown(format: Format, layout: Layout, rows: &PackedRows) -> String {
    let event = Event {
        offset: 12,
        ingest_time: Timestamp::from_micros(1_764_417_600_000_123),
        commit: CommitSeq(3),
        row: rows.event(0),
    };
    let mut out = Vec::new();
    write(&mut out, format, 2, &event, layout);
    String::from_utf8(out).unwrap()
}

fn rows(key: Option<&[u8]>, value: Option<&[u8]>, headers: &[(&str, &[u8])]) -> PackedRows {
    let mut rows = PackedRows::default();
    rows.push(
        Timestamp::from_micros(1_357_035_300_000_000),
        key,
        value,
        headers.iter().copied(),
    )
    .unwrap();
    rows
}

#[test]
fn an_event_looks_as_documented() {
    let event = rows(
        Some(b"UA"),
        Some(b"{ \"id\": 9007199254740993,\n \"x\": -0.0 }"),
        &[("source", b"gate-3")],
    );
    assert_eq!(
        shown(Format::Json, Layout::AsStored, &event),
        "{\"partition\":2,\"offset\":12,\"key\":\"UA\",\"value\":{ \"id\": 9007199254740993,\n \"x\": -0.0 },\
         \"headers\":[[\"source\",\"gate-3\"]],\"time\":\"2013-01-01T10:15:00Z\",\"ingest_time\":\"2025-11-29T12:00:00.000123Z\"}"
    );
    assert!(
        shown(Format::Json, Layout::OneLine, &event)
            .contains("\"value\":{ \"id\": 9007199254740993,  \"x\": -0.0 },")
    );
}

#[test]
fn what_is_no_text_comes_as_base64() {
    for (format, key, value, expected) in [
        (
            Format::Json,
            Some(b"\xff".as_slice()),
            Some(b"1".as_slice()),
            json!({"key_base64": "/w==", "value": 1}),
        ),
        (
            Format::Json,
            Some(b""),
            Some(b"not json"),
            json!({"key": "", "value_base64": "bm90IGpzb24="}),
        ),
        (
            Format::Json,
            None,
            Some(b"\"\xff\""),
            json!({"key": null, "value_base64": "Iv8i"}),
        ),
        (
            Format::Json,
            None,
            Some(b"null"),
            json!({"key": null, "value": null}),
        ),
        (
            Format::Json,
            None,
            None,
            json!({"key": null, "value": null, "tombstone": true}),
        ),
        (
            Format::Json,
            None,
            Some(b""),
            json!({"key": null, "value_base64": ""}),
        ),
        (
            Format::Bytes,
            None,
            Some(b"a\"\n"),
            json!({"key": null, "value": "a\"\n"}),
        ),
        (
            Format::Bytes,
            None,
            Some(b"\xff"),
            json!({"key": null, "value_base64": "/w=="}),
        ),
        (
            Format::Bytes,
            None,
            None,
            json!({"key": null, "value": null, "tombstone": true}),
        ),
    ] {
        let headers: &[(&str, &[u8])] =
            &[("a", b"1"), ("a", b"2"), ("A", b"\xff\0"), ("empty", b"")];
        let text = shown(format, Layout::OneLine, &rows(key, value, headers));
        let mut event: Value = serde_json::from_str(&text).unwrap();
        let all = event.as_object_mut().unwrap();
        assert_eq!(
            all.remove("headers").unwrap(),
            json!([["a", "1"], ["a", "2"], ["A", {"base64": "/wA="}], ["empty", ""]])
        );
        for fixed in ["partition", "offset", "time", "ingest_time"] {
            all.remove(fixed).unwrap();
        }
        assert_eq!(event, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_event_is_one_line_of_json(
        key in prop::option::of(prop::collection::vec(any::<u8>(), 0..8)),
        value in prop::option::of(prop::collection::vec(any::<u8>(), 0..16)),
        json in any::<bool>(),
        name in ".{0,5}",
        header in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let format = if json { Format::Json } else { Format::Bytes };
        let text = shown(format, Layout::OneLine, &rows(key.as_deref(), value.as_deref(), &[(&name, &header)]));
        prop_assert!(!text.contains('\n'));
        let event: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&event["headers"][0][0], &json!(name));
        prop_assert_eq!(event["tombstone"] == json!(true), value.is_none());
        if let (Some(value), false) = (&value, json) {
            let back = match (&event["value"], &event["value_base64"]) {
                (Value::String(text), Value::Null) => text.clone().into_bytes(),
                (Value::Null, Value::String(text)) => base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text).unwrap(),
                other => panic!("{other:?}"),
            };
            prop_assert_eq!(&back, value);
        }
    }
}

#[test]
fn accept_chooses_the_form() {
    let form = |accept: Option<&'static str>| {
        let mut headers = HeaderMap::new();
        if let Some(accept) = accept {
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        }
        form_of(&headers).map_err(|problem| problem.code)
    };
    assert_eq!(form(None), Ok(Form::Json));
    assert_eq!(form(Some("*/*")), Ok(Form::Json));
    assert_eq!(
        form(Some("text/html, application/x-ndjson;q=0.5")),
        Ok(Form::Lines)
    );
    assert_eq!(form(Some("text/event-stream")), Ok(Form::Events));
    assert_eq!(form(Some("image/png")), Err("not-acceptable"));
}
