//! Create-if-absent over storage whose answers may get lost: what became of it is read back.

use super::Created;
use super::steady::BUSY;
use bytes::Bytes;
use tidemill_types::{Error, Result};

/// Attempts before the outcome is given up as unknown.
const ATTEMPTS: u32 = 4;

/// What one conditional put answered.
pub(super) enum Put {
    /// Created now.
    Done,
    /// Something is there; perhaps our own object from an attempt whose answer got lost.
    Exists,
    /// It may have happened or not, now or later.
    Unknown(Error),
    /// It did not happen and won't by repeating it.
    Refused(Error),
}

/// What [`create`] needs of a storage.
#[async_trait::async_trait]
pub(super) trait Slots: Send + Sync {
    /// One conditional put.
    async fn put(&self, path: &str, body: Bytes) -> Put;
    /// What is there.
    async fn peek(&self, path: &str) -> Result<Option<Bytes>>;
    /// Waits before attempt number `attempt`, longer where the storage has too much to do.
    async fn pause(&self, attempt: u32, busy: bool);
}

/// Creates `path` if it is absent. Nobody else writes the same `body`, so finding it is having written
/// it, and putting it again is harmless.
pub(super) async fn create(slots: &impl Slots, path: &str, body: Bytes) -> Result<Created> {
    let mut reason = String::from("the storage says that it exists and that it doesn't");
    let (mut busy, mut unclear) = (false, false);
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            slots.pause(attempt, busy).await;
        }
        match slots.put(path, body.clone()).await {
            Put::Done => return Ok(Created::Ours),
            // An earlier attempt may have taken effect all the same.
            Put::Refused(error) if unclear => reason = error.detail,
            Put::Refused(error) => return Err(error),
            Put::Exists => {}
            Put::Unknown(error) => {
                unclear = true;
                busy = error.code == BUSY;
                reason = error.detail;
            }
        }
        match slots.peek(path).await {
            Ok(Some(found)) if found == body => return Ok(Created::Ours),
            Ok(Some(_)) => return Ok(Created::Exists),
            Ok(None) => {}
            Err(error) => reason = error.detail,
        }
    }
    Err(Error::unavailable(
        "storage-failed",
        format!("whether {path:?} was created is unknown: {reason}"),
    ))
}
