//! The store on disk: one LSM tree.
//!
//! It has no log of its own. What isn't in its files yet goes with the process, the marker with it, and the
//! journal has it: the next start finds the store as it was at an earlier commit, and reads the journal from there.
//! So nothing is written twice, and opening it reads no log.

mod compactor;
mod views;

use super::{Behind, Each, Failure, Fill, Marker, Pass, View, Write};
use crate::keys::MARKER;
use compactor::Compactor;
use lsm_tree::config::{
    BloomConstructionPolicy, FilterPolicy, FilterPolicyEntry, PinningPolicy, RestartIntervalPolicy,
};
use lsm_tree::{
    AbstractTree, AnyIngestion, AnyTree, Cache, Config, Guard, InternalValue, SeqNo,
    SequenceNumberCounter, ValueType,
};
use std::fs::{File, TryLockError};
use std::io;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use views::{Open, Views};

/// The tree's folder: a new one for every layout. Whatever else lies beside it is of an earlier one.
const TREE: &str = "tree-1";
/// Held while somebody uses the folder.
const LOCK: &str = "lock";
/// The smallest and the largest memtable that is written to a file at once.
const MEMTABLE_BYTES: std::ops::RangeInclusive<u64> = (1 << 20)..=(16 << 20);

/// How memory is shared out within the store.
#[derive(Clone, Copy)]
struct Share {
    /// Blocks read for misses; live values are kept above.
    cache: u64,
    /// Bytes after which the memtable is written to a file. There is one: who writes waits meanwhile.
    memtable: u64,
}

impl Share {
    /// Entries of a memtable take about half as much again as is counted, and what is written at once goes beyond.
    fn of(memory: u64) -> Self {
        Self {
            cache: memory / 4,
            memtable: (memory / 4).clamp(*MEMTABLE_BYTES.start(), *MEMTABLE_BYTES.end()),
        }
    }
}

/// What everybody holds who reads.
struct Shared {
    tree: AnyTree,
    /// The next number of a change.
    next: SequenceNumberCounter,
    /// Changes with lower numbers can be seen.
    visible: SequenceNumberCounter,
    views: Views,
    /// Let go of when it is closed.
    _lock: File,
}

impl Shared {
    /// Numbers below which a change that was overwritten is of no use to anybody.
    fn of_no_use(&self) -> SeqNo {
        self.views.oldest(&self.visible).saturating_sub(1)
    }
}

struct Lsm {
    shared: Arc<Shared>,
    compactor: Compactor,
    memtable_bytes: u64,
    /// Who writes, or writes the memtable to a file. Whether that failed the last time.
    writing: Mutex<bool>,
}

/// Opens or creates the store in a folder; it keeps about `memory` bytes in memory.
pub(crate) fn open(dir: &Path, memory: u64) -> Result<Box<dyn Behind>, Failure> {
    // Damaged files may meet an assertion instead of an error.
    Ok(Box::new(guarded(|| {
        open_unguarded(dir, Share::of(memory))
    })?))
}

fn open_unguarded(dir: &Path, share: Share) -> Result<Lsm, Failure> {
    std::fs::create_dir_all(dir)?;
    let lock = File::create(dir.join(LOCK))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(Failure::InUse),
        Err(TryLockError::Error(error)) => return Err(error.into()),
    }
    remove_others(dir)?;
    let (next, visible) = (
        SequenceNumberCounter::default(),
        SequenceNumberCounter::default(),
    );
    let tree = config(&dir.join(TREE), &next, &visible, share).open()?;
    let known = tree.get_highest_seqno().map_or(0, |highest| highest + 1);
    next.fetch_max(known);
    visible.fetch_max(known);
    let shared = Arc::new(Shared {
        tree,
        next,
        visible,
        views: Views::default(),
        _lock: lock,
    });
    Ok(Lsm {
        compactor: Compactor::start(shared.clone())?,
        shared,
        memtable_bytes: share.memtable,
        writing: Mutex::new(false),
    })
}

/// Removes what other layouts left.
fn remove_others(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == TREE || name == LOCK {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => std::fs::remove_dir_all(entry.path())?,
            false => std::fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

fn config(
    dir: &Path,
    next: &SequenceNumberCounter,
    visible: &SequenceNumberCounter,
    share: Share,
) -> Config {
    // What is written from a memtable stays in memory whole. Below it the filter of a table may be as large as the
    // cache: in one piece it would be read again for every key that isn't there.
    let in_parts = || PinningPolicy::new([false, true]);
    // Every look goes through all tables that were written last, so their filters are to be nearly never wrong.
    let filters = FilterPolicy::new([
        FilterPolicyEntry::Bloom(BloomConstructionPolicy::FalsePositiveRate(0.0001)),
        FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0)),
    ]);
    Config::new(dir, next.clone(), visible.clone())
        .use_cache(Arc::new(Cache::with_capacity_bytes(share.cache)))
        .filter_block_partitioning_policy(in_parts())
        .index_block_partitioning_policy(in_parts())
        .data_block_restart_interval_policy(RestartIntervalPolicy::new([10, 16]))
        .filter_policy(filters)
}

/// An assertion that fails is a failure like any other.
fn guarded<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let done = catch_unwind(AssertUnwindSafe(work));
    done.unwrap_or_else(|_| Err(Failure::Broken("its files make no sense".into())))
}

