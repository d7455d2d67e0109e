//! Finding the newest manifest and committing the next one.

use super::{Manifest, wire};
use crate::paths;
use tidemill_env::objects::{Created, Objects};
use tidemill_types::{Error, ErrorKind, Result};

/// The manifests of one shard, as one owner sees them.
///
/// A manifest is committed by creating the object of the next number if it is absent; who creates it
/// owns the shard, everybody else is fenced. Objects that can fence are never deleted.
pub(crate) struct ManifestStore {
    objects: Objects,
    shard: String,
    owner: String,
    number: u64,
}

impl ManifestStore {
    /// Finds the newest manifest of a shard. `owner` is this process run's nonce.
    ///
    /// Opening fences nobody: the first [`ManifestStore::commit`] does.
    ///
    /// # Errors
    /// `Corrupt` when the newest manifest isn't what was written; `Unavailable`.
    pub(crate) async fn open(
        objects: Objects,
        shard: &str,
        owner: &str,
    ) -> Result<(Self, Option<Manifest>)> {
        let folder = paths::manifest_folder(shard);
        // Listings come in no order.
        let number = objects
            .list(&folder)
            .await?
            .iter()
            .filter_map(|path| paths::manifest_number(path))
            .max();
        let mut store = Self {
            objects,
            shard: shard.to_owned(),
            owner: owner.to_owned(),
            number: 0,
        };
        let Some(number) = number else {
            return Ok((store, None));
        };
        let manifest = store.read(number).await?;
        store.number = number;
        Ok((store, Some(manifest)))
    }

    /// Number of the newest manifest this owner knows; 0 before the first.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Creates the next manifest; its number and owner are filled in.
    ///
    /// # Errors
    /// `Fenced` when another owner took the slot. After `Unavailable` it may be committed or not: the
    /// next commit finds that out and comes behind it, so nothing that this manifest names may be
    /// deleted before the next commit succeeds.
    pub(crate) async fn commit(&mut self, mut manifest: Manifest) -> Result<()> {
        manifest.owner.clone_from(&self.owner);
        loop {
            manifest.number = self.number + 1;
            let path = paths::manifest(&self.shard, manifest.number);
            let body = wire::encode(&manifest)?;
            if self.objects.create(&path, body.into()).await? == Created::Ours {
                self.number = manifest.number;
                return Ok(());
            }
            let there = self.read(manifest.number).await?;
            if there.owner != self.owner {
                return Err(Error::new(
                    ErrorKind::Fenced,
                    "fenced",
                    format!(
                        "another host (run {}) has written manifest {path:?} after this one (run {}) started: only one host may use this storage",
                        there.owner, self.owner
                    ),
                ));
            }
            // An earlier commit of ours whose answer never came.
            self.number = manifest.number;
        }
    }

    async fn read(&self, number: u64) -> Result<Manifest> {
        let path = paths::manifest(&self.shard, number);
        let body = self.objects.get(&path).await?;
        let manifest =
            wire::decode(&body).map_err(|error| error.at(format!("manifest {path:?}")))?;
        if manifest.number != number {
            return Err(Error::corrupt(format!(
                "manifest {path:?} says that it is number {}",
                manifest.number
            )));
        }
        Ok(manifest)
    }
}
