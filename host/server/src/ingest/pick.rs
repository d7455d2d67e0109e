//! One pass over a JSON text: is it valid, how deep is it, and what lies at the key's and the time's
//! pointer. Nothing is decoded and nothing allocated for the rest.
//!
//! The fast reader takes what is ordinary. What it declines is read again in full: the text is UTF-8
//! already; serde_json then accepts exactly RFC 8259 (numbers of any size, lone surrogates in escapes),
//! because skipped parts are only checked, never turned into values.

mod quick;

use super::pointer::Pointer;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;
use std::fmt;
use tidemill_types::limits::JSON_DEPTH;

/// What was found, as JSON text inside the text that was read; `None`: nothing is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Found<'t> {
    pub(crate) key: Option<&'t str>,
    pub(crate) time: Option<&'t str>,
}

/// Checks a JSON text and picks what the pointers name; of several members of one name the last counts.
///
/// # Errors
/// What is wrong and where (line and column in `text`).
pub(crate) fn pick<'t>(
    text: &'t str,
    key: Option<&Pointer>,
    time: Option<&Pointer>,
) -> Result<Found<'t>, String> {
    quick::pick(text, key.map(Pointer::tokens), time.map(Pointer::tokens))
        .or_else(|_| in_full(text, key, time))
}

fn in_full<'t>(
    text: &'t str,
    key: Option<&Pointer>,
    time: Option<&Pointer>,
) -> Result<Found<'t>, String> {
    if !is_shallow(text.as_bytes()) {
        return Err(format!("nested deeper than {JSON_DEPTH} levels"));
    }
    let mut found = Found::default();
    let level = Level {
        key: key.map(Pointer::tokens),
        time: time.map(Pointer::tokens),
        found: &mut found,
    };
    level.read_whole(text).map_err(|error| error.to_string())?;
    // Names that are read as bytes may hold control characters, which JSON has only in escapes.
    if has_control(text.as_bytes()) {
        let checked = serde_json::from_str::<IgnoredAny>(text);
        checked.map_err(|error| error.to_string())?;
    }
    Ok(found)
}

/// Every byte is looked at, so that many are at once.
fn has_control(text: &[u8]) -> bool {
    text.iter().fold(false, |any, byte| any | (*byte < b' '))
}

/// The pointers' rest at one value of the text.
struct Level<'p, 'f, 't> {
    key: Option<&'p [String]>,
    time: Option<&'p [String]>,
    found: &'f mut Found<'t>,
}

impl<'p, 't> Level<'p, '_, 't> {
    /// Reads `text` as this value and nothing behind it.
    fn read_whole(self, text: &'t str) -> serde_json::Result<()> {
        let mut json = serde_json::Deserializer::from_str(text);
        let nested = matches!(
            text.trim_ascii_start().as_bytes().first(),
            Some(b'{' | b'[')
        );
        if self.ends_here() {
            self.deserialize(&mut json)?;
        } else if nested && (self.key.is_some() || self.time.is_some()) {
            json.deserialize_any(self)?;
        } else {
            serde::Deserialize::deserialize(&mut json).map(|IgnoredAny| ())?;
        }
        json.end()
    }

    fn ends_here(&self) -> bool {
        self.key.is_some_and(<[_]>::is_empty) || self.time.is_some_and(<[_]>::is_empty)
    }

    /// The pointers' rest below a member or element that is on the way of the key's or the time's pointer;
    /// forgets what an earlier member of the same name gave.
    fn below(&mut self, is_key: bool, is_time: bool) -> Level<'p, '_, 't> {
        if is_key {
            self.found.key = None;
        }
        if is_time {
            self.found.time = None;
        }
        Level {
            key: self.key.filter(|_| is_key).and_then(|rest| rest.get(1..)),
            time: self.time.filter(|_| is_time).and_then(|rest| rest.get(1..)),
            found: self.found,
        }
    }
}

