//! A disk in memory that forgets, tears, fails and fills up as a seed decides.
//!
//! Every file has a live image, which reads see, and a durable image, which a crash leaves. A sync
//! carries sectors from the first to the second; at a crash each sector not yet synced makes it or
//! doesn't. Names are kept in the same way: of the creations, renames and removals after the last
//! folder sync, a crash keeps some first ones.

use super::{File, Files, Lock};
use crate::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SECTOR: usize = 512;
/// What lies behind a write up to here becomes zeros.
const BLOCK: usize = 4096;

/// The simulated disk. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    random: Random,
}

struct State {
    inodes: Vec<Inode>,
    live: BTreeMap<PathBuf, usize>,
    durable: BTreeMap<PathBuf, usize>,
    unsynced: Vec<Rename>,
    locks: BTreeSet<PathBuf>,
    /// Handles and locks from before a crash are dead.
    boot: u64,
    capacity: u64,
    failing_syncs: u32,
    syncs_do_nothing: bool,
    folder_syncs_do_nothing: bool,
    reserved: u64,
}

#[derive(Default)]
struct Inode {
    live: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
}

/// `to` is made to name what `from` named (or a new inode); `None` removes.
enum Rename {
    Create(PathBuf, usize),
    Move(PathBuf, PathBuf),
    Remove(PathBuf),
}

impl Rename {
    fn apply(self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Self::Create(path, inode) => {
                names.insert(path, inode);
            }
            Self::Move(from, to) => {
                if let Some(inode) = names.remove(&from) {
                    names.insert(to, inode);
                }
            }
            Self::Remove(path) => {
                names.remove(&path);
            }
        }
    }
}

impl SimDisk {
    /// An empty disk that holds `capacity` bytes.
    pub fn new(random: Random, capacity: u64) -> Self {
        let state = State {
            inodes: Vec::new(),
            live: BTreeMap::new(),
            durable: BTreeMap::new(),
            unsynced: Vec::new(),
            locks: BTreeSet::new(),
            boot: 0,
            capacity,
            failing_syncs: 0,
            syncs_do_nothing: false,
            folder_syncs_do_nothing: false,
            reserved: 0,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            random,
        }
    }

    /// The power goes: what wasn't synced is lost or torn, open files and locks are gone.
    pub fn crash(&self) {
        let mut state = self.lock_state();
        for inode in &mut state.inodes {
            let survives = self.random.below(3);
            for sector in std::mem::take(&mut inode.dirty) {
                // Some crashes keep all, some none, most a random mixture.
                if survives == 0 || (survives == 1 && self.random.below(2) == 0) {
                    inode.persist(sector);
                }
            }
            inode.live.clone_from(&inode.durable);
        }
        let unsynced = std::mem::take(&mut state.unsynced);
        let kept = self.random.below(unsynced.len() as u64 + 1);
        for (at, rename) in unsynced.into_iter().enumerate() {
            if (at as u64) < kept {
                rename.apply(&mut state.durable);
            }
        }
        state.live = state.durable.clone();
        state.end_process();
    }

    /// The process dies and the machine stays up: nothing is lost, open files and locks are gone.
    pub fn kill(&self) {
        self.lock_state().end_process();
    }

    /// Lets the next `count` syncs of files fail. What they should have written is lost unless it is
    /// written again, although it can still be read.
    pub fn fail_syncs(&self, count: u32) {
        self.lock_state().failing_syncs = count;
    }

    /// How many files were made by [`Files::create_reserved`].
    pub fn reserved(&self) -> u64 {
        self.lock_state().reserved
    }

    /// A broken disk: syncs succeed and do nothing.
    pub fn break_syncs(&self) {
        self.lock_state().syncs_do_nothing = true;
    }

    /// Syncs of folders do nothing from now on: names may go in a crash.
    pub fn break_folder_syncs(&self) {
        self.lock_state().folder_syncs_do_nothing = true;
    }

    /// Flips one bit of what is stored.
    ///
    /// # Errors
    /// When there is no such file or byte.
    pub fn flip(&self, path: &Path, byte: usize, bit: u32) -> io::Result<()> {
        let mut state = self.lock_state();
        let inode = state.find(path)?;
        let inode = &mut state.inodes[inode];
        for image in [&mut inode.live, &mut inode.durable] {
            let byte = image.get_mut(byte).ok_or(io::ErrorKind::UnexpectedEof)?;
            *byte ^= 1 << (bit % 8);
        }
        Ok(())
    }

