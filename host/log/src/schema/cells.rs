//! What a value has in each column, found in one pass over its text.

use super::{Kind, Property, Schema};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use tidemill_types::Timestamp;

/// Largest number up to which a double tells whole numbers apart.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Why a value doesn't fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// JSON pointer to what it is about; empty: the whole value.
    pub pointer: String,
    /// What is there and what should be.
    pub reason: String,
}

/// What a column has of one event.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Cell<'t> {
    Null,
    Text(Cow<'t, str>),
    Time(i64),
    Integer(i64),
    Number(f64),
    Boolean(bool),
}

impl Schema {
    /// Whether a value fits.
    ///
    /// # Errors
    /// The first thing that doesn't.
    pub fn check(&self, value: &[u8]) -> Result<(), Mismatch> {
        let found = self.find(value)?;
        for (property, raw) in self.properties.iter().zip(found) {
            let checked = match raw {
                None if property.required => Err("is missing, and required".to_owned()),
                None => Ok(()),
                Some("null") if property.nullable => Ok(()),
                Some(raw) => property.cell(raw).map(drop),
            };
            checked.map_err(|reason| Mismatch {
                pointer: format!("/{}", property.name.replace('~', "~0").replace('/', "~1")),
                reason,
            })?;
        }
        Ok(())
    }

    /// What each column has of a value, in their order; null where it doesn't fit.
    pub(crate) fn cells<'t>(&self, value: Option<&'t [u8]>) -> impl Iterator<Item = Cell<'t>> {
        let found = value.and_then(|value| self.find(value).ok());
        let found = found.unwrap_or_else(|| vec![None; self.properties.len()]);
        let cell = |(property, raw): (&Property, Option<&'t str>)| {
            raw.and_then(|raw| property.cell(raw).ok())
                .unwrap_or(Cell::Null)
        };
        self.properties.iter().zip(found).map(cell)
    }

    /// The text of each property in a value; of several members of one name the last counts.
    fn find<'t>(&self, value: &'t [u8]) -> Result<Vec<Option<&'t str>>, Mismatch> {
        let whole = |reason: String| Mismatch {
            pointer: String::new(),
            reason,
        };
        let text = std::str::from_utf8(value).map_err(|_| whole("is not UTF-8".into()))?;
        if text.trim_ascii_start().as_bytes().first() != Some(&b'{') {
            return Err(whole("is not an object, and the schema says object".into()));
        }
        let mut found = vec![None; self.properties.len()];
        let mut json = serde_json::Deserializer::from_str(text);
        json.deserialize_map(Members {
            properties: &self.properties,
            found: &mut found,
        })
        .and_then(|()| json.end())
        .map_err(|error| whole(format!("is not JSON: {error}")))?;
        Ok(found)
    }
}

impl Property {
    /// A JSON text as what the column holds.
    fn cell<'t>(&self, raw: &'t str) -> Result<Cell<'t>, String> {
        let first = raw.as_bytes().first();
        match (self.kind, first) {
            (Kind::Text, Some(b'"')) => text(raw).map(Cell::Text),
            (Kind::Time, Some(b'"')) => time(raw).map(Cell::Time),
            (Kind::Integer, Some(b'-' | b'0'..=b'9')) => integer(raw).map(Cell::Integer),
            (Kind::Number, Some(b'-' | b'0'..=b'9')) => match raw.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(Cell::Number(number)),
                _ => Err(format!("{} is too large for a double", shown(raw))),
            },
            (Kind::Boolean, Some(b't')) => Ok(Cell::Boolean(true)),
            (Kind::Boolean, Some(b'f')) => Ok(Cell::Boolean(false)),
            (Kind::Object, Some(b'{')) | (Kind::Array, Some(b'[')) => {
                Ok(Cell::Text(Cow::Borrowed(raw)))
            }
            (kind, _) => Err(format!("{} is no {}", shown(raw), name_of(kind))),
        }
    }
}

fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "string",
        Kind::Time => "string with a date-time",
        Kind::Integer => "integer",
        Kind::Number => "number",
        Kind::Boolean => "boolean",
        Kind::Object => "object",
        Kind::Array => "array",
    }
}

fn shown(raw: &str) -> &str {
    &raw[..raw.floor_char_boundary(60)]
}

fn text(raw: &str) -> Result<Cow<'_, str>, String> {
    let inner = raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"'));
    match inner {
        Some(plain) if !plain.contains('\\') => Ok(Cow::Borrowed(plain)),
        _ => serde_json::from_str(raw)
            .map(Cow::Owned)
            .map_err(|_| "is a string that is no text (half of a surrogate pair)".to_owned()),
    }
}

fn time(raw: &str) -> Result<i64, String> {
    let time = text(raw)?.parse::<Timestamp>();
    time.map(Timestamp::micros).map_err(|error| error.detail)
}

/// A whole number however it is written: JSON Schema takes 1.0 for an integer too.
fn integer(raw: &str) -> Result<i64, String> {
    if let Ok(whole) = raw.parse() {
        return Ok(whole);
    }
    if !raw.contains(['.', 'e', 'E']) {
        return Err(format!("{} doesn't fit into 64 bits", shown(raw)));
    }
    let number: f64 = raw.parse().unwrap_or(f64::NAN);
    let whole = number.fract() == 0.0 && number.abs() <= EXACT;
    let whole = whole.then(|| format!("{number:.0}").parse().ok()).flatten();
    whole.ok_or_else(|| format!("{} is no integer", shown(raw)))
}

struct Members<'s, 'f, 't> {
    properties: &'s [Property],
    found: &'f mut [Option<&'t str>],
}

impl<'t> Visitor<'t> for Members<'_, '_, 't> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(property) = members.next_key_seed(Name(self.properties))? {
            match property {
                Some(nth) => self.found[nth] = Some(members.next_value::<&RawValue>()?.get()),
                None => members.next_value::<IgnoredAny>().map(drop)?,
            }
        }
        Ok(())
    }
}

/// Which property a member is, compared as bytes, so that names which are no text are passed over.
struct Name<'s>(&'s [Property]);

impl<'t> DeserializeSeed<'t> for Name<'_> {
    type Value = Option<usize>;
    fn deserialize<D: Deserializer<'t>>(self, json: D) -> Result<Option<usize>, D::Error> {
        json.deserialize_bytes(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_bytes<E>(self, name: &[u8]) -> Result<Option<usize>, E> {
        let found = self
            .0
            .binary_search_by(|property| property.name.as_bytes().cmp(name));
        Ok(found.ok())
    }
}
