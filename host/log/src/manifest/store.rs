//! Finding the newest manifest and committing the next one.

use super::Manifest;
use tidemill_env::objects::Objects;
use tidemill_types::Result;

/// The manifests of one shard, as one owner sees them.
pub(crate) struct ManifestStore {}

impl ManifestStore {
    /// Finds the newest manifest of a shard. `owner` is this process run's nonce.
    ///
    /// Opening fences nobody: the first [`ManifestStore::commit`] does.
    pub(crate) async fn open(
        objects: Objects,
        shard: &str,
        owner: &str,
    ) -> Result<(Self, Option<Manifest>)> {
        let _ = (objects, shard, owner);
        unimplemented!("soon")
    }

    /// Creates the next manifest; its number and owner are filled in.
    ///
    /// # Errors
    /// `Fenced` when another owner took the slot; `Unavailable` when storage can't be written: the
    /// same manifest may be committed again.
    pub(crate) async fn commit(&mut self, manifest: Manifest) -> Result<()> {
        let _ = manifest;
        unimplemented!("soon")
    }
}