impl<'t> DeserializeSeed<'t> for Level<'_, '_, 't> {
    type Value = ();

    /// A value on the way of at least one pointer: taken as text; whoever goes deeper reads that text again.
    fn deserialize<D: Deserializer<'t>>(self, json: D) -> Result<(), D::Error> {
        let raw = <&RawValue as serde::Deserialize>::deserialize(json)?.get();
        let deeper = |rest: Option<&[String]>| rest.is_some_and(|rest| !rest.is_empty());
        if self.key.is_some_and(<[_]>::is_empty) {
            self.found.key = Some(raw);
        }
        if self.time.is_some_and(<[_]>::is_empty) {
            self.found.time = Some(raw);
        }
        let rest = Level {
            key: self.key.filter(|_| deeper(self.key)),
            time: self.time.filter(|_| deeper(self.time)),
            found: self.found,
        };
        if rest.key.is_some() || rest.time.is_some() {
            rest.read_whole(raw).map_err(D::Error::custom)?;
        }
        Ok(())
    }
}

impl<'t> Visitor<'t> for Level<'_, '_, 't> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'t>>(mut self, mut members: A) -> Result<(), A::Error> {
        while let Some((is_key, is_time)) = members.next_key_seed(Name {
            key: first(self.key),
            time: first(self.time),
        })? {
            if is_key || is_time {
                members.next_value_seed(self.below(is_key, is_time))?;
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'t>>(mut self, mut elements: A) -> Result<(), A::Error> {
        let wanted = |rest| first(rest).and_then(index);
        let (key, time) = (wanted(self.key), wanted(self.time));
        let mut at = 0_usize;
        loop {
            let (is_key, is_time) = (key == Some(at), time == Some(at));
            let more = if is_key || is_time {
                elements
                    .next_element_seed(self.below(is_key, is_time))?
                    .is_some()
            } else {
                elements.next_element::<IgnoredAny>()?.is_some()
            };
            if !more {
                return Ok(());
            }
            at += 1;
        }
    }
}

fn first(rest: Option<&[String]>) -> Option<&str> {
    rest.and_then(<[String]>::first).map(String::as_str)
}

/// An array index as RFC 6901 writes it.
fn index(token: &str) -> Option<usize> {
    let plain = token == "0"
        || !token.starts_with('0')
            && !token.is_empty()
            && token.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| token.parse().ok()).flatten()
}

/// Compares a member's name with the two names looked for, as bytes, so that names which are no text
/// (lone surrogates) are passed over instead of refused.
struct Name<'p> {
    key: Option<&'p str>,
    time: Option<&'p str>,
}

impl<'t> DeserializeSeed<'t> for Name<'_> {
    type Value = (bool, bool);
    fn deserialize<D: Deserializer<'t>>(self, json: D) -> Result<(bool, bool), D::Error> {
        json.deserialize_bytes(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = (bool, bool);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_bytes<E>(self, name: &[u8]) -> Result<(bool, bool), E> {
        let is = |wanted: Option<&str>| wanted.is_some_and(|wanted| wanted.as_bytes() == name);
        Ok((is(self.key), is(self.time)))
    }
}

/// Whether the text is nested at most [`JSON_DEPTH`] deep. Counting brackets is nearly free and answers
/// for almost every text; only many brackets are looked at one by one.
fn is_shallow(text: &[u8]) -> bool {
    text.len() < 2 * (JSON_DEPTH + 1)
        || memchr::memchr2_iter(b'{', b'[', text).count() <= JSON_DEPTH
        || depth(text) <= JSON_DEPTH
}

/// The deepest nesting, as far as the text is JSON.
fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (true, b'"') => in_string = false,
            (true, _) => {}
            (false, b'"') => in_string = true,
            (false, b'{' | b'[') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (false, b'}' | b']') => depth = depth.saturating_sub(1),
            (false, _) => {}
        }
    }
    deepest
}
