//! State comes back from snapshots and the journal behind them when the local store is lost.

use crate::host::{Host, counting};
use serde_json::json;
use std::time::Duration;
use tidemill_env::Clock;
use tidemill_log::{Format, SnapshotRef};
use tidemill_types::ByteSize;

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
