//! What a topic is.

use crate::Schema;
use std::sync::Arc;
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

/// Settings of a topic. Only `retention` and `schema` may be altered later.
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
    /// What may be dropped.
    pub retention: Retention,
    /// How old events go.
    pub cleanup: Cleanup,
    /// What an acknowledgement means.
    pub ack: AckMode,
    /// What of its values become columns of segments; only of values that are JSON.
    pub schema: Option<Arc<Schema>>,
    /// Whether segments have a bloom filter on keys, so that readers who look for one skip most of them.
    pub bloom: bool,
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
            schema: None,
            bloom: false,
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

/// How long and how much is kept, of each partition and in whole segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// A segment goes when its newest event was committed this long ago.
    pub age: Option<Duration>,
    /// The oldest segment goes when the others have this much without it.
    pub bytes: Option<ByteSize>,
    /// A segment that a reader still needs stays this much longer.
    pub hold_for: Option<Duration>,
    /// How long compaction keeps a tombstone once it has taken away what the tombstone deletes.
    pub tombstone_age: Duration,
}

impl Retention {
    /// What [`Retention::tombstone_age`] is if nobody says otherwise.
    pub const TOMBSTONE_AGE: Duration = Duration::from_secs(86_400);
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            age: None,
            bytes: None,
            hold_for: None,
            tombstone_age: Self::TOMBSTONE_AGE,
        }
    }
}

/// How old events go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cleanup {
    /// By retention.
    Delete,
    /// The latest of each key stays; retention takes nothing.
    Compact,
    /// Both.
    CompactDelete,
}

impl Cleanup {
    /// Whether earlier events of a key go.
    pub fn compacts(self) -> bool {
        self != Self::Delete
    }

    /// Whether retention takes old events.
    pub fn deletes(self) -> bool {
        self != Self::Compact
    }
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
