//! Reading a table of a manifest: every field with its place, so that a refusal says where.

use crate::nearest::did_you_mean;
use serde_json::{Map, Value};
use std::ops::RangeInclusive;
use std::time::Duration;
use tidemill_types::{ByteSize, Error, Result, format_duration, parse_duration};

/// A refusal of the manifest at a place.
pub(super) fn refuse(place: &str, sentence: impl std::fmt::Display) -> Error {
    Error::invalid("invalid-manifest", format!("manifest, {place}: {sentence}"))
}

/// One table and the path to it.
pub(super) struct Table<'a> {
    place: String,
    fields: Option<&'a Map<String, Value>>,
}

impl<'a> Table<'a> {
    /// The manifest as a whole.
    pub(super) fn root(value: &'a Value) -> Result<Self> {
        Self::at("top level".into(), value)
    }

    fn at(place: String, value: &'a Value) -> Result<Self> {
        let fields = value
            .as_object()
            .ok_or_else(|| refuse(&place, format!("this must be a table, not {value}")))?;
        Ok(Self {
            place,
            fields: Some(fields),
        })
    }

    /// Refuses keys that nobody reads.
    pub(super) fn known(self, keys: &[&str]) -> Result<Self> {
        for key in self.keys() {
            if !keys.contains(&key) {
                let near = did_you_mean(key, keys.iter().copied());
                let list = keys.join(", ");
                return Err(refuse(
                    &self.place_of(key),
                    format!("there is no such key.{near} Known here: {list}"),
                ));
            }
        }
        Ok(self)
    }

    /// Its keys, sorted.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.fields
            .into_iter()
            .flat_map(|fields| fields.keys().map(String::as_str))
    }

    /// Where a field of it stands, for refusals.
    pub(super) fn place_of(&self, key: &str) -> String {
        if self.place == "top level" {
            key.into()
        } else {
            format!("{}.{key}", self.place)
        }
    }

    /// A field as it stands.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.fields.and_then(|fields| fields.get(key))
    }

    /// A table in it; an absent one has no fields.
    pub(super) fn table(&self, key: &str) -> Result<Self> {
        match self.get(key) {
            Some(value) => Self::at(self.place_of(key), value),
            None => Ok(Self {
                place: self.place_of(key),
                fields: None,
            }),
        }
    }

    /// A list of tables in it.
    pub(super) fn tables(&self, key: &str) -> Result<Vec<Self>> {
        let place = self.place_of(key);
        match self.get(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => list
                .iter()
                .enumerate()
                .map(|(at, value)| Self::at(format!("{place}[{at}]"), value))
                .collect(),
            Some(other) => Err(refuse(
                &place,
                format!("this must be a list of tables, not {other}"),
            )),
        }
    }

    /// A text.
    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(refuse(
                &self.place_of(key),
                format!("this must be a text in quotes, not {other}"),
            )),
        }
    }

    /// A text that must be there.
    pub(super) fn needed(&self, key: &str) -> Result<&'a str> {
        self.text(key)?
            .ok_or_else(|| refuse(&self.place_of(key), "this is missing"))
    }

    /// A text read by its type's parser, whose refusal is kept and placed.
    pub(super) fn parsed<T>(
        &self,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T>,
    ) -> Result<Option<T>> {
        self.text(key)?
            .map(|text| parse(text).map_err(|wrong| refuse(&self.place_of(key), wrong.detail)))
            .transpose()
    }

    /// A list of texts.
    pub(super) fn texts(&self, key: &str) -> Result<Option<Vec<&'a str>>> {
        let wrong = || {
            refuse(
                &self.place_of(key),
                "this must be a list of texts in quotes",
            )
        };
        self.get(key)
            .map(|value| {
                let list = value.as_array().ok_or_else(wrong)?;
                list.iter()
                    .map(|item| item.as_str().ok_or_else(wrong))
                    .collect()
            })
            .transpose()
    }

    /// Yes or no.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.get(key)
            .map(|value| {
                value.as_bool().ok_or_else(|| {
                    refuse(
                        &self.place_of(key),
                        format!("this must be true or false, not {value}"),
                    )
                })
            })
            .transpose()
    }

    /// A whole number within bounds.
    pub(super) fn whole(&self, key: &str, bounds: RangeInclusive<u32>) -> Result<Option<u32>> {
        self.get(key)
            .map(|value| {
                let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
                number
                    .filter(|number| bounds.contains(number))
                    .ok_or_else(|| {
                        let (least, most) = bounds.clone().into_inner();
                        refuse(
                            &self.place_of(key),
                            format!(
                                "this must be a whole number from {least} to {most}, not {value}"
                            ),
                        )
                    })
            })
            .transpose()
    }

    /// A size within bounds, or `default`.
    pub(super) fn size(
        &self,
        key: &str,
        default: ByteSize,
        bounds: RangeInclusive<ByteSize>,
    ) -> Result<ByteSize> {
        let size = self.parsed(key, str::parse)?.unwrap_or(default);
        if bounds.contains(&size) {
            return Ok(size);
        }
        let (least, most) = bounds.into_inner();
        Err(refuse(
            &self.place_of(key),
            format!("{size} is outside {least} to {most}"),
        ))
    }

    /// A duration within bounds, or `default`.
    pub(super) fn duration(
        &self,
        key: &str,
        default: Duration,
        bounds: RangeInclusive<Duration>,
    ) -> Result<Duration> {
        let duration = self.parsed(key, parse_duration)?.unwrap_or(default);
        if bounds.contains(&duration) {
            return Ok(duration);
        }
        let shown = bounds.into_inner();
        let (least, most) = (format_duration(shown.0), format_duration(shown.1));
        Err(refuse(
            &self.place_of(key),
            format!("{} is outside {least} to {most}", format_duration(duration)),
        ))
    }
}
