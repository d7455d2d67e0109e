//! How much state a function keeps: counted change by change, kept with the state itself, and compared
//! with the function's `state_bytes`.
//!
//! What counts is the bytes of keys and values as they are stored. What a change replaces is looked up in
//! memory; where it isn't there, its bytes are counted as if nothing were replaced, and remembered as
//! uncertain. So a count may be too high, never too low, and only when it says that the limit is passed, and
//! more than a part of it is uncertain, everything on its partition is counted again.

use crate::stored::{TIMERS, USAGE};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tidemill_state::{Change, Changes, ChangesReader, Reader, Scope, Store};
use tidemill_types::{ByteSize, Result};
use tokio::sync::watch;

/// A removed value that isn't in memory is taken for this long when it comes to what is uncertain.
const UNSEEN_BYTES: u64 = 4 << 10;
/// A count of which less than this part of the limit is uncertain is believed.
const BELIEVED_PART: u64 = 64;
/// Values that are counted at once.
const COUNTED: usize = 1024;

/// What is kept on one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Kept {
    /// Bytes of keys and values, at most.
    pub(crate) bytes: u64,
    /// By how much that may be too high.
    pub(crate) uncertain: u64,
}

impl Kept {
    /// What a state store has, by its own account or, without one or with `again`, counted value by value
    /// over these slots. Blocks.
    ///
    /// # Errors
    /// When state can't be read.
    pub(crate) fn read(state: &Store, scope: Scope, slots: &[u16], again: bool) -> Result<Self> {
        if !again {
            if let Err(missing) = state.get(scope, USAGE, b"") {
                state.load(scope, &[missing])?;
            }
            let stored = state.get(scope, USAGE, b"").ok().flatten();
            if let Some(kept) = stored.and_then(|stored| Self::decode(&stored)) {
                return Ok(kept);
            }
        }
        let mut bytes = 0;
        for slot in slots.iter().copied().chain([TIMERS]) {
            let mut from = Bound::Unbounded;
            loop {
                let bound = from.as_ref().map(|place: &bytes::Bytes| &**place);
                let found = state.scan(scope, slot, b"", bound, COUNTED)?;
                bytes += found
                    .iter()
                    .map(|(key, value)| size(key, value))
                    .sum::<u64>();
                match found.last() {
                    Some((last, _)) if found.len() == COUNTED => {
                        from = Bound::Excluded(last.clone());
                    }
                    _ => break,
                }
            }
        }
        Ok(Self {
            bytes,
            uncertain: 0,
        })
    }

    /// With some changes made.
    pub(crate) fn after(self, growth: &Growth) -> Self {
        Self {
            bytes: self.bytes.saturating_add_signed(growth.bytes),
            uncertain: self.uncertain + growth.uncertain,
        }
    }

    /// Adds itself to the changes it counts.
    pub(crate) fn write(self, changes: &mut Changes) {
        let parts = [self.bytes.to_le_bytes(), self.uncertain.to_le_bytes()];
        changes.push_set(USAGE, &[], &[&parts[0], &parts[1]]);
    }

    fn decode(stored: &[u8]) -> Option<Self> {
        let (bytes, uncertain) = stored.split_first_chunk::<8>()?;
        Some(Self {
            bytes: u64::from_le_bytes(*bytes),
            uncertain: u64::from_le_bytes(uncertain.try_into().ok()?),
        })
    }
}

/// By how much changes make state grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Growth {
    /// Bytes; less than nothing where it shrinks.
    pub(crate) bytes: i64,
    /// By how much that may be too high.
    pub(crate) uncertain: u64,
}

/// What each change of a section does to the bytes kept, in order.
pub(crate) fn growth(
    section: &[u8],
    reader: &Reader<'_>,
    mut each: impl FnMut(usize, Growth),
) -> Result<()> {
    // A timer that has its turn is removed and perhaps set again; and nothing keeps a guest from changing
    // one thing twice.
    let mut changed: BTreeMap<(u16, &[u8]), u64> = BTreeMap::new();
    for (number, change) in ChangesReader::new(section)?.enumerate() {
        let (slot, key, new) = match change {
            Change::Set { slot, key, value } => (slot, key, Some(size(key, value))),
            Change::Delete { slot, key } => (slot, key, None),
            Change::Clear => continue,
        };
        let old = match changed.insert((slot, key), new.unwrap_or_default()) {
            Some(bytes) => Some(bytes),
            None => match reader.get(slot, key) {
                Ok(stored) => Some(stored.map_or(0, |stored| size(key, stored))),
                Err(_) => None,
            },
        };
        let uncertain = match old {
            Some(_) => 0,
            None => new.unwrap_or(UNSEEN_BYTES),
        };
        let bytes = signed(new.unwrap_or_default()) - signed(old.unwrap_or_default());
        each(number, Growth { bytes, uncertain });
    }
    Ok(())
}

impl Growth {
    /// With something else of `after` bytes in the place of what had `before`.
    #[must_use]
    pub(crate) fn replaced(self, before: u64, after: u64) -> Self {
        Self {
            bytes: self.bytes + signed(after) - signed(before),
            ..self
        }
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// What counts of a value.
pub(crate) fn size(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64
}

/// What all partitions of a function keep.
pub(crate) struct Usage {
    partitions: Vec<AtomicU64>,
    total: AtomicU64,
    expired: AtomicBool,
    /// Partitions of which it is known.
    known: watch::Sender<usize>,
}

/// What a partition keeps that wasn't counted yet.
const UNKNOWN: u64 = u64::MAX;

impl Usage {
    /// Of so many partitions, none of which was counted yet.
    pub(crate) fn new(partitions: u32) -> Self {
        Self {
            partitions: (0..partitions).map(|_| AtomicU64::new(UNKNOWN)).collect(),
            total: AtomicU64::new(0),
            expired: AtomicBool::new(false),
            known: watch::Sender::new(0),
        }
    }

    /// Bytes of all partitions.
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::Acquire)
    }

