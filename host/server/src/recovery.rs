//! Rebuilding function state while the log is opened.

use tidemill_env::objects::Objects;
use tidemill_log::{Recovery, SnapshotRef};
use tidemill_state::Store;
use tidemill_types::{CommitSeq, Result};

/// Brings a state store up to the journal.
pub(crate) struct StateRecovery {
    store: Store,
    objects: Objects,
}

impl StateRecovery {
    /// Over a store that was opened, and the storage its snapshots are in.
    pub(crate) fn new(store: Store, objects: Objects) -> Self {
        Self { store, objects }
    }
}

#[async_trait::async_trait]
impl Recovery for StateRecovery {
    async fn begin(&mut self, snapshot: Option<&SnapshotRef>) -> Result<CommitSeq> {
        if let Some(snapshot) = snapshot.filter(|snapshot| snapshot.commit > self.store.reflects())
        {
            let bytes = self.objects.get(&snapshot.path).await?;
            self.store.restore(bytes)?;
        }
        Ok(self.store.reflects())
    }

    fn state(&mut self, commit: CommitSeq, section: &[u8]) -> Result<()> {
        self.store.apply(commit, section)
    }
}
