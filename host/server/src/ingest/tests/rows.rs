//! Lines and arrays become rows.

use super::super::forms::{Each, take_document, take_lines};
use super::super::intake::{Intake, KeyFrom, TimeSource};
use super::super::rows::Rows;
use super::{document, intake, lines, pointer};
use serde_json::{Value, json};
use tidemill_log::TimeUnit;
use tidemill_types::partition_of_key;

#[test]
fn lines_become_rows_in_place() {
    let plan = intake(
        KeyFrom::Pointer(pointer("/k")),
        TimeSource::Pointer(pointer("/t"), TimeUnit::Millis),
    );
    let body = "\n{\"k\":\"UA\",\"t\":1}\r\n  \n\t{\"t\":-2,\"k\":\"a\\u0062\"} \n{\"k\":null,\"t\":3}\n{\"k\":12.50,\"t\":4}\n{\"t\":\"5\",\"k\":\"\"}";
    let key = |key: &str| partition_of_key(key.as_bytes(), 4);
    assert_eq!(
        lines(&plan, body).unwrap(),
        [
            json!(["UA", "{\"k\":\"UA\",\"t\":1}", [], 1000, key("UA")]),
            json!(["ab", "{\"t\":-2,\"k\":\"a\\u0062\"}", [], -2000, key("ab")]),
            json!([null, "{\"k\":null,\"t\":3}", [], 3000, 3]),
            json!(["12.50", "{\"k\":12.50,\"t\":4}", [], 4000, key("12.50")]),
            json!(["", "{\"t\":\"5\",\"k\":\"\"}", [], 5000, key("")]),
        ]
    );
    let fixed = intake(KeyFrom::Fixed(b"UA".to_vec()), TimeSource::Given(9));
    let both = lines(&fixed, "1\n2\n").unwrap();
    assert_eq!(
        both,
        [
            json!(["UA", "1", [], 9, key("UA")]),
            json!(["UA", "2", [], 9, key("UA")])
        ]
    );
}

#[test]
fn refusals_say_which_line_and_why() {
    let plan = intake(
        KeyFrom::Pointer(pointer("/k")),
        TimeSource::Pointer(pointer("/t"), TimeUnit::Rfc3339),
    );
    let body = "{\"v\":\n\n{\"t\":\"2013-01-01T00:00:00Z\"}\n{\"t\":5}\n{\"k\":1}\n{\"t\":\"2013-01-01T00:00:00Z\",\"k\":[]}\n{\"t\":\"2013-01-01T00:00:00Z\",\"k\":\"\\ud800\"}\n";
    let refusals = lines(&plan, body).unwrap_err();
    let expected = [
        "0 line 1 : EOF while parsing a value at line 1 column 5",
        "2 line 4 /t: \"5\" is not an RFC 3339 time",
        "3 line 5 /t: the event time is missing",
        "4 line 6 /k: the key is an object or an array",
        "5 line 7 /k: the key is a string that is no text",
    ];
    assert_eq!(refusals.len(), expected.len(), "{refusals:?}");
    for (refusal, expected) in refusals.iter().zip(expected) {
        assert!(refusal.starts_with(expected), "{refusal} / {expected}");
    }
}

#[test]
fn bytes_that_are_no_text_are_refused_by_line() {
    let plan = intake(KeyFrom::Null, TimeSource::Given(0));
    let mut rows = Rows::over(0);
    let read = take_lines(&plan, &mut rows, b"1\n\"\xff\"\n3\n", Each::Value, 10).unwrap();
    assert_eq!(
        (read, rows.seen, rows.refused, rows.heads.len()),
        (3, 3, 1, 2)
    );
    assert_eq!(
        (rows.refusals[0].index, rows.refusals[0].line),
        (1, Some(11))
    );
    assert!(rows.refusals[0].reason.contains("not UTF-8 at byte 2"));
}

#[test]
fn arrays_are_flattened_by_one_level() {
    let plan = intake(KeyFrom::Null, TimeSource::Given(1));
    let values = |body: &str| {
        document(&plan, body, Each::Value)
            .map(|all| all.iter().map(|event| event[1].clone()).collect::<Vec<_>>())
    };
    assert_eq!(
        values("[ {\"a\": [1]} ,[2], 3]").unwrap(),
        [json!("{\"a\": [1]}"), json!("[2]"), json!("3")]
    );
    assert_eq!(values(" {\"a\":1}\n").unwrap(), [json!("{\"a\":1}")]);
    assert_eq!(values("[]").unwrap(), Vec::<Value>::new());
    assert!(values("[1,{\"a\":}]").unwrap_err()[0].starts_with("1 : expected value"));
    assert!(values("[1").unwrap_err()[0].starts_with("1 : EOF"));
    assert!(values("[1] 2").unwrap_err()[0].contains("trailing characters"));
    let single = Intake {
        single: true,
        ..plan
    };
    let mut rows = Rows::over(3);
    let refusal = take_document(&single, &mut rows, b"[1]", Each::Value).unwrap_err();
    assert!(
        refusal.detail.contains("single event"),
        "{}",
        refusal.detail
    );
}

#[test]
fn sizes_are_bounded_by_event() {
    let plan = Intake {
        event_bytes: 10,
        ..intake(KeyFrom::Null, TimeSource::Given(1))
    };
    assert_eq!(lines(&plan, "\"12345678\"").unwrap().len(), 1);
    let refusals = lines(&plan, "1\n\"123456789\"\n3").unwrap_err();
    assert_eq!(
        refusals,
        ["1 line 2 : the event has 11 bytes of key, value and headers; 10 are allowed"]
    );
    let keyed = Intake {
        key: KeyFrom::Fixed(b"abc".to_vec()),
        ..plan
    };
    assert!(lines(&keyed, "\"123456\"").is_err());
}
