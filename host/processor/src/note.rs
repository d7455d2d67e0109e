//! What a task keeps with its committed position: counts, event time and what waits for another try, so
//! that they are exact after a crash.
//!
//! ```text
//! note, little endian:
//!   0  u8   version = 3; 4 where there are times by input
//!   1  u8   what waits in front for another try: 0 nothing, 1 the event at the position, 2 a timer
//!   2  u8   inputs whose times follow at the end: 0, or 2 and more
//!   3  u8   0
//!   4  u32  version of the function that ran last; 0: not known
//!   8  8 × u64: in, emitted, filtered, skipped, dead lettered, late, effective, cut off
//!  72  i64  highest event time seen that may move the watermark; the least i64: none
//!  80  i64  ingest time of the last event read; the least i64: none
//!  88  u64  timers that had their turn
//!  96  u64  those of them that became dead letters
//! 104  i64  processing time reached; the least i64: none
//! 112  u64  redriven
//! 120  u64  parked events
//! 128  i64  watermark at the turn of the parked event that was parked first; the least i64: none
//! 136  i64  its ingest time; the least i64: nothing is parked
//! 144  u32  failures of what waits in front
//! 148  4 bytes 0
//! 152  i64  when its next try is due
//! 160  i64  when it failed first
//! 168  end, or the counts as they were when the function's version ran for the first time:
//! 168  12 × u64: as at 8, then timers, timers' dead letters, redriven, parked
//! end  for each input, in the manifest's order: i64 highest event time seen as at 72, i64 ingest time of its last
//!      event (of an input without one, of the task's first); the least i64: none. Then 72 is the time that counts
//! ```
//!
//! Version 2 ends at 112, with 7 bytes 0 at 1. Version 1 ends at 88: no timers, and processing time is that
//! of the last event read.

mod inputs;

use crate::Counts;
use inputs::InputTimes;
use std::time::Duration;
use tidemill_types::{Error, Result, Timestamp};

const VERSION: u8 = 3;
/// With times by input.
const VERSION_4: u8 = 4;
const BYTES: usize = 168;
/// Bytes with the counts of earlier versions.
const BYTES_WITH_BASE: usize = BYTES + 12 * 8;
/// Bytes of version 1 and 2.
const BYTES_1: usize = 88;
const BYTES_2: usize = 112;

/// What stands in front of a task and waits for another try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Front {
    /// Whether it is a timer, not the event at the position.
    pub(crate) is_timer: bool,
    /// How often it failed.
    pub(crate) failures: u32,
    /// When its next try is due.
    pub(crate) due: Timestamp,
    /// When it failed first.
    pub(crate) first: Timestamp,
}

/// Times of the parked event that was parked first: no parked event sees state at an earlier time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Floor {
    /// Watermark at its turn; the least i64: none.
    pub(crate) watermark: i64,
    /// When it was received.
    pub(crate) received: Timestamp,
}

/// A task's running totals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Note {
    /// Counts; `retrying` are the parked events.
    pub(crate) counts: Counts,
    /// Highest event time seen, not counting those from too far in the future.
    pub(crate) seen: Option<Timestamp>,
    /// When the last event read was committed.
    pub(crate) ingested: Option<Timestamp>,
    /// How far processing time is: never before the ingest time of an event read.
    pub(crate) processing: Option<Timestamp>,
    /// What waits in front.
    pub(crate) front: Option<Front>,
    /// How far back parked events look.
    pub(crate) floor: Option<Floor>,
    /// Version of the function that ran last.
    pub(crate) version: u32,
    /// The counts when that version began.
    pub(crate) base: Counts,
    /// Times of its inputs, where there are several; `seen` is then what they come to.
    pub(crate) inputs: InputTimes,
}

