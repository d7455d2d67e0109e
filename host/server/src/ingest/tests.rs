use super::forms::{Each, take_document, take_lines};
use super::intake::{Intake, KeyFrom, TimeSource};
use super::packed::Front;
use super::pick::{Found, pick};
use super::plan::{Form, form_of};
use super::pointer::Pointer;
use super::rows::Rows;
use crate::body::{Encoding, decompress};
use axum::http::{HeaderMap, HeaderValue, header};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::io::Write;
use tidemill_log::{Format, TimeUnit};
use tidemill_types::{PackedRows, RowView, Timestamp, partition_of_key};

fn pointer(text: &str) -> Pointer {
    Pointer::read(text).unwrap()
}

fn intake(key: KeyFrom, time: TimeSource) -> Intake {
    Intake { partitions: 4, format: Format::Json, key, time, now: 7, single: false, event_bytes: 1 << 20, continue_on_error: false, sticky: 3 }
}

/// Takes a body; gives key, value, headers, time and partition of each event, or the refusals.
fn taken(intake: &Intake, body: &str, take: impl Fn(&Intake, &mut Rows, &[u8])) -> Result<Vec<Value>, Vec<String>> {
    let mut rows = Rows::over(body.len());
    take(intake, &mut rows, body.as_bytes());
    if rows.refused > 0 {
        let line = |line: Option<u64>| line.map_or(String::new(), |line| format!(" line {line}"));
        return Err(rows.refusals.iter().map(|r| format!("{}{} {}: {}", r.index, line(r.line), r.pointer, r.reason)).collect());
    }
    let mut payload = body.as_bytes().to_vec();
    rows.finish(&mut payload);
    let text = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let shown = rows.heads.iter().zip(&rows.partitions).map(|(head, partition)| {
        assert!(head.fits(payload.len()));
        let row = RowView::new(*head, &payload);
        assert!(row.headers.are_valid());
        let headers: Vec<_> = row.headers.map(|(name, value)| json!([name, text(Some(value))])).collect();
        json!([text(row.key), text(row.value), headers, row.time.micros(), partition])
    });
    Ok(shown.collect())
}

fn lines(intake: &Intake, body: &str) -> Result<Vec<Value>, Vec<String>> {
    taken(intake, body, |intake, rows, body| drop(take_lines(intake, rows, body, Each::Value, 1).unwrap()))
}

fn document(intake: &Intake, body: &str, each: Each) -> Result<Vec<Value>, Vec<String>> {
    taken(intake, body, |intake, rows, body| drop(take_document(intake, rows, body, each)))
}

/// What is JSON and what isn't, whether or not anything is looked for in it.
#[test]
fn accepts_exactly_json() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let deep_object = |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
    let brackets_in_text = format!("{{\"a\":\"{}\"}}", "[\\\"".repeat(400));
    let long = |text: &str| format!("{text}{}", " ".repeat(300));
    let good = [
        "{}", "[]", "0", "-0.0", "1e400", "1E-400", "18446744073709551616", "-9223372036854775809", "\"\"", "null", "true",
        r#"{"a":1e400,"b":18446744073709551615}"#, r#"{"a":"\ud800"}"#, r#"{"\ud800":1,"a":2}"#, r#"{"a":1,"a":2}"#, r#"{"":0}"#,
        " \t{ \"a\" : [ 1 , 2 ] } \r", r#""é\u00e9\n\/""#, "[[],{},[{}]]", "123456789012345678901234567890.12345678901234567890e-5",
        &deep(128), &deep_object(128), &brackets_in_text, &long("{}"),
    ];
    let bad = [
        "", " ", "{", "}", "[1,]", "{\"a\":1,}", "{a:1}", "{'a':1}", "01", "-", "+1", ".5", "1.", "1e", "NaN", "Infinity", "-Infinity",
        "tru", "nul", "\"", "\"\n\"", "\"\u{0}\"", r#""\x""#, r#""\u12G4""#, r#""\u12""#, "// c\n1", "/* */1", "1 2", "{}{}", "[1 2]",
        "{\"a\" 1}", "{\"a\":}", "{1:2}", "\u{feff}{}", "0x10", "[", "]", "\"a\\\"", &deep(129), &deep_object(129), &deep(100_000),
    ];
    let pointers = [None, Some(pointer("/a")), Some(pointer("/a/b")), Some(pointer("")), Some(pointer("/0/1"))];
    for key in &pointers {
        for time in &pointers {
            for text in good {
                pick(text, key.as_ref(), time.as_ref()).unwrap_or_else(|why| panic!("{text:.60} with {key:?}, {time:?}: {why}"));
            }
            for text in bad {
                assert!(pick(text, key.as_ref(), time.as_ref()).is_err(), "{text:.60} with {key:?}, {time:?}");
            }
        }
    }
}

