//! Manifests as JSON: `{"format":1,"crc32c":"…","manifest":{…}}`, the checksum over the inner object's
//! bytes as they stand.

use super::{Cleaned, Manifest, MarksRef, PartitionManifest, TopicManifest};
use crate::segment::SegmentMeta;
use crate::{
    AckMode, Cleanup, Format, Position, Retention, Schema, SnapshotRef, TimeFrom, TimeUnit, Topic,
    TopicSettings,
};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tidemill_types::{
    ByteSize, CommitSeq, Error, ErrorKind, PartitionId, Result, Timestamp, TopicId,
};

/// The format written and the newest one read.
const FORMAT: u32 = 1;

/// What a manifest of any format says first.
#[derive(Deserialize)]
struct AnyFormat {
    format: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    format: u32,
    crc32c: String,
    #[serde(borrow)]
    manifest: &'a RawValue,
}

/// Bytes of a manifest.
///
/// # Errors
/// `Corrupt` when it contradicts itself.
pub(crate) fn encode(manifest: &Manifest) -> Result<Vec<u8>> {
    manifest.check()?;
    let failed = |error| Error::internal(format!("a manifest can't be written as JSON: {error}"));
    let inner = serde_json::value::to_raw_value(&Wire::from(manifest)).map_err(failed)?;
    let envelope = Envelope {
        format: FORMAT,
        crc32c: checksum(inner.get()),
        manifest: &inner,
    };
    serde_json::to_vec(&envelope).map_err(failed)
}

