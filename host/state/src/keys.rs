//! How slots and keys lie in the store behind and in snapshots: in one ordered keyspace.
//!
//! ```text
//! key of a value, big endian so that it sorts: u32 function, u32 partition, u16 slot, the event key
//! an event key of 60,000 bytes or more: only its first 60,000 bytes and the SHA-256 of all of it;
//!   its value is then u32 key_len (little endian), the key, the value
//! the marker: one zero byte, before all values
//! ```

use crate::Scope;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use tidemill_types::FunctionId;

/// Bytes before the event key.
pub(crate) const PREFIX_BYTES: usize = 10;
/// Longest event key kept as it is is shorter than this; the store behind takes keys up to 65,535 bytes.
const LONG: usize = 60_000;
/// Key of the marker.
pub(crate) const MARKER: &[u8] = &[0];

/// The key of a value.
pub(crate) fn encode(scope: Scope, slot: u16, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(PREFIX_BYTES + key.len().min(LONG + 32));
    out.extend(scope_prefix(scope));
    out.extend(slot.to_be_bytes());
    if key.len() < LONG {
        out.extend(key);
    } else {
        out.extend(&key[..LONG]);
        out.extend(Sha256::digest(key));
    }
    out
}

/// Where keys that begin with `start`, or come after it, begin in the store.
pub(crate) fn encode_start(scope: Scope, slot: u16, start: &[u8]) -> Vec<u8> {
    [
        &scope_prefix(scope)[..],
        &slot.to_be_bytes(),
        &start[..start.len().min(LONG)],
    ]
    .concat()
}

/// The value as it is stored under [`encode`]'s key.
pub(crate) fn encode_value<'a>(key: &[u8], value: &'a [u8]) -> Cow<'a, [u8]> {
    if key.len() < LONG {
        return Cow::Borrowed(value);
    }
    let key_len = u32::try_from(key.len()).unwrap_or(u32::MAX);
    Cow::Owned([&key_len.to_le_bytes(), key, value].concat())
}

/// A stored value taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stored<'a> {
    pub(crate) scope: Scope,
    pub(crate) slot: u16,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

/// Takes a stored key and value apart; `None` when they aren't what [`encode`] makes.
pub(crate) fn decode<'a>(key: &'a [u8], value: &'a [u8]) -> Option<Stored<'a>> {
    let (prefix, rest) = key.split_first_chunk::<PREFIX_BYTES>()?;
    let [f0, f1, f2, f3, p0, p1, p2, p3, s0, s1] = *prefix;
    let scope = Scope {
        function: FunctionId(u32::from_be_bytes([f0, f1, f2, f3])),
        partition: u32::from_be_bytes([p0, p1, p2, p3]),
    };
    let slot = u16::from_be_bytes([s0, s1]);
    if rest.len() < LONG {
        return Some(Stored {
            scope,
            slot,
            key: rest,
            value,
        });
    }
    let (key_len, value) = value.split_first_chunk::<4>()?;
    let (key, value) =
        value.split_at_checked(usize::try_from(u32::from_le_bytes(*key_len)).ok()?)?;
    Some(Stored {
        scope,
        slot,
        key,
        value,
    })
}

/// The value of a stored value whose event key is known.
pub(crate) fn decode_value<'a>(key: &[u8], value: &'a [u8]) -> Option<&'a [u8]> {
    if key.len() < LONG {
        Some(value)
    } else {
        value.get(4 + key.len()..)
    }
}

/// What all keys of a scope begin with.
pub(crate) fn scope_prefix(scope: Scope) -> [u8; 8] {
    let [f0, f1, f2, f3] = scope.function.0.to_be_bytes();
    let [p0, p1, p2, p3] = scope.partition.to_be_bytes();
    [f0, f1, f2, f3, p0, p1, p2, p3]
}

/// The first key behind all that begin with a prefix; `None` when there can be none.
pub(crate) fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut out = prefix[..=last].to_vec();
    out[last] += 1;
    Some(out)
}

/// Whether a stored key stands for an event key too long to be in it.
pub(crate) fn is_long(key: &[u8]) -> bool {
    key.len() >= PREFIX_BYTES + LONG
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCOPE: Scope = Scope {
        function: FunctionId(0x0102_0304),
        partition: 5,
    };

    #[test]
    fn golden_bytes() {
        assert_eq!(
            encode(SCOPE, 0x0607, b"UA"),
            [1, 2, 3, 4, 0, 0, 0, 5, 6, 7, b'U', b'A']
        );
        assert_eq!(behind(&[1, 255]), Some(vec![2]));
        assert_eq!(behind(&[255, 255]), None);
    }

    #[test]
    fn round_trip_of_short_and_long_keys() {
        for len in [0, 1, LONG - 1, LONG, LONG + 1, 1 << 20] {
            let event_key: Vec<u8> = (0..len)
                .map(|at| u8::try_from(at % 251).expect("small"))
                .collect();
            let (key, value) = (
                encode(SCOPE, 9, &event_key),
                encode_value(&event_key, b"value"),
            );
            assert!(key.len() < 65_536);
            let stored = decode(&key, &value).expect("as written");
            assert_eq!(
                stored,
                Stored {
                    scope: SCOPE,
                    slot: 9,
                    key: &event_key,
                    value: b"value"
                }
            );
            assert_eq!(decode_value(&event_key, &value), Some(&b"value"[..]));
            assert_eq!(is_long(&key), len >= LONG);
        }
        assert_eq!(decode(MARKER, b""), None);
        assert_eq!(decode(&[0; PREFIX_BYTES + LONG], b"\xff\xff\0\0"), None);
    }
}
