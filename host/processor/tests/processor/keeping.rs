//! Functions whose input has gaps, or loses events before they were read.

use crate::host::{Host, manifest};
use serde_json::{Value, json};
use std::time::Duration;
use tidemill_log::{Cleanup, Format, TopicSettings};
use tidemill_processor::{FunctionStatus, KeepState, LogLevel};
use tidemill_types::{PartitionId, TopicId};

async fn compacted(host: &Host, name: &str) -> PartitionId {
    let mut settings = TopicSettings {
        format: Format::Bytes,
        cleanup: Cleanup::Compact,
        ..TopicSettings::default()
    };
    settings.retention.tombstone_age = Duration::ZERO;
    let name = name.parse().expect("a name");
    let created = host.log.create_topic(&name, settings).await;
    at(created.expect("the topic is made").0.id)
}

fn at(topic: TopicId) -> PartitionId {
    PartitionId {
        topic,
        partition: 0,
    }
}

fn plain() -> Value {
    manifest(json!({}))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_passes_over_what_compaction_left() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open_with(dir.path(), |log| log.compaction_percent = 0).await;
    let host = host.expect("the host opens");
    compacted(&host, "in").await;
    host.deploy("f", plain()).await;
    host.processor.pause("f").await.expect("it pauses");
    let events = [("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("a", "3")];
    let events = events.map(|(key, value)| (Some(key), value));
    host.send("in", 0, &events).await;
    host.tombstone("in", "c").await;
    host.log.seal().await.expect("sealed");
    host.log.compact().await.expect("compacted");
    // The tombstone's time is over at once, so the partition ends with a gap.
    host.log.compact().await.expect("compacted");
    host.close().await;

    // Events that are still in memory come as they were; after a start they come from segments.
    let host = Host::open(dir.path()).await;
    assert_eq!(host.values("in").await, ["1", "3"]);
    host.processor.resume("f").await.expect("it resumes");
    let report = host.caught_up("f").await;
    assert_eq!((report.tasks[0].position, report.tasks[0].end), (6, 6));
    assert_eq!((report.counts.events_in, report.counts.cut_off), (2, 0));
    let settled = host.log.durable().borrow().0;
    host.send("in", 0, &[(Some("d"), "4")]).await;
    host.caught_up("f").await;
    assert_eq!(host.values("out").await, ["1", "3", "4"]);
    let frames = host.log.durable().borrow().0 - settled;
    assert_eq!(frames, 2, "an event and a step, and no steps over nothing");
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_was_cut_off_goes_on_and_says_so() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    let at = at(host.log.topic("in").expect("there").id);
    host.deploy("f", plain()).await;
    host.send("in", 0, &[(None, "0"), (None, "1"), (None, "2")])
        .await;
    host.caught_up("f").await;
    host.processor.pause("f").await.expect("it pauses");
    let later: Vec<String> = (3..15).map(|n| n.to_string()).collect();
    let later: Vec<_> = later.iter().map(|value| (None, value.as_str())).collect();
    host.send("in", 0, &later).await;
    host.log.truncate(at, 10).await.expect("truncated");

    let paused = host.processor.describe("f").await.expect("it is there");
    assert_eq!((paused.tasks[0].position, paused.tasks[0].lag), (3, 5));
    assert_eq!((paused.tasks[0].cut_off, paused.counts.cut_off), (7, 7));
    host.processor.resume("f").await.expect("it resumes");
    let report = host.caught_up("f").await;
    assert_eq!(report.status, FunctionStatus::Running);
    let reason = report.status_reason.expect("a reason");
    assert!(reason.contains("cut off: 7 events"), "{reason}");
    assert_eq!((report.counts.cut_off, report.counts.events_in), (7, 8));
    let values = ["0", "1", "2", "10", "11", "12", "13", "14"];
    assert_eq!(host.values("out").await, values);
    let lines = host.lines("f").await;
    assert!(
        lines
            .iter()
            .any(|line| line.level == LogLevel::Warn && line.message.contains("7 events")),
        "{lines:?}"
    );
    assert!(
        host.metrics
            .render()
            .contains("function_cut_off_total{function=\"f\"} 7")
    );
    host.close().await;

    let host = Host::open(dir.path()).await;
    let report = host.caught_up("f").await;
    assert_eq!(report.counts.cut_off, 7, "kept with the position");
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_gone_is_no_lag() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    let at = at(host.log.topic("in").expect("there").id);
    host.deploy("f", plain()).await;
    host.send("in", 0, &[(None, "0"), (None, "1"), (None, "2")])
        .await;
    host.caught_up("f").await;
    host.processor.pause("f").await.expect("it pauses");
    for _ in 0..3 {
        host.send("in", 0, &[(None, "x"); 999]).await;
    }
    host.log.truncate(at, 3000).await.expect("truncated");
    let paused = host.processor.describe("f").await.expect("it is there");
    assert_eq!((paused.tasks[0].lag, paused.tasks[0].cut_off), (0, 2997));
    host.processor.resume("f").await.expect("it resumes");
    let report = host
        .until("f", |report| report.tasks[0].position == 3000)
        .await;
    assert_eq!((report.tasks[0].lag, report.counts.cut_off), (0, 2997));
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lag_is_what_can_still_be_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 3, Format::Bytes).await;
    host.deploy("f", plain()).await;
    host.send("in", 0, &[(None, "e"); 40]).await;
    host.send("in", 1, &[(None, "e"); 7]).await;
    host.caught_up("f").await;
    host.processor.pause("f").await.expect("it pauses");
    host.send("in", 0, &[(None, "e"); 60]).await;
    host.send("in", 2, &[(None, "e"); 5]).await;
    let third = PartitionId {
        topic: host.log.topic("in").expect("there").id,
        partition: 2,
    };
    host.log.truncate(third, 2).await.expect("truncated");
    let report = host.processor.describe("f").await.expect("it is there");
    let lags: Vec<u64> = report.tasks.iter().map(|task| task.lag).collect();
    assert_eq!(lags, [60, 0, 3]);
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_deployed_on_what_is_left_missed_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    let at = at(host.log.topic("in").expect("there").id);
    host.send("in", 0, &[(None, "e0"), (None, "e1"), (None, "e2")])
        .await;
    host.log.truncate(at, 2).await.expect("truncated");
    host.deploy("f", plain()).await;
    let report = host.caught_up("f").await;
    assert_eq!((report.counts.cut_off, report.counts.events_in), (0, 1));
    assert_eq!(host.values("out").await, ["e2"]);
    host.processor
        .delete("f", KeepState::Reset)
        .await
        .expect("it goes");
    let readers = (0..20).flat_map(|reader| host.log.positions(reader));
    assert_eq!(readers.count(), 0, "it holds nothing back");
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_without_key_is_refused_by_a_compacted_topic() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    compacted(&host, "out").await;
    host.deploy("f", plain()).await;
    host.send("in", 0, &[(Some("k"), "1"), (None, "2")]).await;
    let report = host.caught_up("f").await;
    assert_eq!(report.counts.dead_lettered, 1);
    assert_eq!(host.values("out").await, ["1"]);
    let letters = host.read("f.dead-letters").await;
    assert!(
        letters[0].headers["tidemill-error"].contains("is compacted by key"),
        "{letters:?}"
    );
    host.close().await;
}
