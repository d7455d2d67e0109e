//! State comes back from snapshots and the journal behind them when the local store is lost.

use crate::host::{Host, counting};
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use tidemill_env::Clock;
use tidemill_log::{Format, SnapshotRef};
use tidemill_types::{ByteSize, CommitSeq};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_store_is_rebuilt_from_the_snapshot_and_what_came_after() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", counting(json!({}))).await;
    host.send(
        "in",
        0,
        &[(Some("a"), "2"), (Some("b"), "2"), (Some("a"), "2")],
    )
    .await;
    host.caught_up("f").await;
    let mut durable = host.log.durable();
    let commit = *durable.borrow_and_update();
    host.state.durable(commit);
    let (path, commit) = host
        .state
        .snapshot(&host.objects, "test")
        .await
        .expect("it is taken");
    assert!(commit.0 > 0);
    host.log
        .snapshot_taken(SnapshotRef { path, commit })
        .await
        .expect("it is recorded");
    host.send("in", 0, &[(Some("a"), "2")]).await;
    host.caught_up("f").await;
    host.close().await;

    for lost in [true, false] {
        if lost {
            std::fs::remove_dir_all(dir.path().join("state")).expect("the store is deleted");
        }
        let host = Host::open(dir.path()).await;
        assert_eq!(
            (host.count("f", "a").await, host.count("f", "b").await),
            (Some(3), Some(1))
        );
        host.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_are_taken_when_the_journal_has_grown() {
    let dir = tempfile::tempdir().expect("a folder");
    let grown = |settings: &mut tidemill_log::Settings| settings.snapshot_bytes = ByteSize(0);
    let host = Host::open_with(dir.path(), grown)
        .await
        .expect("the host opens");
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", counting(json!({}))).await;
    host.send("in", 0, &[(Some("a"), "2")]).await;
    host.caught_up("f").await;
    let clock = Clock::system();
    while host
        .objects
        .list("snapshots/")
        .await
        .expect("lists")
        .is_empty()
    {
        clock.sleep(Duration::from_millis(10)).await;
    }
    host.close().await;
}

/// Bytes of all objects of snapshots.
fn snapshot_bytes(dir: &Path) -> u64 {
    let folder = std::fs::read_dir(dir.join("objects/snapshots")).expect("a folder");
    let sizes = folder.map(|entry| entry.expect("an entry").metadata().expect("its size").len());
    sizes.sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_with_little_change_uploads_little() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", counting(json!({}))).await;
    let keys: Vec<_> = (0..4000_u64)
        .map(|n| format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect();
    for some in keys.chunks(1000) {
        let events: Vec<_> = some.iter().map(|key| (Some(key.as_str()), "2")).collect();
        host.send("in", 0, &events).await;
    }
    host.caught_up("f").await;
    host.close().await;
    let (mut last, whole) = snapshot_taken(dir.path(), CommitSeq(0)).await;
    for start in 1..=4_u64 {
        // What the store behind has is ahead of the snapshot, or there is none of it.
        if start == 3 {
            std::fs::remove_dir_all(dir.path().join("state")).expect("the store is deleted");
        }
        let host = Host::open(dir.path()).await;
        host.send("in", 0, &[(Some(keys[0].as_str()), "2")]).await;
        host.caught_up("f").await;
        assert_eq!(host.count("f", &keys[0]).await, Some(1 + start));
        assert_eq!(host.count("f", &keys[3999]).await, Some(1));
        host.close().await;
        let before = snapshot_bytes(dir.path());
        let (taken, after) = snapshot_taken(dir.path(), last).await;
        let added = after.saturating_sub(before);
        last = taken;
        assert!(
            added < whole / 10,
            "start {start}: {added} bytes of {whole}"
        );
    }
    // All that there is was uploaded in five parts; a lost disk has it again.
    std::fs::remove_dir_all(dir.path().join("state")).expect("the store is deleted");
    let host = Host::open(dir.path()).await;
    assert_eq!(host.count("f", &keys[0]).await, Some(5));
    assert_eq!(host.count("f", &keys[3999]).await, Some(1));
    host.close().await;
}

/// A start, and the snapshot that is due then; gives its commit and the bytes of all objects afterwards.
async fn snapshot_taken(dir: &Path, before: CommitSeq) -> (CommitSeq, u64) {
    let grown = |settings: &mut tidemill_log::Settings| settings.snapshot_bytes = ByteSize(0);
    let host = Host::open_with(dir, grown).await.expect("the host opens");
    let clock = Clock::system();
    let last = loop {
        let named = host.log.snapshot().await;
        match named.filter(|named| named.commit > before) {
            Some(named) => break named.commit,
            None => clock.sleep(Duration::from_millis(10)).await,
        }
    };
    host.close().await;
    (last, snapshot_bytes(dir))
}
