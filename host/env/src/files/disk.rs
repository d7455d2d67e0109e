//! The machine's disk.

use super::aligned::{BLOCK, Blocks, Kept};
use super::direct::Direct;
use super::{File, Files, Lock};
use bytes::Bytes;
use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Zeros are written and synced in steps of this size, so that a writer beside never waits behind a
/// whole file of them.
const ZERO_STEP: usize = 1 << 20;

/// Most parts one `pwritev` takes (Linux's `IOV_MAX`).
const MOST_PARTS: usize = 1024;

/// Memory that is kept unless told otherwise.
const KEPT: usize = 16 << 20;

/// The machine's disk. Clones share the memory that is read into and written from.
#[derive(Clone, Debug)]
pub struct Disk {
    kept: Arc<Kept>,
}

impl Default for Disk {
    fn default() -> Self {
        Self::keeping(KEPT)
    }
}

impl Disk {
    /// Keeps no more than so many bytes of memory that was read into, to be used again, and as many of what was written
    /// from, however many files are open.
    pub fn keeping(bytes: usize) -> Self {
        Self {
            kept: Kept::most(bytes),
        }
    }

    /// A new file of so many bytes, which `fill` has to give it; none if that fails.
    fn create(
        &self,
        path: &Path,
        size: u64,
        fill: impl FnOnce(&fs::File, &Open) -> io::Result<()>,
    ) -> io::Result<Arc<dyn File>> {
        let created = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        let filled = || {
            let file = match size.is_multiple_of(BLOCK as u64) {
                true => Open::existing(path, &self.kept)?,
                false => Open::Cached(created.try_clone()?),
            };
            fill(&created, &file)?;
            Ok(file)
        };
        filled()
            .map(|file| Arc::new(file) as Arc<dyn File>)
            .inspect_err(|_| {
                // The first error is the one worth telling.
                let _ = fs::remove_file(path);
            })
    }
}

/// An open file: past the page cache where that is possible.
enum Open {
    Direct(Direct),
    Cached(fs::File),
}

impl Open {
    fn existing(path: &Path, kept: &Arc<Kept>) -> io::Result<Self> {
        if let Some(direct) = Direct::open(path, kept)? {
            return Ok(Self::Direct(direct));
        }
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Self::Cached(file))
    }

    fn sync_all(&self) -> io::Result<()> {
        match self {
            Self::Direct(file) => file.sync_all(),
            Self::Cached(file) => file.sync_all(),
        }
    }
}

impl Files for Disk {
    fn create_zeroed(&self, path: &Path, size: u64) -> io::Result<Arc<dyn File>> {
        self.create(path, size, |_, file| write_zeros(file, size))
    }

    fn create_reserved(&self, path: &Path, size: u64) -> io::Result<Arc<dyn File>> {
        let none = rustix::fs::FallocateFlags::empty();
        self.create(path, size, |created, file| {
            match rustix::fs::fallocate(created, none, 0, size) {
                Ok(()) => file.sync_all(),
                // This file system can't.
                Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                    write_zeros(file, size)
                }
                Err(error) => Err(error.into()),
            }
        })
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(Open::existing(path, &self.kept)?))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(Open::Cached(fs::File::open(path)?)))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                files.push(entry.path());
            }
        }
        Ok(files)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(path)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Lock::new(file)),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

fn write_zeros(file: &Open, size: u64) -> io::Result<()> {
    // Of its own: what the journal is written from isn't for this.
    let mut zeros = Blocks::new(ZERO_STEP);
    let mut at = 0;
    while at < size {
        let step = usize::try_from(size - at)
            .unwrap_or(ZERO_STEP)
            .min(ZERO_STEP);
        match file {
            Open::Direct(file) => file.write_blocks(at, zeros.get(step))?,
            Open::Cached(file) => file.write_all_at(zeros.get(step), at)?,
        }
        file.sync_data()?;
        at += step as u64;
    }
    file.sync_all()
}

