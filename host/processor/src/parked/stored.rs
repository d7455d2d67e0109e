//! How parked events lie in the state store.
//!
//! ```text
//! scope: the function's, on partition + 2^31; slot 32766; key: u64 number, big endian, in the order of parking
//! value, little endian:
//!   0  u8   version = 2
//!   1  u8   bit 0: it has a key; bit 1: it has a value
//!   2  u8   why it failed last: 0 it didn't yet, 1 guest, 2 trap, 3 deadline, 4 memory, 5 output limit, 6 decode
//!   3  u8   0
//!   4  u32  failures
//!   8  u32  version of the function that failed
//!  12  u32  how often it was put back from the dead letters
//!  16  i64  when its next try is due, µs since 1970
//!  24  i64  when it failed first
//!  32  i64  watermark at its turn; the least i64: none
//!  40  i64  event time
//!  48  i64  ingest time
//!  56  u64  offset
//!  64  u32  bytes of the key, of the value, of the headers (as in a row), of the error
//!  80  u32  the topic it was read from
//!  84  4 bytes 0
//!  88  key, value, headers, error
//! ```
//!
//! Version 1 has no topic, and key, value, headers and error at 80: its function read one topic.

use super::Place;
use crate::dead_letter::Reason;
use crate::note::Floor;
use bytes::Bytes;
use tidemill_state::{Changes, Scope};
use tidemill_types::{Error, Headers, Result, Timestamp, TopicId};

/// The slot.
pub(crate) const SLOT: u16 = 32_766;
/// Parked events are input, not state: they lie apart, so that they stay when state is reset.
const APART: u32 = 1 << 31;
const VERSION: u8 = 2;
const HEAD: usize = 88;
/// Bytes of version 1.
const HEAD_1: usize = 80;

/// Where a task's parked events lie.
pub(crate) fn scope(state: Scope) -> Scope {
    Scope {
        partition: state.partition | APART,
        ..state
    }
}

