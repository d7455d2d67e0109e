//! What of the store behind changed since the last snapshot, so that the next one need not have the rest.

use crate::{Change, ChangesReader, keys};
use foldhash::fast::RandomState;
use std::collections::{BTreeSet, HashSet};

/// Memory that keys and prefixes may take; beyond it the next snapshot has everything.
const KEY_BYTES: usize = 64 << 20;
/// Memory a key takes beside its bytes.
const BESIDE: usize = 40;

/// What changed.
#[derive(Default)]
pub(crate) struct Changed {
    /// `None`: not known; it may be anything. So it is at a start.
    known: Option<Known>,
}

#[derive(Default)]
struct Known {
    /// As they lie in the store.
    keys: HashSet<Box<[u8]>, RandomState>,
    /// Beginnings of keys of which everything that was there before is gone.
    cleared: BTreeSet<Box<[u8]>>,
    bytes: usize,
}

/// What changed, to be written down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sorted<'a> {
    /// Beginnings of keys of which everything that was there before is gone.
    pub(crate) cleared: Vec<&'a [u8]>,
    /// Keys that were written or removed (afterwards, where they begin like that), in order.
    pub(crate) keys: Vec<&'a [u8]>,
}

impl Changed {
    /// Nothing changed yet.
    pub(crate) fn none() -> Self {
        Self {
            known: Some(Known::default()),
        }
    }

    /// A key changed.
    pub(crate) fn add(&mut self, key: &[u8]) {
        let Some(known) = &mut self.known else { return };
        if !known.keys.contains(key) {
            known.keys.insert(key.into());
            self.grow(key.len());
        }
    }

    /// Everything that begins like this is gone. Keys of it that were added before do no harm.
    pub(crate) fn clear(&mut self, prefix: &[u8]) {
        let Some(known) = &mut self.known else { return };
        if known.cleared.insert(prefix.into()) {
            self.grow(prefix.len());
        }
    }

    fn grow(&mut self, bytes: usize) {
        let Some(known) = &mut self.known else { return };
        known.bytes += bytes + BESIDE;
        if known.bytes > KEY_BYTES {
            *self = Self::default();
        }
    }

    /// What a transaction's section changes, without its values.
    pub(crate) fn note(&mut self, changes: ChangesReader<'_>) {
        let scope = changes.scope();
        for change in changes {
            if self.known.is_none() {
                return;
            }
            match change {
                Change::Set { slot, key, .. } | Change::Delete { slot, key } => {
                    self.add(&keys::encode(scope, slot, key));
                }
                Change::Clear => self.clear(&keys::scope_prefix(scope)),
            }
        }
    }

    /// What changed before, too: a snapshot that was to have it came to nothing.
    pub(crate) fn and_before(&mut self, before: Self) {
        match before.known {
            None => *self = Self::default(),
            Some(before) => {
                before.cleared.iter().for_each(|prefix| self.clear(prefix));
                before.keys.iter().for_each(|key| self.add(key));
            }
        }
    }

    /// All of it; `None`: not known.
    pub(crate) fn sorted(&self) -> Option<Sorted<'_>> {
        let known = self.known.as_ref()?;
        let mut keys: Vec<_> = known.keys.iter().map(Box::as_ref).collect();
        keys.sort_unstable();
        let cleared = known.cleared.iter().map(Box::as_ref).collect();
        Some(Sorted { cleared, keys })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Changes, Scope};
    use tidemill_types::FunctionId;

    #[test]
    fn keys_come_in_order_once_and_too_many_are_any() {
        let mut changed = Changed::none();
        for key in [b"b", b"a", b"b"] {
            changed.add(key);
        }
        let sorted = changed.sorted().expect("known");
        assert_eq!(sorted.keys, [b"a", b"b"]);
        let mut changed = Changed::none();
        for key in 0..(KEY_BYTES / BESIDE) as u64 {
            changed.add(&key.to_be_bytes());
        }
        changed.add(b"one more");
        assert!(changed.sorted().is_none());
        assert!(Changed::default().sorted().is_none());
    }

    #[test]
    fn a_section_tells_its_keys_and_what_it_clears() {
        let scope = Scope {
            function: FunctionId(1),
            partition: 2,
        };
        let mut section = Changes::new(scope);
        section.push(Change::Delete { slot: 3, key: b"k" });
        section.push(Change::Clear);
        section.push_set(4, &[b"a"], &[b"value"]);
        let mut changed = Changed::none();
        changed.note(ChangesReader::new(section.as_bytes()).expect("sound"));
        let (k, a) = (keys::encode(scope, 3, b"k"), keys::encode(scope, 4, b"a"));
        let expected = Sorted {
            cleared: vec![&[0, 0, 0, 1, 0, 0, 0, 2]],
            keys: vec![&k, &a],
        };
        assert_eq!(changed.sorted(), Some(expected.clone()));

        let mut since = Changed::none();
        since.and_before(changed);
        assert_eq!(since.sorted(), Some(expected));
        since.and_before(Changed::default());
        assert_eq!(since.sorted(), None, "nobody knows what was before");
    }
}
