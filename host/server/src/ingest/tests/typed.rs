//! Typed events.

use super::super::forms::{Each, take_lines};
use super::super::intake::{Intake, KeyFrom, TimeSource};
use super::{document, intake, pointer, taken};
use serde_json::json;
use tidemill_log::{Format, TimeUnit};
use tidemill_types::partition_of_key;

#[test]
fn typed_events_carry_everything() {
    let plan = intake(
        KeyFrom::Pointer(pointer("/k")),
        TimeSource::Pointer(pointer("/t"), TimeUnit::Seconds),
    );
    let p = |key: &str| partition_of_key(key.as_bytes(), 4);
    let ff = "\u{fffd}";
    for (event, expected) in [
        (
            r#"{"key":"UA","value":{"a": 1},"time_us":5}"#,
            json!(["UA", "{\"a\": 1}", [], 5, p("UA")]),
        ),
        (
            r#"{"key":"U\u0041","value":null,"time_ms":5,"partition":2}"#,
            json!(["UA", "null", [], 5000, 2]),
        ),
        (
            r#"{"key":null,"value":{"k":"x","t":1}}"#,
            json!([null, "{\"k\":\"x\",\"t\":1}", [], 1_000_000, 3]),
        ),
        (
            r#"{"value":{"k":"x","t":1}}"#,
            json!(["x", "{\"k\":\"x\",\"t\":1}", [], 1_000_000, p("x")]),
        ),
        (
            r#"{"value":{"k":"x","t":1},"headers":[["a","1"],["a","2"],["A",{"base64":"/w=="}],["empty",""]]}"#,
            json!([
                "x",
                "{\"k\":\"x\",\"t\":1}",
                [["a", "1"], ["a", "2"], ["A", ff], ["empty", ""]],
                1_000_000,
                p("x")
            ]),
        ),
        (
            r#"{"value_base64":"eyJrIjoieCIsInQiOjF9"}"#,
            json!(["x", "{\"k\":\"x\",\"t\":1}", [], 1_000_000, p("x")]),
        ),
        (
            r#"{"key_base64":"/w==","tombstone":true,"value":null,"time":"1970-01-01T00:00:01Z"}"#,
            json!([ff, null, [], 1_000_000, partition_of_key(b"\xff", 4)]),
        ),
        (
            r#"{"key":"a","tombstone":true,"time_us":0,"headers":[["h","v"]]}"#,
            json!(["a", null, [["h", "v"]], 0, p("a")]),
        ),
    ] {
        assert_eq!(
            document(&plan, event, Each::Typed),
            Ok(vec![expected.clone()]),
            "{event}"
        );
        let by_line = taken(&plan, event, |intake, rows, body| {
            let _ = take_lines(intake, rows, body, Each::Typed, 1).unwrap();
        });
        assert_eq!(by_line, Ok(vec![expected]), "{event}");
    }
}

#[test]
fn typed_events_that_make_no_sense_are_refused() {
    let plan = intake(
        KeyFrom::Null,
        TimeSource::Header("ts".into(), TimeUnit::Seconds),
    );
    for (event, says) in [
        ("5", "invalid type"),
        (r#"{"value":1,"colour":2}"#, "unknown field `colour`"),
        (r#"{"time_us":1}"#, "\"value\" is missing"),
        (r#"{"value":1,"value_base64":"","time_us":1}"#, "one of"),
        (r#"{"value":1,"tombstone":true,"time_us":1}"#, "one of"),
        (
            r#"{"value_base64":"?","time_us":1}"#,
            "/value_base64: not base64",
        ),
        (
            r#"{"value_base64":"e30","time_us":1}"#,
            "/value_base64: not base64",
        ),
        (
            r#"{"value_base64":"ew==","time_us":1}"#,
            "/value_base64: EOF",
        ),
        (
            r#"{"value":1,"key":"a","key_base64":"","time_us":1}"#,
            "one of",
        ),
        (
            r#"{"value":1,"key":7,"time_us":1}"#,
            "invalid type: integer `7`",
        ),
        (
            r#"{"value":1,"time":"1970-01-01T00:00:01Z","time_us":1}"#,
            "one of",
        ),
        (
            r#"{"value":1,"time":"noon"}"#,
            "/time: \"noon\" is not an RFC 3339",
        ),
        (
            r#"{"value":1,"time_ms":9223372036854775807}"#,
            "/time_ms: out of range",
        ),
        (
            r#"{"value":1}"#,
            "/headers: the event time is missing: the header \"ts\"",
        ),
        (
            r#"{"value":1,"headers":[["ts","soon"]]}"#,
            "/headers: \"soon\"",
        ),
        (
            r#"{"value":1,"headers":[["ts",5]]}"#,
            "a header's value is text or",
        ),
        (r#"{"value":1,"headers":{"ts":"5"}}"#, "invalid type: map"),
        (
            r#"{"value":1,"time_us":1,"partition":4}"#,
            "/partition: the topic has 4 partitions",
        ),
        (
            r#"{"value":1,"headers":[["x",{"base64":"*"}],["ts","1"]]}"#,
            "/headers/0/1/base64: not base64",
        ),
    ] {
        let refusals = document(&plan, event, Each::Typed).expect_err(event);
        assert!(refusals[0].contains(says), "{event}: {refusals:?}");
    }
    let header = document(
        &plan,
        r#"{"value":1,"headers":[["ts","4"],["ts","5"]]}"#,
        Each::Typed,
    )
    .unwrap();
    assert_eq!(
        header[0][3], 5_000_000,
        "the last header of the name counts"
    );
}

#[test]
fn typed_values_of_bytes_topics_are_text_or_base64() {
    let plan = Intake {
        format: Format::Bytes,
        ..intake(KeyFrom::Null, TimeSource::Given(1))
    };
    let value = |event: &str| document(&plan, event, Each::Typed).map(|all| all[0][1].clone());
    assert_eq!(value(r#"{"value":"a\nb"}"#), Ok(json!("a\nb")));
    assert_eq!(value(r#"{"value_base64":""}"#), Ok(json!("")));
    assert!(
        value(r#"{"value":{"a":1}}"#).unwrap_err()[0].contains("values of this topic are bytes")
    );
}
