//! Where a repartitioned event came from: the first header of each event in a `….by-key` topic.
//! It never reaches a guest or a dead letter.
//!
//! ```text
//! header `tidemill-origin`, value little endian:
//!   0  u8   version = 2; 1 where nothing is said of time
//!   1  u8   bit 0: the event had a key; bit 1: it is a mark, and no event; bit 2: the mark came with no event
//!   2  u16  0
//!   4  u32  partition
//!   8  u64  offset
//!  16  i64  highest event time up to which all source partitions are that aren't idle; the least i64: none.
//!           Version 1 has none, and the event's own time counts
//!  24  the original key; of version 1 at 16
//! ```
//!
//! A mark has neither key nor value. It says how far time is to a partition that gets no event, and never reaches
//! a function.

use tidemill_types::{Error, Event, Headers, Result};

/// Name of the header.
pub(crate) const HEADER: &str = "tidemill-origin";

/// Says nothing of time.
const VERSION_1: u8 = 1;
const VERSION: u8 = 2;
const FIXED: usize = 16;

const KEYED: u8 = 1;
const MARK: u8 = 2;
const SILENT: u8 = 4;

/// What a row of a `….by-key` topic is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moved {
    /// An event that was moved there.
    Event,
    /// Beside events that were moved to other partitions.
    Mark,
    /// With no event: only time went by.
    Silence,
}

/// An event's original place and key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin<'a> {
    /// Partition of the original topic.
    pub(crate) partition: u32,
    /// Offset there.
    pub(crate) offset: u64,
    /// Its own key.
    pub(crate) key: Option<&'a [u8]>,
    /// What it is.
    pub(crate) moved: Moved,
    /// How far event time is in the source partitions, [`crate::sources`]; `None`: that isn't said.
    pub(crate) reached: Option<i64>,
}

impl<'a> Origin<'a> {
    /// Writes the header's value.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        let version = self.reached.map_or(VERSION_1, |_| VERSION);
        let is = match self.moved {
            Moved::Event => 0,
            Moved::Mark => MARK,
            Moved::Silence => MARK | SILENT,
        };
        out.extend_from_slice(&[version, is | u8::from(self.key.is_some()), 0, 0]);
        out.extend_from_slice(&self.partition.to_le_bytes());
        out.extend_from_slice(&self.offset.to_le_bytes());
        if let Some(reached) = self.reached {
            out.extend_from_slice(&reached.to_le_bytes());
        }
        out.extend_from_slice(self.key.unwrap_or_default());
    }

    fn decode(value: &'a [u8]) -> Option<Self> {
        let (fixed, rest) = value.split_first_chunk::<FIXED>()?;
        let [version, is, 0, 0, p0, p1, p2, p3, offset @ ..] = *fixed else {
            return None;
        };
        let (reached, key) = match version {
            VERSION_1 => (None, rest),
            VERSION => {
                let (reached, key) = rest.split_first_chunk::<8>()?;
                (Some(i64::from_le_bytes(*reached)), key)
            }
            _ => return None,
        };
        let (moved, has_key) = match (is, version) {
            (0, _) => (Moved::Event, false),
            (KEYED, _) => (Moved::Event, true),
            (MARK, VERSION) => (Moved::Mark, false),
            (is, VERSION) if is == MARK | SILENT => (Moved::Silence, false),
            _ => return None,
        };
        (has_key || key.is_empty()).then_some(Self {
            partition: u32::from_le_bytes([p0, p1, p2, p3]),
            offset: u64::from_le_bytes(offset),
            key: has_key.then_some(key),
            moved,
            reached,
        })
    }

    /// That of an event of a `….by-key` topic, if it has one.
    pub(crate) fn of(event: &Event<'a>) -> Option<Self> {
        let mut headers: Headers<'a> = event.row.headers;
        let origin = headers.next().filter(|(name, _)| *name == HEADER);
        origin.and_then(|(_, value)| Self::decode(value))
    }
}

/// Whether a row of a `….by-key` topic is a mark, and no event.
pub(crate) fn is_mark(event: &Event<'_>) -> bool {
    Origin::of(event).is_some_and(|origin| origin.moved != Moved::Event)
}

/// Takes the origin off an event of a `….by-key` topic: the event as it was but for its key, and
/// where it came from.
///
/// # Errors
/// `Corrupt` when the first header isn't an origin.
pub(crate) fn take<'a>(mut event: Event<'a>) -> Result<(Event<'a>, Origin<'a>)> {
    let origin = Origin::of(&event).ok_or_else(|| {
        Error::corrupt(format!(
            "the event at offset {} of a by-key topic doesn't say where it came from",
            event.offset
        ))
    })?;
    event.row.headers.next();
    Ok((event, origin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_types::{CommitSeq, PackedRows, Timestamp};

    fn plain(partition: u32, offset: u64, key: Option<&[u8]>) -> Origin<'_> {
        Origin {
            partition,
            offset,
            key,
            moved: Moved::Event,
            reached: None,
        }
    }

    #[test]
    fn origins_have_golden_bytes() {
        let mut bytes = Vec::new();
        let first = plain(3, 258, Some(b"UA"));
        first.encode(&mut bytes);
        assert_eq!(
            bytes,
            [1, 1, 0, 0, 3, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, b'U', b'A']
        );
        let timed = Origin {
            reached: Some(-2),
            ..first
        };
        timed.encode(&mut bytes);
        let mut golden = vec![2, 1, 0, 0, 3, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0];
        golden.extend([254, 255, 255, 255, 255, 255, 255, 255, b'U', b'A']);
        assert_eq!(bytes, golden);
        let mark = Origin {
            key: None,
            moved: Moved::Silence,
            ..timed
        };
        mark.encode(&mut bytes);
        assert_eq!((bytes[1], bytes.len()), (6, 24));
        for key in [None, Some(b"".as_slice()), Some(b"k")] {
            let origin = plain(7, u64::MAX, key);
            let timed = Origin {
                reached: Some(i64::MIN),
                ..origin
            };
            for origin in [origin, timed] {
                origin.encode(&mut bytes);
                assert_eq!(Origin::decode(&bytes), Some(origin));
            }
        }
        for moved in [Moved::Mark, Moved::Silence] {
            let mark = Origin { moved, ..mark };
            mark.encode(&mut bytes);
            assert_eq!(Origin::decode(&bytes), Some(mark));
        }
        for bad in [
            &[][..],
            &[1; 15],
            &[2; 16],
            &[3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9],
        ] {
            assert_eq!(Origin::decode(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn it_is_taken_off_and_others_stay() {
        let mut origin = Vec::new();
        plain(1, 2, None).encode(&mut origin);
        let mut rows = PackedRows::default();
        let own = [(HEADER, b"the sender's own".as_slice()), ("a", b"1")];
        let all = std::iter::once((HEADER, origin.as_slice())).chain(own);
        rows.push(Timestamp::from_micros(0), Some(b"k"), None, all)
            .expect("push");
        let event = Event {
            offset: 9,
            ingest_time: Timestamp::from_micros(0),
            commit: CommitSeq(1),
            row: rows.event(0),
        };
        let (event, origin) = take(event).expect("has an origin");
        assert_eq!(origin, plain(1, 2, None));
        assert_eq!(event.row.headers.collect::<Vec<_>>(), own);
        assert!(
            take(event).is_err(),
            "a sender's header of that name is none"
        );
    }
}