/// The key of a parked event in its slot.
pub(crate) fn key_of(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// The number back.
///
/// # Errors
/// `Corrupt` when it is none.
pub(crate) fn from_key(key: &[u8]) -> Result<u64> {
    let number = key.try_into().map(u64::from_be_bytes);
    number.map_err(|_| Error::corrupt("a parked event has no number"))
}

/// A parked event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParkedEvent<'a> {
    /// How often it failed.
    pub(crate) attempts: u32,
    /// Version of the function that failed.
    pub(crate) version: u32,
    /// How often it was put back from the dead letters.
    pub(crate) redriven: u32,
    /// When its next try is due.
    pub(crate) due: i64,
    /// When it failed first.
    pub(crate) first: Timestamp,
    /// Watermark at its turn, and when it was received.
    pub(crate) floor: Floor,
    /// Its event time.
    pub(crate) time: Timestamp,
    /// Its offset.
    pub(crate) offset: u64,
    /// The topic it was read from; unknown for those that an earlier host parked.
    pub(crate) topic: Option<TopicId>,
    /// Its key.
    pub(crate) key: Option<&'a [u8]>,
    /// Its value.
    pub(crate) value: Option<&'a [u8]>,
    /// Its headers.
    pub(crate) headers: Headers<'a>,
    /// Why it failed last, in a word and a sentence.
    pub(crate) cause: Option<(Reason, &'a str)>,
}

impl<'a> ParkedEvent<'a> {
    /// Adds it to the changes of its scope, under a number.
    pub(crate) fn write(&self, number: u64, changes: &mut Changes) {
        let error = self.cause.map_or("", |(_, error)| error);
        let parts = [
            self.key.unwrap_or_default(),
            self.value.unwrap_or_default(),
            self.headers.as_bytes(),
            error.as_bytes(),
        ];
        let mut head = Vec::with_capacity(HEAD);
        let flags = u8::from(self.key.is_some()) | u8::from(self.value.is_some()) << 1;
        let reason = self.cause.map_or(0, |(reason, _)| reason.number());
        head.extend([VERSION, flags, reason, 0]);
        for number in [self.attempts, self.version, self.redriven] {
            head.extend(number.to_le_bytes());
        }
        let Floor {
            watermark,
            received,
        } = self.floor;
        let (first, time, received) = (self.first.micros(), self.time.micros(), received.micros());
        for time in [self.due, first, watermark, time, received] {
            head.extend(time.to_le_bytes());
        }
        head.extend(self.offset.to_le_bytes());
        for part in parts {
            // A frame holds 48 MiB.
            head.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
        }
        let topic = self.topic.map_or(0, |topic| topic.0);
        head.extend(u64::from(topic).to_le_bytes());
        debug_assert_eq!(head.len(), HEAD);
        let [key, value, headers, error] = parts;
        changes.push_set(
            SLOT,
            &[&key_of(number)],
            &[&head, key, value, headers, error],
        );
    }

    /// Reads one.
    ///
    /// # Errors
    /// `Corrupt` when it is none of a known version.
    pub(crate) fn read(stored: &'a [u8]) -> Result<Self> {
        Self::parse(stored)
            .ok_or_else(|| Error::corrupt("a parked event can't be read by this host"))
    }

    fn parse(stored: &'a [u8]) -> Option<Self> {
        let (head, rest) = match stored.first()? {
            1 => stored.split_at_checked(HEAD_1)?,
            _ => stored.split_at_checked(HEAD)?,
        };
        let [version @ 1..=VERSION, flags @ 0..=3, reason, 0, ..] = *head else {
            return None;
        };
        let number = |at: usize| {
            let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
            u32::from_le_bytes(bytes)
        };
        let long = |at: usize| u64::from(number(at)) | u64::from(number(at + 4)) << 32;
        let micros = |at: usize| long(at).cast_signed();
        let time = |at: usize| Timestamp::from_micros(micros(at));
        let part = |rest: &'a [u8], at: usize| rest.split_at_checked(number(at) as usize);
        let (key, rest) = part(rest, 64)?;
        let (value, rest) = part(rest, 68)?;
        let (headers, rest) = part(rest, 72)?;
        let (error, rest) = part(rest, 76)?;
        let cause = match reason {
            0 => None,
            reason => Some((
                Reason::from_number(reason)?,
                std::str::from_utf8(error).ok()?,
            )),
        };
        let headers = Headers(headers);
        let topic = match version {
            1 => None,
            _ if number(84) != 0 => return None,
            _ => Some(TopicId(number(80))).filter(|topic| topic.0 != 0),
        };
        (rest.is_empty() && headers.are_valid()).then_some(Self {
            attempts: number(4),
            version: number(8),
            redriven: number(12),
            due: micros(16),
            first: time(24),
            floor: Floor::new(micros(32), time(48)),
            time: time(40),
            offset: long(56),
            topic,
            key: (flags & 1 != 0).then_some(key),
            value: (flags & 2 != 0).then_some(value),
            headers,
            cause,
        })
    }

    /// What the index keeps of it.
    pub(crate) fn place(&self) -> Place {
        Place {
            key: self.key.map(Bytes::copy_from_slice),
            attempts: self.attempts,
            due: self.due,
            floor: self.floor,
            bytes: self.bytes(),
        }
    }

    /// Bytes it takes.
    pub(crate) fn bytes(&self) -> u64 {
        let length = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len);
        let error = self.cause.map_or(0, |(_, error)| error.len());
        let parts = length(self.key) + length(self.value) + self.headers.as_bytes().len() + error;
        (HEAD + parts) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_state::{Change, ChangesReader};
    use tidemill_types::{FunctionId, encode_header};

    #[test]
    fn parked_events_have_golden_bytes() {
        let state = Scope {
            function: FunctionId(7),
            partition: 3,
        };
        assert_eq!(scope(state).partition, 0x8000_0003);
        assert_eq!(from_key(&key_of(258)).expect("its own"), 258);
        let mut headers = Vec::new();
        encode_header(&mut headers, "a", b"1").expect("short");
        let event = ParkedEvent {
            attempts: 1,
            version: 2,
            redriven: 3,
            due: 4,
            first: Timestamp::from_micros(5),
            floor: Floor::new(6, Timestamp::from_micros(8)),
            time: Timestamp::from_micros(7),
            offset: 9,
            topic: Some(TopicId(10)),
            key: Some(b"k"),
            value: None,
            headers: Headers(&headers),
            cause: Some((Reason::Trap, "oh")),
        };
        let mut changes = Changes::new(scope(state));
        event.write(258, &mut changes);
        let mut golden = vec![2, 1, 2, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0];
        for word in 4..=9 {
            golden.extend([word, 0, 0, 0, 0, 0, 0, 0]);
        }
        golden.extend([1, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 2, 0, 0, 0]);
        golden.extend([10, 0, 0, 0, 0, 0, 0, 0]);
        golden.extend(b"k\x01\x00\x01\x00\x00\x00a1oh");
        let stored = Change::Set {
            slot: 32_766,
            key: &[0, 0, 0, 0, 0, 0, 1, 2],
            value: &golden,
        };
        let section = ChangesReader::new(changes.as_bytes()).expect("changes");
        assert_eq!(section.collect::<Vec<_>>(), [stored]);
        let read = ParkedEvent::read(&golden).expect("its own bytes");
        assert_eq!(format!("{read:?}"), format!("{event:?}"));
        assert_eq!(read.bytes(), golden.len() as u64);
        for (at, byte) in [(0, 3), (1, 4), (2, 7), (3, 1), (64, 9), (76, 1), (84, 1)] {
            let mut wrong = golden.clone();
            wrong[at] = byte;
            assert!(ParkedEvent::read(&wrong).is_err(), "byte {at}");
        }
        let mut earlier = golden.clone();
        earlier.drain(HEAD_1..HEAD);
        earlier[0] = 1;
        let read = ParkedEvent::read(&earlier).expect("of an earlier host");
        let event = ParkedEvent {
            topic: None,
            ..event
        };
        assert_eq!(format!("{read:?}"), format!("{event:?}"));
    }
}
