//! Changes of one transaction, as they lie in a frame's state section.
//!
//! ```text
//! section, little endian:
//!   u8 version = 1, 3 bytes 0, u32 function, u32 partition, u32 count, then count changes:
//!   u16 slot, u8 op (1 set, 2 delete, 3 delete the whole scope), u8 0, u32 key_len, u32 value_len, key, value
//! ```
//!
//! A delete has no value; deleting the whole scope has slot 0 and neither key nor value.

use tidemill_types::{Error, FunctionId, Result};

const VERSION: u8 = 1;
/// Bytes before the first change.
const HEADER_BYTES: usize = 16;
/// Bytes of a change before its key.
const HEAD_BYTES: usize = 12;
const SET: u8 = 1;
const DELETE: u8 = 2;
const CLEAR: u8 = 3;

/// Whose state: a function's on one partition of its input.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Scope {
    /// The function.
    pub function: FunctionId,
    /// The input's partition.
    pub partition: u32,
}

/// One change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change<'a> {
    /// The slot of this key has this value now.
    Set {
        /// The slot.
        slot: u16,
        /// The event key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// The slot of this key is empty now.
    Delete {
        /// The slot.
        slot: u16,
        /// The event key.
        key: &'a [u8],
    },
    /// Everything of the scope is gone.
    Clear,
}

/// Changes of one scope in the making.
#[derive(Clone, Debug)]
pub struct Changes {
    bytes: Vec<u8>,
    count: u32,
}

impl Changes {
    /// None yet.
    pub fn new(scope: Scope) -> Self {
        let mut bytes = vec![VERSION, 0, 0, 0];
        bytes.extend(scope.function.0.to_le_bytes());
        bytes.extend(scope.partition.to_le_bytes());
        bytes.extend(0u32.to_le_bytes());
        Self { bytes, count: 0 }
    }

    /// Adds one. Keys and values are far below 4 GiB: a frame holds 48 MiB.
    pub fn push(&mut self, change: Change<'_>) {
        let (slot, op, key, value) = match change {
            Change::Set { slot, key, value } => (slot, SET, key, value),
            Change::Delete { slot, key } => (slot, DELETE, key, &[][..]),
            Change::Clear => (0, CLEAR, &[][..], &[][..]),
        };
        self.head(slot, op, key.len(), value.len());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    /// Makes room for `changes` more whose keys and values have `bytes` bytes.
    pub fn reserve(&mut self, changes: usize, bytes: usize) {
        self.bytes.reserve(changes * HEAD_BYTES + bytes);
    }

    /// Adds a `Set` whose key and value are given in parts.
    pub fn push_set(&mut self, slot: u16, key: &[&[u8]], value: &[&[u8]]) {
        let len = |parts: &[&[u8]]| parts.iter().map(|part| part.len()).sum::<usize>();
        self.head(slot, SET, len(key), len(value));
        for part in key.iter().chain(value) {
            self.bytes.extend_from_slice(part);
        }
    }

    fn head(&mut self, slot: u16, op: u8, key: usize, value: usize) {
        let mut head = [0; HEAD_BYTES];
        head[..2].copy_from_slice(&slot.to_le_bytes());
        head[2] = op;
        head[4..8].copy_from_slice(&length(key).to_le_bytes());
        head[8..].copy_from_slice(&length(value).to_le_bytes());
        self.bytes.reserve(HEAD_BYTES + key + value);
        self.bytes.extend_from_slice(&head);
        self.count += 1;
        self.bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&self.count.to_le_bytes());
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The section's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The section's bytes, and nothing else of it.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Reads a section.
#[derive(Clone, Debug)]
pub struct ChangesReader<'a> {
    scope: Scope,
    left: u32,
    rest: &'a [u8],
}

impl<'a> ChangesReader<'a> {
    /// Checks the whole section.
    ///
    /// # Errors
    /// `Corrupt` with the byte position.
    pub fn new(section: &'a [u8]) -> Result<Self> {
        let reader = Self::unchecked(section).ok_or_else(|| wrong(0, "no header of version 1"))?;
        let mut ahead = reader.clone();
        while ahead.left > 0 {
            let at = section.len() - ahead.rest.len();
            ahead.advance().map_err(|reason| wrong(at, reason))?;
        }
        if !ahead.rest.is_empty() {
            return Err(wrong(
                section.len() - ahead.rest.len(),
                "bytes behind the last change",
            ));
        }
        Ok(reader)
    }

    /// Reads only the header: for sections that were checked before. Reading ends early where a
    /// change makes no sense.
    pub(crate) fn unchecked(section: &'a [u8]) -> Option<Self> {
        let (header, rest) = section.split_first_chunk::<HEADER_BYTES>()?;
        if header[..4] != [VERSION, 0, 0, 0] {
            return None;
        }
        let scope = Scope {
            function: FunctionId(u32_at(header, 4)),
            partition: u32_at(header, 8),
        };
        Some(Self {
            scope,
            left: u32_at(header, 12),
            rest,
        })
    }

    /// Whose changes.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// How many changes are still to come.
    pub fn remaining(&self) -> u32 {
        self.left
    }