impl Note {
    /// The note of a task whose position is set elsewhere: totals stay, and what is parked; time begins again.
    pub(crate) fn moved(&self) -> Self {
        Self {
            counts: self.counts,
            floor: self.floor,
            version: self.version,
            base: self.base,
            ..Self::default()
        }
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

    /// The note as a version of the function takes it up: a new one counts from here on, and tries what
    /// waits as if it hadn't failed.
    #[must_use]
    pub(crate) fn taken_up_by(self, version: u32) -> Self {
        if self.version == version {
            return self;
        }
        Self {
            version,
            base: self.counts,
            front: None,
            ..self
        }
    }

    /// The counts as they are shown: an event that waits in front counts as taken up.
    pub(crate) fn shown(&self) -> Counts {
        let waits = self.front.is_some_and(|front| !front.is_timer);
        Counts {
            events_in: self.counts.events_in + u64::from(waits),
            retrying: self.counts.retrying + u64::from(waits),
            ..self.counts
        }
    }

    /// Its bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let none = i64::MIN;
        let micros = |time: Option<Timestamp>| time.map_or(none, Timestamp::micros);
        let mut out = Vec::with_capacity(BYTES_WITH_BASE);
        let front = match self.front {
            None => 0,
            Some(front) => 1 + u8::from(front.is_timer),
        };
        let inputs = u8::try_from(self.inputs.count()).unwrap_or_default();
        let version = if inputs == 0 { VERSION } else { VERSION_4 };
        out.extend([version, front, inputs, 0]);
        out.extend(self.version.to_le_bytes());
        for count in kept(&self.counts) {
            out.extend(count.to_le_bytes());
        }
        out.extend(micros(self.seen).to_le_bytes());
        out.extend(micros(self.ingested).to_le_bytes());
        out.extend(self.counts.timers.to_le_bytes());
        out.extend(self.counts.timers_dead_lettered.to_le_bytes());
        out.extend(micros(self.processing).to_le_bytes());
        out.extend(self.counts.redriven.to_le_bytes());
        out.extend(self.counts.retrying.to_le_bytes());
        let floor = self.floor.map(|floor| floor.watermark);
        out.extend(floor.unwrap_or(none).to_le_bytes());
        out.extend(micros(self.floor.map(|floor| floor.received)).to_le_bytes());
        let failures = self.front.map_or(0, |front| front.failures);
        out.extend(u64::from(failures).to_le_bytes());
        out.extend(
            self.front
                .map_or(0, |front| front.due.micros())
                .to_le_bytes(),
        );
        out.extend(
            self.front
                .map_or(0, |front| front.first.micros())
                .to_le_bytes(),
        );
        debug_assert_eq!(out.len(), BYTES);
        if self.base != Counts::default() {
            let base = &self.base;
            let (timers, letters) = (base.timers, base.timers_dead_lettered);
            let more = [timers, letters, base.redriven, base.retrying];
            for count in kept(base).into_iter().chain(more) {
                out.extend(count.to_le_bytes());
            }
        }
        self.inputs.write(&mut out);
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
        Self::read(bytes).ok_or_else(|| {
            Error::corrupt(format!(
                "a position's note of {} bytes and version {} can't be read by this host",
                bytes.len(),
                bytes[0]
            ))
        })
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        if bytes[0] == VERSION_4 {
            let times = InputTimes::BYTES * usize::from(*bytes.get(2)?);
            let (rest, times) = bytes.split_at_checked(bytes.len().checked_sub(times)?)?;
            let mut rest = rest.to_vec();
            rest[0] = VERSION;
            let note = Self::read(&rest)?;
            let inputs = InputTimes::read(times)?;
            return Some(Self { inputs, ..note });
        }
        let (version, of_2, of_3) = match (bytes[0], bytes.len()) {
            (1, BYTES_1) => (1, false, false),
            (2, BYTES_2) => (2, true, false),
            (VERSION, BYTES | BYTES_WITH_BASE) => (VERSION, true, true),
            _ => return None,
        };
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            word
        };
        let count = |at: usize| u64::from_le_bytes(word(at));
        let micros = |at: usize| i64::from_le_bytes(word(at));
        let time = |at: usize| Some(micros(at)).filter(|micros| *micros != i64::MIN);
        let time = |at: usize| time(at).map(Timestamp::from_micros);
        let of = |since: bool, at: usize| if since { count(at) } else { 0 };
        let mut note = Self {
            counts: Counts {
                timers: of(of_2, 88),
                timers_dead_lettered: of(of_2, 96),
                redriven: of(of_3, 112),
                retrying: of(of_3, 120),
                ..counts(&count, 8)
            },
            seen: time(72),
            ingested: time(80),
            processing: time(if version == 1 { 80 } else { 104 }),
            ..Self::default()
        };
        if !of_3 {
            return Some(note);
        }
        note.version = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        note.floor = time(136).map(|received| Floor {
            watermark: micros(128),
            received,
        });
        note.front = match bytes[1] {
            0 => None,
            front @ 1..=2 => Some(Front {
                is_timer: front == 2,
                failures: u32::try_from(count(144)).ok()?,
                due: Timestamp::from_micros(micros(152)),
                first: Timestamp::from_micros(micros(160)),
            }),
            _ => return None,
        };
        if bytes.len() == BYTES_WITH_BASE {
            note.base = Counts {
                timers: count(BYTES + 64),
                timers_dead_lettered: count(BYTES + 72),
                redriven: count(BYTES + 80),
                retrying: count(BYTES + 88),
                ..counts(&count, BYTES)
            };
        }
        Some(note)
    }
}

/// The counts that stand together, in their order.
fn kept(counts: &Counts) -> [u64; 8] {
    [
        counts.events_in,
        counts.emitted,
        counts.filtered,
        counts.skipped,
        counts.dead_lettered,
        counts.late,
        counts.effective,
        counts.cut_off,
    ]
}

