//! Blocks of objects that were read from far away, kept in local files and never trusted.

use crate::Recent;
use bytes::Bytes;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidemill_types::{Error, Result};

/// A folder of blocks, bounded in bytes; what was used longest ago goes first. Each block is a file of
/// its own: its bytes, and behind them a checksum (crc32c, 4 bytes, little endian) over the object's name,
/// the block's number and those bytes. A block that doesn't check out counts as absent.
///
/// The folder is emptied when it is opened: what the process before knew of the order of use, and of
/// objects that were deleted since, is gone with it, and events that somebody had erased must not stay on
/// a disk because of a crash.
#[derive(Clone)]
pub struct BlockCache(Arc<Inner>);

struct Inner {
    folder: PathBuf,
    next: AtomicU64,
    blocks: Mutex<Recent<(Arc<str>, u64), PathBuf>>,
}

/// Bytes of the checksum behind a block.
const SUM: usize = 4;

impl BlockCache {
    /// Opens a folder, creating or emptying it, for so many bytes.
    ///
    /// # Errors
    /// `Unavailable` when that can't be done.
    pub fn open(folder: &Path, most: u64) -> Result<Self> {
        let cleared = match std::fs::remove_dir_all(folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => std::fs::create_dir_all(folder),
        };
        cleared.map_err(|error| {
            let shown = folder.display();
            Error::unavailable("cache-failed", format!("{shown} can't be emptied: {error}"))
        })?;
        Ok(Self(Arc::new(Inner {
            folder: folder.to_owned(),
            next: AtomicU64::new(0),
            blocks: Mutex::new(Recent::new(most)),
        })))
    }

    /// Whether a block is there, without reading it.
    pub fn has(&self, object: &str, block: u64) -> bool {
        self.0.lock().has(&(object.into(), block))
    }

    /// A block, if it is there and is what was put.
    pub async fn get(&self, object: &str, block: u64) -> Option<Bytes> {
        let key = (Arc::from(object), block);
        let file = self.0.lock().get(&key).cloned()?;
        let inner = self.0.clone();
        let read = move || {
            let found = std::fs::read(&file).ok().and_then(|it| checked(it, &key));
            if found.is_none() {
                tracing::warn!(file = %file.display(), object = &*key.0, "a block in the cache is damaged and will be fetched again");
                inner.drop_block(&key, &file);
            }
            found
        };
        tokio::task::spawn_blocking(read).await.ok().flatten()
    }

    /// Keeps a block. That it can't be written is said in the log and does no harm.
    pub async fn put(&self, object: &str, block: u64, body: Bytes) {
        let key = (Arc::from(object), block);
        let inner = self.0.clone();
        let write = move || {
            let nth = inner.next.fetch_add(1, Ordering::Relaxed);
            let file = inner.folder.join(format!("{nth:016x}"));
            let sum = checksum(&key, &body).to_le_bytes();
            if let Err(error) = std::fs::write(&file, [&body[..], &sum].concat()) {
                tracing::warn!(%error, file = %file.display(), "a block can't be kept in the cache");
                remove(&file);
                return;
            }
            let bytes = (body.len() + SUM) as u64;
            let gone = inner.lock().put(key, file, bytes);
            gone.iter().for_each(|file| remove(file));
        };
        // It is as good as not kept when nobody waits for it any more.
        let _ = tokio::task::spawn_blocking(write).await;
    }

    /// Lets go of all blocks of an object.
    pub async fn forget(&self, object: &str) {
        let gone = self.0.lock().remove_all(|(of, _)| **of == *object);
        let remove_all = move || gone.iter().for_each(|file| remove(file));
        let _ = tokio::task::spawn_blocking(remove_all).await;
    }

    /// Bytes that are taken.
    pub fn bytes(&self) -> u64 {
        self.0.lock().bytes()
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Recent<(Arc<str>, u64), PathBuf>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drop_block(&self, key: &(Arc<str>, u64), file: &Path) {
        let mut blocks = self.lock();
        // Another may have taken its place meanwhile.
        if blocks.get(key).is_some_and(|now| now == file) {
            blocks.remove(key);
        }
        drop(blocks);
        remove(file);
    }
}

/// A file that stays is removed at the next start.
fn remove(file: &Path) {
    let _ = std::fs::remove_file(file);
}

fn checked(mut file: Vec<u8>, key: &(Arc<str>, u64)) -> Option<Bytes> {
    let (body, sum) = file.split_last_chunk::<SUM>()?;
    let good = checksum(key, body) == u32::from_le_bytes(*sum);
    file.truncate(file.len() - SUM);
    good.then(|| file.into())
}

fn checksum((object, block): &(Arc<str>, u64), body: &[u8]) -> u32 {
    let mut sum = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    sum.update(object.as_bytes());
    sum.update(&block.to_le_bytes());
    sum.update(body);
    u32::try_from(sum.finalize()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(folder: &Path) -> Vec<PathBuf> {
        let all = std::fs::read_dir(folder).expect("folder");
        all.map(|file| file.expect("file").path()).collect()
    }

    #[tokio::test]
    async fn blocks_are_kept_up_to_a_bound_and_let_go() {
        let dir = tempfile::tempdir().expect("dir");
        let folder = dir.path().join("cache/segments");
        let cache = BlockCache::open(&folder, 25).expect("opens");
        assert_eq!(cache.get("a", 0).await, None);
        for (nth, body) in (0..).zip(["0123456", "abc"]) {
            cache.put("a", nth, body.into()).await;
        }
        assert_eq!(cache.get("a", 0).await, Some("0123456".into()));
        assert_eq!(cache.bytes(), 18);
        cache.put("b", 0, "xyz4".into()).await;
        assert_eq!(cache.get("a", 1).await, None, "it was used longest ago");
        assert_eq!((cache.bytes(), files(&folder).len()), (19, 2));
        cache.forget("a").await;
        assert_eq!((cache.has("a", 0), cache.has("b", 0)), (false, true));
        assert_eq!(files(&folder).len(), 1);
        let again = BlockCache::open(&folder, 25).expect("opens");
        assert_eq!((again.get("b", 0).await, files(&folder).len()), (None, 0));
    }

    #[tokio::test]
    async fn a_block_that_is_not_what_was_put_counts_as_absent() {
        let dir = tempfile::tempdir().expect("dir");
        let cache = BlockCache::open(dir.path(), 1000).expect("opens");
        let body = Bytes::from_static(b"0123456789");
        for damage in [0, 9, 13] {
            cache.put("a", 3, body.clone()).await;
            let file = files(dir.path()).remove(0);
            let mut bytes = std::fs::read(&file).expect("read");
            bytes[damage] ^= 1;
            std::fs::write(&file, bytes).expect("write");
            assert_eq!(cache.get("a", 3).await, None);
            assert_eq!((cache.bytes(), files(dir.path()).len()), (0, 0));
        }
        // Another block's file in its place.
        cache.put("a", 3, body.clone()).await;
        let file = files(dir.path()).remove(0);
        let bytes = std::fs::read(&file).expect("read");
        cache.forget("a").await;
        cache.put("a", 4, "other".into()).await;
        std::fs::write(files(dir.path()).remove(0), bytes).expect("write");
        assert_eq!(cache.get("a", 4).await, None);
        cache.put("a", 5, body.clone()).await;
        std::fs::remove_file(files(dir.path()).remove(0)).expect("removed");
        assert_eq!(cache.get("a", 5).await, None);
        cache.put("a", 5, body.clone()).await;
        assert_eq!(cache.get("a", 5).await, Some(body));
    }
}
