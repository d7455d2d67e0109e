//! A topic's settings as they are asked for and shown.

use super::schema::{self, SchemaRequest};
use crate::ingest::{Pointer, ack_name};
use crate::problem::{Answer, Problem};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tidemill_log::{
    AckMode, Cleanup, Format, OnMismatch, Retention, Schema, TimeFrom, TimeUnit, Topic,
    TopicSettings,
};
use tidemill_types::{ByteSize, format_duration, limits, parse_duration};

/// What a request to create a topic says; everything is optional.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, expecting = "an object with a topic's settings")]
pub(super) struct TopicRequest {
    partitions: Option<u64>,
    format: Option<String>,
    key: Option<String>,
    time: Option<TimeRequest>,
    #[serde(default)]
    retention: RetentionRequest,
    cleanup: Option<String>,
    ack: Option<String>,
    schema: Option<SchemaRequest>,
    bloom: Option<bool>,
}

#[derive(Deserialize, Default, Clone)]
#[serde(deny_unknown_fields)]
struct TimeRequest {
    from: Option<String>,
    pointer: Option<String>,
    name: Option<String>,
    unit: Option<String>,
}

#[derive(Deserialize, Default, Clone)]
#[serde(deny_unknown_fields)]
struct RetentionRequest {
    #[serde(default, deserialize_with = "given")]
    age: Option<Option<String>>,
    #[serde(default, deserialize_with = "given")]
    bytes: Option<Option<String>>,
    #[serde(default, deserialize_with = "given")]
    hold_for: Option<Option<String>>,
    #[serde(default, deserialize_with = "given")]
    tombstone_age: Option<Option<String>>,
}

/// What a request to change a topic says: only what may change, and what stays as it is.
#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with the settings to change"
)]
pub(super) struct TopicChange {
    partitions: Option<Value>,
    format: Option<Value>,
    key: Option<Value>,
    time: Option<Value>,
    cleanup: Option<Value>,
    ack: Option<Value>,
    bloom: Option<Value>,
    schema: Option<SchemaRequest>,
    #[serde(default)]
    retention: RetentionRequest,
}

fn given<'t, D: serde::Deserializer<'t>>(json: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(json).map(Some)
}

pub(super) fn wrong(setting: &str, why: impl std::fmt::Display) -> Box<Problem> {
    Problem::because("invalid-setting", format!("{setting}: {why}"))
}

pub(super) fn one_of<T: Copy>(setting: &str, text: &str, choices: &[(&str, T)]) -> Answer<T> {
    let found = choices
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        wrong(setting, format!("{text:?} is none of {}", names.join(", ")))
    })
}

const FORMATS: [(&str, Format); 2] = [("json", Format::Json), ("bytes", Format::Bytes)];
const CLEANUPS: [(&str, Cleanup); 3] = [
    ("delete", Cleanup::Delete),
    ("compact", Cleanup::Compact),
    ("compact+delete", Cleanup::CompactDelete),
];
const ACKS: [(&str, AckMode); 2] = [("fsync", AckMode::Fsync), ("memory", AckMode::Memory)];
const UNITS: [(&str, TimeUnit); 5] = [
    ("rfc3339", TimeUnit::Rfc3339),
    ("s", TimeUnit::Seconds),
    ("ms", TimeUnit::Millis),
    ("us", TimeUnit::Micros),
    ("ns", TimeUnit::Nanos),
];