fn counts(count: &impl Fn(usize) -> u64, at: usize) -> Counts {
    Counts {
        events_in: count(at),
        emitted: count(at + 8),
        filtered: count(at + 16),
        skipped: count(at + 24),
        dead_lettered: count(at + 32),
        late: count(at + 40),
        effective: count(at + 48),
        cut_off: count(at + 56),
        ..Counts::default()
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
                retrying: 12,
                redriven: 11,
                timers: 9,
                timers_dead_lettered: 10,
            },
            seen: Some(Timestamp::from_micros(-1)),
            ingested: Some(Timestamp::from_micros(0x0102)),
            processing: Some(Timestamp::from_micros(0x0103)),
            front: Some(Front {
                is_timer: true,
                failures: 13,
                due: Timestamp::from_micros(14),
                first: Timestamp::from_micros(15),
            }),
            floor: Some(Floor {
                watermark: 16,
                received: Timestamp::from_micros(17),
            }),
            version: 18,
            base: Counts::default(),
            inputs: InputTimes::default(),
        }
    }

    fn words(words: &[u8]) -> Vec<u8> {
        let word = |word: &u8| [*word, 0, 0, 0, 0, 0, 0, 0];
        words.iter().flat_map(word).collect()
    }

    #[test]
    fn notes_have_golden_bytes() {
        let mut golden = vec![3, 2, 0, 0, 18, 0, 0, 0];
        golden.extend(words(&[1, 2, 3, 4, 5, 6, 7, 8]));
        golden.extend_from_slice(&[255; 8]);
        golden.extend_from_slice(&[2, 1, 0, 0, 0, 0, 0, 0]);
        golden.extend(words(&[9, 10]));
        golden.extend_from_slice(&[3, 1, 0, 0, 0, 0, 0, 0]);
        golden.extend(words(&[11, 12, 16, 17, 13, 14, 15]));
        assert_eq!(full().encode(), golden);
        assert_eq!(Note::decode(&golden).expect("its own bytes"), full());
        let based = Note {
            base: Counts {
                retrying: 3,
                ..Counts::default()
            },
            ..full()
        };
        golden.extend(words(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3]));
        assert_eq!(based.encode(), golden);
        assert_eq!(Note::decode(&golden).expect("its own bytes"), based);
        let empty = Note::default();
        assert_eq!(Note::decode(&empty.encode()).expect("its own bytes"), empty);
        assert_eq!(Note::decode(&[]).expect("none yet"), empty);
    }

    #[test]
    fn notes_of_earlier_hosts_are_read() {
        let mut second = full().encode();
        second.truncate(BYTES_2);
        second[..8].copy_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0]);
        let mut first = second.clone();
        first.truncate(BYTES_1);
        first[0] = 1;
        let expected = Note {
            counts: Counts {
                retrying: 0,
                redriven: 0,
                ..full().counts
            },
            front: None,
            floor: None,
            version: 0,
            ..full()
        };
        assert_eq!(Note::decode(&second).expect("version 2"), expected);
        let of_1 = Note::decode(&first).expect("version 1");
        assert_eq!(of_1.processing, full().ingested);
        assert_eq!((of_1.counts.timers, of_1.seen), (0, full().seen));
    }

    #[test]
    fn foreign_notes_are_refused() {
        assert!(Note::decode(&[1; 87]).is_err());
        assert!(Note::decode(&[1; 112]).is_err());
        let mut later = full().encode();
        later[0] = 4;
        assert!(Note::decode(&later).is_err());
        let mut odd = full().encode();
        odd[1] = 3;
        assert!(Note::decode(&odd).is_err());
    }

    #[test]
    fn a_new_version_counts_from_where_it_takes_over() {
        let mut note = Note::default().taken_up_by(1);
        note.counts.events_in = 5;
        note.counts.effective = 3;
        note.counts.retrying = 2;
        let mut note = note.taken_up_by(1).taken_up_by(2);
        assert_eq!(note.counts.since(note.base).events_in, 2, "those that wait");
        assert!(note.counts.since(note.base).conserved());
        note.counts.retrying = 0;
        note.counts.skipped = 2;
        let counts = note.counts.since(note.base);
        assert_eq!(
            (counts.events_in, counts.skipped, counts.effective),
            (2, 2, 0)
        );
        assert!(counts.conserved() && note.counts.conserved());
    }

    #[test]
    fn the_watermark_follows_the_highest_time_but_not_the_far_future() {
        let at = Timestamp::from_micros;
        let mut note = Note::default();
        let second = Duration::from_secs(1);
        let limits = crate::manifest::Time {
            disorder: second,
            idle: second,
            max_future: second,
        };
        assert_eq!(note.watermark(second), None);
        for time in [5_000_000, 3_000_000, 5_000_001] {
            note.observe(0, at(time), at(4_000_000), &limits);
        }
        assert_eq!(note.watermark(second), Some(at(3_999_999)));
        assert_eq!(note.ingested, Some(at(4_000_000)));
    }
}
