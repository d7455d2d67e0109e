//! What of the store behind changed since the last snapshot, so that the next one need not have the rest.
//!
//! Keys gather as they come, are put in order some thousands at a time, and runs of them that are about as
//! long become one: so a key that changes all the time is there a few times at most, and millions of keys
//! take a few bytes each.

mod packed;

use crate::{Change, ChangesReader, keys};
use packed::{Cursor, Packed};
use std::collections::BTreeSet;

/// Memory of keys that are put in order together, at most.
const GATHERED_BYTES: usize = 4 << 20;
/// Memory a key takes beside its bytes before it is packed.
const BESIDE: usize = 8;
/// Of the memory there is, keys that are kept may take this part: two runs that become one are there twice, and
/// what changed before a snapshot is there until that is done, beside what changes meanwhile.
const PARTS: usize = 3;

/// What changed.
pub(crate) struct Changed {
    /// `None`: not known; it may be anything. So it is at a start.
    known: Option<Known>,
    /// Memory it may take; beyond it the next snapshot has everything.
    most: usize,
}

#[derive(Default)]
struct Known {
    /// As they lie in the store, in no order.
    gathered: Vec<u8>,
    /// Where the gathered keys end.
    ends: Vec<usize>,
    /// The longest first.
    runs: Vec<Packed>,
    /// Beginnings of keys of which everything that was there before is gone.
    cleared: BTreeSet<Box<[u8]>>,
    cleared_bytes: usize,
}

/// What changed, to be written down.
pub(crate) struct Sorted<'a> {
    /// Beginnings of keys of which everything that was there before is gone.
    pub(crate) cleared: Vec<&'a [u8]>,
    /// Keys that were written or removed (afterwards, where they begin like that), in order.
    pub(crate) keys: Keys<'a>,
}

/// Keys in order, one after the other.
pub(crate) struct Keys<'a>(Option<Cursor<'a>>);

impl Keys<'_> {
    /// The next one.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.0.as_ref()?.key()
    }

    /// Goes on behind it.
    pub(crate) fn advance(&mut self) {
        if let Some(cursor) = &mut self.0 {
            cursor.advance();
        }
    }
}

impl Changed {
    /// It isn't known what changed; once it is, that may take so much memory.
    pub(crate) fn unknown(most: usize) -> Self {
        Self { known: None, most }
    }

    /// Nothing changed yet.
    pub(crate) fn none(most: usize) -> Self {
        Self {
            known: Some(Known::default()),
            most,
        }
    }

    /// A key changed.
    pub(crate) fn add(&mut self, key: &[u8]) {
        let room = GATHERED_BYTES.min(self.most / (2 * PARTS));
        let Some(known) = &mut self.known else { return };
        known.gathered.extend_from_slice(key);
        known.ends.push(known.gathered.len());
        if known.gathered.len() + known.ends.len() * BESIDE > room {
            known.pack();
            self.bound();
        }
    }

    /// Everything that begins like this is gone. Keys of it that were added before do no harm.
    pub(crate) fn clear(&mut self, prefix: &[u8]) {
        let Some(known) = &mut self.known else { return };
        if known.cleared.insert(prefix.into()) {
            known.cleared_bytes += prefix.len() + size_of::<Box<[u8]>>();
            self.bound();
        }
    }

    /// Forgets what it knows where that is too much.
    fn bound(&mut self) {
        let is_too_much = |known: &Known| known.bytes() > self.most / PARTS;
        if self.known.as_ref().is_some_and(is_too_much) {
            self.known = None;
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
        match (&mut self.known, before.known) {
            (Some(known), Some(before)) => {
                known.take(before);
                self.bound();
            }
            _ => self.known = None,
        }
    }

    /// How many keys they are, or some more; `None`: not known.
    pub(crate) fn count(&self) -> Option<u64> {
        let known = self.known.as_ref()?;
        let packed = known.runs.iter().map(Packed::count).sum::<usize>();
        Some((packed + known.ends.len()) as u64)
    }

    /// All of it; `None`: not known.
    pub(crate) fn sorted(&mut self) -> Option<Sorted<'_>> {
        let known = self.known.as_mut()?;
        known.pack();
        known.join(usize::MAX);
        let cleared = known.cleared.iter().map(Box::as_ref).collect();
        let keys = Keys(known.runs.first().map(Packed::cursor));
        Some(Sorted { cleared, keys })
    }
}

