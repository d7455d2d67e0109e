//! From a snapshot in object storage to a store, object by object.

use super::Store;
use super::snapshots::{AHEAD, Last, Taken};
use crate::engine::Engine;
use crate::snapshot::{Index, Reader};
use bytes::Bytes;
use tidemill_env::objects::Objects;
use tidemill_types::{CommitSeq, Error, Result};
use tokio::sync::mpsc;

/// What a snapshot is made of, in the order in which it is taken.
pub(crate) enum Piece {
    Object(Bytes),
    /// What begins like this is gone.
    Cleared(Box<[u8]>),
}

/// A piece before it is fetched.
enum Wanted {
    Object(String),
    Cleared(Box<[u8]>),
}

impl Store {
    /// Throws everything away and takes a snapshot's state; afterwards it reflects the snapshot's commit, and the
    /// next snapshot has only what changed since.
    ///
    /// # Errors
    /// `Corrupt` when the snapshot isn't what was written, or as storage says. If its first object is wrong
    /// already, the store is as it was before, else it is empty.
    pub async fn restore(&self, objects: &Objects, path: &str) -> Result<CommitSeq> {
        *self.last() = Last::None;
        let head = objects.get(path).await?;
        if !Index::is_one(&head) {
            // From before there were indexes: all of it is one object.
            let (to, from) = mpsc::channel(1);
            let ready = to.send(Piece::Object(head)).await;
            drop((ready, to));
            return self.filled(None, 1, from).await?;
        }
        let index = Index::decode(&head)?;
        let wanted: Vec<_> = index
            .runs
            .iter()
            .flat_map(|run| {
                let cleared = run.cleared.iter().cloned().map(Wanted::Cleared);
                let parts = run
                    .parts
                    .iter()
                    .map(|part| Wanted::Object(part.path.clone()));
                cleared.chain(parts)
            })
            .collect();
        let (to, from) = mpsc::channel(AHEAD);
        let filled = self.filled(Some(index.commit), wanted.len(), from);
        let (fetched, filled) = tokio::join!(fetch(objects, wanted, to), filled);
        let filled = filled?;
        // What is missing is told rather than that it didn't come.
        fetched?;
        let commit = filled?;
        *self.last() = Last::Known(Taken {
            path: path.to_owned(),
            index,
        });
        Ok(commit)
    }

    async fn filled(
        &self,
        commit: Option<CommitSeq>,
        count: usize,
        from: mpsc::Receiver<Piece>,
    ) -> Result<Result<CommitSeq>> {
        let engine = self.inner.engine.clone();
        let filled = tokio::task::spawn_blocking(move || fill(&engine, commit, count, from));
        filled.await.map_err(|error| {
            Error::internal(format!("the snapshot's restoring ended early: {error}"))
        })
    }
}

/// Fetches pieces until nobody takes them any more.
async fn fetch(objects: &Objects, wanted: Vec<Wanted>, to: mpsc::Sender<Piece>) -> Result<()> {
    for piece in wanted {
        let piece = match piece {
            Wanted::Object(path) => {
                let got = objects.get(&path).await;
                Piece::Object(got.map_err(|error| error.at(path))?)
            }
            Wanted::Cleared(prefix) => Piece::Cleared(prefix),
        };
        if to.send(piece).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// A piece that was looked at.
enum Checked {
    Object(Reader),
    Cleared(Box<[u8]>),
}

fn next(from: &mut mpsc::Receiver<Piece>) -> Result<Option<Checked>> {
    Ok(match from.blocking_recv() {
        Some(Piece::Object(bytes)) => Some(Checked::Object(Reader::new(bytes)?)),
        Some(Piece::Cleared(prefix)) => Some(Checked::Cleared(prefix)),
        None => None,
    })
}

/// Replaces everything by what comes in so many pieces; the first is checked before anything goes.
pub(crate) fn fill(
    engine: &Engine,
    commit: Option<CommitSeq>,
    count: usize,
    mut from: mpsc::Receiver<Piece>,
) -> Result<CommitSeq> {
    let mut piece = next(&mut from)?;
    let first = match &piece {
        Some(Checked::Object(reader)) => Some(reader.commit()),
        _ => None,
    };
    let commit = commit.or(first).unwrap_or_default();
    engine.replace(commit, |filling| {
        let mut taken = 0;
        while let Some(checked) = piece.take() {
            match checked {
                Checked::Object(reader) => reader.entries(|key, value| filling.push(key, value))?,
                Checked::Cleared(prefix) => filling.remove(&prefix)?,
            }
            taken += 1;
            piece = next(&mut from)?;
        }
        if taken == count {
            return Ok(());
        }
        Err(Error::unavailable(
            "state-unavailable",
            format!("only {taken} of the snapshot's {count} pieces came"),
        ))
    })?;
    Ok(commit)
}
