//! The façade: get, load, apply, durable, snapshot, list.

mod restoring;
mod snapshots;

#[cfg(test)]
pub(crate) use restoring::{Piece, fill};

use crate::behind::{self, Behind, Failure};
use crate::cells::Known;
use crate::engine::{Engine, Memory, Place, Readers};
use crate::list::{Query, list};
use crate::live::Part;
use crate::writer::Writer;
use crate::{Frozen, Scope};
use bytes::Bytes;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tidemill_env::metrics::Metrics;
use tidemill_types::{ByteSize, CommitSeq, Error, FunctionId, Result};

/// Settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Where the store lies; may be deleted while the host is stopped.
    pub dir: PathBuf,
    /// Live values kept in memory.
    pub memory_bytes: ByteSize,
    /// Changed values that wait to be written back; beyond it `apply` reports pressure. While some are written
    /// they are there once more.
    pub dirty_bytes: ByteSize,
    /// What the store on disk keeps in memory: blocks that it read, and what isn't in its files yet.
    pub store_bytes: ByteSize,
    /// Which keys changed since the last snapshot, and objects on their way to storage while one is taken.
    pub snapshot_memory: ByteSize,
}

/// Objects of a snapshot that are in memory: one that is made, one that waits and one that is uploaded.
const OBJECTS: u64 = 3;
/// Objects of a snapshot are neither smaller nor larger, except the last.
const OBJECT_BYTES: std::ops::RangeInclusive<u64> = (1 << 20)..=(16 << 20);

impl Settings {
    fn memory(&self) -> Memory {
        Memory {
            live: self.memory_bytes.0,
            dirty: self.dirty_bytes.0,
            changed: ByteSize(self.snapshot_memory.0 / 2).as_usize(),
        }
    }

    /// How large objects of snapshots become.
    fn object_bytes(&self) -> usize {
        let bytes = self.snapshot_memory.0 / 2 / OBJECTS;
        ByteSize(bytes.clamp(*OBJECT_BYTES.start(), *OBJECT_BYTES.end())).as_usize()
    }
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
///
/// ```
/// use tidemill_env::metrics::Metrics;
/// use tidemill_state::{Change, Changes, Scope, Settings, Store};
/// use tidemill_types::{ByteSize, CommitSeq, FunctionId};
///
/// let dir = tempfile::tempdir().unwrap();
/// let settings = Settings {
///     dir: dir.path().into(),
///     memory_bytes: ByteSize::mib(64),
///     dirty_bytes: ByteSize::mib(16),
///     store_bytes: ByteSize::mib(64),
///     snapshot_memory: ByteSize::mib(32),
/// };
/// let store = Store::open(settings, &Metrics::default()).unwrap();
/// let scope = Scope { function: FunctionId(1), partition: 0 };
/// let mut changes = Changes::new(scope);
/// changes.push(Change::Set { slot: 0, key: b"UA", value: b"1" });
///
/// let intent = store.intend(); // before the transaction is sequenced
/// let commit = CommitSeq(1); // from the log
/// store.apply(commit, changes.as_bytes()).unwrap();
/// drop(intent); // applied
/// store.durable(commit); // once the journal says so
/// assert_eq!(store.get(scope, 0, b"UA"), Ok(Some("1".into())));
/// store.close();
/// ```
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Arc<Engine>,
    writer: Option<Writer>,
    readers: Option<Readers>,
    last: Mutex<snapshots::Last>,
    /// How large objects of snapshots become.
    object_bytes: usize,
}

impl Inner {
    fn wake(&self) {
        if let Some(writer) = &self.writer {
            writer.wake(&self.engine);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(readers) = &self.readers {
            readers.stop();
        }
        if let Some(writer) = &self.writer {
            writer.stop();
        }
    }
}

/// Says that a transaction is on its way between being sequenced and being applied; see [`Store::intend`].
#[must_use = "it only holds the writer back while it is alive"]
pub struct Intent {
    inner: Arc<Inner>,
    bound: CommitSeq,
}

impl Drop for Intent {
    fn drop(&mut self) {
        self.inner.engine.live.settle(self.bound);
        self.inner.wake();
    }
}

/// What memory knows of one scope, under its lock; see [`Store::read`].
pub struct Reader<'a> {
    part: Option<&'a Part>,
}

impl<'a> Reader<'a> {
    /// Asks for the memory of many values, so that each comes while others are waited for.
    pub fn touch<'k>(&self, slot: u16, keys: impl Iterator<Item = &'k [u8]>) {
        if let Some(part) = self.part {
            part.cells.touch(slot, keys);
        }
    }

    /// As [`Store::get`], without copying the value.
    ///
    /// # Errors
    /// [`Missing`], not a failure.
    pub fn get(&self, slot: u16, key: &[u8]) -> std::result::Result<Option<&'a [u8]>, Missing> {
        match self
            .part
            .map_or(Known::Absent, |part| part.cells.get(slot, key))
        {
            Known::Value(value) => Ok(Some(value)),
            Known::Absent => Ok(None),
            Known::Unknown => Err(Missing {
                slot,
                key: Bytes::copy_from_slice(key),
            }),
        }
    }
}

