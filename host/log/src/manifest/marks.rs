//! The object with the marks that a manifest names: written before it, removed once a later one names
//! another.

use super::MarksRef;
use crate::marks::{Saved, decode, encode};
use crate::paths;
use tidemill_env::objects::{Created, Objects};
use tidemill_types::{Error, Result};

/// What a manifest names.
///
/// # Errors
/// `Corrupt` when it isn't what was written; `Unavailable`.
pub(crate) async fn read_marks(objects: &Objects, named: &MarksRef) -> Result<Saved> {
    let bytes = objects.get(&named.path).await?;
    let saved = decode(&bytes).map_err(|error| error.at(format!("marks {:?}", named.path)))?;
    if saved.commit != named.commit {
        return Err(Error::corrupt(format!(
            "marks {:?} are of commit {} and not of {}",
            named.path, saved.commit, named.commit
        )));
    }
    Ok(saved)
}

/// Uploads marks; nothing names them yet.
///
/// # Errors
/// `Unavailable`.
pub(crate) async fn write_marks(
    objects: &Objects,
    shard: &str,
    nonce: &str,
    marks: Saved,
) -> Result<MarksRef> {
    let commit = marks.commit;
    let path = paths::marks(shard, commit.0, nonce);
    // Many of them take a while.
    let bytes = tokio::task::spawn_blocking(move || encode(&marks))
        .await
        .map_err(|_| Error::internal("the marks couldn't be written down"))?;
    match objects.create(&path, bytes.into()).await? {
        Created::Ours => Ok(MarksRef { path, commit }),
        Created::Exists => Err(Error::unavailable(
            "object-exists",
            format!("an object that isn't ours has the name {path:?}"),
        )),
    }
}

/// Removes marks that a crash left without a manifest. Only for the owner, who uploads none meanwhile.
pub(crate) async fn keep_only_marks(objects: &Objects, shard: &str, named: Option<&MarksRef>) {
    match objects.list(&paths::marks_folder(shard)).await {
        Ok(all) => {
            for path in all {
                if named.is_none_or(|named| named.path != path) {
                    delete_marks(objects, &path).await;
                }
            }
        }
        Err(error) => tracing::warn!(%error, "marks that no manifest names can't be listed"),
    }
}

/// What can't be deleted is removed at the next start.
pub(crate) async fn delete_marks(objects: &Objects, path: &str) {
    if let Err(error) = objects.delete(path).await {
        tracing::warn!(%error, path, "marks that are no longer needed can't be deleted");
    }
}
