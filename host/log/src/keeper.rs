//! Keeps the manifest: seals, records snapshots, cuts the journal.

use crate::SnapshotRef;
use crate::manifest::Manifest;
use crate::shard::Shard;
use std::sync::Arc;
use tidemill_env::Random;
use tidemill_env::objects::Objects;
use tidemill_types::{Error, Result};
use tokio::sync::watch;

/// What was found in storage.
pub(crate) struct FoundManifest {
    pub(crate) manifest: Option<Manifest>,
}

/// The owner of the manifest.
pub(crate) struct Keeper {
    snapshot_due: watch::Sender<bool>,
}

impl Keeper {
    pub(crate) async fn find(objects: Objects, random: &Random) -> Result<FoundManifest> {
        let _ = (objects, random);
        Ok(FoundManifest { manifest: None })
    }

    pub(crate) async fn begin(
        found: FoundManifest,
        manifest: Manifest,
        journal_lost: bool,
        shard: &Arc<Shard>,
        random: Random,
    ) -> Result<Self> {
        let _ = (found, manifest, journal_lost, shard, random);
        Ok(Self {
            snapshot_due: watch::Sender::new(false),
        })
    }

    pub(crate) fn snapshot_due(&self) -> watch::Receiver<bool> {
        self.snapshot_due.subscribe()
    }

    pub(crate) async fn snapshot_taken(&self, _: &Arc<Shard>, _: SnapshotRef) -> Result<()> {
        Err(Error::internal("snapshots aren't kept yet"))
    }

    pub(crate) async fn seal_all(&self, _: &Arc<Shard>) -> Result<()> {
        Err(Error::internal("sealing isn't there yet"))
    }

    pub(crate) async fn keep(&self, _: &Arc<Shard>) {}

    pub(crate) async fn stop(&self) {}
}
