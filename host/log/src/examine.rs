//! A log looked at from outside, without being opened: what lies in its journal, whether journal,
//! manifest and objects fit together, what a start would make of it, and how to go on where a start
//! refuses.
//!
//! Nothing is changed but by [`Directory::repair`], and nothing is decided here that a start decides:
//! frames are read and replayed by the same code.

mod journal;
mod repair;
mod verify;

#[cfg(test)]
mod tests;

pub use journal::{FileView, FrameView, JournalView, KindTotal, SectionView, SliceView};
pub use repair::{Loss, Plan};
pub use verify::{Finding, Verified, Weight};

use crate::journal::{Survey, disk_error, survey};
use crate::keeper::Keeper;
use crate::manifest::Manifest;
use crate::marks::Saved;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidemill_env::Random;
use tidemill_env::files::{Files, Lock};
use tidemill_env::objects::Objects;
use tidemill_types::{Error, Result};

/// A data directory. While this lives no host starts on it, unless one was running before.
pub struct Directory {
    files: Arc<dyn Files>,
    dir: PathBuf,
    /// `None` while a host has it, or where nothing may be written.
    lock: Option<Lock>,
    running: bool,
}

/// What storage knows of the log.
struct Known {
    manifest: Option<Manifest>,
    marks: Saved,
}

impl Directory {
    /// Takes a data directory for looking at it.
    ///
    /// # Errors
    /// `no-journal` where there is none; whatever the disk says.
    pub fn open(files: Arc<dyn Files>, dir: &Path) -> Result<Self> {
        let journal = dir.join("journal");
        let listed = files
            .list(&journal)
            .map_err(|e| disk_error(&journal, "can't be listed", &e))?;
        if listed.is_empty() {
            return Err(Error::not_found(
                "no-journal",
                format!(
                    "there is no journal in {}: name the data directory of a host, the one that has the folder \"journal\"",
                    dir.display()
                ),
            ));
        }
        let path = dir.join("lock");
        let (lock, running) = match files.lock(&path) {
            Ok(lock) => (Some(lock), false),
            Err(error) => match error.kind() {
                std::io::ErrorKind::WouldBlock => (None, true),
                // Nobody can run a host where nothing can be written.
                std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied => {
                    (None, false)
                }
                _ => return Err(disk_error(&path, "can't be locked", &error)),
            },
        };
        Ok(Self {
            files,
            dir: dir.to_owned(),
            lock,
            running,
        })
    }

    /// Whether a host has it: what is seen then may be half written or gone in a moment.
    pub fn is_running(&self) -> bool {
        self.running
    }

    fn journal(&self) -> PathBuf {
        self.dir.join("journal")
    }

    fn survey(&self, base: Option<u64>) -> Result<Survey> {
        survey(&*self.files, &self.journal(), base, |_| Ok(()))
    }
}

/// The newest manifest and what it names of marks.
async fn known(objects: &Objects) -> Result<Known> {
    let found = Keeper::find(objects.clone(), &Random::system()).await?;
    Ok(Known {
        manifest: found.manifest,
        marks: found.marks,
    })
}
