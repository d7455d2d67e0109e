//! Snapshots to object storage and back: runs of sorted objects, named by an index.
//!
//! The first run has everything. What changed since makes the next snapshot's last run, and the runs before it
//! are those of the snapshot before: so it costs what changed, however much there is. Runs are written and read
//! object by object, so that takes the memory of a few.

use super::Store;
use crate::behind::Failure;
use crate::engine::Engine;
use crate::snapshot::{self, Index, Part, Reader};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};
use tidemill_env::objects::{Created, Objects};
use tidemill_types::{CommitSeq, Error, Result};
use tokio::sync::mpsc;

const FOLDER: &str = "snapshots/";
/// Runs of a snapshot, at most: then the next one has everything again.
const RUNS: usize = 16;
/// Objects on their way between storage and the store.
const AHEAD: usize = 1;

/// The last snapshot that was taken.
pub(super) struct Last {
    path: String,
    index: Index,
}

impl Store {
    /// Writes a snapshot of everything up to the durable commit to object storage, while work goes on.
    /// Gives its path below `snapshots/` and its commit. Everything up to it has been synced locally too.
    /// It shares objects with the one before.
    ///
    /// # Errors
    /// `Unavailable` when storage can't be written.
    pub async fn snapshot(&self, objects: &Objects, nonce: &str) -> Result<(String, CommitSeq)> {
        // Taken out: if this one fails, what changed since the last one is known no longer.
        let before = self.last().take().filter(|last| {
            let (first, others) = last.index.bytes();
            last.index.runs.len() < RUNS && others <= first / 2
        });
        let (engine, mark) = (self.inner.engine.clone(), nonce.to_owned());
        let (to, mut from) = mpsc::channel(AHEAD);
        let is_next = before.is_some();
        let written = tokio::task::spawn_blocking(move || {
            let (view, commit, changed) = engine.freeze_since()?;
            let keys = if is_next { changed.sorted() } else { None };
            let is_whole = keys.is_none();
            snapshot::write(&*view, keys, (commit, &mark), &mut |bytes| {
                let sent = to.blocking_send((commit, bytes));
                sent.map_err(|_| Failure::Broken("it can't be stored".into()))
            })
            .map_err(|failure| engine.failed_read(&failure))?;
            Ok((commit, is_whole))
        });
        let mut run = Vec::new();
        while let Some((commit, bytes)) = from.recv().await {
            let path = format!("{}-{:05}", name(commit, nonce), run.len());
            let size = bytes.len() as u64;
            create(objects, &path, bytes).await?;
            run.push(Part { path, bytes: size });
        }
        let ended = |error| Error::internal(format!("the snapshot ended early: {error}"));
        let (commit, is_whole) = written.await.map_err(ended)??;
        let mut runs = match before {
            Some(last) if !is_whole => last.index.runs,
            _ => Vec::new(),
        };
        if is_whole || !run.is_empty() {
            runs.push(run);
        }
        let (path, index) = (name(commit, nonce), Index { commit, runs });
        create(objects, &path, index.encode().into()).await?;
        let result = (path.clone(), commit);
        *self.last() = Some(Last { path, index });
        Ok(result)
    }

    /// Deletes what an earlier snapshot has and the last one doesn't, once nobody needs it any more.
    ///
    /// # Errors
    /// `Unavailable` when storage can't be read or written.
    pub async fn retire(&self, objects: &Objects, earlier: &str) -> Result<()> {
        let used = match &*self.last() {
            Some(last) => last.index.objects(&last.path),
            None => return Ok(()),
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
    /// with the commit that it started from, and before its first snapshot.
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
        for path in objects.list(FOLDER).await? {
            let commit = commit_of(&path).is_some_and(|commit| commit <= upto);
            if commit && !used.contains(&path) {
                objects.delete(&path).await?;
            }
        }
        Ok(())
    }

    /// Throws everything away and takes a snapshot's state; afterwards it reflects the snapshot's commit.
    ///
    /// # Errors
    /// `Corrupt` when the snapshot isn't what was written, or as storage says. If its first object is wrong
    /// already, the store is as it was before, else it is empty.
    pub async fn restore(&self, objects: &Objects, path: &str) -> Result<CommitSeq> {
        let head = objects.get(path).await?;
        let (to, from) = mpsc::channel(AHEAD);
        let engine = self.inner.engine.clone();
        let (commit, parts, first) = if Index::is_one(&head) {
            let index = Index::decode(&head)?;
            let paths: Vec<_> = index.parts().map(|part| part.path.clone()).collect();
            (Some(index.commit), paths, None)
        } else {
            // From before there were indexes: all of it is one object.
            (None, Vec::new(), Some(head))
        };
        let count = parts.len() + usize::from(first.is_some());
        let filled = tokio::task::spawn_blocking(move || fill(&engine, commit, count, from));
        if let Some(first) = first {
            // Whoever takes it says why it doesn't.
            let _ = to.send(first).await;
        }
        let mut missing = None;
        for path in parts {
            match objects.get(&path).await {
                Ok(bytes) => {
                    if to.send(bytes).await.is_err() {
                        break;
                    }
                }
                Err(error) => {
                    missing = Some(error.at(path));
                    break;
                }
            }
        }
        drop(to);
        let ended =
            |error| Error::internal(format!("the snapshot's restoring ended early: {error}"));
        let filled = filled.await.map_err(ended)?;
        match missing {
            Some(error) => Err(error),
            None => filled,
        }
    }

    fn last(&self) -> MutexGuard<'_, Option<Last>> {
        let last = &self.inner.last;
        last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Replaces everything by what comes in so many objects; the first is checked before anything goes.
pub(crate) fn fill(
    engine: &Engine,
    commit: Option<CommitSeq>,
    count: usize,
    mut from: mpsc::Receiver<Bytes>,
) -> Result<CommitSeq> {
    let mut next = from.blocking_recv().map(Reader::new).transpose()?;
    let first = next.as_ref().map(Reader::commit);
    let commit = commit.or(first).unwrap_or_default();
    engine.replace(commit, |write| {
        let mut taken = 0;
        while let Some(object) = next.take() {
            object.blocks(write)?;
            taken += 1;
            next = from.blocking_recv().map(Reader::new).transpose()?;
        }
        if taken == count {
            return Ok(());
        }
        Err(Error::unavailable(
            "state-unavailable",
            format!("only {taken} of the snapshot's {count} objects came"),
        ))
    })?;
    Ok(commit)
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
