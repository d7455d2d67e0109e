//! Local files as the journal needs them: written in place, synced, renamed, never trusted.

mod aligned;
mod blocks;
mod direct;
mod disk;
mod fresh;
#[cfg(any(test, feature = "sim"))]
mod sim;

pub use blocks::BlockCache;
pub use disk::Disk;
pub use fresh::FreshFile;
#[cfg(any(test, feature = "sim"))]
pub use sim::SimDisk;

use bytes::Bytes;
use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory tree on a disk. Every method blocks.
pub trait Files: Send + Sync {
    /// Creates a file of `size` bytes, all written as zeros and synced. Fails if it exists; what is
    /// left of a failed creation is removed.
    fn create_zeroed(&self, path: &Path, size: u64) -> io::Result<Arc<dyn File>>;
    /// The same, but that its space may only be set aside for it: made in no time, and written sooner
    /// than one of zeros and then events in large steps, later in small ones.
    fn create_reserved(&self, path: &Path, size: u64) -> io::Result<Arc<dyn File>> {
        self.create_zeroed(path, size)
    }
    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>>;
    /// Opens an existing file only to read it, also where nothing may be written.
    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.open(path)
    }
    /// File names (not folders) in a folder, in no order; none if the folder doesn't exist.
    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>>;
    /// Renames a file; durable only after [`Files::sync_folder`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Creates a folder and its parents.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in a folder durable.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
    /// Bytes still free for us on the file system of `path`.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;
    /// Takes the lock of a file, creating the file if need be; it is held until the answer is dropped
    /// or the process ends. [`io::ErrorKind::WouldBlock`] when somebody else holds it.
    fn lock(&self, path: &Path) -> io::Result<Lock>;
}

/// A held lock: drop it to release.
pub struct Lock(#[expect(dead_code, reason = "held for its drop")] Box<dyn Any + Send + Sync>);

impl Lock {
    /// A lock that is released when `held` is dropped.
    pub fn new(held: impl Any + Send + Sync) -> Self {
        Self(Box::new(held))
    }
}

/// An open file.
pub trait File: Send + Sync {
    /// Its length.
    fn size(&self) -> io::Result<u64>;
    /// Fills `out` from position `at`; an error if the file ends before.
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()>;
    /// The same into memory of its own, which may be memory that earlier readers have let go.
    fn read(&self, at: u64, len: usize) -> io::Result<Bytes> {
        let mut bytes = vec![0; len];
        self.read_at(at, &mut bytes)?;
        Ok(bytes.into())
    }
    /// Writes all of `parts`, one behind the other, from position `at` on, in one go where possible. What
    /// lies behind them up to the next multiple of 4096 may become zeros.
    fn write_at(&self, at: u64, parts: &[&[u8]]) -> io::Result<()>;
    /// `fdatasync`. An error is final: what was written may be lost although a later sync succeeds.
    fn sync_data(&self) -> io::Result<()>;
}

/// Says of a file that it was used now: sets when it was changed last. Caches go by it, nothing else.
///
/// # Errors
/// When the file can't be opened for writing.
#[expect(
    clippy::disallowed_methods,
    reason = "the file system's clock is the machine's"
)]
pub fn touch(path: &Path) -> io::Result<()> {
    std::fs::File::options()
        .write(true)
        .open(path)?
        .set_modified(std::time::SystemTime::now())
}

/// Whether an error, or what it was caused by, is a full disk or a used-up quota.
pub fn is_out_of_space(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(one) = cause {
        let kind = one.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(
            kind,
            Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        ) {
            return true;
        }
        cause = one.source();
    }
    false
}