pub(super) fn name_of<T: PartialEq>(value: &T, choices: &[(&'static str, T)]) -> &'static str {
    choices
        .iter()
        .find(|(_, known)| known == value)
        .map_or("?", |(name, _)| name)
}

impl TopicRequest {
    /// The settings asked for, with the defaults for what isn't said.
    pub(super) fn check(self) -> Answer<TopicSettings> {
        let default = TopicSettings::default();
        let choose = |partitions: u64| {
            u32::try_from(partitions)
                .ok()
                .filter(|n| (1..=limits::PARTITIONS).contains(n))
        };
        let partitions = match self.partitions {
            None => default.partitions,
            Some(asked) => choose(asked).ok_or_else(|| {
                wrong(
                    "partitions",
                    format!("{asked} is not between 1 and {}", limits::PARTITIONS),
                )
            })?,
        };
        let format = self
            .format
            .map_or(Ok(default.format), |text| one_of("format", &text, &FORMATS))?;
        let time = self.time.map_or(Ok(TimeFrom::Ingest), TimeRequest::check)?;
        if let Some(pointer) = &self.key {
            Pointer::read(pointer).map_err(|error| wrong("key", error.detail))?;
        }
        if format == Format::Bytes && (self.key.is_some() || matches!(time, TimeFrom::Value { .. }))
        {
            return Err(wrong(
                "format",
                "\"bytes\" can't go with a key or a time from inside the value; it isn't looked into",
            ));
        }
        Ok(TopicSettings {
            partitions,
            format,
            key: self.key,
            time,
            retention: self.retention.over(Retention::default())?,
            cleanup: self.cleanup.map_or(Ok(default.cleanup), |text| {
                one_of("cleanup", &text, &CLEANUPS)
            })?,
            ack: self
                .ack
                .map_or(Ok(default.ack), |text| one_of("ack", &text, &ACKS))?,
            schema: self
                .schema
                .map(|asked| asked.check(format, OnMismatch::Reject).map(Arc::new))
                .transpose()?,
            bloom: self.bloom.unwrap_or(default.bloom),
        })
    }
}

impl TimeRequest {
    fn check(self) -> Answer<TimeFrom> {
        let from = self.from.as_deref().unwrap_or(if self.pointer.is_some() {
            "value"
        } else {
            "ingest"
        });
        let unit = self.unit.as_deref().map_or(Ok(TimeUnit::Rfc3339), |text| {
            one_of("time.unit", text, &UNITS)
        })?;
        let only = |field: &str, is_given: bool| {
            if is_given {
                Err(wrong(
                    &format!("time.{field}"),
                    format!("doesn't go with time.from = {from:?}"),
                ))
            } else {
                Ok(())
            }
        };
        match from {
            "ingest" => {
                only("pointer", self.pointer.is_some())?;
                only("name", self.name.is_some())?;
                only("unit", self.unit.is_some())?;
                Ok(TimeFrom::Ingest)
            }
            "value" => {
                only("name", self.name.is_some())?;
                let pointer = self.pointer.ok_or_else(|| {
                    wrong(
                        "time.pointer",
                        "is missing; it says where in the value the time is, as in \"/time\"",
                    )
                })?;
                Pointer::read(&pointer).map_err(|error| wrong("time.pointer", error.detail))?;
                Ok(TimeFrom::Value { pointer, unit })
            }
            "header" => {
                only("pointer", self.pointer.is_some())?;
                let name = self
                    .name
                    .filter(|name| !name.is_empty())
                    .ok_or_else(|| wrong("time.name", "is missing; it names the header"))?;
                Ok(TimeFrom::Header { name, unit })
            }
            other => Err(wrong(
                "time.from",
                format!("{other:?} is none of ingest, value, header"),
            )),
        }
    }
}

impl RetentionRequest {
    /// What is said replaces what was; `null` means without bound, or as if never said.
    fn over(self, was: Retention) -> Answer<Retention> {
        let duration = |setting: &str, asked: Option<Option<String>>, was| match asked {
            None => Ok(was),
            Some(asked) => asked
                .map(|text| parse_duration(&text).map_err(|error| wrong(setting, error.detail)))
                .transpose(),
        };
        let tombstone_age = duration(
            "retention.tombstone_age",
            self.tombstone_age,
            Some(was.tombstone_age),
        )?;
        let bytes = match self.bytes {
            None => was.bytes,
            Some(bytes) => bytes
                .map(|text| {
                    text.parse::<ByteSize>()
                        .map_err(|error| wrong("retention.bytes", error.detail))
                })
                .transpose()?,
        };
        Ok(Retention {
            age: duration("retention.age", self.age, was.age)?,
            bytes,
            hold_for: duration("retention.hold_for", self.hold_for, was.hold_for)?,
            tombstone_age: tombstone_age.unwrap_or(Retention::TOMBSTONE_AGE),
        })
    }
}

impl TopicChange {
    /// The retention and the schema asked for; other settings may be named only as they are.
    pub(super) fn check(self, now: &TopicSettings) -> Answer<(Retention, Option<Schema>)> {
        let shown = settings_json(now);
        let named = [
            ("partitions", self.partitions),
            ("format", self.format),
            ("key", self.key),
            ("time", self.time),
            ("cleanup", self.cleanup),
            ("ack", self.ack),
            ("bloom", self.bloom),
        ];
        for (field, asked) in named {
            if asked.is_some_and(|asked| asked != shown[field]) {
                let detail = format!(
                    "{field} of an existing topic can't be changed; retention and schema can."
                );
                return Err(Problem::because("setting-fixed", detail));
            }
        }
        let before = now.schema.as_ref();
        let before = before.map_or(OnMismatch::Reject, |schema| schema.on_mismatch());
        let schema = self
            .schema
            .map(|asked| asked.check(now.format, before))
            .transpose()?;
        Ok((self.retention.over(now.retention)?, schema))
    }
}

/// A topic as it is shown.
pub(super) fn to_json(topic: &Topic) -> Value {
    let mut shown = json!({"name": topic.name.as_str()});
    if let (Value::Object(shown), Value::Object(settings)) =
        (&mut shown, settings_json(&topic.settings))
    {
        shown.extend(settings);
    }
    shown
}

fn settings_json(settings: &TopicSettings) -> Value {
    let unit = |unit: &TimeUnit| name_of(unit, &UNITS);
    let time = match &settings.time {
        TimeFrom::Ingest => json!({"from": "ingest"}),
        TimeFrom::Value { pointer, unit: u } => {
            json!({"from": "value", "pointer": pointer, "unit": unit(u)})
        }
        TimeFrom::Header { name, unit: u } => {
            json!({"from": "header", "name": name, "unit": unit(u)})
        }
    };
    json!({
        "partitions": settings.partitions,
        "format": name_of(&settings.format, &FORMATS),
        "key": settings.key,
        "time": time,
        "retention": {
            "age": settings.retention.age.map(format_duration),
            "bytes": settings.retention.bytes.map(|bytes| bytes.to_string()),
            "hold_for": settings.retention.hold_for.map(format_duration),
            "tombstone_age": format_duration(settings.retention.tombstone_age),
        },
        "cleanup": name_of(&settings.cleanup, &CLEANUPS),
        "ack": ack_name(settings.ack),
        "schema": settings.schema.as_deref().map(schema::to_json),
        "bloom": settings.bloom,
    })
}

/// Names of the settings in which two topics differ.
pub(super) fn differences(one: &TopicSettings, other: &TopicSettings) -> Vec<&'static str> {
    let (one, other) = (settings_json(one), settings_json(other));
    let fields = [
        "partitions",
        "format",
        "key",
        "time",
        "retention",
        "cleanup",
        "ack",
        "schema",
        "bloom",
    ];
    fields
        .into_iter()
        .filter(|field| one[*field] != other[*field])
        .collect()
}
