//! A scalar inside a JSON value by JSON pointer (RFC 6901), read in one pass, without a tree.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// A parsed pointer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Pointer {
    parts: Vec<String>,
}

impl Pointer {
    /// Reads a pointer, which starts with `/`.
    pub(crate) fn new(text: &str) -> Self {
        let parts = text.split('/').skip(1);
        Self {
            parts: parts
                .map(|part| part.replace("~1", "/").replace("~0", "~"))
                .collect(),
        }
    }

    /// The scalar it points at: a string's text, a number or boolean as written. `None` where
    /// nothing, null, an object or an array stands, or the value isn't JSON. Of a name that
    /// occurs twice the last one counts.
    pub(crate) fn scalar<'v>(&self, value: &'v [u8]) -> Option<Cow<'v, [u8]>> {
        let text = std::str::from_utf8(value).ok()?;
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let found = Walk(&self.parts).deserialize(&mut deserializer).ok()??;
        deserializer.end().ok()?;
        let raw = found.get();
        match raw.as_bytes().first()? {
            b'"' if !raw.contains('\\') => Some(Cow::Borrowed(&raw.as_bytes()[1..raw.len() - 1])),
            b'"' => {
                let text: String = serde_json::from_str(raw).ok()?;
                Some(Cow::Owned(text.into_bytes()))
            }
            b'{' | b'[' | b'n' => None,
            _ => Some(Cow::Borrowed(raw.as_bytes())),
        }
    }
}

/// Walks down the remaining parts of a pointer; everything beside the way is passed over.
struct Walk<'p>(&'p [String]);

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        if self.0.is_empty() {
            return serde::Deserialize::deserialize(deserializer).map(Some);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (part, rest) = (&self.0[0], &self.0[1..]);
        let mut found = None;
        while let Some(is_it) = map.next_key_seed(NameIs(part))? {
            if is_it {
                found = map.next_value_seed(Walk(rest))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let (part, rest) = (&self.0[0], &self.0[1..]);
        let plain = part == "0" || !part.starts_with(['0', '+']);
        let wanted: Option<usize> = part.parse().ok().filter(|_| plain);
        let mut found = None;
        for at in 0.. {
            if Some(at) == wanted {
                match seq.next_element_seed(Walk(rest))? {
                    Some(value) => found = value,
                    None => break,
                }
            } else if seq.next_element::<IgnoredAny>()?.is_none() {
                break;
            }
        }
        Ok(found)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// Whether a name in an object is the one wanted.
struct NameIs<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for NameIs<'_> {
    type Value = bool;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NameIs<'_> {
    type Value = bool;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }
    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn scalars_are_found_as_written() {
        let value = r#"{"carrier":"UA","a":{"b":[1.50,{"c~d":true,"e/f":"x\ny"}],"":"empty"},"n":null,"big":12345678901234567890123,"t":"1","t":"2"}"#;
        for (pointer, expected) in [
            ("/carrier", Some("UA")),
            ("/a/b/0", Some("1.50")),
            ("/a/b/1/c~0d", Some("true")),
            ("/a/b/1/e~1f", Some("x\ny")),
            ("/a/", Some("empty")),
            ("/big", Some("12345678901234567890123")),
            ("/t", Some("2")),
            ("/n", None),
            ("/a", None),
            ("/a/b", None),
            ("/a/b/2", None),
            ("/a/b/00", None),
            ("/a/b/+1", None),
            ("/carrier/x", None),
            ("/missing", None),
        ] {
            let found = Pointer::new(pointer).scalar(value.as_bytes());
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{pointer}");
        }
        for not_json in ["", "{", "{\"a\":1}x", "UA", "\"a\"", "7"] {
            assert_eq!(
                Pointer::new("/a").scalar(not_json.as_bytes()),
                None,
                "{not_json}"
            );
        }
        assert_eq!(Pointer::new("/a").scalar(b"{\"a\":\"\xff\"}"), None);
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            "[a-c/~\"\\\\é]{0,4}".prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                prop::collection::btree_map("[a-c/~é]{0,2}", inner, 0..4)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]
        #[test]
        fn agrees_with_the_tree(value in json(), pointer in "(/([a-c/~é]{0,2}|[0-3])){1,3}") {
            let expected = value.pointer(&pointer).and_then(|found| match found {
                serde_json::Value::String(text) => Some(text.clone()),
                serde_json::Value::Bool(_) | serde_json::Value::Number(_) => Some(found.to_string()),
                _ => None,
            });
            let text = value.to_string();
            let found = Pointer::new(&pointer).scalar(text.as_bytes());
            prop_assert_eq!(found.as_deref(), expected.as_deref().map(str::as_bytes));
        }
    }
}