    /// What a read of the whole file gives.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn contents(&self, path: &Path) -> io::Result<Vec<u8>> {
        let state = self.lock_state();
        Ok(state.inodes[state.find(path)?].live.clone())
    }

    /// Replaces what is stored in a file, durably.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn replace(&self, path: &Path, contents: &[u8]) -> io::Result<()> {
        let mut state = self.lock_state();
        let inode = state.find(path)?;
        let inode = &mut state.inodes[inode];
        inode.live = contents.to_vec();
        inode.durable = contents.to_vec();
        inode.dirty.clear();
        Ok(())
    }

    /// Changes how many bytes the disk holds.
    pub fn set_capacity(&self, capacity: u64) {
        self.lock_state().capacity = capacity;
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, state: &State, inode: usize) -> Arc<dyn File> {
        Arc::new(Open {
            disk: self.clone(),
            inode,
            boot: state.boot,
        })
    }
}

impl State {
    fn find(&self, path: &Path) -> io::Result<usize> {
        self.live
            .get(path)
            .copied()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn change(&mut self, live: Rename, durable: Rename) {
        live.apply(&mut self.live);
        self.unsynced.push(durable);
    }

    fn free(&self) -> u64 {
        let named: BTreeSet<usize> = self.live.values().copied().collect();
        let used: usize = named
            .iter()
            .map(|inode| self.inodes[*inode].live.len())
            .sum();
        self.capacity.saturating_sub(used as u64)
    }

    fn end_process(&mut self) {
        self.boot += 1;
        self.locks.clear();
        self.failing_syncs = 0;
    }
}

impl Inode {
    fn persist(&mut self, sector: usize) {
        let range = sector * SECTOR..((sector + 1) * SECTOR).min(self.live.len());
        if self.durable.len() < range.end {
            self.durable.resize(range.end, 0);
        }
        self.durable[range.clone()].copy_from_slice(&self.live[range]);
    }
}

impl Files for SimDisk {
    fn create_zeroed(&self, path: &Path, size: u64) -> io::Result<Arc<dyn File>> {
        let mut state = self.lock_state();
        if state.live.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if state.free() < size {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let zeros = vec![0; usize::try_from(size).map_err(|_| io::ErrorKind::InvalidInput)?];
        let inode = state.inodes.len();
        state.inodes.push(Inode {
            live: zeros.clone(),
            durable: zeros,
            dirty: BTreeSet::new(),
        });
        state.change(
            Rename::Create(path.to_owned(), inode),
            Rename::Create(path.to_owned(), inode),
        );
        Ok(self.handle(&state, inode))
    }

    fn create_reserved(&self, path: &Path, size: u64) -> io::Result<Arc<dyn File>> {
        let file = self.create_zeroed(path, size)?;
        self.lock_state().reserved += 1;
        Ok(file)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let state = self.lock_state();
        let inode = state.find(path)?;
        Ok(self.handle(&state, inode))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        let state = self.lock_state();
        Ok(state
            .live
            .keys()
            .filter(|path| path.parent() == Some(folder))
            .cloned()
            .collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.lock_state();
        state.find(from)?;
        let moved = || Rename::Move(from.to_owned(), to.to_owned());
        state.change(moved(), moved());
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock_state();
        state.find(path)?;
        state.change(
            Rename::Remove(path.to_owned()),
            Rename::Remove(path.to_owned()),
        );
        Ok(())
    }

    fn create_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        let mut state = self.lock_state();
        if state.syncs_do_nothing || state.folder_syncs_do_nothing {
            return Ok(());
        }
        for rename in std::mem::take(&mut state.unsynced) {
            rename.apply(&mut state.durable);
        }
        Ok(())
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(self.lock_state().free())
    }

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        let mut state = self.lock_state();
        if !state.locks.insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Lock::new(Held {
            disk: self.clone(),
            path: path.to_owned(),
            boot: state.boot,
        }))
    }
}

struct Held {
    disk: SimDisk,
    path: PathBuf,
    boot: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.disk.lock_state();
        if state.boot == self.boot {
            state.locks.remove(&self.path);
        }
    }
}

struct Open {
    disk: SimDisk,
    inode: usize,
    boot: u64,
}

impl Open {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.lock_state();
        if state.boot != self.boot {
            return Err(io::Error::other("this file was open before the crash"));
        }
        act(&mut state)
    }
}

