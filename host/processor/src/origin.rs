//! Where a repartitioned event came from: the first header of each event in a `….by-key` topic.
//! It never reaches a guest or a dead letter.
//!
//! ```text
//! header `tidemill-origin`, value little endian:
//!   0  u8   version = 1
//!   1  u8   bit 0: the event had a key
//!   2  u16  0
//!   4  u32  partition
//!   8  u64  offset
//!  16  the original key
//! ```

use tidemill_types::{Error, Event, Headers, Result};

/// Name of the header.
pub(crate) const HEADER: &str = "tidemill-origin";

const VERSION: u8 = 1;
const FIXED: usize = 16;

/// An event's original place and key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin<'a> {
    /// Partition of the original topic.
    pub(crate) partition: u32,
    /// Offset there.
    pub(crate) offset: u64,
    /// Its own key.
    pub(crate) key: Option<&'a [u8]>,
}

impl<'a> Origin<'a> {
    /// Writes the header's value.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&[VERSION, u8::from(self.key.is_some()), 0, 0]);
        out.extend_from_slice(&self.partition.to_le_bytes());
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(self.key.unwrap_or_default());
    }

    fn decode(value: &'a [u8]) -> Option<Self> {
        let (fixed, key) = value.split_first_chunk::<FIXED>()?;
        let [
            VERSION,
            has_key @ (0 | 1),
            0,
            0,
            p0,
            p1,
            p2,
            p3,
            offset @ ..,
        ] = *fixed
        else {
            return None;
        };
        (has_key == 1 || key.is_empty()).then_some(Self {
            partition: u32::from_le_bytes([p0, p1, p2, p3]),
            offset: u64::from_le_bytes(offset),
            key: (has_key == 1).then_some(key),
        })
    }
}

/// Takes the origin off an event of a `….by-key` topic: the event as it was but for its key, and
/// where it came from.
///
/// # Errors
/// `Corrupt` when the first header isn't an origin.
pub(crate) fn take<'a>(mut event: Event<'a>) -> Result<(Event<'a>, Origin<'a>)> {
    let mut headers: Headers<'a> = event.row.headers;
    let origin = headers.next().filter(|(name, _)| *name == HEADER);
    let origin = origin
        .and_then(|(_, value)| Origin::decode(value))
        .ok_or_else(|| {
            Error::corrupt(format!(
                "the event at offset {} of a by-key topic doesn't say where it came from",
                event.offset
            ))
        })?;
    event.row.headers = headers;
    Ok((event, origin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_types::{CommitSeq, PackedRows, Timestamp};

    #[test]
    fn origins_have_golden_bytes() {
        let mut bytes = Vec::new();
        Origin {
            partition: 3,
            offset: 258,
            key: Some(b"UA"),
        }
        .encode(&mut bytes);
        assert_eq!(
            bytes,
            [1, 1, 0, 0, 3, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, b'U', b'A']
        );
        for key in [None, Some(b"".as_slice()), Some(b"k")] {
            let origin = Origin {
                partition: 7,
                offset: u64::MAX,
                key,
            };
            origin.encode(&mut bytes);
            assert_eq!(Origin::decode(&bytes), Some(origin));
        }
        for bad in [
            &[][..],
            &[1; 15],
            &[2; 16],
            &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9],
        ] {
            assert_eq!(Origin::decode(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn it_is_taken_off_and_others_stay() {
        let mut origin = Vec::new();
        Origin {
            partition: 1,
            offset: 2,
            key: None,
        }
        .encode(&mut origin);
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
        assert_eq!(
            origin,
            Origin {
                partition: 1,
                offset: 2,
                key: None
            }
        );
        assert_eq!(event.row.headers.collect::<Vec<_>>(), own);
        assert!(
            take(event).is_err(),
            "a sender's header of that name is none"
        );
    }
}
