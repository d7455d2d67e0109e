//! Object storage: a local folder, S3, GCS or Azure behind five verbs.

mod create;
#[cfg(any(test, feature = "sim"))]
mod memory;
mod probe;
mod steady;
mod store;
#[cfg(test)]
mod tests;
mod watch;

#[cfg(any(test, feature = "sim"))]
pub use memory::{Faults, MemoryObjects};
pub use steady::Patience;
pub use watch::Failing;

use crate::files::FreshFile;
use crate::metrics::Metrics;
use crate::{Clock, Random};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use steady::Steady;
use tidemill_types::{Error, Result};
use watch::Watch;

/// What became of a create-if-absent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Created {
    /// We created it (or, after an ambiguous answer, found our own nonce there).
    Ours,
    /// Somebody else's object is there.
    Exists,
}

/// Where objects are kept. Cheap to clone. Paths are relative to the root, with `/` between parts.
#[derive(Clone)]
pub struct Objects {
    backend: Arc<dyn Backend>,
    watch: Arc<Watch>,
}

/// The verbs a storage must offer. A backend makes one attempt; [`Objects`] repeats it.
#[async_trait::async_trait]
pub trait Backend: Send + Sync {
    /// The whole object; `object-not-found` if it is absent.
    async fn get(&self, path: &str) -> Result<Bytes>;
    /// Exactly these bytes of an object; `object-not-found` if it is absent, `Corrupt` if it is shorter.
    async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes>;
    /// Its size, or `None` if it is absent.
    async fn size(&self, path: &str) -> Result<Option<u64>>;
    /// Creates the object if it is absent, by a single put. [`Objects`] resolves an ambiguous answer by
    /// reading back: `body` must hold something that nobody else would write (a nonce).
    async fn create(&self, path: &str, body: Bytes) -> Result<Created>;
    /// Uploads a local file under a name nobody else uses; not conditional, so it may be in parts.
    /// Durable when it returns.
    async fn upload(&self, path: &str, file: &std::path::Path) -> Result<()>;
    /// Whether an uploaded file stays where it is, with one more name, so that it is what gets synced; others
    /// are read back and then gone.
    fn keeps_files(&self) -> bool {
        false
    }
    /// All paths below a folder (`a/b/`; the empty prefix is everything), in no order.
    async fn list(&self, prefix: &str) -> Result<Vec<String>>;
    /// Deletes; absent is fine.
    async fn delete(&self, path: &str) -> Result<()>;
}

impl Objects {
    /// Over a backend of one's own (simulation), which is asked once.
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        let (clock, random) = (Clock::system(), Random::system());
        Self::patient(
            backend,
            Patience::NONE,
            &clock,
            &random,
            &Metrics::default(),
        )
    }

    /// Over a backend of one's own, asked with patience.
    pub fn patient(
        backend: Arc<dyn Backend>,
        patience: Patience,
        clock: &Clock,
        random: &Random,
        metrics: &Metrics,
    ) -> Self {
        let watch = Arc::new(Watch::new(metrics));
        let steady = Steady {
            inner: backend,
            patience,
            clock: clock.clone(),
            random: random.clone(),
            watch: watch.clone(),
        };
        Self {
            backend: Arc::new(steady),
            watch,
        }
    }

    /// As [`Objects::open_patiently`] with what is usual, counted nowhere.
    ///
    /// # Errors
    /// As there.
    pub fn open(url: &str, options: &[(String, String)]) -> Result<Self> {
        let (clock, random, metrics) = (Clock::system(), Random::system(), Metrics::default());
        Self::open_patiently(url, options, Patience::default(), &clock, &random, &metrics)
    }

    /// Opens what `url` names: a local folder (a path, created if missing), `s3://bucket/prefix`, `gs://…` or `az://…`;
    /// credentials and endpoints come from `options` (keys as object_store names them, such as
    /// `aws_endpoint`) and, behind them, from the usual environment variables of each cloud.
    ///
    /// # Errors
    /// `invalid-storage` when the address or an option makes no sense.
    pub fn open_patiently(
        url: &str,
        options: &[(String, String)],
        patience: Patience,
        clock: &Clock,
        random: &Random,
        metrics: &Metrics,
    ) -> Result<Self> {
        let backend = store::open(url, options, patience.request)?;
        Ok(Self::patient(backend, patience, clock, random, metrics))
    }

    /// Since when the storage doesn't do what it is asked; `None` if the last request succeeded.
    pub fn failing(&self) -> Option<Failing> {
        self.watch.failing()
    }

    /// Begins a local file that is to be uploaded, in the place of one that a crash left there.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn begin_file(&self, path: &std::path::Path) -> std::io::Result<FreshFile> {
        FreshFile::create(path, self.backend.keeps_files())
    }

    /// Proves that create-if-absent works here: creates, is refused a second time, and of sixteen at
    /// once exactly one wins. Removes what it made.
    ///
    /// # Errors
    /// `storage-not-conditional` where the storage ignores the condition: it can't be used.
    pub async fn probe(&self, nonce: &str) -> Result<()> {
        probe::probe(self, nonce).await
    }
}

impl std::ops::Deref for Objects {
    type Target = dyn Backend;
    fn deref(&self) -> &Self::Target {
        &*self.backend
    }
}

fn absent(path: &str) -> Error {
    Error::not_found(
        "object-not-found",
        format!("there is no object {path:?} in the storage"),
    )
}

fn too_short(path: &str, range: &Range<u64>) -> Error {
    Error::corrupt(format!(
        "the object {path:?} ends before byte {}, which it had when it was written",
        range.end
    ))
}
