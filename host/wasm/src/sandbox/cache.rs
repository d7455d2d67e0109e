//! Compiled components on disk: a cache that may be deleted at any time.

use super::artefact::Artefact;
use sha2::{Digest, Sha256};
use std::hash::{Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;
use tidemill_env::files::touch;
use tidemill_types::ByteSize;
use wasmtime::Engine;
use wasmtime::component::Component;

/// What the files of compiled components are called.
const SUFFIX: &str = "cwasm";
/// What files are called while they are written.
const UNFINISHED: &str = "tmp";

/// Artefacts by digest of the component and compatibility of the engine. Beyond its bound those go that
/// weren't used for longest.
pub(super) struct Cache {
    dir: Option<PathBuf>,
    most: ByteSize,
    compatibility: String,
    /// Numbers the files in the making.
    next: AtomicU64,
}

impl Cache {
    /// A cache of `most` bytes in `dir`, if there is one, for artefacts of `engine`. What an earlier
    /// process left unfinished there goes.
    pub(super) fn new(dir: Option<PathBuf>, most: ByteSize, engine: &Engine) -> Self {
        let mut hasher = StableHasher(Sha256::new());
        engine.precompile_compatibility_hash().hash(&mut hasher);
        let cache = Self {
            dir,
            most,
            compatibility: format!("{:x}", hasher.0.finalize()),
            next: AtomicU64::new(0),
        };
        for (path, ..) in cache.files(UNFINISHED) {
            // It is only in the way.
            let _ = std::fs::remove_file(path);
        }
        cache.prune(None);
        cache
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
        let component = artefact
            .load(engine)
            .inspect_err(|error| {
                tracing::warn!(path = %path.display(), %error, "a compiled component can't be loaded; it is compiled again");
            })
            .ok()?;
        if let Err(error) = touch(&path) {
            tracing::debug!(path = %path.display(), %error, "that a compiled component was used can't be noted");
        }
        Some(component)
    }

    /// Keeps the compiled form. A failure costs only time at the next start.
    pub(super) fn store(&self, digest: &str, component: &Component) {
        let Some(path) = self.path(digest) else {
            return;
        };
        let stored = Artefact::of(component)
            .map_err(io::Error::other)
            .and_then(|artefact| self.write(&path, &artefact.seal(&self.identity(digest))));
        match stored {
            Ok(()) => self.prune(Some(&path)),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "a compiled component can't be kept; it will be compiled again");
            }
        }
    }

    /// Takes away what wasn't used for longest until the rest fits; `fresh` stays in any case.
    fn prune(&self, fresh: Option<&Path>) {
        let mut files = self.files(SUFFIX);
        files.sort_by_key(|(_, _, used)| *used);
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        for (path, bytes, _) in files {
            if total <= self.most.0 {
                return;
            }
            if fresh == Some(path.as_path()) {
                continue;
            }
            match std::fs::remove_file(&path) {
                Ok(()) => total -= bytes,
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "a compiled component can't be taken away");
                }
            }
        }
    }

    /// Files of one kind with their bytes and when they were used last.
    fn files(&self, suffix: &str) -> Vec<(PathBuf, u64, SystemTime)> {
        let Some(Ok(entries)) = self.dir.as_ref().map(std::fs::read_dir) else {
            return Vec::new();
        };
        entries
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                let about = std::fs::metadata(&path).ok()?;
                let is_one = about.is_file() && path.extension().is_some_and(|is| is == suffix);
                is_one.then_some((path, about.len(), about.modified().ok()?))
            })
            .collect()
    }

    /// Whole or not at all: written beside its place and renamed.
    fn write(&self, path: &Path, file: &[u8]) -> io::Result<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let unfinished =
            path.with_extension(format!("{}-{number}.{UNFINISHED}", std::process::id()));
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
        Some(self.dir.as_ref()?.join(format!("{name}-{short}.{SUFFIX}")))
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