/// A folder on disk.
pub(crate) struct Folder {
    pub(crate) dir: PathBuf,
    /// Memory of the store in it.
    pub(crate) memory: u64,
}

impl Place for Folder {
    fn open(&self) -> Result<Arc<dyn Behind>, Failure> {
        behind::open(&self.dir, self.memory).map(Arc::from)
    }

    fn wipe(&self) -> Result<(), Failure> {
        match std::fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Failure::Broken(error.to_string()))
            }
            _ => Ok(()),
        }
    }
}

impl Store {
    /// Opens or creates the store in its folder. A store that can't be opened or is damaged is wiped:
    /// it is a cache.
    ///
    /// # Errors
    /// When the folder can't be used at all; `directory-in-use` when another process holds it.
    pub fn open(settings: Settings, metrics: &Metrics) -> Result<Self> {
        let dirty = settings.dirty_bytes.0;
        std::fs::create_dir_all(&settings.dir).map_err(|error| {
            Error::unavailable(
                "state-unavailable",
                format!(
                    "the state folder {} can't be created: {error}",
                    settings.dir.display()
                ),
            )
        })?;
        let place = Box::new(Folder {
            dir: settings.dir.clone(),
            memory: settings.store_bytes.0,
        });
        let engine = Engine::open(place, settings.memory(), metrics)
            .map_err(|error| error.at(settings.dir.display()))?;
        let engine = Arc::new(engine);
        let writer = Some(Writer::start(engine.clone(), dirty)?);
        Ok(Self {
            inner: Arc::new(Inner {
                engine,
                writer,
                readers: Some(Readers::start()?),
                last: Mutex::default(),
                object_bytes: settings.object_bytes(),
            }),
        })
    }

    /// Up to which commit the store already reflects the journal; 0 when it is empty. Sections of later
    /// commits are to come again after a start ([`Store::replay`]); those up to it do no harm.
    pub fn reflects(&self) -> CommitSeq {
        self.inner.engine.reflects()
    }

    /// Value of a slot for a key, from memory. `Err(Missing)`: known only to the store behind; load it first.
    /// `Ok(None)`: certainly absent. For many keys of a scope [`Store::read`] is cheaper.
    ///
    /// # Errors
    /// [`Missing`], not a failure.
    pub fn get(
        &self,
        scope: Scope,
        slot: u16,
        key: &[u8],
    ) -> std::result::Result<Option<Bytes>, Missing> {
        self.read(scope, |reader| {
            Ok(reader.get(slot, key)?.map(Bytes::copy_from_slice))
        })
    }

