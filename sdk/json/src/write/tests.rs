//! What is written is written as serde_json writes it; what is ordinary is written.

use crate::append;
use crate::tests::json;
use proptest::prelude::*;
use serde::ser::Error;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Whether it is written; then as serde_json does it. Nothing is left behind where it isn't.
fn written<T: Serialize + ?Sized>(value: &T) -> bool {
    let mut ours = b"before".to_vec();
    let ok = append(value, &mut ours).is_ok();
    let theirs = serde_json::to_string(value).unwrap_or_default();
    let expected = if ok { theirs } else { String::new() };
    assert_eq!(String::from_utf8_lossy(&ours), format!("before{expected}"));
    ok
}

#[derive(Serialize)]
enum Kind {
    Plain,
    Of(i64),
    Pair(u8, &'static str),
    With { size: f32, text: String },
}

#[derive(Serialize)]
struct Unit;

#[derive(Serialize)]
struct Wrapped(u16);

#[derive(Serialize)]
struct Pair(i8, Option<&'static str>);

#[derive(Serialize)]
struct Everything {
    a: i8,
    ab: u64,
    abc: f64,
    abcd: f32,
    #[serde(rename = "with \"quotes\"")]
    odd: Option<i32>,
    name_of_more_than_eight: char,
    name_that_has_more_bytes_than_are_put_word_by_word: bool,
    kinds: Vec<Kind>,
    units: (Unit, (), Wrapped, Pair),
    large: (i128, u128),
    bytes: Bytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<u8>,
    empty: (Vec<u8>, BTreeMap<String, u8>),
    named: BTreeMap<&'static str, Value>,
    by_kind: BTreeMap<char, f64>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

struct Bytes;

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&[1, 2, 255])
    }
}

#[test]
fn every_kind_of_value_is_written() {
    let everything = Everything {
        a: -128,
        ab: u64::MAX,
        abc: -0.0,
        abcd: 0.1,
        odd: Some(i32::MIN),
        name_of_more_than_eight: '"',
        name_that_has_more_bytes_than_are_put_word_by_word: true,
        kinds: vec![
            Kind::Plain,
            Kind::Of(-3),
            Kind::Pair(1, "two"),
            Kind::With {
                size: f32::NAN,
                text: "line\nline".into(),
            },
        ],
        units: (Unit, (), Wrapped(7), Pair(0, None)),
        large: (i128::MIN, u128::MAX),
        bytes: Bytes,
        left_out: None,
        empty: (vec![], BTreeMap::new()),
        named: [("", Value::Null), ("é\t", 1.5.into())].into(),
        by_kind: [('a', 1e300), ('ä', f64::INFINITY)].into(),
        rest: [("more".to_owned(), vec![1, 2].into())].into(),
    };
    assert!(written(&everything));
    assert!(written(&[Some(&everything), None]));
}

#[test]
fn what_serde_json_has_ways_of_its_own_for_is_declined() {
    let by_number: BTreeMap<i32, i32> = [(1, 2)].into();
    assert!(!written(&by_number));
    assert!(!written(&(1, by_number)));
    assert!(!written(&BTreeMap::from([(true, 1)])));
    assert!(!written(&BTreeMap::from([(vec![1], 1)])));
    let raw = RawValue::from_string("{\"as\": 1}".into()).expect("JSON");
    assert!(!written(&*raw));
}

#[test]
fn a_swallowed_error_is_not_gone_on_from() {
    struct Refuses;
    impl Serialize for Refuses {
        fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(S::Error::custom("not today"))
        }
    }
    assert!(!written(&Refuses));
    struct Lenient(BTreeMap<i32, i32>);
    impl Serialize for Lenient {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            use serde::ser::SerializeSeq;
            let mut seq = serializer.serialize_seq(None)?;
            let _ = seq.serialize_element(&self.0);
            seq.end()
        }
    }
    assert!(!written(&Lenient([(1, 2)].into())));
}

#[test]
fn texts_of_every_length_are_written() {
    for length in 0..120 {
        let text: String = ('a'..='z').cycle().take(length).collect();
        assert!(written(text.as_str()));
        for at in 0..length {
            for odd in ["\"", "\\", "\n", "\u{0}", "ä", "\u{7f}"] {
                let mut text = text.clone();
                text.replace_range(at..=at, odd);
                assert!(written(text.as_str()), "{text:?}");
            }
        }
    }
    for number in (0..64).map(|bits| 1_u64 << bits) {
        assert!(written(&[number, number - 1]));
        assert!(written(&number.cast_signed().wrapping_neg()));
    }
}

proptest! {
    #[test]
    fn any_value_is_written_as_serde_json_writes_it(value in json()) {
        prop_assert!(written(&value));
    }

    #[test]
    fn what_is_written_is_read_again(value in json()) {
        let mut text = Vec::new();
        append(&value, &mut text).expect("ordinary");
        let text = crate::text(&text).expect("UTF-8");
        prop_assert_eq!(serde_json::from_str::<Value>(text).expect("JSON"), value);
    }
}
