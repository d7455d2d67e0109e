//! What is JSON, and what is found in it.

use super::super::intake::{KeyFrom, TimeSource};
use super::super::pick::{Found, pick};
use super::{document, intake, lines, pointer};
use crate::ingest::forms::Each;
use proptest::prelude::*;
use serde_json::Value;

/// What is JSON and what isn't, whether or not anything is looked for in it.
#[test]
fn accepts_exactly_json() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let deep_object =
        |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
    let brackets_in_text = format!("{{\"a\":\"{}\"}}", "[\\\"".repeat(400));
    let long = |text: &str| format!("{text}{}", " ".repeat(300));
    let good = [
        "{}",
        "[]",
        "0",
        "-0.0",
        "1e400",
        "1E-400",
        "18446744073709551616",
        "-9223372036854775809",
        "\"\"",
        "null",
        "true",
        r#"{"a":1e400,"b":18446744073709551615}"#,
        r#"{"a":"\ud800"}"#,
        r#"{"\ud800":1,"a":2}"#,
        r#"{"a":1,"a":2}"#,
        r#"{"":0}"#,
        " \t{ \"a\" : [ 1 , 2 ] } \r",
        r#""é\u00e9\n\/""#,
        "[[],{},[{}]]",
        "123456789012345678901234567890.12345678901234567890e-5",
        &deep(128),
        &deep_object(128),
        &brackets_in_text,
        &long("{}"),
    ];
    let bad = [
        "",
        " ",
        "{",
        "}",
        "[1,]",
        "{\"\u{7}\":1}",
        "{\"a\nb\":1}",
        "{\"a\":\"\t\"}",
        "{\"a\":1,}",
        "{a:1}",
        "{'a':1}",
        "01",
        "-",
        "+1",
        ".5",
        "1.",
        "1e",
        "NaN",
        "Infinity",
        "-Infinity",
        "tru",
        "nul",
        "\"",
        "\"\n\"",
        "\"\u{0}\"",
        r#""\x""#,
        r#""\u12G4""#,
        r#""\u12""#,
        "// c\n1",
        "/* */1",
        "1 2",
        "{}{}",
        "[1 2]",
        "{\"a\" 1}",
        "{\"a\":}",
        "{1:2}",
        "\u{feff}{}",
        "0x10",
        "[",
        "]",
        "\"a\\\"",
        &deep(129),
        &deep_object(129),
        &deep(100_000),
    ];
    let pointers = [
        None,
        Some(pointer("/a")),
        Some(pointer("/a/b")),
        Some(pointer("")),
        Some(pointer("/0/1")),
    ];
    for key in &pointers {
        for time in &pointers {
            for text in good {
                pick(text, key.as_ref(), time.as_ref())
                    .unwrap_or_else(|why| panic!("{text:.60} with {key:?}, {time:?}: {why}"));
            }
            for text in bad {
                assert!(
                    pick(text, key.as_ref(), time.as_ref()).is_err(),
                    "{text:.60} with {key:?}, {time:?}"
                );
            }
        }
    }
}

#[test]
fn picks_what_pointers_name() {
    for (text, key, time, expected) in [
        (r#"{"a":"x","b":1}"#, "/a", "/b", (Some("\"x\""), Some("1"))),
        (
            r#"{"a": {"b" : [ 10, {"c":"x"} ]}}"#,
            "/a/b/1/c",
            "/a/b/0",
            (Some("\"x\""), Some("10")),
        ),
        (
            r#"{"a":{"b":2}}"#,
            "/a",
            "/a/b",
            (Some(r#"{"b":2}"#), Some("2")),
        ),
        (r#"{"a":1,"a":2}"#, "/a", "/b", (Some("2"), None)),
        (r#"{"a":{"b":1},"a":3}"#, "/a/b", "/a", (None, Some("3"))),
        (r#"{"\u0061":1}"#, "/a", "/b", (Some("1"), None)),
        (r#"{"a/b":{"~":5}}"#, "/a~1b/~0", "/a", (Some("5"), None)),
        (r#"[0,[1,2]]"#, "/1/1", "/01", (Some("2"), None)),
        (r#" "whole" "#, "", "/a", (Some("\"whole\""), None)),
        (r#"{"a":1e400}"#, "/a/b", "/a", (None, Some("1e400"))),
        (
            r#"{"id":9007199254740993}"#,
            "/id",
            "/id",
            (Some("9007199254740993"), Some("9007199254740993")),
        ),
    ] {
        let found = pick(text, Some(&pointer(key)), Some(&pointer(time)));
        assert_eq!(
            found,
            Ok(Found {
                key: expected.0,
                time: expected.1
            }),
            "{text} {key} {time}"
        );
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
            prop::collection::btree_map("[a-b/~\"]{0,2}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
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
