//! Snapshots to object storage: runs of sorted objects, named by an index.
//!
//! The first run has everything. What changed since makes the next snapshot's last run, and the runs before it
//! are those of the snapshot before: so it costs what changed, however much there is. Once the others have as
//! much as the first, or are many, everything is written again. Runs are written object by object, so that it
//! takes the memory of a few.
//!
//! What changed is known over a restart, too: it is what the journal has behind the snapshot, which is kept until
//! there is a newer one. Where it can't be told, the next snapshot has everything.

use super::Store;
use crate::behind::Failure;
use crate::engine::{Changed, Engine, Sorted};
use crate::snapshot::{self, Index, Part, Run, Shown};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};
use tidemill_env::objects::{Created, Objects};
use tidemill_env::{Urgency, in_background};
use tidemill_types::{CommitSeq, Error, ErrorKind, Result};
use tokio::sync::mpsc;

const FOLDER: &str = "snapshots/";
/// Runs of a snapshot, at most: so many requests at least does it take to restore it.
const RUNS: usize = 64;
/// Objects on their way between storage and the store.
pub(super) const AHEAD: usize = 1;

/// What the next snapshot may go on from.
#[derive(Default)]
pub(super) enum Last {
    /// Nothing: it has everything.
    #[default]
    None,
    /// The snapshot of this path, whose index wasn't read yet.
    Named(String),
    Known(Taken),
}

/// A snapshot that is in storage.
#[derive(Clone)]
pub(super) struct Taken {
    pub(super) path: String,
    pub(super) index: Index,
}

/// A run that was written from the store behind.
struct Written {
    commit: CommitSeq,
    changed: Changed,
    /// What is gone since the runs before it; `None`: it has everything.
    cleared: Option<Vec<Box<[u8]>>>,
}

impl Store {
    /// Writes a snapshot of everything up to the durable commit to object storage, while work goes on.
    /// Gives its path below `snapshots/` and its commit. Everything up to it has been synced locally too.
    /// It shares objects with the one before. If it fails, the next one has what this one was to have.
    ///
    /// # Errors
    /// `Unavailable` when storage can't be written.
    pub async fn snapshot(&self, objects: &Objects, nonce: &str) -> Result<(String, CommitSeq)> {
        self.learn(objects).await?;
        // Taken out: if nobody waits for the end of this, what changed since the last one is known no longer.
        let before = std::mem::take(&mut *self.last());
        let base = match &before {
            Last::Known(last) if may_grow(&last.index) => Some(last),
            _ => None,
        };
        match self.take(objects, nonce, base).await {
            Ok(taken) => {
                let result = (taken.path.clone(), taken.index.commit);
                *self.last() = Last::Known(taken);
                Ok(result)
            }
            Err(error) => {
                *self.last() = before;
                Err(error)
            }
        }
    }

    /// Reads the index of a snapshot that only its name is known of. What can't be gone on from is forgotten.
    async fn learn(&self, objects: &Objects) -> Result<()> {
        let path = match &*self.last() {
            Last::Named(path) => path.clone(),
            Last::None | Last::Known(_) => return Ok(()),
        };
        let read = objects.get(&path).await;
        let index = read.and_then(|head| {
            Index::is_one(&head)
                .then(|| Index::decode(&head))
                .transpose()
        });
        *self.last() = match index {
            Ok(Some(index)) => Last::Known(Taken { path, index }),
            // One object, from before there were indexes.
            Ok(None) => Last::None,
            Err(error) if error.kind == ErrorKind::Unavailable => return Err(error.at(path)),
            Err(error) => {
                tracing::warn!(%error, path, "the last snapshot can't be gone on from: the next one has everything");
                Last::None
            }
        };
        Ok(())
    }

    /// Writes a run and the index that names it behind those of `base`. If it fails, what changed goes back.
    async fn take(&self, objects: &Objects, nonce: &str, base: Option<&Taken>) -> Result<Taken> {
        let (engine, mark, is_next) = (self.inner.engine.clone(), nonce.to_owned(), base.is_some());
        let (to, from) = mpsc::channel(AHEAD);
        let object_bytes = self.inner.object_bytes;
        // Whoever writes back waits for this, and for nothing else of it.
        let frozen = tokio::task::spawn_blocking({
            let engine = engine.clone();
            move || engine.freeze_since()
        });
        let frozen = frozen
            .await
            .map_err(|error| Error::internal(format!("the snapshot ended early: {error}")))??;
        let writing = in_background("snapshot", Urgency::Low, move || {
            write(&engine, frozen, (&mark, object_bytes), is_next, &to)
        });
        let (written, uploaded) = tokio::join!(writing, upload(objects, nonce, from));
        let (written, parts) = match (written, uploaded) {
            (Ok(written), Ok(parts)) => (written, parts),
            (Ok(written), Err(error)) => {
                self.inner.engine.changed_too(written.changed);
                return Err(error);
            }
            (Err(_), Err(error)) | (Err(error), Ok(_)) => return Err(error),
        };
        let mut runs = match (base, &written.cleared) {
            (Some(base), Some(_)) => base.index.runs.clone(),
            _ => Vec::new(),
        };
        let run = Run {
            cleared: written.cleared.unwrap_or_default(),
            parts,
        };
        if runs.is_empty() || run != Run::default() {
            runs.push(run);
        }
        let path = name(written.commit, nonce);
        let index = Index {
            commit: written.commit,
            runs,
        };
        if let Err(error) = create(objects, &path, index.encode().into()).await {
            self.inner.engine.changed_too(written.changed);
            return Err(error);
        }
        Ok(Taken { path, index })
    }

