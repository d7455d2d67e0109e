//! What a topic is.

use std::time::Duration;
use tidemill_types::{ByteSize, TopicId, TopicName};

/// A topic as it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topic {
    /// Its number.
    pub id: TopicId,
    /// Its name.
    pub name: TopicName,
    /// Its settings.
    pub settings: TopicSettings,
}

/// Settings of a topic. Only `retention` may be altered later.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicSettings {
    /// Number of partitions, 1 to [`tidemill_types::limits::PARTITIONS`].
    pub partitions: u32,
    /// Whether values are checked as JSON at ingest.
    pub format: Format,
    /// JSON pointer (RFC 6901) to the key inside the value.
    pub key: Option<String>,
    /// Where the event time comes from.
    pub time: TimeFrom,
    /// What may be dropped; kept, not yet acted on.
    pub retention: Retention,
    /// How old events go; kept, not yet acted on.
    pub cleanup: Cleanup,
    /// What an acknowledgement means.
    pub ack: AckMode,
}

impl Default for TopicSettings {
    fn default() -> Self {
        Self {
            partitions: 1,
            format: Format::Json,
            key: None,
            time: TimeFrom::Ingest,
            retention: Retention::default(),
            cleanup: Cleanup::Delete,
            ack: AckMode::Fsync,
        }
    }
}

/// What values are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Each value is one JSON text.
    Json,
    /// Anything.
    Bytes,
}

/// Where an event's time comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TimeFrom {
    /// The time it is accepted.
    Ingest,
    /// A JSON pointer into the value.
    Value {
        /// The pointer.
        pointer: String,
        /// How the time is written there.
        unit: TimeUnit,
    },
    /// A header.
    Header {
        /// The header's name.
        name: String,
        /// How the time is written there.
        unit: TimeUnit,
    },
}

/// How a time is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeUnit {
    /// RFC 3339 text.
    Rfc3339,
    /// Seconds since 1970.
    Seconds,
    /// Milliseconds since 1970.
    Millis,
    /// Microseconds since 1970.
    Micros,
    /// Nanoseconds since 1970.
    Nanos,
}

/// How long and how much is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Retention {
    /// Events older than this may go.
    pub age: Option<Duration>,
    /// Above this the oldest may go.
    pub bytes: Option<ByteSize>,
}

/// How old events go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cleanup {
    /// By retention.
    Delete,
    /// Latest per key stays.
    Compact,
}

/// What an acknowledgement means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckMode {
    /// In the local journal, synced.
    Fsync,
    /// Accepted; everything since the last sync may be lost.
    Memory,
}

/// What one partition holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Range {
    /// The partition.
    pub partition: u32,
    /// First offset that can be read.
    pub start: u64,
    /// Committed end: first offset not yet committed.
    pub end: u64,
    /// First offset that is not yet in a segment.
    pub archived_end: u64,
    /// Bytes: in segments as stored there, in the journal as keys, values and headers.
    pub bytes: u64,
}
