//! How what a function keeps lies in the state store.
//!
//! ```text
//! value of a slot: under the event key
//!   i64 when it was written, µs since 1970, in the slot's time; then the value
//!   (functions of before time-to-live have the value alone; `stamped` in their record says so)
//! entry of a map: under the event key, each byte 0 in it followed by 255, then 0, 0, then the entry's key
//! timer: slot 32767, under the event key and its tag as an entry; its value is
//!   u8 version = 1, u8 time (0 event time, 1 processing time), u8 payload (0 none, 1 some), 5 bytes 0,
//!   i64 due, µs since 1970, the payload
//! how much is kept on a partition: slot 32766, under the empty key
//!   u64 bytes of keys and values, u64 by how much that may be too high
//! ```
//!
//! All numbers are little endian. Event keys and entries lie in the order of their bytes.

use crate::manifest::{Manifest, SlotKind};
use crate::record::Record;
use tidemill_types::{ByteSize, Error, Result, limits};
use tidemill_wasm::{Clock, SlotTtl};

/// The slot that timers lie in.
pub(crate) const TIMERS: u16 = 32_767;
/// The slot that says how much is kept.
pub(crate) const USAGE: u16 = 32_766;
/// Version of a timer.
const TIMER_VERSION: u8 = 1;
/// Bytes of a timer before its payload.
const TIMER_HEAD: usize = 16;

/// One slot of a deployment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    /// Its name.
    pub(crate) name: String,
    /// Its number for good.
    pub(crate) number: u16,
    /// Its kind.
    pub(crate) kind: SlotKind,
    /// How long its values last.
    pub(crate) ttl: Option<SlotTtl>,
    /// The time it keeps.
    pub(crate) clock: Clock,
}

/// What a deployment keeps by key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Slots {
    /// In the guest's order.
    pub(crate) list: Vec<Slot>,
    /// By slot; empty where nothing ends.
    pub(crate) ttls: Vec<Option<SlotTtl>>,
    /// Whether values say when they were written.
    pub(crate) stamped: bool,
    /// Whether there are timers.
    pub(crate) timers: bool,
    /// Numbers of all slots the function ever had.
    pub(crate) numbers: Vec<u16>,
}

impl Slots {
    /// Those of a manifest, numbered by the function's record.
    pub(crate) fn new(record: &Record, manifest: &Manifest) -> Self {
        let numbers = record.slot_numbers(manifest);
        let slots = numbers.into_iter().zip(&manifest.slots);
        let list: Vec<_> = slots
            .map(|(number, spec)| Slot {
                name: spec.name.clone(),
                number,
                kind: spec.kind,
                ttl: spec.slot_ttl(),
                clock: spec.ttl_time,
            })
            .collect();
        let ends = list.iter().any(|slot| slot.ttl.is_some());
        Self {
            ttls: list.iter().filter(|_| ends).map(|slot| slot.ttl).collect(),
            list,
            stamped: record.stamped,
            timers: manifest.timers,
            numbers: record.slots.values().copied().collect(),
        }
    }

    /// Whether events need a key.
    pub(crate) fn keyed(&self) -> bool {
        !self.list.is_empty() || self.timers
    }

    /// Whether the guest is told the time.
    pub(crate) fn clocked(&self) -> bool {
        !self.ttls.is_empty() || self.timers
    }

    /// What is stored, taken apart.
    pub(crate) fn open<'v>(&self, slot: &Slot, stored: &'v [u8]) -> Opened<'v> {
        opened(self.stamped, slot.ttl, stored)
    }

    /// The bytes that stand before a value written at a time.
    pub(crate) fn stamp(&self, written: i64) -> Stamp {
        if self.stamped {
            Stamp(written.to_le_bytes(), 8)
        } else {
            Stamp([0; 8], 0)
        }
    }
}

/// What stands before a value.
pub(crate) struct Stamp([u8; 8], usize);

impl Stamp {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

/// A stored value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Opened<'v> {
    /// When it expires; the greatest i64: never.
    pub(crate) expires: i64,
    /// The value.
    pub(crate) value: &'v [u8],
}

/// Takes a stored value apart.
pub(crate) fn opened(stamped: bool, ttl: Option<SlotTtl>, stored: &[u8]) -> Opened<'_> {
    let split = stored.split_first_chunk::<8>().filter(|_| stamped);
    let (written, value) = match split {
        Some((written, value)) => (Some(i64::from_le_bytes(*written)), value),
        None => (None, stored),
    };
    let expires = written.zip(ttl).map_or(i64::MAX, |(written, ttl)| {
        written.saturating_add(ttl.micros)
    });
    Opened { expires, value }
}

/// Where the entries of a map, or the timers, of an event key begin.
pub(crate) fn entry_prefix(key: &[u8]) -> Vec<u8> {
    let mut out = escaped(key);
    out.extend_from_slice(&[0, 0]);
    out
}

/// Where an entry of a map, or a timer, lies.
pub(crate) fn entry_key(key: &[u8], entry: &[u8]) -> Vec<u8> {
    let mut out = entry_prefix(key);
    out.extend_from_slice(entry);
    out
}

/// An event key, or the beginning of one, as entries begin with it.
pub(crate) fn escaped(key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + 8);
    for byte in key {
        out.push(*byte);
        if *byte == 0 {
            out.push(u8::MAX);
        }
    }
    out
}

/// The event key and the entry's key; `None` when it isn't the place of an entry.
pub(crate) fn split_entry(stored: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut key = Vec::new();
    let mut at = 0;
    loop {
        match stored.get(at..)? {
            [0, 0, entry @ ..] => return Some((key, entry)),
            [0, u8::MAX, ..] => {
                key.push(0);
                at += 2;
            }
            [0, ..] | [] => return None,
            [byte, ..] => {
                key.push(*byte);
                at += 1;
            }
        }
    }
}