    fn advance(&mut self) -> Result<Change<'a>, &'static str> {
        let (head, rest) = self
            .rest
            .split_first_chunk::<HEAD_BYTES>()
            .ok_or("the section ends inside a change")?;
        let slot = u16::from_le_bytes([head[0], head[1]]);
        let (key, rest) = split(rest, u32_at(head, 4)).ok_or("the section ends inside a key")?;
        let (value, rest) =
            split(rest, u32_at(head, 8)).ok_or("the section ends inside a value")?;
        let change = match (head[2], head[3]) {
            (SET, 0) => Change::Set { slot, key, value },
            (DELETE, 0) if value.is_empty() => Change::Delete { slot, key },
            (CLEAR, 0) if slot == 0 && key.is_empty() && value.is_empty() => Change::Clear,
            _ => return Err("no such change"),
        };
        self.rest = rest;
        self.left -= 1;
        Ok(change)
    }
}

impl<'a> Iterator for ChangesReader<'a> {
    type Item = Change<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.advance().ok()
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn split(bytes: &[u8], len: u32) -> Option<(&[u8], &[u8])> {
    bytes.split_at_checked(usize::try_from(len).ok()?)
}

fn wrong(at: usize, reason: &str) -> Error {
    Error::corrupt(format!("state section, byte {at}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SCOPE: Scope = Scope {
        function: FunctionId(7),
        partition: 3,
    };

    #[test]
    fn golden_bytes_of_version_1() {
        let mut changes = Changes::new(SCOPE);
        assert!(changes.is_empty());
        changes.push(Change::Clear);
        changes.push_set(258, &[b"U", b"A"], &[b"", b"12"]);
        changes.push(Change::Delete { slot: 1, key: b"k" });
        #[rustfmt::skip]
        let golden = [
            1, 0, 0, 0,  7, 0, 0, 0,  3, 0, 0, 0,  3, 0, 0, 0,
            0, 0, 3, 0,  0, 0, 0, 0,  0, 0, 0, 0,
            2, 1, 1, 0,  2, 0, 0, 0,  2, 0, 0, 0,  b'U', b'A', b'1', b'2',
            1, 0, 2, 0,  1, 0, 0, 0,  0, 0, 0, 0,  b'k',
        ];
        assert_eq!(changes.as_bytes(), golden);
        assert!(!changes.is_empty());
    }

    #[test]
    fn refuses_with_the_position() {
        let mut changes = Changes::new(SCOPE);
        changes.push(Change::Set {
            slot: 0,
            key: b"a",
            value: b"1",
        });
        changes.push(Change::Delete { slot: 0, key: b"a" });
        let good = changes.as_bytes();
        for (at, byte, place) in [
            (0, 2, "byte 0"),
            (18, 9, "byte 16"),
            (19, 1, "byte 16"),
            (20, 200, "byte 16"),
            (32, 4, "byte 30"),
            (12, 1, "byte 30"),
            (12, 3, "byte 43"),
        ] {
            let mut bad = good.to_vec();
            bad[at] = byte;
            let refusal = ChangesReader::new(&bad).expect_err("refused");
            assert!(
                refusal.detail.contains(&format!("{place}:")),
                "{refusal} for byte {at} = {byte}"
            );
        }
        for end in 0..good.len() {
            assert!(ChangesReader::new(&good[..end]).is_err(), "cut at {end}");
        }
    }

    #[derive(Clone, Debug)]
    enum Owned {
        Set(u16, Vec<u8>, Vec<u8>),
        Delete(u16, Vec<u8>),
        Clear,
    }

    impl Owned {
        fn borrow(&self) -> Change<'_> {
            match self {
                Self::Set(slot, key, value) => Change::Set {
                    slot: *slot,
                    key,
                    value,
                },
                Self::Delete(slot, key) => Change::Delete { slot: *slot, key },
                Self::Clear => Change::Clear,
            }
        }
    }

    fn changes() -> impl Strategy<Value = Vec<Owned>> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
        let change = prop_oneof![
            4 => (any::<u16>(), bytes(), bytes()).prop_map(|(slot, key, value)| Owned::Set(slot, key, value)),
            2 => (any::<u16>(), bytes()).prop_map(|(slot, key)| Owned::Delete(slot, key)),
            1 => Just(Owned::Clear),
        ];
        proptest::collection::vec(change, 0..20)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn round_trip(function: u32, partition: u32, list in changes()) {
            let scope = Scope { function: FunctionId(function), partition };
            let mut section = Changes::new(scope);
            for change in &list {
                section.push(change.borrow());
            }
            let reader = ChangesReader::new(section.as_bytes()).expect("as written");
            prop_assert_eq!(reader.scope(), scope);
            prop_assert_eq!(reader.collect::<Vec<_>>(), list.iter().map(Owned::borrow).collect::<Vec<_>>());
        }

        #[test]
        fn damage_never_panics(list in changes(), at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
            let mut section = Changes::new(SCOPE);
            for change in &list {
                section.push(change.borrow());
            }
            let mut bytes = section.as_bytes().to_vec();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes.truncate(cut.index(bytes.len() + 1));
            if let Ok(reader) = ChangesReader::new(&bytes) {
                let count = usize::try_from(reader.remaining()).expect("small");
                prop_assert_eq!(reader.count(), count, "what was accepted is read to its end");
            }
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = ChangesReader::new(&bytes).map(Iterator::count);
        }
    }
}
