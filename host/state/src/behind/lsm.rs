//! The store on disk: fjall, one keyspace.

use super::{Behind, Each, Failure, Marker, View, Write};
use crate::keys::MARKER;
use fjall::config::PartitioningPolicy;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, LsmError, PersistMode, Readable};
use std::io;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// The keyspace's name: a new one for every layout and every change of its options, which are kept
/// from its creation on.
const KEYSPACE: &str = "state-2";
/// A flush of the memtable syncs while it holds the write lock; small ones keep that short.
const MEMTABLE_BYTES: u64 = 8 << 20;
/// The least allowed: what has to be replayed at the next open.
const LOG_BYTES: u64 = 64 << 20;
/// Blocks read for misses; live values are kept above.
const CACHE_BYTES: u64 = 16 << 20;
const THREADS: usize = 2;

struct Lsm {
    database: Database,
    keyspace: Keyspace,
}

/// Opens or creates the store in a folder.
pub(crate) fn open(dir: &Path) -> Result<Box<dyn Behind>, Failure> {
    // Damaged files may meet an assertion instead of an error.
    let opened = catch_unwind(AssertUnwindSafe(|| open_unguarded(dir)));
    match opened {
        Ok(Ok(lsm)) => Ok(Box::new(lsm)),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Failure::Broken("its files make no sense".into())),
    }
}

fn open_unguarded(dir: &Path) -> fjall::Result<Lsm> {
    let database = Database::builder(dir)
        .cache_size(CACHE_BYTES)
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
    Ok(Lsm { database, keyspace })
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
        Ok(writes.commit()?)
    }

    fn view(&self) -> Result<Box<dyn View>, Failure> {
        Ok(Box::new(Moment {
            snapshot: self.database.snapshot(),
            keyspace: self.keyspace.clone(),
        }))
    }

    fn clear(&self) -> Result<(), Failure> {
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
