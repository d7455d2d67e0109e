//! What goes on beside the tasks: telling the state store what is durable, taking snapshots, keeping the lines
//! that functions log.

use crate::parts::Parts;
use std::sync::Arc;
use std::time::Duration;
use tidemill_env::Shutdown;
use tidemill_log::SnapshotRef;
use tidemill_types::{CommitSeq, Result};

/// The store is told at most this often; its writer gathers for longer anyway.
const DURABLE_PAUSE: Duration = Duration::from_millis(10);
/// Pause after a snapshot, taken or failed.
const SNAPSHOT_PAUSE: Duration = Duration::from_secs(5);

/// Starts all of it; it ends with `shutdown`.
pub(crate) fn start(parts: &Arc<Parts>, shutdown: &Shutdown) {
    let run = |work: futures::future::BoxFuture<'static, ()>| {
        let shutdown = shutdown.clone();
        tokio::spawn(async move { shutdown.run_until_cancelled(work).await });
    };
    run(Box::pin(durable(Arc::clone(parts))));
    let from = *parts.log.durable().borrow();
    run(Box::pin(snapshots(Arc::clone(parts), from)));
    let parts = Arc::clone(parts);
    run(Box::pin(async move { parts.keeper.work(&parts).await }));
}

async fn durable(parts: Arc<Parts>) {
    let mut durable = parts.log.durable();
    loop {
        let commit = *durable.borrow_and_update();
        parts.state.durable(commit);
        if durable.changed().await.is_err() {
            return;
        }
        parts.clock.sleep(DURABLE_PAUSE).await;
    }
}

async fn snapshots(parts: Arc<Parts>, from: CommitSeq) {
    let mut due = parts.log.snapshot_due();
    let mut last = parts.log.snapshot().await.map(|named| named.path);
    let swept = parts.state.sweep(&parts.objects, last.as_deref(), from);
    if let Err(wrong) = swept.await {
        tracing::warn!(error = %wrong, "what earlier snapshots left behind can't be deleted");
    }
    while due.wait_for(|due| *due).await.is_ok() {
        match snapshot(&parts).await {
            Ok(path) => replace(&parts, &mut last, path).await,
            Err(wrong) => tracing::warn!(
                error = %wrong,
                "no snapshot of functions' state could be taken; the journal can't be cut until one is"
            ),
        }
        parts.clock.sleep(SNAPSHOT_PAUSE).await;
    }
}

async fn snapshot(parts: &Parts) -> Result<String> {
    let nonce = parts.random.nonce();
    let (path, commit) = parts.state.snapshot(&parts.objects, &nonce).await?;
    let taken = SnapshotRef {
        path: path.clone(),
        commit,
    };
    parts.log.snapshot_taken(taken).await?;
    Ok(path)
}

/// The manifest names the new snapshot; what only the one it named before has is of no more use.
async fn replace(parts: &Parts, last: &mut Option<String>, path: String) {
    if let Some(old) = last.replace(path)
        && let Err(wrong) = parts.state.retire(&parts.objects, &old).await
    {
        tracing::warn!(error = %wrong, path = old, "an old snapshot can't be deleted");
    }
}