    /// Says what a partition keeps.
    pub(crate) fn set(&self, partition: u32, bytes: u64) {
        let place = usize::try_from(partition).ok();
        if let Some(kept) = place.and_then(|place| self.partitions.get(place)) {
            let before = kept.swap(bytes, Ordering::AcqRel);
            let is_first = before == UNKNOWN;
            let before = if is_first { 0 } else { before };
            // Wraps around where it shrinks, and back.
            self.total
                .fetch_add(bytes.wrapping_sub(before), Ordering::AcqRel);
            if is_first {
                self.known.send_modify(|known| *known += 1);
            }
        }
    }

    /// Waits until all partitions were counted.
    pub(crate) async fn known(&self) {
        let all = self.partitions.len();
        // The sender is here, so that it can't be gone.
        let _ = self.known.subscribe().wait_for(|known| *known >= all).await;
    }

    /// Values have been taken away that the counts still have.
    pub(crate) fn expired(&self) {
        self.expired.store(true, Ordering::Release);
    }

    /// Whether a count that says that too much is kept should be made again.
    pub(crate) fn is_doubtful(&self, kept: Kept, limit: ByteSize) -> bool {
        kept.uncertain > limit.0 / BELIEVED_PART || self.expired.swap(false, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_env::metrics::Metrics;
    use tidemill_state::Settings;
    use tidemill_types::{CommitSeq, FunctionId};

    const SCOPE: Scope = Scope {
        function: FunctionId(1),
        partition: 0,
    };

    fn store(dir: &tempfile::TempDir) -> Store {
        let settings = Settings {
            dir: dir.path().into(),
            memory_bytes: ByteSize::mib(1),
            dirty_bytes: ByteSize::mib(1),
            store_bytes: ByteSize::mib(8),
            snapshot_memory: ByteSize::mib(8),
        };
        Store::open(settings, &Metrics::default()).expect("a store")
    }

    fn sum(store: &Store, changes: &Changes) -> Growth {
        let mut sum = Growth::default();
        store.read(SCOPE, |reader| {
            growth(changes.as_bytes(), reader, |_, one| {
                sum.bytes += one.bytes;
                sum.uncertain += one.uncertain;
            })
            .expect("a section");
        });
        sum
    }

    #[test]
    fn what_is_counted_step_by_step_is_what_is_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = store(&dir);
        let mut kept = Kept::read(&store, SCOPE, &[0, 1], false).expect("empty");
        assert_eq!(kept, Kept::default());
        let steps: [&[Change<'_>]; 4] = [
            &[
                Change::Set {
                    slot: 0,
                    key: b"a",
                    value: b"1234",
                },
                Change::Set {
                    slot: 1,
                    key: b"a",
                    value: b"12",
                },
                Change::Set {
                    slot: TIMERS,
                    key: b"t",
                    value: b"123",
                },
            ],
            &[
                Change::Set {
                    slot: 0,
                    key: b"a",
                    value: b"1",
                },
                Change::Delete {
                    slot: 1,
                    key: b"never there",
                },
            ],
            &[
                Change::Delete {
                    slot: TIMERS,
                    key: b"t",
                },
                Change::Set {
                    slot: TIMERS,
                    key: b"t",
                    value: b"12345",
                },
                Change::Delete { slot: 1, key: b"a" },
            ],
            // Twice, by a guest that hopes to hide the second one behind the first.
            &[
                Change::Set {
                    slot: 0,
                    key: b"a",
                    value: b"",
                },
                Change::Set {
                    slot: 0,
                    key: b"a",
                    value: b"123456",
                },
            ],
        ];
        for (commit, (step, bytes)) in (1..).zip(steps.into_iter().zip([12, 9, 8, 13])) {
            let mut changes = Changes::new(SCOPE);
            step.iter().for_each(|change| changes.push(*change));
            kept = kept.after(&sum(&store, &changes));
            kept.write(&mut changes);
            store
                .apply(CommitSeq(commit), changes.as_bytes())
                .expect("applies");
            assert_eq!(
                kept,
                Kept {
                    bytes,
                    uncertain: 0
                }
            );
            for again in [false, true] {
                let found = Kept::read(&store, SCOPE, &[0, 1], again).expect("read");
                assert_eq!(found, kept, "counted again: {again}");
            }
        }
    }

    #[test]
    fn accounts_have_golden_bytes() {
        let mut changes = Changes::new(SCOPE);
        let kept = Kept {
            bytes: 0x0102,
            uncertain: 3,
        };
        kept.write(&mut changes);
        let golden = [2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
        assert!(changes.as_bytes().ends_with(&golden));
        assert_eq!(Kept::decode(&golden), Some(kept));
        assert_eq!(Kept::decode(&golden[1..]), None);
    }

    #[tokio::test]
    async fn partitions_add_up() {
        let usage = Usage::new(2);
        usage.set(0, 10);
        usage.set(0, 11);
        assert!(futures::FutureExt::now_or_never(usage.known()).is_none());
        usage.set(1, 5);
        usage.known().await;
        usage.set(0, 3);
        usage.set(9, 7);
        assert_eq!(usage.total(), 8);
        let limit = ByteSize(6400);
        let kept = |uncertain| Kept {
            bytes: 1,
            uncertain,
        };
        assert!(!usage.is_doubtful(kept(100), limit) && usage.is_doubtful(kept(101), limit));
        usage.expired();
        assert!(usage.is_doubtful(kept(0), limit) && !usage.is_doubtful(kept(0), limit));
    }
}