impl Lsm {
    fn writing(&self) -> MutexGuard<'_, bool> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the memtable to a file that survives a power cut. If that fails, all of it stays in memory.
    fn flush(&self, has_failed: &mut bool) -> Result<(), Failure> {
        let shared = &self.shared;
        let flushed = guarded(|| {
            let flushing = shared.tree.get_flush_lock();
            shared.tree.rotate_memtable();
            let flushed = shared.tree.flush(&flushing, shared.of_no_use());
            flushed.map_err(|error| Failure::Unwritable(error.to_string()))
        });
        *has_failed = flushed.is_err();
        if flushed?.is_some() {
            self.compactor.wake();
        }
        Ok(())
    }
}

impl Behind for Lsm {
    fn marker(&self) -> Result<Marker, Failure> {
        let tree = &self.shared.tree;
        Ok(match tree.get(MARKER, SeqNo::MAX)? {
            Some(bytes) => Marker::read(&bytes),
            None if tree.is_empty(SeqNo::MAX, None)? => Marker::Empty,
            None => Marker::Torn,
        })
    }

    fn get_many(
        &self,
        keys: &[Vec<u8>],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), Failure> {
        for (at, key) in keys.iter().enumerate() {
            found(at, self.shared.tree.get(key, SeqNo::MAX)?.as_deref());
        }
        Ok(())
    }

    fn write(&self, batch: &[Write<'_>], marker: Option<Marker>) -> Result<(), Failure> {
        let mut has_failed = self.writing();
        if *has_failed {
            // Nothing more is taken before there is room for it.
            self.flush(&mut has_failed)?;
        }
        self.compactor.keep_up()?;
        let shared = &self.shared;
        // All of a batch lies in one memtable, so that a file has all of it or nothing.
        let memtable = shared.tree.active_memtable();
        let number = shared.next.next();
        for Write { key, value } in batch {
            let key = key.as_slice();
            memtable.insert(match value {
                Some(value) => {
                    InternalValue::from_components(key, value.as_ref(), number, ValueType::Value)
                }
                None => InternalValue::new_tombstone(key, number),
            });
        }
        if let Some(marker) = marker {
            memtable.insert(InternalValue::from_components(
                MARKER,
                marker.to_bytes(),
                number,
                ValueType::Value,
            ));
        }
        shared.visible.fetch_max(number + 1);
        if memtable.size() >= self.memtable_bytes
            && let Err(failure) = self.flush(&mut has_failed)
        {
            // It was written, to memory; the next write tells if that lasts.
            tracing::warn!(reason = %failure, "the state store's files can't be written");
        }
        Ok(())
    }

    fn fill(&self) -> Result<Box<dyn Fill + '_>, Failure> {
        Ok(Box::new(Filled {
            ingestion: self.shared.tree.ingestion()?,
            compactor: &self.compactor,
        }))
    }

    fn view(&self) -> Result<Box<dyn View>, Failure> {
        Ok(Box::new(Moment::of(self.shared.clone())))
    }

    fn pass(&self) -> Result<Pass, Failure> {
        // Nothing that is seen at this moment goes before the iterator holds it.
        let moment = Moment::of(self.shared.clone());
        let all = self.shared.tree.iter(moment.open.number(), None);
        drop(moment);
        let shared = self.shared.clone();
        Ok(Box::new(move |each| {
            for pair in all {
                let (key, value) = pair.into_inner()?;
                if key.as_ref() != MARKER && each(&key, &value).is_break() {
                    break;
                }
            }
            drop(shared);
            Ok(())
        }))
    }

    fn count(&self) -> u64 {
        self.shared.tree.approximate_len() as u64
    }

    fn clear(&self) -> Result<(), Failure> {
        let _writing = self.writing();
        guarded(|| {
            // The files first, so that they go at once; without them the store is empty, whatever follows.
            self.shared.tree.drop_range::<&[u8], _>(..)?;
            Ok(self.shared.tree.clear()?)
        })
    }

    fn persist(&self) -> Result<(), Failure> {
        self.flush(&mut self.writing())
    }
}

/// Keys that become files at once, past the memtable.
struct Filled<'l> {
    ingestion: AnyIngestion<'l>,
    compactor: &'l Compactor,
}

impl Fill for Filled<'_> {
    fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), Failure> {
        let written = match value {
            Some(value) => self.ingestion.write(key, value),
            None => self.ingestion.write_tombstone(key),
        };
        Ok(written?)
    }

    fn finish(self: Box<Self>) -> Result<(), Failure> {
        self.ingestion.finish()?;
        self.compactor.wake();
        Ok(())
    }
}

/// A moment that is looked at.
struct Moment {
    open: Open,
    shared: Arc<Shared>,
}

impl Moment {
    fn of(shared: Arc<Shared>) -> Self {
        Self {
            open: shared.views.open(&shared.visible),
            shared,
        }
    }
}

impl View for Moment {
    fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let found = self.shared.tree.get(key, self.open.number())?;
        Ok(found.map(|value| value.to_vec()))
    }

    fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Option<&[u8]>,
        each: &mut Each<'_>,
    ) -> Result<(), Failure> {
        if let (Bound::Included(from) | Bound::Excluded(from), Some(to)) = (from, to)
            && from >= to
        {
            return Ok(());
        }
        let to = to.map_or(Bound::Unbounded, Bound::Excluded);
        let number = self.open.number();
        for pair in self.shared.tree.range::<&[u8], _>((from, to), number, None) {
            let (key, value) = pair.into_inner()?;
            if each(&key, &value).is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl From<lsm_tree::Error> for Failure {
    fn from(error: lsm_tree::Error) -> Self {
        match error {
            lsm_tree::Error::Io(error) => error.into(),
            other => Self::Broken(other.to_string()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Unwritable(error.to_string())
            }
            _ => Self::Broken(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