    /// Deletes what an earlier snapshot has and the last one doesn't, once nobody needs it any more.
    ///
    /// # Errors
    /// `Unavailable` when storage can't be read or written.
    pub async fn retire(&self, objects: &Objects, earlier: &str) -> Result<()> {
        let used = match &*self.last() {
            Last::Known(last) => last.index.objects(&last.path),
            Last::None | Last::Named(_) => return Ok(()),
        };
        if used.contains(earlier) {
            return Ok(());
        }
        for path in of(objects, earlier).await?.difference(&used) {
            objects.delete(path).await?;
        }
        Ok(())
    }

    /// Deletes what lies among snapshots, is as of `upto` or an earlier commit, and isn't part of the one
    /// named: of a process that ended before it could name or delete it. Only for the owner of the storage,
    /// with the commit that it started from, and before its first snapshot. If something of the one named is
    /// missing, the next one has everything.
    ///
    /// # Errors
    /// `Unavailable` when storage can't be read or written.
    pub async fn sweep(
        &self,
        objects: &Objects,
        named: Option<&str>,
        upto: CommitSeq,
    ) -> Result<()> {
        let used = match named {
            Some(path) => of(objects, path).await?,
            None => BTreeSet::new(),
        };
        let there: BTreeSet<_> = objects.list(FOLDER).await?.into_iter().collect();
        if let Some(path) = used.difference(&there).next() {
            tracing::error!(
                path,
                "an object of the last snapshot of functions' state is gone: the next one has everything; until then don't lose the data directory"
            );
            *self.last() = Last::None;
        }
        for path in there.difference(&used) {
            if commit_of(path).is_some_and(|commit| commit <= upto) {
                objects.delete(path).await?;
            }
        }
        Ok(())
    }

    /// Says at a start that the store reflects a snapshot and more: the next one has only what changed since.
    /// That is what comes by [`Store::replay`], which is handed every section behind the snapshot's commit.
    pub fn since(&self, snapshot: &str) {
        self.inner.engine.nothing_changed();
        *self.last() = Last::Named(snapshot.to_owned());
    }

    /// Says at a start that sections are missing: the next snapshot has everything.
    pub fn anything_changed(&self) {
        self.inner.engine.anything_changed();
    }

    pub(super) fn last(&self) -> MutexGuard<'_, Last> {
        let last = &self.inner.last;
        last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether one run more is better than everything again.
fn may_grow(index: &Index) -> bool {
    let (first, others) = index.bytes();
    index.runs.len() < RUNS && others < first
}

/// Writes what changed since the last snapshot, or everything if that isn't known or nothing comes before it.
fn write(
    engine: &Engine,
    (shown, commit, mut changed): (Shown, CommitSeq, Changed),
    (nonce, object_bytes): (&str, usize),
    is_next: bool,
    to: &mpsc::Sender<(CommitSeq, Bytes)>,
) -> Result<Written> {
    let (keys, cleared) = match is_next.then(|| changed.sorted()).flatten() {
        Some(Sorted { cleared, keys }) => {
            let cleared = cleared.into_iter().map(Into::into).collect();
            (Some(keys), Some(cleared))
        }
        None => (None, None),
    };
    let mut is_taken = true;
    let done = snapshot::write(shown, keys, (commit, nonce), object_bytes, &mut |bytes| {
        is_taken = to.blocking_send((commit, bytes)).is_ok();
        let gone = || Failure::Broken("nobody takes it".to_owned());
        is_taken.then_some(()).ok_or_else(gone)
    });
    match done {
        Ok(()) => Ok(Written {
            commit,
            changed,
            cleared,
        }),
        Err(failure) => {
            engine.changed_too(changed);
            // Who takes it says why it doesn't, and the store behind is as good as before.
            Err(if is_taken {
                engine.failed_read(&failure)
            } else {
                Error::internal(failure.to_string())
            })
        }
    }
}

/// Stores what comes; gives what it made.
async fn upload(
    objects: &Objects,
    nonce: &str,
    mut from: mpsc::Receiver<(CommitSeq, Bytes)>,
) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    while let Some((commit, bytes)) = from.recv().await {
        let path = format!("{}-{:05}", name(commit, nonce), parts.len());
        let size = bytes.len() as u64;
        create(objects, &path, bytes).await?;
        parts.push(Part { path, bytes: size });
    }
    Ok(parts)
}

/// All objects of a snapshot, its index among them.
async fn of(objects: &Objects, path: &str) -> Result<BTreeSet<String>> {
    let head = objects.get(path).await?;
    if Index::is_one(&head) {
        return Ok(Index::decode(&head)?.objects(path));
    }
    Ok([path.to_owned()].into())
}

fn name(commit: CommitSeq, nonce: &str) -> String {
    format!("{FOLDER}{:020}-{nonce}", commit.0)
}

/// The commit in an object's name.
fn commit_of(path: &str) -> Option<CommitSeq> {
    let digits = path.strip_prefix(FOLDER)?.get(..20)?;
    digits.parse().ok().map(CommitSeq)
}

async fn create(objects: &Objects, path: &str, bytes: Bytes) -> Result<()> {
    match objects.create(path, bytes).await? {
        Created::Ours => Ok(()),
        Created::Exists => Err(Error::unavailable(
            "object-exists",
            format!("{path} exists already and isn't ours: take another nonce"),
        )),
    }
}