impl File for Open {
    fn size(&self) -> io::Result<u64> {
        match self {
            Self::Direct(file) => file.size(),
            Self::Cached(file) => Ok(file.metadata()?.len()),
        }
    }

    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Direct(file) => file.read_at(at, out),
            Self::Cached(file) => file.read_exact_at(out, at),
        }
    }

    fn read(&self, at: u64, len: usize) -> io::Result<Bytes> {
        match self {
            Self::Direct(file) => file.read(at, len),
            Self::Cached(file) => {
                let mut bytes = vec![0; len];
                file.read_exact_at(&mut bytes, at)?;
                Ok(bytes.into())
            }
        }
    }

    fn write_at(&self, at: u64, parts: &[&[u8]]) -> io::Result<()> {
        match self {
            Self::Direct(file) => file.write_at(at, parts),
            Self::Cached(file) => write_cached(file, at, parts),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        match self {
            Self::Direct(file) => file.sync_data(),
            Self::Cached(file) => file.sync_data(),
        }
    }
}

fn write_cached(file: &fs::File, mut at: u64, parts: &[&[u8]]) -> io::Result<()> {
    for parts in parts.chunks(MOST_PARTS) {
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut rest = slices.as_mut_slice();
        // Skips empty parts in front, so that a write of nothing isn't taken for a full disk.
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match rustix::io::pwritev(file, rest, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    at += written as u64;
                    IoSlice::advance_slices(&mut rest, written);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_zeroed_written_in_parts_renamed_and_listed() {
        for size in [ZERO_STEP + 10, ZERO_STEP + BLOCK] {
            life_of_a_file(size as u64, Disk::create_zeroed);
            life_of_a_file(size as u64, Disk::create_reserved);
        }
    }

    fn life_of_a_file(size: u64, create: fn(&Disk, &Path, u64) -> io::Result<Arc<dyn File>>) {
        let disk = Disk::default();
        let dir = tempfile::tempdir().expect("dir");
        let folder = dir.path().join("a/b");
        disk.create_folder(&folder).expect("folder");
        let (one, two) = (folder.join("one"), folder.join("two"));
        let file = create(&disk, &one, size).expect("created");
        assert!(
            create(&disk, &one, 1).is_err(),
            "never over an existing file"
        );
        assert_eq!(file.size().expect("size"), size);
        let many: Vec<&[u8]> = std::iter::repeat_n(b"xy".as_slice(), MOST_PARTS + 3).collect();
        file.write_at(5, &[b"", b"ab", b"", b"c"]).expect("written");
        file.write_at(100, &many).expect("written");
        file.write_at(100, &[]).expect("nothing to write");
        file.sync_data().expect("synced");
        disk.rename(&one, &two).expect("renamed");
        disk.sync_folder(&folder).expect("synced");
        assert_eq!(
            disk.list(&folder).expect("list"),
            std::slice::from_ref(&two)
        );
        let mut seen = [9; 10];
        let again = disk.open(&two).expect("open");
        again.read_at(0, &mut seen).expect("read");
        assert_eq!(&seen, b"\0\0\0\0\0abc\0\0");
        let mut last = [9];
        again.read_at(size - 1, &mut last).expect("read");
        assert_eq!(last, [0]);
        let mut seen = [0; 4];
        again
            .read_at(100 + 2 * (MOST_PARTS as u64 + 2), &mut seen)
            .expect("read");
        assert_eq!(&seen, b"xy\0\0");
        assert!(
            again.read_at(size - 1, &mut seen).is_err(),
            "beyond the end"
        );
        disk.remove(&two).expect("removed");
        assert!(disk.list(&folder).expect("list").is_empty());
        assert!(disk.list(&folder.join("none")).expect("list").is_empty());
        assert!(disk.free_bytes(dir.path()).expect("free") > 0);
    }

    #[test]
    fn a_lock_is_held_once() {
        let disk = Disk::default();
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("lock");
        let held = disk.lock(&path).expect("free");
        let refused = disk.lock(&path).err().expect("held");
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(held);
        assert!(disk.lock(&path).is_ok());
    }
}
