//! The façade: get, load, apply, advance, snapshot, list.

use crate::Scope;
use bytes::Bytes;
use std::path::PathBuf;
use std::sync::Arc;
use tidemill_env::metrics::Metrics;
use tidemill_env::objects::Objects;
use tidemill_types::{ByteSize, CommitSeq, FunctionId, Result};

/// Settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Where the store lies; may be deleted while the host is stopped.
    pub dir: PathBuf,
    /// Live values kept in memory.
    pub memory_bytes: ByteSize,
    /// Changed values that wait to be written back; beyond it `apply` reports pressure.
    pub dirty_bytes: ByteSize,
}

/// A value that isn't in memory: read it with [`Store::load`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    /// The slot.
    pub slot: u16,
    /// The key.
    pub key: Bytes,
}

/// Figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Values in memory.
    pub live: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// Changed values not yet written back.
    pub dirty: u64,
    /// The commit the store behind reflects.
    pub written: CommitSeq,
}

/// The state of all functions of a shard. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    _inner: Arc<()>,
}

impl Store {
    /// Opens or creates the store in its folder. A store that can't be opened or is damaged is wiped:
    /// it is a cache.
    ///
    /// # Errors
    /// When the folder can't be used at all.
    pub fn open(settings: Settings, metrics: &Metrics) -> Result<Self> {
        let _ = (settings, metrics);
        unimplemented!("helper")
    }

    /// Up to which commit the store already reflects the journal; 0 when it is empty.
    pub fn reflects(&self) -> CommitSeq {
        unimplemented!("helper")
    }

    /// Throws everything away and loads a snapshot's bytes; afterwards it reflects the snapshot's commit.
    ///
    /// # Errors
    /// `Corrupt` when the snapshot isn't what was written.
    pub fn restore(&self, snapshot: Bytes) -> Result<CommitSeq> {
        let _ = snapshot;
        unimplemented!("helper")
    }

    /// Value of a slot for a key, from memory. `Err(Missing)`: known only to the store behind; load it first.
    /// `Ok(None)`: certainly absent.
    ///
    /// # Errors
    /// [`Missing`], not a failure.
    pub fn get(&self, scope: Scope, slot: u16, key: &[u8]) -> std::result::Result<Option<Bytes>, Missing> {
        let _ = (scope, slot, key);
        unimplemented!("helper")
    }

    /// Brings missing values (or their absence) into memory. Blocks on the disk.
    ///
    /// # Errors
    /// `Unavailable` when the store can't be read.
    pub fn load(&self, scope: Scope, missing: &[Missing]) -> Result<()> {
        let _ = (scope, missing);
        unimplemented!("helper")
    }

    /// Applies a sequenced transaction's section to the map. Commits must come in rising order per
    /// scope. It reaches the store behind only after [`Store::durable`] has passed its commit.
    ///
    /// # Errors
    /// `Corrupt` when the section makes no sense.
    pub fn apply(&self, commit: CommitSeq, section: &[u8]) -> Result<()> {
        let _ = (commit, section);
        unimplemented!("helper")
    }

    /// Says up to which commit the journal is durable; the background writer may write up to there.
    pub fn durable(&self, commit: CommitSeq) {
        let _ = commit;
        unimplemented!("helper")
    }

    /// Waits while more is dirty than allowed.
    pub async fn room(&self) {
        unimplemented!("helper")
    }

    /// Writes a snapshot of everything up to the durable commit to object storage, while work goes on.
    /// Gives its path below `snapshots/` and its commit. Everything up to it has been synced locally too.
    ///
    /// # Errors
    /// `Unavailable` when storage can't be written.
    pub async fn snapshot(&self, objects: &Objects, nonce: &str) -> Result<(String, CommitSeq)> {
        let _ = (objects, nonce);
        unimplemented!("helper")
    }

    /// Live entries of a slot in key order, from `after` (exclusive) on, memory and store merged. Blocks.
    ///
    /// # Errors
    /// `Unavailable` when the store can't be read.
    pub fn list(&self, scope: Scope, slot: u16, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        let _ = (scope, slot, prefix, after, limit);
        unimplemented!("helper")
    }

    /// Forgets a function's state (its deletion is in the journal already). Space comes back in the background.
    pub fn forget(&self, function: FunctionId) {
        let _ = function;
        unimplemented!("helper")
    }

    /// Figures.
    pub fn stats(&self) -> Stats {
        unimplemented!("helper")
    }

    /// Stops the background writer after writing back what is durable.
    pub fn close(&self) {
        unimplemented!("helper")
    }
}
