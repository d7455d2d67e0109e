//! A declared schema of a topic's values: which members of a JSON object become typed columns of
//! segments, and whether a value fits. The value itself is always kept byte for byte.
//!
//! A schema is written as JSON Schema, of which this much is understood; everything else is refused, so
//! that nobody believes in a check that isn't made:
//!
//! ```text
//! at the top   type: "object"; properties; required; additionalProperties: true
//! a property   type: string, integer, number, boolean, object or array, alone or in a list with "null";
//!              format: "date-time" of a string
//! anywhere     title, description, $comment, examples, deprecated; at the top $schema and $id
//! ```
//!
//! | type | column |
//! |---|---|
//! | string | text |
//! | string, format date-time | timestamp in µs, UTC |
//! | integer | 64 bits, signed |
//! | number | double; the value keeps what a double can't hold |
//! | boolean | boolean |
//! | object, array | text: its JSON as it stands, not looked into |
//!
//! Columns may always be null: a property may be absent, an event may have no value, a segment may be
//! older than the property. A property that `required` doesn't name may be absent; one that is `null` has
//! to have `"null"` among its types.

mod cells;
#[cfg(test)]
mod tests;

pub(crate) use cells::Cell;
pub use cells::Mismatch;

use serde_json::{Map, Value, json};
use tidemill_types::{Error, Result};

/// Most properties of a schema: each is a column, and has statistics in every segment.
const PROPERTIES: usize = 200;
/// Longest name of a property, in bytes.
const NAME_BYTES: usize = 200;
/// Keywords that say something to people only.
const REMARKS: [&str; 5] = ["title", "description", "$comment", "examples", "deprecated"];

/// A checked schema and what becomes of values that don't fit it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schema {
    json: Value,
    on_mismatch: OnMismatch,
    /// By name.
    properties: Vec<Property>,
}

/// What becomes of an event whose value doesn't fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnMismatch {
    /// It is refused.
    Reject,
    /// It goes to the topic's dead letters.
    DeadLetter,
    /// It is taken; what doesn't fit is null in its column.
    Null,
}

/// How [`OnMismatch`] is kept.
const WORDS: [(&str, OnMismatch); 3] = [
    ("reject", OnMismatch::Reject),
    ("dead-letter", OnMismatch::DeadLetter),
    ("null", OnMismatch::Null),
];

/// One typed column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Property {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Whether `null` fits.
    nullable: bool,
    required: bool,
}

/// Type of a property.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Text,
    Time,
    Integer,
    Number,
    Boolean,
    Object,
    Array,
}

impl Schema {
    /// Reads a schema.
    ///
    /// # Errors
    /// `invalid-schema`: what is wrong, where, and what would be right.
    pub fn read(json: Value, on_mismatch: OnMismatch) -> Result<Self> {
        let Value::Object(top) = &json else {
            return Err(wrong(
                "",
                "it is not an object; write {\"type\": \"object\", \"properties\": {…}}",
            ));
        };
        let known = [
            "type",
            "properties",
            "required",
            "additionalProperties",
            "$schema",
            "$id",
        ];
        only(top, &known, "")?;
        if top.get("type") != Some(&Value::from("object")) {
            return Err(wrong(
                "/type",
                "values with columns are objects; write \"object\"",
            ));
        }
        if top
            .get("additionalProperties")
            .is_some_and(|more| more != &Value::Bool(true))
        {
            return Err(wrong(
                "/additionalProperties",
                "other members are never looked at; leave it away or write true",
            ));
        }
        let none = Map::new();
        let properties = match top.get("properties") {
            None => &none,
            Some(Value::Object(properties)) => properties,
            Some(_) => return Err(wrong("/properties", "it is not an object")),
        };
        if properties.is_empty() || properties.len() > PROPERTIES {
            return Err(wrong(
                "/properties",
                &format!("name 1 to {PROPERTIES} properties"),
            ));
        }
        let required = required(top, properties)?;
        let property = |(name, json): (&String, &Value)| {
            Property::read(name, json, required.contains(&name.as_str()))
        };
        let properties: Vec<Property> = properties.iter().map(property).collect::<Result<_>>()?;
        distinct(&properties)?;
        Ok(Self {
            json,
            on_mismatch,
            properties,
        })
    }

    /// As a topic's settings keep it, in frames and manifests: `{"json": …, "on_mismatch": …}`.
    pub(crate) fn to_kept(&self) -> Value {
        let word = WORDS.iter().find(|(_, on)| *on == self.on_mismatch);
        json!({"json": self.json, "on_mismatch": word.map(|(word, _)| word)})
    }

    /// The same read back.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn from_kept(mut kept: Value) -> Result<Self> {
        let word = WORDS.iter().find(|(word, _)| kept["on_mismatch"] == *word);
        let (_, on_mismatch) = word.ok_or_else(|| {
            Error::corrupt("a topic's schema says something unknown of what doesn't fit")
        })?;
        Self::read(kept["json"].take(), *on_mismatch)
            .map_err(|error| Error::corrupt(format!("a topic's schema: {}", error.detail)))
    }

    /// As it was declared.
    pub fn json(&self) -> &Value {
        &self.json
    }

    /// What becomes of events that don't fit.
    pub fn on_mismatch(&self) -> OnMismatch {
        self.on_mismatch
    }

    /// Its columns, by name.
    pub(crate) fn properties(&self) -> &[Property] {
        &self.properties
    }

    /// Whether this may take the place of another: what was there stays, and what is new may be absent.
    ///
    /// # Errors
    /// `setting-fixed`: which property, and why not.
    pub fn follows(&self, before: Option<&Self>) -> Result<()> {
        let fixed = |name: &str, why: &str| {
            let detail = format!(
                "schema: property {name:?} {why}; properties that may be absent can be added"
            );
            Err(Error::invalid("setting-fixed", detail))
        };
        let earlier = before.map_or(&[][..], |before| &before.properties);
        for was in earlier {
            match self.properties.iter().find(|now| now.name == was.name) {
                None => return fixed(&was.name, "can't be taken away"),
                Some(now) if now != was => return fixed(&was.name, "can't be changed"),
                Some(_) => {}
            }
        }
        let fresh = |now: &&Property| !earlier.iter().any(|was| was.name == now.name);
        match self
            .properties
            .iter()
            .filter(fresh)
            .find(|now| now.required)
        {
            Some(now) => fixed(&now.name, "is new and can't be required"),
            None => Ok(()),
        }
    }
}

