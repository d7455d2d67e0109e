//! Inputs keyed by a pointer: events of one key meet in one task, exactly once.

use crate::host::{Host, counting, manifest};
use serde_json::json;
use tidemill_log::Format;
use tidemill_types::partition_of_key;

fn keyed() -> serde_json::Value {
    counting(json!({"input": [{"topic": "in", "start": "earliest", "key": "/0"}]}))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_one_key_meet_and_dead_letters_keep_where_they_came_from() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 3, Format::Bytes).await;
    // The guest looks at the first byte, which is `[` for JSON arrays: it emits those as they are.
    host.deploy(
        "f",
        manifest(json!({"input": [{"topic": "in", "start": "earliest", "key": "/0"}]})),
    )
    .await;
    for partition in 0..3 {
        let events = [
            (Some("own"), "[\"a\", 1]"),
            (None, "[7]"),
            (Some("own"), "dead"),
            (None, "[null]"),
        ];
        host.send("in", partition, &events).await;
    }
    let report = host
        .until("f", |report| report.counts.events_in == 12)
        .await;
    assert_eq!(
        (
            report.counts.events_in,
            report.counts.effective,
            report.counts.dead_lettered
        ),
        (12, 9, 3)
    );
    let topics: Vec<_> = report
        .tasks
        .iter()
        .map(|task| task.topic.as_str())
        .collect();
    assert_eq!(
        topics,
        ["in", "in", "in", "f.by-key", "f.by-key", "f.by-key"]
    );

    let between = host.read("f.by-key").await;
    let of = |key: &str| {
        between
            .iter()
            .filter(|seen| seen.key.as_deref() == Some(key))
            .collect::<Vec<_>>()
    };
    assert_eq!((of("a").len(), of("7").len(), between.len()), (3, 3, 12));
    assert!(
        of("a")
            .iter()
            .all(|seen| seen.partition == partition_of_key(b"a", 3))
    );

    let out = host.read("out").await;
    assert_eq!(out.len(), 9);
    assert!(
        out.iter()
            .all(|seen| !seen.headers.contains_key("tidemill-origin"))
    );
    assert!(
        out.iter().any(|seen| seen.key.as_deref() == Some("a")),
        "the function sees the new key"
    );

    let letters = host.read("f.dead-letters").await;
    let places: Vec<_> = letters
        .iter()
        .map(|seen| {
            (
                seen.headers["tidemill-partition"].as_str(),
                seen.headers["tidemill-offset"].as_str(),
            )
        })
        .collect();
    assert_eq!(places, [("0", "2"), ("1", "2"), ("2", "2")]);
    for letter in &letters {
        assert_eq!(letter.key.as_deref(), Some("own"), "the original key");
        assert_eq!(letter.headers["tidemill-topic"], "in");
        assert!(!letter.headers.contains_key("tidemill-origin"));
    }
    assert_eq!(host.processor.users_of("f.by-key").len(), 1);
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_can_not_change_under_a_function() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", keyed()).await;
    let refused = host
        .try_deploy(
            "f",
            counting(json!({})),
            tidemill_processor::KeepState::Keep,
        )
        .await;
    let refused = refused.expect_err("the key is gone");
    assert_eq!(refused.code, "invalid-manifest");
    assert!(refused.detail.contains("input[0].key"), "{refused}");
    host.processor
        .delete("f", tidemill_processor::KeepState::Reset)
        .await
        .expect("it is deleted");
    assert!(
        host.log.topic("f.by-key").is_none(),
        "the internal topic goes with it"
    );
    host.deploy("f", counting(json!({}))).await;
    host.close().await;
}