    /// Looks at many values of a scope at once, without copying them. The scope is locked meanwhile:
    /// `look` must not call the store.
    pub fn read<R>(&self, scope: Scope, look: impl FnOnce(&Reader<'_>) -> R) -> R {
        self.inner
            .engine
            .live
            .read(scope, |part| look(&Reader { part }))
    }

    /// Brings missing values (or their absence) into memory, where they stay at least until the load
    /// after the next of the same scope. Blocks on the disk.
    ///
    /// # Errors
    /// `Unavailable` when the store can't be read.
    pub fn load(&self, scope: Scope, missing: &[Missing]) -> Result<()> {
        let readers = self.inner.readers.as_ref();
        self.inner.engine.load(scope, missing, readers)
    }

    /// Begins to bring values of keys into memory that are going to be needed, so that nobody has to wait for them
    /// then; answers how many are read. What is known or on its way already costs a look. Doesn't block.
    pub fn ahead<'k>(
        &self,
        scope: Scope,
        slots: &[u16],
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> usize {
        let readers = self.inner.readers.as_ref();
        readers.map_or(0, |readers| {
            self.inner.engine.ahead(scope, slots, keys, readers)
        })
    }

    /// How many values of a scope may be read ahead and still be there when they are used.
    pub fn window(&self) -> usize {
        self.inner.engine.live.window()
    }

    /// Says that a transaction with changes of state is about to be sequenced. Keep it until
    /// [`Store::apply`] has returned (or the transaction was refused), then drop it.
    ///
    /// Without it the journal could become durable up to a commit whose section is not applied yet, and
    /// the store behind would claim to have what it never got. During recovery nothing else is
    /// on its way and no intent is needed.
    pub fn intend(&self) -> Intent {
        Intent {
            bound: self.inner.engine.live.intend(),
            inner: self.inner.clone(),
        }
    }

    /// Applies a sequenced transaction's section to the map. Commits must come in rising order per
    /// scope. It reaches the store behind only after [`Store::durable`] has passed its commit.
    /// What the store behind had already at the start (a commit up to [`Store::reflects`]) is passed over.
    ///
    /// # Errors
    /// `Corrupt` when the section makes no sense.
    pub fn apply(&self, commit: CommitSeq, section: &[u8]) -> Result<()> {
        let kept = || Bytes::copy_from_slice(section);
        self.inner.engine.live.apply(commit, section, kept)
    }

    /// As [`Store::apply`], without a copy of a section that nobody changes any more.
    ///
    /// # Errors
    /// `Corrupt` when the section makes no sense.
    pub fn apply_shared(&self, commit: CommitSeq, section: &Bytes) -> Result<()> {
        let kept = || section.clone();
        self.inner.engine.live.apply(commit, section, kept)
    }

    /// As [`Store::apply`], at a start, when the journal is read again: of what the store behind had already it
    /// takes note that it changed, for the next snapshot.
    ///
    /// # Errors
    /// `Corrupt` when the section makes no sense.
    pub fn replay(&self, commit: CommitSeq, section: &[u8]) -> Result<()> {
        self.inner.engine.replay(commit, section)
    }

    /// Says up to which commit the journal is durable; the background writer may write up to there.
    /// Every section up to it has been applied, or an [`Intent`] taken before it was sequenced is alive.
    pub fn durable(&self, commit: CommitSeq) {
        self.inner.engine.live.durable(commit);
        self.inner.wake();
    }

    /// Waits while more is dirty than allowed.
    pub async fn room(&self) {
        self.inner.engine.live.room().await;
    }

    /// Everything as of the durable commit, read at leisure while work goes on. Blocks, for what waits
    /// to be written back is written before.
    ///
    /// # Errors
    /// `Unavailable` when the store can't be read or written.
    pub fn frozen(&self) -> Result<Frozen> {
        let (view, commit) = self.inner.engine.freeze()?;
        Ok(Frozen::new(view, commit))
    }

    /// Live entries of a slot in key order, from `after` (exclusive) on, memory and store merged. Blocks.
    ///
    /// # Errors
    /// `Unavailable` when the store can't be read.
    pub fn list(
        &self,
        scope: Scope,
        slot: u16,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.scan(scope, slot, prefix, from, limit)
    }

    /// As [`Store::list`], from any bound on.
    ///
    /// # Errors
    /// `Unavailable` when the store can't be read.
    pub fn scan(
        &self,
        scope: Scope,
        slot: u16,
        prefix: &[u8],
        from: Bound<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>> {
        list(
            &self.inner.engine,
            &Query {
                scope,
                slot,
                prefix,
                from,
                limit,
            },
        )
    }

    /// Takes values of a slot away that nobody will look at again, in memory and behind it, and gives how
    /// many were removed behind it. Blocks, for as long as reading all of the slot takes.
    ///
    /// Nothing of it is in the journal: `dead` must stay true of a value for ever once it is, whatever is
    /// replayed, so that it makes no difference whether a value was taken away or is only passed over.
    ///
    /// # Errors
    /// `Unavailable` when the store can't be read or written.
    pub fn clean(&self, scope: Scope, slot: u16, dead: &dyn Fn(&[u8]) -> bool) -> Result<u64> {
        self.inner.engine.clean(scope, slot, dead)
    }

    /// Forgets a function's state (its deletion is in the journal already). Space comes back in the
    /// background; if the host is killed before, forget it again after the start (cheap when nothing is left).
    pub fn forget(&self, function: FunctionId) {
        self.inner.engine.forget(function);
        self.inner.wake();
    }

    /// Figures.
    pub fn stats(&self) -> Stats {
        let figures = self.inner.engine.live.figures();
        Stats {
            live: figures.values,
            live_bytes: figures.live_bytes,
            dirty: figures.waiting_changes,
            written: self.reflects(),
        }
    }

    /// Stops the background writer after writing back what is durable. Memory can still be read.
    pub fn close(&self) {
        if let Some(readers) = &self.inner.readers {
            readers.stop();
        }
        if let Some(writer) = &self.inner.writer {
            writer.stop();
        }
        self.inner.engine.close();
    }
}

#[cfg(test)]
impl Store {
    /// Over any place and without a thread: [`Engine::step`] is called by hand.
    pub(crate) fn stepped(place: Box<dyn Place>, memory: u64, dirty: u64) -> Result<Self> {
        let memory = Memory {
            live: memory,
            dirty,
            changed: 64 << 20,
        };
        let engine = Arc::new(Engine::open(place, memory, &Metrics::default())?);
        Ok(Self {
            inner: Arc::new(Inner {
                engine,
                writer: None,
                readers: None,
                last: Mutex::default(),
                object_bytes: 1 << 20,
            }),
        })
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.inner.engine
    }
}
