//! Proves that create-if-absent means what it says: there are servers that check and then write, and
//! servers that ignore the condition.

use super::{Created, Objects};
use bytes::Bytes;
use futures::future::join_all;
use tidemill_types::{Error, Result};

/// Writers at one moment; servers that check and then write let two of sixteen win.
const WRITERS: usize = 16;

pub(super) async fn probe(objects: &Objects, nonce: &str) -> Result<()> {
    let (one, race) = (format!("probe/{nonce}-one"), format!("probe/{nonce}-race"));
    let verdict = match second_is_refused(objects, &one).await {
        Ok(()) => one_of_many_wins(objects, &race).await,
        refused => refused,
    };
    for path in [&one, &race] {
        if let Err(error) = objects.delete(path).await {
            tracing::warn!(path, %error, "could not remove what the probe of the storage created");
        }
    }
    verdict
}

async fn second_is_refused(objects: &Objects, path: &str) -> Result<()> {
    let first = Bytes::from(format!("first {path}"));
    if objects.create(path, first.clone()).await? != Created::Ours {
        return Err(unusable("a name that nobody used is said to exist"));
    }
    if objects
        .create(path, Bytes::from(format!("second {path}")))
        .await?
        == Created::Ours
    {
        return Err(unusable("a second create of the same name succeeded"));
    }
    if objects.get(path).await? != first {
        return Err(unusable("a refused create changed the object"));
    }
    Ok(())
}

async fn one_of_many_wins(objects: &Objects, path: &str) -> Result<()> {
    let body = |writer: usize| Bytes::from(format!("writer {writer} {path}"));
    let answers = join_all((0..WRITERS).map(|writer| objects.create(path, body(writer)))).await;
    let mut winners = Vec::new();
    for (writer, answer) in answers.into_iter().enumerate() {
        if answer? == Created::Ours {
            winners.push(writer);
        }
    }
    match winners[..] {
        [winner] if objects.get(path).await? == body(winner) => Ok(()),
        [_] => Err(unusable(
            "the winner of a race isn't the one whose body is stored",
        )),
        _ => Err(unusable(&format!(
            "{} of {WRITERS} creates of one name at one moment succeeded",
            winners.len()
        ))),
    }
}

fn unusable(what: &str) -> Error {
    Error::invalid(
        "storage-not-conditional",
        format!(
            "this storage doesn't keep the promise of create-if-absent, so two hosts could both believe to own the same data: {what}; use a storage with conditional writes (If-None-Match) or a local folder"
        ),
    )
}