/// A timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StoredTimer<'v> {
    /// In which time.
    pub(crate) clock: Clock,
    /// When.
    pub(crate) due: i64,
    /// What it brings along.
    pub(crate) payload: Option<&'v [u8]>,
}

impl<'v> StoredTimer<'v> {
    /// The bytes before its payload.
    pub(crate) fn head(&self) -> [u8; TIMER_HEAD] {
        let mut head = [0; TIMER_HEAD];
        head[0] = TIMER_VERSION;
        head[1] = u8::from(self.clock == Clock::Processing);
        head[2] = u8::from(self.payload.is_some());
        head[8..].copy_from_slice(&self.due.to_le_bytes());
        head
    }

    /// Reads one.
    ///
    /// # Errors
    /// `Corrupt` when it is no timer of a known version.
    pub(crate) fn read(stored: &'v [u8]) -> Result<Self> {
        let wrong = || Error::corrupt("a stored timer can't be read by this host");
        let (head, payload) = stored.split_first_chunk::<TIMER_HEAD>().ok_or_else(wrong)?;
        let [
            TIMER_VERSION,
            clock @ 0..=1,
            has_payload @ 0..=1,
            0,
            0,
            0,
            0,
            0,
            due @ ..,
        ] = *head
        else {
            return Err(wrong());
        };
        Ok(Self {
            clock: if clock == 0 {
                Clock::Event
            } else {
                Clock::Processing
            },
            due: i64::from_le_bytes(due),
            payload: (has_payload == 1).then_some(payload),
        })
    }
}

/// Why a key, an entry or a value is too large, by the limit's name.
pub(crate) fn too_large(
    key: &[u8],
    entry: Option<&[u8]>,
    value: &[u8],
    most: ByteSize,
) -> Option<String> {
    let of = |what: &str, bytes: usize, limit: &str, most: usize| {
        (bytes > most).then(|| format!("{what} of {bytes} bytes passes {limit} ({most} bytes)"))
    };
    of("a value", value.len(), "state_value_bytes", most.as_usize()).or_else(|| {
        let entry = entry?;
        let key = of(
            "the event's key",
            key.len(),
            "STATE_KEY_BYTES",
            limits::STATE_KEY_BYTES,
        );
        key.or_else(|| {
            of(
                "a key",
                entry.len(),
                "ENTRY_KEY_BYTES",
                limits::ENTRY_KEY_BYTES,
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_stored_has_golden_bytes() {
        assert_eq!(entry_key(b"a\0b", b"x\0"), b"a\0\xffb\0\0x\0");
        let timer = StoredTimer {
            clock: Clock::Processing,
            due: 0x0102,
            payload: Some(b"7"),
        };
        let golden = [1, 1, 1, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, b'7'];
        assert_eq!([&timer.head()[..], b"7"].concat(), golden);
        assert_eq!(StoredTimer::read(&golden).expect("its own bytes"), timer);
        for (at, byte) in [(0, 2), (1, 2), (2, 2), (7, 1)] {
            let mut wrong = golden;
            wrong[at] = byte;
            assert!(StoredTimer::read(&wrong).is_err());
        }
        let ttl = SlotTtl {
            clock: Clock::Event,
            micros: 10,
        };
        let stored = [5, 0, 0, 0, 0, 0, 0, 0, b'v'];
        let seen = |stamped, ttl| opened(stamped, ttl, &stored);
        assert_eq!(
            seen(true, Some(ttl)),
            Opened {
                expires: 15,
                value: b"v"
            }
        );
        assert_eq!(
            seen(true, None),
            Opened {
                expires: i64::MAX,
                value: b"v"
            }
        );
        assert_eq!(seen(false, Some(ttl)).value, stored);
    }

    #[test]
    fn limits_are_named_with_their_values() {
        let most = ByteSize(limits::STATE_VALUE_BYTES as u64);
        let long = vec![0; limits::STATE_VALUE_BYTES + 1];
        let why = too_large(b"k", None, &long, most).expect("too large");
        assert!(why.contains("state_value_bytes (1048576 bytes)"), "{why}");
        assert_eq!(
            too_large(&long, None, b"v", most),
            None,
            "a value's key has no bound of its own"
        );
        assert!(
            too_large(&long, Some(b"e"), b"v", most)
                .is_some_and(|why| why.contains("STATE_KEY_BYTES"))
        );
        assert!(
            too_large(b"k", Some(&long), b"v", most)
                .is_some_and(|why| why.contains("ENTRY_KEY_BYTES"))
        );
    }

    proptest! {
        #[test]
        fn entries_are_taken_apart_and_lie_in_order(
            a in prop::collection::vec(prop::sample::select(vec![0_u8, 1, 255, 97]), 0..6),
            b in prop::collection::vec(prop::sample::select(vec![0_u8, 1, 255, 97]), 0..6),
            entry in prop::collection::vec(any::<u8>(), 0..4),
        ) {
            let stored = entry_key(&a, &entry);
            prop_assert_eq!(split_entry(&stored), Some((a.clone(), entry.as_slice())));
            prop_assert_eq!(entry_prefix(&a).cmp(&entry_prefix(&b)), a.cmp(&b));
            prop_assert_eq!(stored.starts_with(&entry_prefix(&b)), a == b);
            prop_assert_eq!(stored.starts_with(&escaped(&b)), a.starts_with(&b));
        }
    }
}
