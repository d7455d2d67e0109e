//! Object storage in memory that can be told to refuse, and stores that use it.

use crate::{Settings, Store};
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use tidemill_env::metrics::Metrics;
use tidemill_env::objects::{Backend, Created, Objects};
use tidemill_types::{ByteSize, CommitSeq, Error, Result};

#[derive(Default)]
pub(super) struct Bucket {
    objects: Mutex<BTreeMap<String, Bytes>>,
    /// After so many objects more, one is refused; 0: none is.
    pub(super) refuses: AtomicU32,
}

impl Bucket {
    /// Paths and sizes of what is in it.
    pub(super) fn listed(&self) -> BTreeMap<String, usize> {
        let objects = self.objects.lock().expect("not poisoned");
        let sizes = objects.iter();
        sizes
            .map(|(path, body)| (path.clone(), body.len()))
            .collect()
    }

    /// Bytes of all that is in it.
    pub(super) fn bytes(&self) -> usize {
        self.listed().values().sum()
    }
}

pub(super) fn bucket() -> (Arc<Bucket>, Objects) {
    let bucket = Arc::new(Bucket::default());
    let objects = Objects::new(Arc::clone(&bucket) as Arc<dyn Backend>);
    (bucket, objects)
}

#[async_trait]
impl Backend for Bucket {
    async fn get(&self, path: &str) -> Result<Bytes> {
        let objects = self.objects.lock().expect("not poisoned");
        objects
            .get(path)
            .cloned()
            .ok_or_else(|| Error::not_found("object-not-found", path))
    }
    async fn get_range(&self, _: &str, _: Range<u64>) -> Result<Bytes> {
        Err(Error::internal("not needed"))
    }
    async fn size(&self, _: &str) -> Result<Option<u64>> {
        Err(Error::internal("not needed"))
    }
    async fn create(&self, path: &str, body: Bytes) -> Result<Created> {
        let left = self.refuses.load(Ordering::SeqCst);
        self.refuses.store(left.saturating_sub(1), Ordering::SeqCst);
        if left == 1 {
            return Err(Error::invalid("told-to-refuse", path));
        }
        let mut objects = self.objects.lock().expect("not poisoned");
        if objects.contains_key(path) {
            return Ok(Created::Exists);
        }
        objects.insert(path.to_owned(), body);
        Ok(Created::Ours)
    }
    async fn upload(&self, _: &str, _: &Path) -> Result<()> {
        Err(Error::internal("not needed"))
    }
    async fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let objects = self.objects.lock().expect("not poisoned");
        let paths = objects.keys().filter(|path| path.starts_with(prefix));
        Ok(paths.cloned().collect())
    }
    async fn delete(&self, path: &str) -> Result<()> {
        self.objects.lock().expect("not poisoned").remove(path);
        Ok(())
    }
}

pub(super) fn opened(dir: &tempfile::TempDir) -> Store {
    let settings = Settings {
        dir: dir.path().to_owned(),
        memory_bytes: ByteSize::mib(64),
        dirty_bytes: ByteSize::mib(8),
        store_bytes: ByteSize::mib(8),
        snapshot_memory: ByteSize::mib(96),
    };
    Store::open(settings, &Metrics::default()).expect("opens")
}

/// A start as a host makes it: over the last snapshot and the sections behind it. Gives the last commit.
pub(super) async fn started(
    store: &Store,
    objects: &Objects,
    snapshot: Option<(&str, CommitSeq)>,
    journal: &BTreeMap<u64, Vec<u8>>,
) -> CommitSeq {
    let from = match snapshot {
        Some((path, commit)) if store.reflects() < commit => {
            let restored = store.restore(objects, path).await.expect("restores");
            assert_eq!(restored, commit);
            commit
        }
        Some((path, commit)) => {
            store.since(path);
            commit
        }
        None => store.reflects(),
    };
    let mut last = from;
    for (commit, section) in journal.range(from.0 + 1..) {
        last = CommitSeq(*commit);
        store.replay(last, section).expect("applies");
    }
    store.durable(last);
    last
}

/// 480 bytes that don't shrink.
pub(super) fn random(seed: u64) -> Vec<u8> {
    let mut seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed.to_le_bytes()
    };
    (0..60).flat_map(|_| next()).collect()
}
