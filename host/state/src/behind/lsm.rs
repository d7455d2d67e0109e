//! The store on disk: fjall, one keyspace.

use super::{Behind, Each, Failure, Marker, Pass, View, Write};
use crate::keys::MARKER;
use fjall::config::PartitioningPolicy;
use fjall::{
    AbstractTree, Database, Keyspace, KeyspaceCreateOptions, LsmError, PersistMode, Readable,
};
use lsm_tree::Guard;
use std::io;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The keyspace's name: a new one for every layout and every change of its options, which are kept
/// from its creation on.
const KEYSPACE: &str = "state-2";
/// Never reached: a memtable is closed at [`Share::memtable`], which may be another one at the next start.
const MEMTABLE_BYTES: u64 = 64 << 20;
/// The least allowed: what has to be replayed at the next open.
const LOG_BYTES: u64 = 64 << 20;
const THREADS: usize = 2;
/// Closed memtables that may wait to be written to a file.
const CLOSED: usize = 2;
/// How often it is looked whether one was, and how many times at most before the store is left to see to it.
const LOOK: Duration = Duration::from_millis(2);
const LOOKS: u32 = 5000;

/// Memory that an entry of a memtable takes beside key and value.
const ENTRY_BYTES: usize = 64;

/// How memory is shared out within the store.
struct Share {
    /// Blocks read for misses; live values are kept above.
    cache: u64,
    /// Bytes after which a memtable is closed: one is filled, and [`CLOSED`] may wait. A flush syncs while it holds
    /// the write lock; small ones keep that short.
    memtable: u64,
}

impl Share {
    /// Entries of a memtable take about half as much again as is counted, and what is written at once goes beyond.
    fn of(memory: u64) -> Self {
        Self {
            cache: memory / 4,
            memtable: (memory / 8).clamp(1 << 20, 16 << 20),
        }
    }
}

struct Lsm {
    database: Database,
    keyspace: Keyspace,
    share: Share,
    /// Bytes in the memtable that is filled.
    filled: AtomicU64,
}

/// Opens or creates the store in a folder; it keeps about `memory` bytes in memory.
pub(crate) fn open(dir: &Path, memory: u64) -> Result<Box<dyn Behind>, Failure> {
    // Damaged files may meet an assertion instead of an error.
    let opened = catch_unwind(AssertUnwindSafe(|| open_unguarded(dir, Share::of(memory))));
    match opened {
        Ok(Ok(lsm)) => Ok(Box::new(lsm)),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Failure::Broken("its files make no sense".into())),
    }
}

fn open_unguarded(dir: &Path, share: Share) -> fjall::Result<Lsm> {
    let database = Database::builder(dir)
        .cache_size(share.cache)
        .max_journaling_size(LOG_BYTES)
        .worker_threads(THREADS)
        .open()?;
    for name in database.list_keyspace_names() {
        if *name != *KEYSPACE {
            let other = database.keyspace(&name, KeyspaceCreateOptions::default)?;
            database.delete_keyspace(other)?;
        }
    }
    let keyspace = database.keyspace(KEYSPACE, || {
        // What is flushed stays in memory whole. Below it the filter of a table may be as large as the cache: in
        // one piece it would be read again for every key that isn't there.
        let in_parts = || PartitioningPolicy::new([false, true]);
        KeyspaceCreateOptions::default()
            .max_memtable_size(MEMTABLE_BYTES)
            .filter_block_partitioning_policy(in_parts())
            .index_block_partitioning_policy(in_parts())
    })?;
    Ok(Lsm {
        filled: AtomicU64::new(database.write_buffer_size()),
        database,
        keyspace,
        share,
    })
}

impl Lsm {
    /// Waits until closed memtables were written, as far as they would be too many with another. Of that the store
    /// tells nobody.
    fn wait_for_flushes(&self) {
        let is_full = |_: &u32| self.keyspace.sealed_memtable_count() >= CLOSED;
        (0..LOOKS)
            .take_while(is_full)
            .for_each(|_| std::thread::park_timeout(LOOK));
    }

    /// Closes the memtable once it has enough.
    fn filled_by(&self, bytes: u64) -> fjall::Result<()> {
        if self.filled.fetch_add(bytes, Ordering::AcqRel) + bytes >= self.share.memtable {
            self.keyspace.rotate_memtable()?;
            self.filled.store(0, Ordering::Release);
        }
        Ok(())
    }
}

impl Behind for Lsm {
    fn marker(&self) -> Result<Marker, Failure> {
        Ok(match self.keyspace.get(MARKER)? {
            Some(bytes) => Marker::read(&bytes),
            None if self.keyspace.is_empty()? => Marker::Empty,
            None => Marker::Torn,
        })
    }

