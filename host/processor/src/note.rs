//! What a task keeps with its committed position: counts and event time, so that they are exact
//! after a crash.
//!
//! ```text
//! note, little endian:
//!   0  u8   version = 2
//!   1  7 bytes 0
//!   8  8 × u64: in, emitted, filtered, skipped, dead lettered, late, effective, cut off
//!  72  i64  highest event time seen that may move the watermark; the least i64: none
//!  80  i64  ingest time of the last event read; the least i64: none
//!  88  u64  timers that had their turn
//!  96  u64  those of them that became dead letters
//! 104  i64  processing time reached; the least i64: none
//! ```
//!
//! Version 1 ends at 88: no timers, and processing time is that of the last event read.

use crate::Counts;
use std::time::Duration;
use tidemill_types::{Error, Result, Timestamp};

const VERSION: u8 = 2;
const BYTES: usize = 112;
/// Bytes of version 1.
const BYTES_1: usize = 88;

/// A task's running totals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Note {
    /// Counts; `retrying` is always 0 here.
    pub(crate) counts: Counts,
    /// Highest event time seen, not counting those from too far in the future.
    pub(crate) seen: Option<Timestamp>,
    /// When the last event read was committed.
    pub(crate) ingested: Option<Timestamp>,
    /// How far processing time is: never before the ingest time of an event read.
    pub(crate) processing: Option<Timestamp>,
}

impl Note {
    /// Takes an event's times into account. Whether it lies too far in the future is told by its
    /// ingest time, not by the clock, so that a replay sees the same.
    pub(crate) fn observe(&mut self, time: Timestamp, ingested: Timestamp, max_future: Duration) {
        let future = i64::try_from(max_future.as_micros()).unwrap_or(i64::MAX);
        if time.micros() <= ingested.micros().saturating_add(future) {
            self.seen = self.seen.max(Some(time));
        }
        self.ingested = Some(ingested);
        self.processing = self.processing.max(Some(ingested));
    }

    /// The watermark as the guest is told it.
    pub(crate) fn watermark_micros(&self, disorder: Duration) -> i64 {
        self.watermark(disorder)
            .map_or(i64::MIN, tidemill_types::Timestamp::micros)
    }

    /// Highest event time seen, less the allowed disorder, less one microsecond.
    pub(crate) fn watermark(&self, disorder: Duration) -> Option<Timestamp> {
        let behind = i64::try_from(disorder.as_micros()).unwrap_or(i64::MAX);
        self.seen.map(|seen| {
            Timestamp::from_micros(seen.micros().saturating_sub(behind).saturating_sub(1))
        })
    }

    /// Its bytes.
    pub(crate) fn encode(&self) -> [u8; BYTES] {
        let mut out = [0; BYTES];
        out[0] = VERSION;
        let none = Timestamp::from_micros(i64::MIN);
        for (at, count) in self.counts.kept().into_iter().enumerate() {
            out[8 + at * 8..16 + at * 8].copy_from_slice(&count.to_le_bytes());
        }
        out[72..80].copy_from_slice(&self.seen.unwrap_or(none).micros().to_le_bytes());
        out[80..88].copy_from_slice(&self.ingested.unwrap_or(none).micros().to_le_bytes());
        out[88..96].copy_from_slice(&self.counts.timers.to_le_bytes());
        out[96..104].copy_from_slice(&self.counts.timers_dead_lettered.to_le_bytes());
        out[104..].copy_from_slice(&self.processing.unwrap_or(none).micros().to_le_bytes());
        out
    }

    /// Reads a note; an empty one is that of a task that never committed.
    ///
    /// # Errors
    /// `Corrupt` when it is not a note of a known version.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let is_first = (bytes.len(), bytes[0]) == (BYTES_1, 1);
        if !is_first && (bytes.len(), bytes[0]) != (BYTES, VERSION) {
            return Err(Error::corrupt(format!(
                "a position's note of {} bytes and version {} can't be read by this host",
                bytes.len(),
                bytes[0]
            )));
        }
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            word
        };
        let count = |at: usize| u64::from_le_bytes(word(8 + at * 8));
        let time = |at: usize| match i64::from_le_bytes(word(at)) {
            i64::MIN => None,
            micros => Some(Timestamp::from_micros(micros)),
        };
        Ok(Self {
            counts: Counts {
                events_in: count(0),
                emitted: count(1),
                filtered: count(2),
                skipped: count(3),
                dead_lettered: count(4),
                late: count(5),
                effective: count(6),
                cut_off: count(7),
                retrying: 0,
                timers: if is_first { 0 } else { count(10) },
                timers_dead_lettered: if is_first { 0 } else { count(11) },
            },
            seen: time(72),
            ingested: time(80),
            processing: time(if is_first { 80 } else { 104 }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Note {
        Note {
            counts: Counts {
                events_in: 1,
                emitted: 2,
                filtered: 3,
                skipped: 4,
                dead_lettered: 5,
                late: 6,
                effective: 7,
                cut_off: 8,
                retrying: 0,
                timers: 9,
                timers_dead_lettered: 10,
            },
            seen: Some(Timestamp::from_micros(-1)),
            ingested: Some(Timestamp::from_micros(0x0102)),
            processing: Some(Timestamp::from_micros(0x0103)),
        }
    }

    #[test]
    fn notes_have_golden_bytes() {
        let mut golden = vec![2, 0, 0, 0, 0, 0, 0, 0];
        for count in 1..=8 {
            golden.extend_from_slice(&[count, 0, 0, 0, 0, 0, 0, 0]);
        }
        golden.extend_from_slice(&[255; 8]);
        golden.extend_from_slice(&[2, 1, 0, 0, 0, 0, 0, 0]);
        let mut first = golden.clone();
        first[0] = 1;
        golden.extend_from_slice(&[9, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0]);
        golden.extend_from_slice(&[3, 1, 0, 0, 0, 0, 0, 0]);
        let of_version_1 = Note::decode(&first).expect("an earlier host's bytes");
        assert_eq!(of_version_1.processing, full().ingested);
        assert_eq!(
            (of_version_1.counts.timers, of_version_1.seen),
            (0, full().seen)
        );
        assert_eq!(full().encode().as_slice(), golden);
        assert_eq!(Note::decode(&golden).expect("its own bytes"), full());
        let empty = Note::default();
        assert_eq!(Note::decode(&empty.encode()).expect("its own bytes"), empty);
        assert_eq!(Note::decode(&[]).expect("none yet"), empty);
    }

    #[test]
    fn foreign_notes_are_refused() {
        assert!(Note::decode(&[1; 87]).is_err());
        assert!(Note::decode(&[1; 112]).is_err());
        let mut later = full().encode();
        later[0] = 3;
        assert!(Note::decode(&later).is_err());
    }

    #[test]
    fn the_watermark_follows_the_highest_time_but_not_the_far_future() {
        let at = Timestamp::from_micros;
        let mut note = Note::default();
        let second = Duration::from_secs(1);
        assert_eq!(note.watermark(second), None);
        note.observe(at(5_000_000), at(4_000_000), second);
        note.observe(at(3_000_000), at(4_000_000), second);
        note.observe(at(5_000_001), at(4_000_000), second);
        assert_eq!(note.watermark(second), Some(at(3_999_999)));
        assert_eq!(note.ingested, Some(at(4_000_000)));
    }
}
