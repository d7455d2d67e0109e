//! Rebuilds the state of functions while the log is opened.

use tidemill_env::objects::Objects;
use tidemill_log::{Recovery, SnapshotRef};
use tidemill_state::Store;
use tidemill_types::{CommitSeq, Result};

/// Brings a [`Store`] up to the journal: what the store on disk lacks comes from the last snapshot
/// and from the state sections of the frames behind it.
pub struct StateRecovery {
    store: Store,
    objects: Objects,
}

impl StateRecovery {
    /// For a store that was just opened; snapshots are fetched from `objects`.
    pub fn new(store: Store, objects: Objects) -> Self {
        Self { store, objects }
    }
}

#[async_trait::async_trait]
impl Recovery for StateRecovery {
    /// Where the store has more than the snapshot, sections behind the snapshot come all the same: what they
    /// changed is what the next snapshot has.
    async fn begin(&mut self, snapshot: Option<&SnapshotRef>) -> Result<CommitSeq> {
        let reflects = self.store.reflects();
        match snapshot {
            Some(snapshot) if reflects < snapshot.commit => {
                let restored = self.store.restore(&self.objects, &snapshot.path).await;
                restored.map_err(|wrong| wrong.at("the snapshot of functions' state"))
            }
            Some(snapshot) => {
                self.store.since(&snapshot.path);
                Ok(snapshot.commit)
            }
            None => Ok(reflects),
        }
    }

    fn durable(&mut self, commit: CommitSeq) {
        self.store.durable(commit);
    }

    fn state(&mut self, commit: CommitSeq, section: &[u8]) -> Result<()> {
        self.store.replay(commit, section)
    }

    fn end(&mut self, is_complete: bool) {
        if !is_complete {
            self.store.anything_changed();
        }
    }
}
