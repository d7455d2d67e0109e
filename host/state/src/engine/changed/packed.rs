//! Keys in rising order, each once, in little memory: a key is kept without what it shares with the one before.
//!
//! ```text
//! a key: how many bytes it shares with the one before, how many others it has (both as LEB128), those
//! ```

use std::cmp::Ordering;

/// Such keys.
#[derive(Default)]
pub(super) struct Packed {
    bytes: Vec<u8>,
    count: usize,
}

/// Goes through keys; it stands at one, until there are no more.
pub(super) struct Cursor<'p> {
    rest: &'p [u8],
    key: Vec<u8>,
    is_at_one: bool,
}

impl Packed {
    /// Keys that come in order; those that come again are passed over.
    pub(super) fn of<'k>(keys: impl Iterator<Item = &'k [u8]>) -> Self {
        let (mut packed, mut last) = (Self::default(), Vec::new());
        keys.for_each(|key| packed.push(key, &mut last));
        packed.bytes.shrink_to_fit();
        packed
    }

    /// The keys of both.
    pub(super) fn merged(&self, other: &Self) -> Self {
        let mut merged = Self {
            // A key shares no less with its neighbour among more keys.
            bytes: Vec::with_capacity(self.bytes.len() + other.bytes.len()),
            count: 0,
        };
        let (mut one, mut two, mut last) = (self.cursor(), other.cursor(), Vec::new());
        loop {
            let next = match (one.key(), two.key()) {
                (Some(a), Some(b)) if a.cmp(b) == Ordering::Greater => &mut two,
                (Some(_), _) => &mut one,
                (None, Some(_)) => &mut two,
                (None, None) => break,
            };
            merged.push(next.key().unwrap_or_default(), &mut last);
            next.advance();
        }
        merged.bytes.shrink_to_fit();
        merged
    }

    /// Adds a key that isn't below the `last` one.
    fn push(&mut self, key: &[u8], last: &mut Vec<u8>) {
        if self.count > 0 && key == last.as_slice() {
            return;
        }
        let shared = key.iter().zip(&*last).take_while(|(a, b)| a == b).count();
        put(&mut self.bytes, shared);
        put(&mut self.bytes, key.len() - shared);
        self.bytes.extend_from_slice(&key[shared..]);
        self.count += 1;
        last.truncate(shared);
        last.extend_from_slice(&key[shared..]);
    }

    /// How many.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Memory they take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// At the first of them.
    pub(super) fn cursor(&self) -> Cursor<'_> {
        let mut cursor = Cursor {
            rest: &self.bytes,
            key: Vec::new(),
            is_at_one: false,
        };
        cursor.advance();
        cursor
    }
}

impl Cursor<'_> {
    /// Where it stands.
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.is_at_one.then_some(self.key.as_slice())
    }

    /// Goes to the next key.
    pub(super) fn advance(&mut self) {
        self.is_at_one = !self.rest.is_empty();
        let (shared, others) = (take(&mut self.rest), take(&mut self.rest));
        let (others, rest) = self.rest.split_at(others.min(self.rest.len()));
        self.key.truncate(shared);
        self.key.extend_from_slice(others);
        self.rest = rest;
    }
}

fn put(bytes: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

fn take(bytes: &mut &[u8]) -> usize {
    let (mut number, mut shift) = (0, 0);
    while let Some((byte, rest)) = bytes.split_first() {
        *bytes = rest;
        number |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn all(packed: &Packed) -> Vec<Vec<u8>> {
        let (mut keys, mut cursor) = (Vec::new(), packed.cursor());
        while let Some(key) = cursor.key() {
            keys.push(key.to_vec());
            cursor.advance();
        }
        assert_eq!(keys.len(), packed.count());
        keys
    }

    fn packed(keys: &BTreeSet<Vec<u8>>) -> Packed {
        Packed::of(keys.iter().map(Vec::as_slice))
    }

    #[test]
    fn long_keys_and_none_come_back() {
        let long = vec![7; 60_042];
        let keys: BTreeSet<_> = [vec![], vec![7; 300], long].into();
        assert_eq!(all(&packed(&keys)), keys.into_iter().collect::<Vec<_>>());
        assert_eq!(all(&Packed::default()), Vec::<Vec<u8>>::new());
    }

    proptest! {
        #[test]
        fn two_are_one_with_the_keys_of_both(
            one in prop::collection::btree_set(prop::collection::vec(0..3_u8, 0..6), 0..40),
            two in prop::collection::btree_set(prop::collection::vec(0..3_u8, 0..6), 0..40),
        ) {
            let (a, b) = (packed(&one), packed(&two));
            prop_assert_eq!(all(&a), one.iter().cloned().collect::<Vec<_>>());
            let merged = a.merged(&b);
            prop_assert_eq!(all(&merged), one.union(&two).cloned().collect::<Vec<_>>());
            prop_assert!(merged.bytes() <= a.bytes() + b.bytes());
        }
    }
}
