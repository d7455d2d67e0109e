//! A line of a function's log, as it lies in the log's topic.
//!
//! Its event's key is the key of the topic's event, its time the event time, and the value is JSON:
//! `{"time":"…","level":"info","version":1,"topic":"…","partition":0,"offset":7,"message":"…"}`. The topic is
//! named where the function reads several.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidemill_types::{Event, Timestamp};
use tidemill_wasm::LogLevel;

/// Bytes of a key that are kept with a line.
const KEY_BYTES: usize = 1024;

/// One line of a function's log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionLogLine {
    /// When it was logged.
    pub time: Timestamp,
    /// How severe it is.
    pub level: LogLevel,
    /// Version that logged it.
    pub version: u32,
    /// Topic of the event, where the function reads several.
    pub topic: Option<String>,
    /// Partition of the event.
    pub partition: u32,
    /// Offset of the event.
    pub offset: u64,
    /// The event's key, its first 1,024 bytes.
    pub key: Option<Bytes>,
    /// The text.
    pub message: String,
}

#[derive(Serialize, Deserialize)]
struct Stored<'a> {
    time: &'a str,
    level: &'a str,
    version: u32,
    #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
    topic: Option<std::borrow::Cow<'a, str>>,
    partition: u32,
    offset: u64,
    message: std::borrow::Cow<'a, str>,
}

impl FunctionLogLine {
    /// What is kept of an event's key.
    pub(crate) fn key_of(key: Option<&[u8]>) -> Option<Bytes> {
        key.map(|key| Bytes::copy_from_slice(&key[..key.len().min(KEY_BYTES)]))
    }

    /// Bytes it takes while it waits.
    pub(super) fn bytes(&self) -> usize {
        const BESIDE: usize = 256;
        let topic = self.topic.as_ref().map_or(0, String::len);
        BESIDE + self.message.len() + topic + self.key.as_ref().map_or(0, Bytes::len)
    }

    /// The value of its event.
    ///
    /// # Errors
    /// None, for all of it is text and numbers.
    pub(super) fn encode(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&Stored {
            time: &self.time.to_string(),
            level: self.level.as_str(),
            version: self.version,
            topic: self.topic.as_deref().map(Into::into),
            partition: self.partition,
            offset: self.offset,
            message: self.message.as_str().into(),
        })
    }

    /// The line in an event of the topic; `None`: somebody else's.
    pub(super) fn decode(event: &Event<'_>) -> Option<Self> {
        let stored: Stored<'_> = serde_json::from_slice(event.row.value?).ok()?;
        Some(Self {
            time: stored.time.parse().ok()?,
            level: stored.level.parse().ok()?,
            version: stored.version,
            topic: stored.topic.map(std::borrow::Cow::into_owned),
            partition: stored.partition,
            offset: stored.offset,
            key: event.row.key.map(Bytes::copy_from_slice),
            message: stored.message.into_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_types::{CommitSeq, PackedRows};

    #[test]
    fn lines_have_golden_bytes() {
        let line = FunctionLogLine {
            time: Timestamp::from_micros(1_000_000),
            level: LogLevel::Warn,
            version: 3,
            topic: None,
            partition: 1,
            offset: 258,
            key: FunctionLogLine::key_of(Some(b"UA")),
            message: "a \"word\"\n".to_owned(),
        };
        let bytes = line.encode().expect("it encodes");
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            r#"{"time":"1970-01-01T00:00:01Z","level":"warn","version":3,"partition":1,"offset":258,"message":"a \"word\"\n"}"#
        );
        let mut rows = PackedRows::default();
        rows.push(line.time, line.key.as_deref(), Some(&bytes), [])
            .expect("it fits");
        rows.push(line.time, None, Some(b"{}"), [])
            .expect("it fits");
        let event = |row| Event {
            offset: 0,
            ingest_time: line.time,
            commit: CommitSeq(1),
            row: rows.event(row),
        };
        assert_eq!(FunctionLogLine::decode(&event(0)), Some(line.clone()));
        assert_eq!(FunctionLogLine::decode(&event(1)), None);

        let named = FunctionLogLine {
            topic: Some("payments".to_owned()),
            ..line
        };
        let bytes = named.encode().expect("it encodes");
        let text = String::from_utf8_lossy(&bytes);
        assert!(
            text.contains(r#""version":3,"topic":"payments","partition":1,"#),
            "{text}"
        );
        let mut rows = PackedRows::default();
        rows.push(named.time, named.key.as_deref(), Some(&bytes), [])
            .expect("it fits");
        let event = Event {
            offset: 0,
            ingest_time: named.time,
            commit: CommitSeq(1),
            row: rows.event(0),
        };
        assert_eq!(FunctionLogLine::decode(&event), Some(named));
    }

    #[test]
    fn long_keys_are_cut() {
        let key = FunctionLogLine::key_of(Some(&[b'k'; 5000])).expect("a key");
        assert_eq!(key.len(), 1024);
        assert_eq!(FunctionLogLine::key_of(None), None);
    }
}