impl Known {
    fn bytes(&self) -> usize {
        self.cleared_bytes + self.runs.iter().map(Packed::bytes).sum::<usize>()
    }

    /// Puts what was gathered in order.
    fn pack(&mut self) {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        let mut keys: Vec<&[u8]> = starts
            .zip(&self.ends)
            .map(|(from, to)| &self.gathered[from..*to])
            .collect();
        if keys.is_empty() {
            return;
        }
        // What is written back comes in order already, scope by scope.
        keys.sort();
        let packed = Packed::of(keys.into_iter());
        self.gathered.clear();
        self.ends.clear();
        self.runs.push(packed);
        self.join(2);
    }

    /// Makes one of the last two runs as long as the one before is at most so many times as long.
    fn join(&mut self, times: usize) {
        while let [.., before, last] = self.runs.as_slice()
            && before.count() / times <= last.count()
        {
            let joined = before.merged(last);
            self.runs.truncate(self.runs.len() - 2);
            self.runs.push(joined);
        }
    }

    fn take(&mut self, before: Self) {
        let Self {
            gathered,
            ends,
            runs,
            cleared,
            ..
        } = before;
        let mut start = 0;
        for end in ends {
            self.gathered.extend_from_slice(&gathered[start..end]);
            self.ends.push(self.gathered.len());
            start = end;
        }
        self.pack();
        self.runs.extend(runs);
        self.join(usize::MAX);
        for prefix in cleared {
            let bytes = prefix.len() + size_of::<Box<[u8]>>();
            if self.cleared.insert(prefix) {
                self.cleared_bytes += bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Changes, Scope};
    use tidemill_types::FunctionId;

    const MOST: usize = 8 << 20;

    /// What was cleared, and the keys.
    type All = (Vec<Vec<u8>>, Vec<Vec<u8>>);

    fn all(changed: &mut Changed) -> Option<All> {
        let sorted = changed.sorted()?;
        let (mut keys, mut left) = (Vec::new(), sorted.keys);
        while let Some(key) = left.key() {
            keys.push(key.to_vec());
            left.advance();
        }
        let cleared = sorted.cleared.iter().map(|prefix| prefix.to_vec());
        Some((cleared.collect(), keys))
    }

    #[test]
    fn keys_come_in_order_once_and_too_many_are_any() {
        let mut changed = Changed::none(MOST);
        for key in [b"b", b"a", b"b"] {
            changed.add(key);
        }
        let (_, keys) = all(&mut changed).expect("known");
        assert_eq!(keys, [b"a", b"b"]);
        let mut changed = Changed::none(MOST);
        let mut added = 0_u64;
        while changed.known.is_some() {
            changed.add(&added.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
            added += 1;
        }
        assert!(added > 200_000, "{added} keys are too many");
        assert!(all(&mut Changed::unknown(MOST)).is_none());
    }

    #[test]
    fn keys_that_change_all_the_time_are_never_too_many() {
        let mut changed = Changed::none(MOST);
        for nth in 0..3_000_000_u64 {
            changed.add(&(nth * 7919 % 50_000).to_be_bytes());
        }
        let most = changed.known.as_ref().expect("known").bytes();
        assert!(most < MOST / 8, "50,000 keys take {most} bytes");
        let (_, keys) = all(&mut changed).expect("known");
        let expected = (0..50_000_u64).map(|key| key.to_be_bytes().to_vec());
        assert_eq!(keys, expected.collect::<Vec<_>>());
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
        let mut changed = Changed::none(MOST);
        changed.note(ChangesReader::new(section.as_bytes()).expect("sound"));
        let keys = vec![keys::encode(scope, 3, b"k"), keys::encode(scope, 4, b"a")];
        let expected = (vec![vec![0, 0, 0, 1, 0, 0, 0, 2]], keys);
        assert_eq!(all(&mut changed), Some(expected.clone()));

        let mut since = Changed::none(MOST);
        since.add(&expected.1[0]);
        since.and_before(changed);
        assert_eq!(all(&mut since), Some(expected));
        since.and_before(Changed::unknown(MOST));
        assert_eq!(all(&mut since), None, "nobody knows what was before");
    }
}
