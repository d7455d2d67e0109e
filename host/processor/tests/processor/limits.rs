//! What functions may use, and that what passes a limit is told by its name and value.

use crate::host::{Host, counting, manifest};
use serde_json::json;
use tidemill_log::Format;
use tidemill_processor::KeepState;

/// A key of five bytes: with its count, and when that was written, it takes 21 bytes.
fn key(number: usize) -> String {
    format!("k{number:04}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_beyond_its_limit_makes_dead_letters_also_after_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 2, Format::Bytes).await;
    host.deploy("f", counting(json!({"limits": {"state_bytes": "1KiB"}})))
        .await;
    let keys: Vec<String> = (0..60).map(key).collect();
    let events: Vec<_> = keys.iter().map(|key| (Some(key.as_str()), "2")).collect();
    host.send("in", 0, &events).await;
    let report = host.caught_up("f").await;
    assert_eq!(
        (report.counts.effective, report.counts.dead_lettered),
        (1024 / 21, 60 - 1024 / 21),
        "what fits is kept, and nothing else"
    );
    host.processor.observe();
    let metrics = host.metrics.render();
    for line in [
        "tidemill_function_state_bytes{function=\"f\"} 1008",
        "tidemill_function_lag_events{function=\"f\"} 0",
        "tidemill_function_running{function=\"f\"} 1",
        "tidemill_function_restarts_total{function=\"f\"} 0",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let letters = host.read("f.dead-letters").await;
    let header = &letters[0].headers["tidemill-error"];
    assert_eq!(
        header,
        "state_bytes limit of 1KiB: the function keeps 1008B, and this event would add 21 bytes"
    );
    assert_eq!(letters[0].headers["tidemill-attempts"], "1");

    host.send("in", 0, &events[..10]).await;
    let report = host.caught_up("f").await;
    assert_eq!(
        report.counts.effective,
        1024 / 21 + 10,
        "what doesn't grow goes on"
    );
    host.close().await;

    let host = Host::open(dir.path()).await;
    host.send("in", 1, &[(Some("other"), "2")]).await;
    let report = host.caught_up("f").await;
    assert_eq!(
        report.counts.dead_lettered,
        60 - 1024 / 21 + 1,
        "all partitions count, and a restart forgets nothing"
    );
    host.try_deploy("f", counting(json!({})), KeepState::Reset)
        .await
        .expect("it deploys");
    host.send("in", 1, &[(Some("other"), "2")]).await;
    let report = host.caught_up("f").await;
    assert_eq!(report.counts.effective, 1024 / 21 + 11);
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_and_events_of_a_call_are_bounded() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    let limits = json!({"limits": {"state_value_bytes": "7B", "output_events": 10}});
    host.deploy("f", counting(limits)).await;
    let mut events = vec![(Some("k"), "e"); 100];
    events.push((Some("k"), "2"));
    host.send("in", 0, &events).await;
    let report = host.caught_up("f").await;
    assert_eq!(
        (report.counts.emitted, report.counts.dead_lettered),
        (100, 1),
        "a batch that emits too much is made smaller"
    );
    let letters = host.read("f.dead-letters").await;
    let error = &letters[0].headers["tidemill-error"];
    assert!(error.contains("state_value_bytes (7 bytes)"), "{error}");
    let text = host.metrics.render();
    assert!(
        text.contains("tidemill_function_errors_total{function=\"f\",kind=\"output-limit\"}"),
        "{text}"
    );
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_host_does_not_allow_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    let long = "x".repeat(64 << 10);
    for (changes, says) in [
        (
            json!({"limits": {"memory": "2GiB"}}),
            "functions.max_memory",
        ),
        (
            json!({"limits": {"deadline": "20s"}}),
            "functions.max_deadline",
        ),
        (
            json!({"config": {"text": long}}),
            "more than a configuration may have (64KiB)",
        ),
    ] {
        let refused = host.try_deploy("f", manifest(changes), KeepState::Keep);
        let refused = refused.await.expect_err("refused");
        assert_eq!(refused.code, "invalid-manifest");
        assert!(refused.detail.contains(says), "{refused}");
    }
    let large = vec![0; (64 << 20) + 1];
    let refused = host.deploy_guest("f", large, manifest(json!({})), KeepState::Keep);
    let refused = refused.await.expect_err("refused");
    assert!(
        refused.detail.contains("functions.max_component"),
        "{refused}"
    );
    host.close().await;
}