    fn get_many(
        &self,
        keys: &[Vec<u8>],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), Failure> {
        for (at, key) in keys.iter().enumerate() {
            found(at, self.keyspace.get(key)?.as_deref());
        }
        Ok(())
    }

    fn write(&self, batch: &[Write<'_>], marker: Option<Marker>) -> Result<(), Failure> {
        self.wait_for_flushes();
        let size = |write: &Write<'_>| {
            ENTRY_BYTES + write.key.len() + write.value.as_ref().map_or(0, |value| value.len())
        };
        let bytes = batch.iter().map(size).sum::<usize>() as u64;
        let mut writes = self.database.batch();
        for write in batch {
            match &write.value {
                Some(value) => writes.insert(&self.keyspace, write.key.as_slice(), value.as_ref()),
                None => writes.remove(&self.keyspace, write.key.as_slice()),
            }
        }
        if let Some(marker) = marker {
            writes.insert(&self.keyspace, MARKER, marker.to_bytes());
        }
        writes.commit()?;
        Ok(self.filled_by(bytes)?)
    }

    fn view(&self) -> Result<Box<dyn View>, Failure> {
        Ok(Box::new(Moment {
            snapshot: self.database.snapshot(),
            keyspace: self.keyspace.clone(),
        }))
    }

    fn pass(&self) -> Result<Pass, Failure> {
        // Nothing that is seen at this moment goes before the iterator holds it.
        let _moment = self.database.snapshot();
        let all = self.keyspace.tree.iter(self.database.visible_seqno(), None);
        Ok(Box::new(move |each| {
            for pair in all {
                let (key, value) = pair.into_inner().map_err(fjall::Error::from)?;
                if key.as_ref() != MARKER && each(&key, &value).is_break() {
                    break;
                }
            }
            Ok(())
        }))
    }

    fn count(&self) -> u64 {
        self.keyspace.approximate_len() as u64
    }

    fn clear(&self) -> Result<(), Failure> {
        // What follows has to be written in batches: what the store ingests isn't in its log, but this is, so that the
        // next open would clear that, too.
        Ok(self.keyspace.clear()?)
    }

    fn persist(&self) -> Result<(), Failure> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }
}

struct Moment {
    snapshot: fjall::Snapshot,
    keyspace: Keyspace,
}

impl View for Moment {
    fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let found = self.snapshot.get(&self.keyspace, key)?;
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
        for pair in self.snapshot.range::<&[u8], _>(&self.keyspace, (from, to)) {
            let (key, value) = pair.into_inner()?;
            if each(&key, &value).is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl From<fjall::Error> for Failure {
    fn from(error: fjall::Error) -> Self {
        match error {
            fjall::Error::Locked => Self::InUse,
            fjall::Error::Io(error) | fjall::Error::Storage(LsmError::Io(error))
                if is_full(&error) =>
            {
                Self::Full(error.to_string())
            }
            other => Self::Broken(other.to_string()),
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_types::CommitSeq;

    #[test]
    fn what_was_written_after_a_clearing_outlasts_a_start() {
        const KEYS: u32 = 30_000;
        let dir = tempfile::tempdir().expect("a folder");
        let key = |n: u32| [&b"key "[..], &n.to_be_bytes()].concat();
        let store = open(dir.path(), 8 << 20).expect("opens");
        let old = Write {
            key: b"old".to_vec(),
            value: Some(b"1"[..].into()),
        };
        let written = store.write(&[old], Some(Marker::Exact(CommitSeq(3))));
        written.expect("written");
        store.clear().expect("cleared");
        let all: Vec<_> = (0..KEYS)
            .map(|n| Write {
                key: key(n),
                value: Some(vec![7; 100].into()),
            })
            .collect();
        for some in all.chunks(1000) {
            store.write(some, Some(Marker::Torn)).expect("written");
        }
        assert_eq!(store.marker(), Ok(Marker::Torn));
        let written = store.write(&[], Some(Marker::Exact(CommitSeq(9))));
        written.expect("written");
        drop(store);
        let store = open(dir.path(), 8 << 20).expect("opens again");
        assert_eq!(store.marker(), Ok(Marker::Exact(CommitSeq(9))));
        let keys: Vec<_> = (0..KEYS).map(key).chain([b"old".to_vec()]).collect();
        let mut found = 0;
        let read = store.get_many(&keys, &mut |at, value| {
            found += usize::from(value == Some(&[7; 100]));
            assert_eq!(value.is_some(), at < keys.len() - 1, "key {at}");
        });
        read.expect("it can be read");
        assert_eq!(found, keys.len() - 1);
    }
}