/// A manifest from its bytes.
///
/// # Errors
/// `format-too-new` when a later version of the program wrote it; `Corrupt` when it isn't what was written.
pub(crate) fn decode(bytes: &[u8]) -> Result<Manifest> {
    let broken =
        |error: serde_json::Error| Error::corrupt(format!("it isn't what was written: {error}"));
    let any: AnyFormat = serde_json::from_slice(bytes).map_err(broken)?;
    if any.format > FORMAT {
        return Err(Error::new(
            ErrorKind::Invalid,
            "format-too-new",
            format!(
                "it has format {} and this program knows formats up to {FORMAT}: start the newer program that wrote it",
                any.format
            ),
        ));
    }
    let envelope: Envelope<'_> = serde_json::from_slice(bytes).map_err(broken)?;
    if envelope.format != FORMAT {
        return Err(Error::corrupt(format!(
            "there never was a format {}",
            envelope.format
        )));
    }
    if envelope.crc32c != checksum(envelope.manifest.get()) {
        return Err(Error::corrupt(
            "it isn't what was written: its checksum doesn't match",
        ));
    }
    let wire: Wire = serde_json::from_str(envelope.manifest.get()).map_err(broken)?;
    let manifest = wire.into_manifest()?;
    manifest.check()?;
    Ok(manifest)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn checksum(text: &str) -> String {
    format!("{:08x}", crc_fast::crc32_iscsi(text.as_bytes()))
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    number: u64,
    owner: String,
    data_id: String,
    commit: u64,
    next_topic: u32,
    topics: Vec<WireTopic>,
    positions: Vec<WirePosition>,
    entries: BTreeMap<String, Blob>,
    snapshot: Option<WireSnapshot>,
    marks: Option<WireMarks>,
    marked: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireTopic {
    id: u32,
    name: String,
    format: WireFormat,
    key: Option<String>,
    time: WireTime,
    retention_us: Option<u64>,
    retention_bytes: Option<u64>,
    hold_for_us: Option<u64>,
    tombstone_age_us: u64,
    cleanup: WireCleanup,
    ack: WireAck,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    schema: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    bloom: bool,
    partitions: Vec<WirePartition>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WirePartition {
    start: u64,
    archived_end: u64,
    end: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cleaned: Vec<WireCleaned>,
    segments: Vec<WireSegment>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireCleaned {
    end: u64,
    since: Option<i64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireSegment {
    first: u64,
    end: u64,
    events: u64,
    bytes: u64,
    path: String,
    min_time: i64,
    max_time: i64,
    min_ingest: i64,
    max_ingest: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WirePosition {
    reader: u32,
    topic: u32,
    partition: u32,
    offset: u64,
    note: Blob,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireSnapshot {
    path: String,
    commit: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireMarks {
    path: String,
    commit: u64,
}

/// Declares an enum of the wire with its words and the way to and from the one of the domain.
macro_rules! words {
    ($wire:ident, $domain:ident: $($word:ident),+) => {
        #[derive(Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum $wire { $($word),+ }
        impl From<$domain> for $wire {
            fn from(value: $domain) -> Self { match value { $($domain::$word => Self::$word),+ } }
        }
        impl From<$wire> for $domain {
            fn from(value: $wire) -> Self { match value { $($wire::$word => Self::$word),+ } }
        }
    };
}
words!(WireFormat, Format: Json, Bytes);
words!(WireCleanup, Cleanup: Delete, Compact, CompactDelete);
words!(WireAck, AckMode: Fsync, Memory);
words!(WireUnit, TimeUnit: Rfc3339, Seconds, Millis, Micros, Nanos);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum WireTime {
    Ingest,
    Value { pointer: String, unit: WireUnit },
    Header { name: String, unit: WireUnit },
}

/// Bytes as base64.
struct Blob(Bytes);

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = BASE64_STANDARD
            .decode(text)
            .map_err(serde::de::Error::custom)?;
        Ok(Self(bytes.into()))
    }
}

impl From<&Manifest> for Wire {
    fn from(manifest: &Manifest) -> Self {
        Self {
            number: manifest.number,
            owner: manifest.owner.clone(),
            data_id: manifest.data_id.clone(),
            commit: manifest.commit.0,
            next_topic: manifest.next_topic,
            topics: manifest.topics.iter().map(WireTopic::from).collect(),
            positions: manifest.positions.iter().map(WirePosition::from).collect(),
            entries: manifest
                .entries
                .iter()
                .map(|(key, value)| (key.clone(), Blob(value.clone())))
                .collect(),
            snapshot: manifest.snapshot.as_ref().map(|snapshot| WireSnapshot {
                path: snapshot.path.clone(),
                commit: snapshot.commit.0,
            }),
            marks: manifest.marks.as_ref().map(|marks| WireMarks {
                path: marks.path.clone(),
                commit: marks.commit.0,
            }),
            marked: manifest.marked.0,
        }
    }
}

impl Wire {
    fn into_manifest(self) -> Result<Manifest> {
        Ok(Manifest {
            number: self.number,
            owner: self.owner,
            data_id: self.data_id,
            commit: CommitSeq(self.commit),
            next_topic: self.next_topic,
            topics: self
                .topics
                .into_iter()
                .map(WireTopic::into_topic)
                .collect::<Result<_>>()?,
            positions: self.positions.into_iter().map(Position::from).collect(),
            entries: self
                .entries
                .into_iter()
                .map(|(key, value)| (key, value.0))
                .collect(),
            snapshot: self.snapshot.map(|wire| SnapshotRef {
                path: wire.path,
                commit: CommitSeq(wire.commit),
            }),
            marks: self.marks.map(|wire| MarksRef {
                path: wire.path,
                commit: CommitSeq(wire.commit),
            }),
            marked: CommitSeq(self.marked),
        })
    }
}

impl From<&TopicManifest> for WireTopic {
    fn from(TopicManifest { topic, partitions }: &TopicManifest) -> Self {
        let settings = &topic.settings;
        Self {
            id: topic.id.0,
            name: topic.name.as_str().to_owned(),
            format: settings.format.into(),
            key: settings.key.clone(),
            time: WireTime::from(&settings.time),
            retention_us: settings.retention.age.map(micros),
            retention_bytes: settings.retention.bytes.map(|bytes| bytes.0),
            hold_for_us: settings.retention.hold_for.map(micros),
            tombstone_age_us: micros(settings.retention.tombstone_age),
            cleanup: settings.cleanup.into(),
            ack: settings.ack.into(),
            schema: settings.schema.as_ref().map(|schema| schema.to_kept()),
            bloom: settings.bloom,
            partitions: partitions.iter().map(WirePartition::from).collect(),
        }
    }
}

impl WireTopic {
    fn into_topic(self) -> Result<TopicManifest> {
        let id = TopicId(self.id);
        let partitions = u32::try_from(self.partitions.len());
        let settings = TopicSettings {
            partitions: partitions
                .map_err(|_| Error::corrupt("a topic has more than 2^32 partitions"))?,
            format: self.format.into(),
            key: self.key,
            time: self.time.into(),
            retention: Retention {
                age: self.retention_us.map(Duration::from_micros),
                bytes: self.retention_bytes.map(ByteSize),
                hold_for: self.hold_for_us.map(Duration::from_micros),
                tombstone_age: Duration::from_micros(self.tombstone_age_us),
            },
            cleanup: self.cleanup.into(),
            ack: self.ack.into(),
            schema: self
                .schema
                .map(Schema::from_kept)
                .transpose()?
                .map(Arc::new),
            bloom: self.bloom,
        };
        let numbered = (0..).zip(self.partitions);
        Ok(TopicManifest {
            topic: Topic {
                id,
                name: self.name.parse()?,
                settings,
            },
            partitions: numbered
                .map(|(number, wire)| wire.into_partition(id, number))
                .collect(),
        })
    }
}

impl From<&PartitionManifest> for WirePartition {
    fn from(partition: &PartitionManifest) -> Self {
        Self {
            start: partition.start,
            archived_end: partition.archived_end,
            end: partition.end,
            cleaned: partition.cleaned.iter().map(WireCleaned::from).collect(),
            segments: partition.segments.iter().map(WireSegment::from).collect(),
        }
    }
}

impl WirePartition {
    fn into_partition(self, topic: TopicId, partition: u32) -> PartitionManifest {
        let segment = |wire: WireSegment| SegmentMeta {
            topic,
            partition,
            first: wire.first,
            end: wire.end,
            events: wire.events,
            bytes: wire.bytes,
            path: wire.path,
            min_time: wire.min_time,
            max_time: wire.max_time,
            min_ingest: wire.min_ingest,
            max_ingest: wire.max_ingest,
        };
        PartitionManifest {
            start: self.start,
            archived_end: self.archived_end,
            end: self.end,
            cleaned: self.cleaned.into_iter().map(Cleaned::from).collect(),
            segments: self.segments.into_iter().map(segment).collect(),
        }
    }
}

impl From<&Cleaned> for WireCleaned {
    fn from(cleaned: &Cleaned) -> Self {
        Self {
            end: cleaned.end,
            since: cleaned.since.map(Timestamp::micros),
        }
    }
}

impl From<WireCleaned> for Cleaned {
    fn from(wire: WireCleaned) -> Self {
        Self {
            end: wire.end,
            since: wire.since.map(Timestamp::from_micros),
        }
    }
}

impl From<&SegmentMeta> for WireSegment {
    fn from(meta: &SegmentMeta) -> Self {
        Self {
            first: meta.first,
            end: meta.end,
            events: meta.events,
            bytes: meta.bytes,
            path: meta.path.clone(),
            min_time: meta.min_time,
            max_time: meta.max_time,
            min_ingest: meta.min_ingest,
            max_ingest: meta.max_ingest,
        }
    }
}

impl From<&Position> for WirePosition {
    fn from(position: &Position) -> Self {
        Self {
            reader: position.reader,
            topic: position.at.topic.0,
            partition: position.at.partition,
            offset: position.offset,
            note: Blob(position.note.clone()),
        }
    }
}

impl From<WirePosition> for Position {
    fn from(wire: WirePosition) -> Self {
        Self {
            reader: wire.reader,
            at: PartitionId {
                topic: TopicId(wire.topic),
                partition: wire.partition,
            },
            offset: wire.offset,
            note: wire.note.0,
        }
    }
}

impl From<&TimeFrom> for WireTime {
    fn from(time: &TimeFrom) -> Self {
        match time {
            TimeFrom::Ingest => Self::Ingest,
            TimeFrom::Value { pointer, unit } => Self::Value {
                pointer: pointer.clone(),
                unit: (*unit).into(),
            },
            TimeFrom::Header { name, unit } => Self::Header {
                name: name.clone(),
                unit: (*unit).into(),
            },
        }
    }
}

impl From<WireTime> for TimeFrom {
    fn from(wire: WireTime) -> Self {
        match wire {
            WireTime::Ingest => Self::Ingest,
            WireTime::Value { pointer, unit } => Self::Value {
                pointer,
                unit: unit.into(),
            },
            WireTime::Header { name, unit } => Self::Header {
                name,
                unit: unit.into(),
            },
        }
    }
}
