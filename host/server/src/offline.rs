//! The log of a host that isn't running: looked at, checked, repaired.

use crate::Config;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidemill_env::files::Disk;
use tidemill_env::metrics::Metrics;
use tidemill_env::objects::Objects;
use tidemill_env::{Clock, Random};
use tidemill_types::{Error, Result};

pub use tidemill_log::examine::{
    Directory, FileView, Finding, FrameView, JournalView, KindTotal, Loss, Plan, SectionView,
    SliceView, Verified, Weight,
};

/// Folders of the data directory whose contents are made from the journal.
const DERIVED: [&str; 1] = ["state"];

/// Takes a data directory for looking at it.
///
/// # Errors
/// `no-journal` where there is none.
pub fn directory(config: &Config) -> Result<Directory> {
    Directory::open(Arc::new(Disk::default()), &config.dir)
}

/// As [`Directory::verify`], with the storage that the settings name.
///
/// # Errors
/// When the journal can't be read at all, or the storage isn't there.
pub async fn verify(config: &Config, directory: &Directory, deep: bool) -> Result<Verified> {
    directory.verify(&objects(config)?, deep).await
}

/// As [`Directory::plan`].
///
/// # Errors
/// What disk and storage say.
pub async fn plan(config: &Config, directory: &Directory) -> Result<Plan> {
    directory.plan(&objects(config)?).await
}

/// As [`Directory::repair`]; the state of functions is put aside too when frames are lost.
///
/// # Errors
/// As there.
pub async fn repair(
    config: &Config,
    directory: &Directory,
    accept_loss: bool,
) -> Result<(Plan, Option<PathBuf>)> {
    let random = Random::system();
    directory
        .repair(&objects(config)?, accept_loss, &DERIVED, &random)
        .await
}

/// The storage; a folder that isn't there isn't made, for then these are the wrong settings.
fn objects(config: &Config) -> Result<Objects> {
    let url = config.storage_url();
    if !url.contains("://") && !Path::new(&url).is_dir() {
        return Err(Error::not_found(
            "no-storage",
            format!(
                "there is no folder {url}: give the settings that the host runs with (--config, --set storage.url=…)"
            ),
        ));
    }
    config.open_storage(&Clock::system(), &Random::system(), &Metrics::default())
}
