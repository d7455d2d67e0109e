//! What small sections of a frame hold, as bytes.
//!
//! ```text
//! advance   u32 reader, u32 topic, u32 partition, u64 from, u64 to, note
//! truncated u32 topic, u32 partition, u64 offset of the first event that stays
//! forgotten u32 reader
//! entry     u8 1 = set, 0 = removed; u32 key length, key, value
//! producer  u64 epoch, u64 sequence, id; of the topic in the directory
//! key       u128 digest of an idempotency key, u128 digest of the request; of the topic in the directory
//! topic     JSON; fields that later versions add are ignored by earlier ones only if they may be
//! ```

use crate::sequencer::Truncation;
use crate::{
    AckMode, Advance, Cleanup, Format, Once, Retention, Schema, TimeFrom, TimeUnit, Topic,
    TopicSettings,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tidemill_types::{ByteSize, Error, PartitionId, Result, TopicId};

pub(crate) fn advance_bytes(advance: &Advance) -> Vec<u8> {
    let mut out = Vec::with_capacity(28 + advance.note.len());
    for field in [advance.reader, advance.topic.0, advance.partition] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(&advance.from.to_le_bytes());
    out.extend_from_slice(&advance.to.to_le_bytes());
    out.extend_from_slice(&advance.note);
    out
}

pub(crate) fn read_advance(mut bytes: &[u8]) -> Option<Advance> {
    Some(Advance {
        reader: take_u32(&mut bytes)?,
        topic: TopicId(take_u32(&mut bytes)?),
        partition: take_u32(&mut bytes)?,
        from: take_u64(&mut bytes)?,
        to: take_u64(&mut bytes)?,
        note: Bytes::copy_from_slice(bytes),
    })
}

pub(crate) fn truncation_bytes(truncation: Truncation) -> Vec<u8> {
    let mut out = Vec::with_capacity(16);
    out.extend_from_slice(&truncation.at.topic.0.to_le_bytes());
    out.extend_from_slice(&truncation.at.partition.to_le_bytes());
    out.extend_from_slice(&truncation.before.to_le_bytes());
    out
}

pub(crate) fn read_truncation(mut bytes: &[u8]) -> Option<Truncation> {
    let topic = TopicId(take_u32(&mut bytes)?);
    let partition = take_u32(&mut bytes)?;
    let before = take_u64(&mut bytes)?;
    bytes.is_empty().then_some(Truncation {
        at: PartitionId { topic, partition },
        before,
    })
}

pub(crate) fn read_forgotten(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

pub(crate) fn entry_bytes(key: &str, value: Option<&[u8]>) -> Vec<u8> {
    let value_bytes = value.unwrap_or_default();
    let mut out = Vec::with_capacity(5 + key.len() + value_bytes.len());
    out.push(u8::from(value.is_some()));
    out.extend_from_slice(&u32::try_from(key.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(value_bytes);
    out
}

pub(crate) fn read_entry(bytes: &[u8]) -> Option<(String, Option<Bytes>)> {
    let (set, mut rest) = bytes.split_first()?;
    let key_len = take_u32(&mut rest)? as usize;
    let (key, value) = rest.split_at_checked(key_len)?;
    let key = String::from_utf8(key.to_vec()).ok()?;
    match set {
        0 if value.is_empty() => Some((key, None)),
        1 => Some((key, Some(Bytes::copy_from_slice(value)))),
        _ => None,
    }
}

pub(crate) fn once_bytes(once: &Once) -> Vec<u8> {
    match once {
        Once::Producer { id, epoch, seq } => {
            let mut out = Vec::with_capacity(16 + id.len());
            out.extend_from_slice(&epoch.to_le_bytes());
            out.extend_from_slice(&seq.to_le_bytes());
            out.extend_from_slice(id.as_bytes());
            out
        }
        Once::Key { key, digest } => [key.to_le_bytes(), digest.to_le_bytes()].concat(),
    }
}

pub(crate) fn read_producer(mut bytes: &[u8]) -> Option<Once> {
    Some(Once::Producer {
        epoch: take_u64(&mut bytes)?,
        seq: take_u64(&mut bytes)?,
        id: std::str::from_utf8(bytes).ok()?.to_owned(),
    })
}

pub(crate) fn read_key(mut bytes: &[u8]) -> Option<Once> {
    let (key, digest) = (take_u128(&mut bytes)?, take_u128(&mut bytes)?);
    bytes.is_empty().then_some(Once::Key { key, digest })
}

pub(crate) fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    take(bytes).map(u32::from_le_bytes)
}

pub(crate) fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    take(bytes).map(u64::from_le_bytes)
}

pub(crate) fn take_u128(bytes: &mut &[u8]) -> Option<u128> {
    take(bytes).map(u128::from_le_bytes)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TopicWire {
    id: u32,
    name: String,
    partitions: u32,
    format: FormatWire,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    time: TimeWire,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retention_age_micros: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retention_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hold_for_micros: Option<u64>,
    tombstone_age_micros: u64,
    cleanup: CleanupWire,
    ack: AckWire,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    schema: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    bloom: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FormatWire {
    Json,
    Bytes,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "from", deny_unknown_fields)]
enum TimeWire {
    Ingest,
    Value { pointer: String, unit: UnitWire },
    Header { name: String, unit: UnitWire },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum UnitWire {
    Rfc3339,
    Seconds,
    Millis,
    Micros,
    Nanos,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CleanupWire {
    Delete,
    Compact,
    CompactDelete,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum AckWire {
    Fsync,
    Memory,
}

pub(crate) fn topic_bytes(topic: &Topic) -> Vec<u8> {
    let settings = &topic.settings;
    let wire = TopicWire {
        id: topic.id.0,
        name: topic.name.as_str().to_owned(),
        partitions: settings.partitions,
        format: match settings.format {
            Format::Json => FormatWire::Json,
            Format::Bytes => FormatWire::Bytes,
        },
        key: settings.key.clone(),
        time: match &settings.time {
            TimeFrom::Ingest => TimeWire::Ingest,
            TimeFrom::Value { pointer, unit } => TimeWire::Value {
                pointer: pointer.clone(),
                unit: unit_wire(*unit),
            },
            TimeFrom::Header { name, unit } => TimeWire::Header {
                name: name.clone(),
                unit: unit_wire(*unit),
            },
        },
        retention_age_micros: settings.retention.age.map(micros),
        retention_bytes: settings.retention.bytes.map(|bytes| bytes.0),
        hold_for_micros: settings.retention.hold_for.map(micros),
        tombstone_age_micros: micros(settings.retention.tombstone_age),
        cleanup: match settings.cleanup {
            Cleanup::Delete => CleanupWire::Delete,
            Cleanup::Compact => CleanupWire::Compact,
            Cleanup::CompactDelete => CleanupWire::CompactDelete,
        },
        ack: match settings.ack {
            AckMode::Fsync => AckWire::Fsync,
            AckMode::Memory => AckWire::Memory,
        },
        schema: settings.schema.as_ref().map(|schema| schema.to_kept()),
        bloom: settings.bloom,
    };
    // Nothing in it can fail to serialise; an empty section would be refused at recovery.
    serde_json::to_vec(&wire).unwrap_or_default()
}

pub(crate) fn read_topic(bytes: &[u8]) -> Result<Topic> {
    let wire: TopicWire = serde_json::from_slice(bytes).map_err(|error| {
        Error::corrupt(format!(
            "a topic's settings can't be read ({error}); they may come from a newer version"
        ))
    })?;
    Ok(Topic {
        id: TopicId(wire.id),
        name: wire.name.parse()?,
        settings: TopicSettings {
            partitions: wire.partitions,
            format: match wire.format {
                FormatWire::Json => Format::Json,
                FormatWire::Bytes => Format::Bytes,
            },
            key: wire.key,
            time: match wire.time {
                TimeWire::Ingest => TimeFrom::Ingest,
                TimeWire::Value { pointer, unit } => TimeFrom::Value {
                    pointer,
                    unit: unit_of(&unit),
                },
                TimeWire::Header { name, unit } => TimeFrom::Header {
                    name,
                    unit: unit_of(&unit),
                },
            },
            retention: Retention {
                age: wire.retention_age_micros.map(Duration::from_micros),
                bytes: wire.retention_bytes.map(ByteSize),
                hold_for: wire.hold_for_micros.map(Duration::from_micros),
                tombstone_age: Duration::from_micros(wire.tombstone_age_micros),
            },
            cleanup: match wire.cleanup {
                CleanupWire::Delete => Cleanup::Delete,
                CleanupWire::Compact => Cleanup::Compact,
                CleanupWire::CompactDelete => Cleanup::CompactDelete,
            },
            ack: match wire.ack {
                AckWire::Fsync => AckMode::Fsync,
                AckWire::Memory => AckMode::Memory,
            },
            schema: wire
                .schema
                .map(Schema::from_kept)
                .transpose()?
                .map(Arc::new),
            bloom: wire.bloom,
        },
    })
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn unit_wire(unit: TimeUnit) -> UnitWire {
    match unit {
        TimeUnit::Rfc3339 => UnitWire::Rfc3339,
        TimeUnit::Seconds => UnitWire::Seconds,
        TimeUnit::Millis => UnitWire::Millis,
        TimeUnit::Micros => UnitWire::Micros,
        TimeUnit::Nanos => UnitWire::Nanos,
    }
}

fn unit_of(unit: &UnitWire) -> TimeUnit {
    match unit {
        UnitWire::Rfc3339 => TimeUnit::Rfc3339,
        UnitWire::Seconds => TimeUnit::Seconds,
        UnitWire::Millis => TimeUnit::Millis,
        UnitWire::Micros => TimeUnit::Micros,
        UnitWire::Nanos => TimeUnit::Nanos,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_has_golden_bytes_and_what_is_not_said_takes_no_room() {
        let plain = r#"{"id":3,"name":"orders","partitions":1,"format":"json","time":{"from":"ingest"},"tombstone_age_micros":86400000000,"cleanup":"delete","ack":"fsync"}"#;
        let columns = r#","schema":{"json":{"properties":{"n":{"type":"integer"}},"type":"object"},"on_mismatch":"null"},"bloom":true}"#;
        let mut topic = Topic {
            id: TopicId(3),
            name: "orders".parse().expect("name"),
            settings: TopicSettings::default(),
        };
        assert_eq!(String::from_utf8_lossy(&topic_bytes(&topic)), plain);
        assert_eq!(read_topic(plain.as_bytes()).expect("read"), topic);
        let json = serde_json::json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        let schema = Schema::read(json, crate::OnMismatch::Null).expect("a schema");
        topic.settings.schema = Some(Arc::new(schema));
        topic.settings.bloom = true;
        let open = plain.strip_suffix('}').expect("an object");
        let golden = format!("{open}{columns}");
        assert_eq!(String::from_utf8_lossy(&topic_bytes(&topic)), golden);
        assert_eq!(read_topic(golden.as_bytes()).expect("read"), topic);
        let broken = golden.replace("integer", "whole");
        let refused = read_topic(broken.as_bytes()).expect_err("broken");
        assert_eq!(refused.kind, tidemill_types::ErrorKind::Corrupt);
    }
}