#[test]
fn picks_what_pointers_name() {
    for (text, key, time, expected) in [
        (r#"{"a":"x","b":1}"#, "/a", "/b", (Some("\"x\""), Some("1"))),
        (r#"{"a": {"b" : [ 10, {"c":"x"} ]}}"#, "/a/b/1/c", "/a/b/0", (Some("\"x\""), Some("10"))),
        (r#"{"a":{"b":2}}"#, "/a", "/a/b", (Some(r#"{"b":2}"#), Some("2"))),
        (r#"{"a":1,"a":2}"#, "/a", "/b", (Some("2"), None)),
        (r#"{"a":{"b":1},"a":3}"#, "/a/b", "/a", (None, Some("3"))),
        (r#"{"\u0061":1}"#, "/a", "/b", (Some("1"), None)),
        (r#"{"a/b":{"~":5}}"#, "/a~1b/~0", "/a", (Some("5"), None)),
        (r#"[0,[1,2]]"#, "/1/1", "/01", (Some("2"), None)),
        (r#" "whole" "#, "", "/a", (Some("\"whole\""), None)),
        (r#"{"a":1e400}"#, "/a/b", "/a", (None, Some("1e400"))),
        (r#"{"id":9007199254740993}"#, "/id", "/id", (Some("9007199254740993"), Some("9007199254740993"))),
    ] {
        let found = pick(text, Some(&pointer(key)), Some(&pointer(time)));
        assert_eq!(found, Ok(Found { key: expected.0, time: expected.1 }), "{text} {key} {time}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c\"\\\\/~é\u{1F600}\n]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-b/~\"]{0,2}", inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn agrees_with_a_parser_that_builds_values(value in any_json(), key in "(/([a-b]|~0|~1|[0-2]|\"){0,2}){0,3}", time in "(/[a-b0-1]{0,2}){0,2}", pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&value).unwrap() } else { value.to_string() };
        let found = pick(&text, Some(&pointer(&key)), Some(&pointer(&time))).unwrap();
        let parsed = |raw: Option<&str>| raw.map(|raw| serde_json::from_str::<Value>(raw).unwrap());
        let expected: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(parsed(found.key), expected.pointer(&key).cloned());
        prop_assert_eq!(parsed(found.time), expected.pointer(&time).cloned());
    }

    #[test]
    fn accepts_what_a_parser_accepts(text in "[\\[\\]{}\":,0-9a\\-+.eE\\\\ntrufals ]{0,16}") {
        // Numbers that a double can't hold are JSON all the same, so they are left out of the comparison.
        let reference = serde_json::from_str::<Value>(&text);
        if reference.as_ref().err().is_none_or(|error| !error.to_string().contains("number out of range")) {
            prop_assert_eq!(pick(&text, Some(&pointer("/a")), None).is_ok(), reference.is_ok(), "{}", text);
        }
    }

    #[test]
    fn lines_and_arrays_take_the_same_events(values in prop::collection::vec(any_json(), 1..6)) {
        let intake = intake(KeyFrom::Pointer(pointer("/a")), TimeSource::Given(1));
        let by_line: String = values.iter().map(|value| format!("{value}\n")).collect();
        let as_array = format!(" [{}] ", values.iter().map(Value::to_string).collect::<Vec<_>>().join(" , "));
        let array = document(&intake, &as_array, Each::Value);
        let lines = lines(&intake, &by_line);
        prop_assert_eq!(lines.is_ok(), array.is_ok());
        if let (Ok(lines), Ok(array)) = (lines, array) {
            prop_assert_eq!(&lines, &array);
            let stored: Vec<_> = values.iter().map(Value::to_string).collect();
            let taken: Vec<_> = lines.iter().map(|event| event[1].as_str().unwrap().to_owned()).collect();
            prop_assert_eq!(taken, stored);
        }
    }
}

#[test]
fn lines_become_rows_in_place() {
    let plan = intake(KeyFrom::Pointer(pointer("/k")), TimeSource::Pointer(pointer("/t"), TimeUnit::Millis));
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
    assert_eq!(both, [json!(["UA", "1", [], 9, key("UA")]), json!(["UA", "2", [], 9, key("UA")])]);
}

#[test]
fn refusals_say_which_line_and_why() {
    let plan = intake(KeyFrom::Pointer(pointer("/k")), TimeSource::Pointer(pointer("/t"), TimeUnit::Rfc3339));
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
    assert_eq!((read, rows.seen, rows.refused, rows.heads.len()), (3, 3, 1, 2));
    assert_eq!((rows.refusals[0].index, rows.refusals[0].line), (1, Some(11)));
    assert!(rows.refusals[0].reason.contains("not UTF-8 at byte 2"));
}

#[test]
fn arrays_are_flattened_by_one_level() {
    let plan = intake(KeyFrom::Null, TimeSource::Given(1));
    let values = |body: &str| document(&plan, body, Each::Value).map(|all| all.iter().map(|event| event[1].clone()).collect::<Vec<_>>());
    assert_eq!(values("[ {\"a\": [1]} ,[2], 3]").unwrap(), [json!("{\"a\": [1]}"), json!("[2]"), json!("3")]);
    assert_eq!(values(" {\"a\":1}\n").unwrap(), [json!("{\"a\":1}")]);
    assert_eq!(values("[]").unwrap(), Vec::<Value>::new());
    assert!(values("[1,{\"a\":}]").unwrap_err()[0].starts_with("1 : expected value"));
    assert!(values("[1").unwrap_err()[0].starts_with("1 : EOF"));
    assert!(values("[1] 2").unwrap_err()[0].contains("trailing characters"));
    let single = Intake { single: true, ..plan };
    let mut rows = Rows::over(3);
    let refusal = take_document(&single, &mut rows, b"[1]", Each::Value).unwrap_err();
    assert!(refusal.detail.contains("single event"), "{}", refusal.detail);
}

#[test]
fn sizes_are_bounded_by_event() {
    let plan = Intake { event_bytes: 10, ..intake(KeyFrom::Null, TimeSource::Given(1)) };
    assert_eq!(lines(&plan, "\"12345678\"").unwrap().len(), 1);
    let refusals = lines(&plan, "1\n\"123456789\"\n3").unwrap_err();
    assert_eq!(refusals, ["1 line 2 : the event has 11 bytes of key, value and headers; 10 are allowed"]);
    let keyed = Intake { key: KeyFrom::Fixed(b"abc".to_vec()), ..plan };
    assert!(lines(&keyed, "\"123456\"").is_err());
}

#[test]
fn typed_events_carry_everything() {
    let plan = intake(KeyFrom::Pointer(pointer("/k")), TimeSource::Pointer(pointer("/t"), TimeUnit::Seconds));
    let p = |key: &str| partition_of_key(key.as_bytes(), 4);
    let ff = "\u{fffd}";
    for (event, expected) in [
        (r#"{"key":"UA","value":{"a": 1},"time_us":5}"#, json!(["UA", "{\"a\": 1}", [], 5, p("UA")])),
        (r#"{"key":"U\u0041","value":null,"time_ms":5,"partition":2}"#, json!(["UA", "null", [], 5000, 2])),
        (r#"{"key":null,"value":{"k":"x","t":1}}"#, json!([null, "{\"k\":\"x\",\"t\":1}", [], 1_000_000, 3])),
        (r#"{"value":{"k":"x","t":1}}"#, json!(["x", "{\"k\":\"x\",\"t\":1}", [], 1_000_000, p("x")])),
        (r#"{"value":{"k":"x","t":1},"headers":[["a","1"],["a","2"],["A",{"base64":"/w=="}],["empty",""]]}"#,
         json!(["x", "{\"k\":\"x\",\"t\":1}", [["a", "1"], ["a", "2"], ["A", ff], ["empty", ""]], 1_000_000, p("x")])),
        (r#"{"value_base64":"eyJrIjoieCIsInQiOjF9"}"#, json!(["x", "{\"k\":\"x\",\"t\":1}", [], 1_000_000, p("x")])),
        (r#"{"key_base64":"/w==","tombstone":true,"value":null,"time":"1970-01-01T00:00:01Z"}"#,
         json!([ff, null, [], 1_000_000, partition_of_key(b"\xff", 4)])),
        (r#"{"key":"a","tombstone":true,"time_us":0,"headers":[["h","v"]]}"#, json!(["a", null, [["h", "v"]], 0, p("a")])),
    ] {
        assert_eq!(document(&plan, event, Each::Typed), Ok(vec![expected.clone()]), "{event}");
        let by_line = taken(&plan, event, |intake, rows, body| drop(take_lines(intake, rows, body, Each::Typed, 1).unwrap()));
        assert_eq!(by_line, Ok(vec![expected]), "{event}");
    }
}

#[test]
fn typed_events_that_make_no_sense_are_refused() {
    let plan = intake(KeyFrom::Null, TimeSource::Header("ts".into(), TimeUnit::Seconds));
    for (event, says) in [
        ("5", "invalid type"),
        (r#"{"value":1,"colour":2}"#, "unknown field `colour`"),
        (r#"{"time_us":1}"#, "\"value\" is missing"),
        (r#"{"value":1,"value_base64":"","time_us":1}"#, "one of"),
        (r#"{"value":1,"tombstone":true,"time_us":1}"#, "one of"),
        (r#"{"value_base64":"?","time_us":1}"#, "/value_base64: not base64"),
        (r#"{"value_base64":"e30","time_us":1}"#, "/value_base64: not base64"),
        (r#"{"value_base64":"ew==","time_us":1}"#, "/value_base64: EOF"),
        (r#"{"value":1,"key":"a","key_base64":"","time_us":1}"#, "one of"),
        (r#"{"value":1,"key":7,"time_us":1}"#, "invalid type: integer `7`"),
        (r#"{"value":1,"time":"1970-01-01T00:00:01Z","time_us":1}"#, "one of"),
        (r#"{"value":1,"time":"noon"}"#, "/time: \"noon\" is not an RFC 3339"),
        (r#"{"value":1,"time_ms":9223372036854775807}"#, "/time_ms: out of range"),
        (r#"{"value":1}"#, "/headers: the event time is missing: the header \"ts\""),
        (r#"{"value":1,"headers":[["ts","soon"]]}"#, "/headers: \"soon\""),
        (r#"{"value":1,"headers":[["ts",5]]}"#, "a header's value is text or"),
        (r#"{"value":1,"headers":{"ts":"5"}}"#, "invalid type: map"),
        (r#"{"value":1,"time_us":1,"partition":4}"#, "/partition: the topic has 4 partitions"),
        (r#"{"value":1,"headers":[["x",{"base64":"*"}],["ts","1"]]}"#, "/headers/0/1/base64: not base64"),
    ] {
        let refusals = document(&plan, event, Each::Typed).expect_err(event);
        assert!(refusals[0].contains(says), "{event}: {refusals:?}");
    }
    let header = document(&plan, r#"{"value":1,"headers":[["ts","4"],["ts","5"]]}"#, Each::Typed).unwrap();
    assert_eq!(header[0][3], 5_000_000, "the last header of the name counts");
}

#[test]
fn typed_values_of_bytes_topics_are_text_or_base64() {
    let plan = Intake { format: Format::Bytes, ..intake(KeyFrom::Null, TimeSource::Given(1)) };
    let value = |event: &str| document(&plan, event, Each::Typed).map(|all| all[0][1].clone());
    assert_eq!(value(r#"{"value":"a\nb"}"#), Ok(json!("a\nb")));
    assert_eq!(value(r#"{"value_base64":""}"#), Ok(json!("")));
    assert!(value(r#"{"value":{"a":1}}"#).unwrap_err()[0].contains("values of this topic are bytes"));
}

fn packed(rows: &PackedRows) -> Vec<u8> {
    let mut body = Vec::new();
    for field in [1, u32::try_from(rows.len()).unwrap(), u32::try_from(rows.payload.len()).unwrap(), 0] {
        body.extend(field.to_le_bytes());
    }
    body.extend(rows.heads.iter().flat_map(|head| head.to_bytes()));
    body.extend(&rows.payload);
    body
}

/// Takes a packed body that arrives in parts of this length.
fn unpack(body: &[u8], part: usize) -> Result<(Rows, Vec<u8>), String> {
    let plan = intake(KeyFrom::Null, TimeSource::Given(1));
    let (mut front, mut payload) = (Front::default(), Vec::new());
    body.chunks(part).for_each(|bytes| front.take(bytes, &mut payload));
    let mut rows = Rows::over(payload.len());
    front.finish(&plan, &mut rows, &payload).map_err(|problem| problem.detail)?;
    Ok((rows, payload))
}

#[test]
fn packed_batches_are_taken_as_they_are() {
    let mut rows = PackedRows::default();
    rows.push(Timestamp::from_micros(5), Some(b"UA"), Some(b"anything"), [("h", b"v".as_slice())]).unwrap();
    rows.push(Timestamp::from_micros(i64::MIN), None, None, []).unwrap();
    let body = packed(&rows);
    for part in [1, 7, 16, 40, 1000] {
        let (taken, payload) = unpack(&body, part).unwrap();
        assert_eq!(payload, rows.payload);
        assert_eq!(taken.heads[0], rows.heads[0]);
        assert_eq!(taken.heads[1].time, 7, "the time of acceptance");
        assert_eq!(taken.partitions, [partition_of_key(b"UA", 4), 3]);
    }
    let broken = |at: usize, byte: u8| {
        let mut body = body.clone();
        body[at] = byte;
        unpack(&body, 64).map(|_| ()).unwrap_err()
    };
    assert!(broken(0, 2).contains("version 2"));
    assert!(broken(4, 9).contains("announces 9 rows"));
    assert!(broken(8, 0).contains("bytes of payload"));
    assert!(broken(16 + 15, 0xff).contains("row 0 points outside"));
    assert!(broken(16 + 28, 0xff).contains("row 0 points outside"));
    assert!(broken(16 + 64 + 10, 0xff).contains("headers of row 0"));
    assert!(unpack(&body[..10], 64).is_err_and(|why| why.contains("10 bytes")));
    assert!(unpack(&body[..body.len() - 1], 64).is_err_and(|why| why.contains("the body has")));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_packed_body_breaks_anything(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), part in 1_usize..50) {
        let mut rows = PackedRows::default();
        rows.push(Timestamp::from_micros(5), Some(b"UA"), Some(b"anything"), [("h", b"v".as_slice())]).unwrap();
        let mut body = packed(&rows);
        for (at, byte) in flips {
            let at = at.index(body.len());
            body[at] = byte;
        }
        if let Ok((rows, payload)) = unpack(&body, part) {
            for head in &rows.heads {
                prop_assert!(RowView::new(*head, &payload).headers.are_valid());
            }
        }
    }
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
        ("Application/JSON; charset=utf-8", Form::Document(Each::Value)),
        ("application/x-ndjson", Form::Lines(Each::Value)),
        ("application/vnd.tidemill.events+json", Form::Document(Each::Typed)),
        ("application/vnd.tidemill.events+ndjson", Form::Lines(Each::Typed)),
        ("application/vnd.tidemill.batch", Form::Packed),
    ] {
        assert_eq!(form(Some(given), Format::Json), Ok(expected));
        assert_eq!(form(Some(given), Format::Bytes), Ok(expected));
    }
    for other in [Some("text/html"), Some("application/octet-stream"), Some(""), None] {
        assert_eq!(form(other, Format::Json), Err("unsupported-media-type"), "{other:?}");
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
            decompress(encoding, bytes, most, |part| out.extend_from_slice(part)).map(|()| out).map_err(|problem| problem.code)
        };
        assert_eq!(unpack(packed, body.len()).as_deref(), Ok(&body[..]), "{encoding:?}");
        assert_eq!(unpack(&packed.repeat(2), 2 * body.len()).as_deref(), Ok(&body.repeat(2)[..]), "{encoding:?}");
        assert_eq!(unpack(packed, body.len() - 1), Err("too-large"), "{encoding:?}");
        assert_eq!(unpack(b"not compressed at all", 100), Err("incomplete-body"), "{encoding:?}");
        for cut in 1..packed.len() {
            assert_eq!(unpack(&packed[..cut], body.len()), Err("incomplete-body"), "{encoding:?} cut at {cut}");
        }
    }
}
