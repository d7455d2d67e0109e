//! Create-if-absent over storage whose answers may get lost: what became of it is read back.

use super::Created;
use bytes::Bytes;
use tidemill_types::{Error, Result};

/// Attempts before the outcome is given up as unknown; each may itself have been repeated below.
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
    /// Waits before attempt number `attempt`.
    async fn pause(&self, attempt: u32);
}

/// Creates `path` if it is absent. Nobody else writes the same `body`, so finding it is having written
/// it, and putting it again is harmless.
pub(super) async fn create(slots: &impl Slots, path: &str, body: Bytes) -> Result<Created> {
    let mut reason = String::from("the storage says that it exists and that it doesn't");
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            slots.pause(attempt).await;
        }
        match slots.put(path, body.clone()).await {
            Put::Done => return Ok(Created::Ours),
            Put::Refused(error) => return Err(error),
            Put::Exists => {}
            Put::Unknown(error) => reason = error.detail,
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
