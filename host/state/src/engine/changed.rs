//! Which keys of the store behind changed since the last snapshot, so that the next one need not have the others.

use foldhash::fast::RandomState;
use std::collections::HashSet;

/// Memory that the keys may take; beyond it the next snapshot has everything.
const KEY_BYTES: usize = 64 << 20;
/// Memory a key takes beside its bytes.
const BESIDE: usize = 40;

/// Keys as they lie in the store.
pub(crate) struct Changed {
    /// `None`: not known; it may be any.
    keys: Option<HashSet<Box<[u8]>, RandomState>>,
    bytes: usize,
}

impl Default for Changed {
    /// Nothing is known: so it is at a start.
    fn default() -> Self {
        Self {
            keys: None,
            bytes: 0,
        }
    }
}

impl Changed {
    /// Nothing changed yet.
    pub(crate) fn none() -> Self {
        Self {
            keys: Some(HashSet::default()),
            bytes: 0,
        }
    }

    /// One changed.
    pub(crate) fn add(&mut self, key: &[u8]) {
        let Some(keys) = &mut self.keys else { return };
        if keys.contains(key) {
            return;
        }
        self.bytes += key.len() + BESIDE;
        if self.bytes > KEY_BYTES {
            *self = Self::default();
        } else {
            keys.insert(key.into());
        }
    }

    /// Nobody knows any more.
    pub(crate) fn any(&mut self) {
        *self = Self::default();
    }

    /// All of them in order; `None`: not known.
    pub(crate) fn sorted(self) -> Option<Vec<Box<[u8]>>> {
        let mut keys: Vec<_> = self.keys?.into_iter().collect();
        keys.sort_unstable();
        Some(keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_order_once_and_too_many_are_any() {
        let mut changed = Changed::none();
        for key in [b"b", b"a", b"b"] {
            changed.add(key);
        }
        let keys = changed.sorted().expect("known");
        assert_eq!(keys, [Box::from(*b"a"), Box::from(*b"b")]);
        let mut changed = Changed::none();
        for key in 0..(KEY_BYTES / BESIDE) as u64 {
            changed.add(&key.to_be_bytes());
        }
        changed.add(b"one more");
        assert!(changed.sorted().is_none());
        assert!(Changed::default().sorted().is_none());
    }
}
