//! Worlds in which a promise that the log builds on is broken, below `env` and nowhere in the log: the
//! simulation must notice each of them, or it proves nothing.

use bytes::Bytes;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_env::Random;
use tidemill_env::files::SimDisk;
use tidemill_env::objects::{Backend, Created, MemoryObjects};
use tidemill_types::{Error, Result};

/// What is broken about the world, beside what must be survived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Faulty {
    Nothing,
    /// Syncs do nothing.
    Syncs,
    /// Syncs of folders do nothing.
    FolderSyncs,
    /// Objects are deleted before the manifest that doesn't name them is committed.
    Deletes,
    /// Create-if-absent overwrites, so that nobody is fenced.
    Fences,
    /// A manifest whose put gave no clear answer is taken for not committed.
    Ambiguity,
}

impl Faulty {
    pub(super) fn disk(self, disk: &SimDisk) {
        match self {
            Self::Syncs => disk.break_syncs(),
            Self::FolderSyncs => disk.break_folder_syncs(),
            _ => {}
        }
    }

    pub(super) fn bucket(self, random: Random) -> MemoryObjects {
        let bucket = MemoryObjects::new(random);
        match self {
            Self::Fences => bucket.ignoring_conditions(),
            _ => bucket,
        }
    }

    /// How many answers get lost at least, in percent, where that is what it takes to notice.
    pub(super) fn lost_answers(self) -> u64 {
        match self {
            Self::Ambiguity => 30,
            _ => 0,
        }
    }

    /// The bucket as the log sees it.
    pub(super) fn backend(self, bucket: Arc<MemoryObjects>, random: Random) -> Arc<dyn Backend> {
        match self {
            Self::Deletes | Self::Ambiguity => Arc::new(Meddling {
                bucket,
                random,
                eager: self == Self::Deletes,
                committed: Mutex::default(),
            }),
            _ => bucket,
        }
    }
}

/// A door that does what must not be done when a manifest is put.
struct Meddling {
    bucket: Arc<MemoryObjects>,
    random: Random,
    /// Deletes what a manifest doesn't name before it is committed, which then fails now and then.
    /// Otherwise: deletes what a manifest was to name when its put gives no clear answer, as if it
    /// had failed.
    eager: bool,
    /// Segments that the last manifest named.
    committed: Mutex<BTreeSet<String>>,
}

impl Meddling {
    fn segments(&self) -> impl Iterator<Item = String> {
        let all = self.bucket.paths().into_iter();
        all.filter(|path| path.starts_with(crate::paths::TOPICS))
    }

    async fn put_manifest(&self, path: &str, body: Bytes) -> Result<Created> {
        let text = String::from_utf8_lossy(&body).into_owned();
        let named = |segment: &String| text.contains(segment.as_str());
        let refused = || Error::unavailable("storage-refused", "taken for a failure");
        if self.eager {
            for segment in self.segments().filter(|segment| !named(segment)) {
                self.bucket.delete(&segment).await?;
            }
            if self.random.below(4) == 0 {
                return Err(refused());
            }
            return self.bucket.create(path, body).await;
        }
        let created = self.bucket.create(path, body.clone()).await;
        match created {
            Ok(created) => {
                let mut committed = self.committed();
                *committed = self.segments().filter(named).collect();
                Ok(created)
            }
            Err(_) => {
                let before = self.committed().clone();
                let fresh = self.segments().filter(named);
                for segment in fresh.filter(|segment| !before.contains(segment)) {
                    self.bucket.delete(&segment).await?;
                }
                Err(refused())
            }
        }
    }

    fn committed(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.committed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait::async_trait]
impl Backend for Meddling {
    async fn get(&self, path: &str) -> Result<Bytes> {
        self.bucket.get(path).await
    }
    async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        self.bucket.get_range(path, range).await
    }
    async fn size(&self, path: &str) -> Result<Option<u64>> {
        self.bucket.size(path).await
    }
    async fn create(&self, path: &str, body: Bytes) -> Result<Created> {
        match path.starts_with("manifests/") {
            true => self.put_manifest(path, body).await,
            false => self.bucket.create(path, body).await,
        }
    }
    async fn upload(&self, path: &str, file: &Path) -> Result<()> {
        self.bucket.upload(path, file).await
    }
    async fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.bucket.list(prefix).await
    }
    async fn delete(&self, path: &str) -> Result<()> {
        self.bucket.delete(path).await
    }
}
