//! Compiled components on disk: a cache that may be deleted at any time.

use super::artefact::Artefact;
use sha2::{Digest, Sha256};
use std::hash::{Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use wasmtime::Engine;
use wasmtime::component::Component;

/// Artefacts by digest of the component and compatibility of the engine.
pub(super) struct Cache {
    dir: Option<PathBuf>,
    compatibility: String,
    /// Numbers the files in the making.
    next: AtomicU64,
}

impl Cache {
    /// A cache in `dir`, if there is one, for artefacts of `engine`.
    pub(super) fn new(dir: Option<PathBuf>, engine: &Engine) -> Self {
        let mut hasher = StableHasher(Sha256::new());
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Self {
            dir,
            compatibility: format!("{:x}", hasher.0.finalize()),
            next: AtomicU64::new(0),
        }
    }

    /// The compiled form of the component with this digest. Whatever is wrong with the file means that
    /// there is none.
    pub(super) fn load(&self, digest: &str, engine: &Engine) -> Option<Component> {
        let path = self.path(digest)?;
        let file = match std::fs::read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "a compiled component can't be read; it is compiled again");
                return None;
            }
        };
        let Some(artefact) = Artefact::unseal(&file, &self.identity(digest)) else {
            tracing::warn!(path = %path.display(), "a compiled component is damaged; it is compiled again");
            return None;
        };
        artefact
            .load(engine)
            .inspect_err(|error| {
                tracing::warn!(path = %path.display(), %error, "a compiled component can't be loaded; it is compiled again");
            })
            .ok()
    }

    /// Keeps the compiled form. A failure costs only time at the next start.
    pub(super) fn store(&self, digest: &str, component: &Component) {
        let Some(path) = self.path(digest) else {
            return;
        };
        let stored = Artefact::of(component)
            .map_err(io::Error::other)
            .and_then(|artefact| self.write(&path, &artefact.seal(&self.identity(digest))));
        if let Err(error) = stored {
            tracing::warn!(path = %path.display(), %error, "a compiled component can't be kept; it will be compiled again");
        }
    }

    /// Whole or not at all: written beside its place and renamed.
    fn write(&self, path: &Path, file: &[u8]) -> io::Result<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let unfinished = path.with_extension(format!("{}-{number}.tmp", std::process::id()));
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let written = std::fs::File::create(&unfinished)
            .and_then(|mut out| out.write_all(file))
            .and_then(|()| std::fs::rename(&unfinished, path));
        if written.is_err() {
            // It may not exist; the error that counts is the one above.
            let _ = std::fs::remove_file(&unfinished);
        }
        written
    }

    fn path(&self, digest: &str) -> Option<PathBuf> {
        let name = digest.trim_start_matches("sha256:");
        let short = self.compatibility.get(..16)?;
        Some(self.dir.as_ref()?.join(format!("{name}-{short}.cwasm")))
    }

    fn identity(&self, digest: &str) -> String {
        format!("{digest} for {}", self.compatibility)
    }
}

/// A hash that is the same in every process, which the standard library's does not promise.
struct StableHasher(Sha256);

impl Hasher for StableHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
    fn finish(&self) -> u64 {
        let digest = self.0.clone().finalize();
        digest
            .iter()
            .take(8)
            .fold(0, |n, byte| n << 8 | u64::from(*byte))
    }
}