impl File for Open {
    fn size(&self) -> io::Result<u64> {
        self.with(|state| Ok(state.inodes[self.inode].live.len() as u64))
    }

    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let at = usize::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.with(|state| {
            let live = &state.inodes[self.inode].live;
            out.copy_from_slice(
                live.get(at..at + out.len())
                    .ok_or(io::ErrorKind::UnexpectedEof)?,
            );
            Ok(())
        })
    }

    fn write_at(&self, at: u64, parts: &[&[u8]]) -> io::Result<()> {
        let mut at = usize::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.with(|state| {
            let inode = &mut state.inodes[self.inode];
            for part in parts.iter().filter(|part| !part.is_empty()) {
                let end = at + part.len();
                if inode.live.len() < end {
                    inode.live.resize(end, 0);
                }
                inode.live[at..end].copy_from_slice(part);
                inode.dirty.extend(at / SECTOR..=(end - 1) / SECTOR);
                at = end;
            }
            // As a disk that takes whole blocks only.
            let end = at.next_multiple_of(BLOCK).min(inode.live.len());
            if parts.iter().any(|part| !part.is_empty()) && at < end {
                inode.live[at..end].fill(0);
                inode.dirty.extend(at / SECTOR..=(end - 1) / SECTOR);
            }
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(|state| {
            if state.failing_syncs > 0 {
                state.failing_syncs -= 1;
                state.inodes[self.inode].dirty.clear();
                return Err(io::Error::other("simulated failure of a sync"));
            }
            if !state.syncs_do_nothing {
                let inode = &mut state.inodes[self.inode];
                for sector in std::mem::take(&mut inode.dirty) {
                    inode.persist(sector);
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(seed: u64) -> SimDisk {
        SimDisk::new(Random::seeded(seed), 1 << 20)
    }

    #[test]
    fn synced_bytes_survive_and_others_are_torn_by_sector() {
        let (mut kept, mut lost, mut torn) = (0, 0, 0);
        for seed in 0..60 {
            let disk = disk(seed);
            let path = Path::new("d/f");
            let file = disk.create_zeroed(path, 8192).expect("created");
            disk.sync_folder(Path::new("d")).expect("synced");
            file.write_at(0, &[&[1; 1000]]).expect("written");
            file.sync_data().expect("synced");
            file.write_at(1000, &[&[2; 3000]]).expect("written");
            disk.crash();
            assert!(file.sync_data().is_err(), "handles die in a crash");
            let seen = disk.contents(path).expect("there");
            assert!(seen[..1000].iter().all(|b| *b == 1));
            match seen[1000..4000].iter().filter(|b| **b == 2).count() {
                3000 => kept += 1,
                0 => lost += 1,
                _ => torn += 1,
            }
        }
        assert!(kept > 0 && lost > 0 && torn > 0, "{kept} {lost} {torn}");
    }

    #[test]
    fn a_failed_sync_loses_what_it_should_have_written() {
        let disk = disk(1);
        let path = Path::new("f");
        let file = disk.create_zeroed(path, 512).expect("created");
        disk.sync_folder(Path::new("")).expect("synced");
        file.write_at(0, &[b"x"]).expect("written");
        disk.fail_syncs(1);
        assert!(file.sync_data().is_err());
        file.sync_data().expect("the next one claims success");
        assert_eq!(disk.contents(path).expect("there")[0], b'x');
        disk.crash();
        assert_eq!(disk.contents(path).expect("there")[0], 0);
    }

    #[test]
    fn names_survive_only_when_the_folder_was_synced() {
        let seen: BTreeSet<bool> = (0..40)
            .map(|seed| {
                let disk = disk(seed);
                disk.create_zeroed(Path::new("d/f"), 1).expect("created");
                disk.crash();
                !disk.list(Path::new("d")).expect("list").is_empty()
            })
            .collect();
        assert_eq!(seen.len(), 2, "some crashes keep the name and some don't");
    }

    #[test]
    fn the_disk_fills_up() {
        let disk = SimDisk::new(Random::seeded(1), 1000);
        disk.create_zeroed(Path::new("a"), 800).expect("created");
        let full = disk.create_zeroed(Path::new("b"), 300).err().expect("full");
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        disk.remove(Path::new("a")).expect("removed");
        disk.create_zeroed(Path::new("b"), 300).expect("room again");
        assert_eq!(disk.free_bytes(Path::new("")).expect("free"), 700);
    }
}
