//! What is accepted is read as serde_json reads it; what is ordinary is accepted.

use crate::{Cursor, from_str};
use proptest::prelude::*;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// Whether it is accepted; then serde_json agrees.
fn accepted<T: DeserializeOwned + Debug>(text: &str) -> bool {
    let Ok(ours) = from_str::<T>(text) else {
        return false;
    };
    let theirs = serde_json::from_str::<T>(text).expect("only what serde_json accepts");
    // The debug form also tells -0.0 from 0.0.
    assert_eq!(format!("{ours:?}"), format!("{theirs:?}"), "{text}");
    true
}

/// The same for a text that is stepped over.
fn skipped(text: &str) -> bool {
    let mut at = Cursor::new(text);
    let ok = at.value().and_then(|_| at.end()).is_ok();
    if ok {
        serde_json::from_str::<IgnoredAny>(text).expect("only what serde_json accepts");
    }
    ok
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "read through Debug")]
enum Kind {
    Plain,
    Of(i64),
    Pair(u8, String),
    With { size: f32 },
}

#[derive(Debug, Deserialize)]
struct Unit;

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "read through Debug")]
struct Wrapped(u16);

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "read through Debug")]
#[serde(untagged)]
enum Either {
    Number(i32),
    Text(String),
    Other(Value),
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "read through Debug")]
struct Everything {
    small: i8,
    #[serde(default)]
    large: u64,
    float: f64,
    single: f32,
    text: String,
    letter: char,
    flag: bool,
    maybe: Option<Box<Everything>>,
    kind: Kind,
    kinds: Vec<Kind>,
    unit: Unit,
    nothing: (),
    wrapped: Wrapped,
    pair: (i32, f64),
    either: Vec<Either>,
    named: BTreeMap<String, Value>,
    #[serde(rename = "with \"quotes\"", default)]
    odd: Option<i32>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

const EVERYTHING: &str = r#" { "small":-12, "large" : 18446744073709551, "float":-0.125e-3,"single":0.1,
 "text":"plain","letter":"ä","flag":true, "maybe":null, "kind":"Plain",
 "kinds":[{"Of":-3},{"Pair":[1,"two"]},{"With":{"size":2.5}},{"With":[3]},"Plain" , {"Plain":null}],
 "unit":null,"nothing":null,"wrapped":7,"pair":[1,2.0],"either":[1,"two",{"three":[]}, 4.5, null],
 "named":{"":{},"é\n":[[]]},"with \"quotes\"":5,"unknown":[{},{"a":{"b":[1,2,{"c":"\ud83d\ude00\u00e9\/"}]}}],
 "more":1.5 } "#;

#[test]
fn every_kind_of_value_is_read() {
    assert!(accepted::<Everything>(EVERYTHING));
    assert!(accepted::<Value>(EVERYTHING));
    assert!(skipped(EVERYTHING));
}

#[test]
fn every_damage_is_declined_or_read_the_same() {
    let mut bytes = EVERYTHING.as_bytes().to_vec();
    for at in 0..bytes.len() {
        let was = bytes[at];
        for other in *b"\"\\{}[]:,0 1-.eEnt\x00\nau" {
            bytes[at] = other;
            if let Ok(text) = std::str::from_utf8(&bytes) {
                accepted::<Everything>(text);
                accepted::<Value>(text);
                skipped(text);
            }
        }
        bytes[at] = was;
    }
    for at in 0..EVERYTHING.trim_end().len() {
        if let Some(cut) = EVERYTHING.get(..at) {
            assert!(!accepted::<Value>(cut) && !skipped(cut), "cut at {at}");
        }
    }
}

#[test]
fn numbers_are_read_to_the_last_bit() {
    for text in [
        "0",
        "-1",
        "10",
        "0.1",
        "-0.0",
        "0.30000000000000004",
        "123456.789",
        "9007199254740992.5",
        "1e22",
        "1E+5",
        "5e-324",
        "1.7976931348623157e308",
        "999999999999999999",
        "2.2250738585072011e-308",
        "-999999999999999999",
        "0.000000000000000001",
        "1.000000000000000000000000001",
        "12345678901234567.8",
    ] {
        assert!(
            accepted::<Value>(text) && accepted::<f64>(text) && skipped(text),
            "{text}"
        );
        accepted::<f32>(text);
        accepted::<u8>(text);
        accepted::<i64>(text);
    }
    for text in [
        "01", "-", "1.", ".5", "1e", "1e+", "+1", "0x1", "1 2", "1-", "--1", "00", "-01", "1.e3",
        "NaN",
    ] {
        assert!(!accepted::<Value>(text) && !skipped(text), "{text}");
        assert!(!accepted::<f32>(text));
    }
    // Read by a complete parser, and valid.
    for text in [
        "-0",
        "18446744073709551615",
        "18446744073709551616",
        "1e999",
    ] {
        assert!(!accepted::<Value>(text) && skipped(text), "{text}");
    }
}

#[test]
fn nesting_has_a_bound() {
    for (depth, ordinary) in [(99, true), (101, false), (200, false), (100_000, false)] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let text = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            assert_eq!(accepted::<Value>(&text), ordinary, "{depth} of {open}");
            assert_eq!(skipped(&text), ordinary, "{depth} of {open}");
        }
    }
}

#[test]
fn a_swallowed_error_is_not_gone_on_from() {
    fn lenient<'de, D: serde::Deserializer<'de>>(json: D) -> Result<u32, D::Error> {
        Ok(u32::deserialize(json).unwrap_or(7))
    }
    #[derive(Debug, Deserialize)]
    struct Lenient {
        #[serde(deserialize_with = "lenient")]
        number: u32,
    }
    assert_eq!(
        from_str::<Lenient>(r#"{"number":3}"#).map(|l| l.number),
        Ok(3)
    );
    assert!(from_str::<Lenient>(r#"{"number":"x"}"#).is_err());
}

#[test]
fn types_that_ask_for_one_thing_are_not_given_another() {
    for text in [
        "1",
        "\"1\"",
        "true",
        "null",
        "[1]",
        "{\"1\":1}",
        "1.5",
        "\"\\u0031\"",
        "\"\\ud800\"",
    ] {
        accepted::<String>(text);
        accepted::<char>(text);
        accepted::<bool>(text);
        accepted::<()>(text);
        accepted::<u8>(text);
        accepted::<f32>(text);
        accepted::<Option<u8>>(text);
        accepted::<Vec<u8>>(text);
        accepted::<(u8,)>(text);
        accepted::<BTreeMap<String, u8>>(text);
        accepted::<BTreeMap<u8, u8>>(text);
        accepted::<Box<[u8]>>(text);
        accepted::<Wrapped>(text);
        accepted::<Unit>(text);
        accepted::<Kind>(text);
        accepted::<Either>(text);
        accepted::<Box<serde_json::value::RawValue>>(text);
    }
}

pub(crate) fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1000_i64..1000).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z\"\\\\\u{0}-\u{1f}äß😀]{0,20}".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::btree_map("[a-d\"é]{0,9}", inner, 0..6)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn what_serde_json_writes_is_read(value in json(), pretty: bool) {
        let text = if pretty { format!("{value:#}") } else { value.to_string() };
        prop_assert!(skipped(&text));
        accepted::<Value>(&text);
        accepted::<Either>(&text);
    }

    #[test]
    fn any_text_is_declined_or_read_the_same(text in "[\\[\\]{}\",:0-9eE.+\\-\\\\ truefalsn\n]{0,24}") {
        accepted::<Value>(&text);
        skipped(&text);
    }
}