impl Property {
    fn read(name: &str, json: &Value, required: bool) -> Result<Self> {
        let at = format!("/properties/{}", name.replace('~', "~0").replace('/', "~1"));
        if name.is_empty() || name.len() > NAME_BYTES || name.chars().any(char::is_control) {
            return Err(wrong(
                &at,
                &format!("a column's name has 1 to {NAME_BYTES} bytes, none of control characters"),
            ));
        }
        let own = crate::segment::COLUMNS
            .iter()
            .find(|own| own.eq_ignore_ascii_case(name));
        if let Some(own) = own {
            return Err(wrong(
                &at,
                &format!(
                    "every segment has a column {own:?} of its own; leave this property out, the value keeps it"
                ),
            ));
        }
        let Value::Object(json) = json else {
            return Err(wrong(&at, "it is not an object; write {\"type\": …}"));
        };
        only(json, &["type", "format"], &at)?;
        let (named, nullable) = types(json.get("type"), &at)?;
        let kind = match (named, json.get("format").map(Value::as_str)) {
            ("string", None) => Kind::Text,
            ("string", Some(Some("date-time"))) => Kind::Time,
            ("string", Some(_)) => {
                return Err(wrong(
                    &format!("{at}/format"),
                    "only \"date-time\" is checked; leave it away",
                ));
            }
            (_, Some(_)) => {
                return Err(wrong(&format!("{at}/format"), "it goes with strings only"));
            }
            ("integer", None) => Kind::Integer,
            ("number", None) => Kind::Number,
            ("boolean", None) => Kind::Boolean,
            ("object", None) => Kind::Object,
            ("array", None) => Kind::Array,
            (other, None) => {
                return Err(wrong(
                    &format!("{at}/type"),
                    &format!(
                        "{other:?} is none of string, integer, number, boolean, object, array, null"
                    ),
                ));
            }
        };
        Ok(Self {
            name: name.to_owned(),
            kind,
            nullable,
            required,
        })
    }
}

/// The one type that is named, and whether null is named beside it.
fn types<'j>(json: Option<&'j Value>, at: &str) -> Result<(&'j str, bool)> {
    let at = format!("{at}/type");
    let names: Option<Vec<&str>> = match json {
        Some(Value::String(one)) => Some(vec![one]),
        Some(Value::Array(all)) => all.iter().map(Value::as_str).collect(),
        _ => None,
    };
    let names = names.unwrap_or_default();
    let mut others = names.iter().filter(|name| **name != "null");
    match (others.next(), others.next()) {
        (Some(one), None) => Ok((one, names.len() > 1)),
        _ => Err(wrong(
            &at,
            "a column has one type; write it, or a list of it and \"null\"",
        )),
    }
}

fn required<'j>(
    top: &'j Map<String, Value>,
    properties: &Map<String, Value>,
) -> Result<Vec<&'j str>> {
    let Some(json) = top.get("required") else {
        return Ok(Vec::new());
    };
    let names = json
        .as_array()
        .map(|all| all.iter().map(Value::as_str).collect());
    let Some(Some(names)) = names else {
        return Err(wrong("/required", "it is not a list of names"));
    };
    let names: Vec<&str> = names;
    match names.iter().find(|name| !properties.contains_key(**name)) {
        Some(name) => Err(wrong(
            "/required",
            &format!("{name:?} is not among the properties"),
        )),
        None => Ok(names),
    }
}

fn only(json: &Map<String, Value>, known: &[&str], at: &str) -> Result<()> {
    let unknown = json
        .keys()
        .find(|key| !known.contains(&key.as_str()) && !REMARKS.contains(&key.as_str()));
    match unknown {
        None => Ok(()),
        Some(key) => Err(wrong(
            &format!("{at}/{key}"),
            &format!(
                "this isn't checked, so it can't be said; what can: {}",
                known.join(", ")
            ),
        )),
    }
}

/// Readers that don't tell capitals from small letters need other names.
fn distinct(properties: &[Property]) -> Result<()> {
    let mut names: Vec<String> = properties.iter().map(|it| it.name.to_lowercase()).collect();
    names.sort();
    match names.windows(2).find(|two| two[0] == two[1]) {
        None => Ok(()),
        Some(two) => Err(wrong(
            "/properties",
            &format!(
                "{:?} comes in several spellings, which many readers take for one column",
                two[0]
            ),
        )),
    }
}

fn wrong(at: &str, why: &str) -> Error {
    let at = if at.is_empty() {
        String::new()
    } else {
        format!(" at {at}")
    };
    Error::invalid(
        "invalid-schema",
        format!("the schema can't be used{at}: {why}"),
    )
}
