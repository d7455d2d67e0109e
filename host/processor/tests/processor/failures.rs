//! What becomes of events a function can't handle, and that their neighbours don't suffer.

use crate::host::{Host, counting, manifest};
use serde_json::json;
use tidemill_log::Format;
use tidemill_processor::FunctionStatus;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trap_is_isolated_retried_and_put_aside_with_everything_about_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", counting(json!({}))).await;
    let mut events = vec![(Some("k"), "2"); 100];
    events[37] = (Some("k"), "trap");
    events[80] = (Some("k"), "loop");
    host.send("in", 0, &events).await;
    let report = host.caught_up("f").await;
    assert_eq!(
        (report.counts.effective, report.counts.dead_lettered),
        (98, 2)
    );
    assert_eq!(host.count("f", "k").await, Some(98));
    assert_eq!(host.values("out").await.len(), 98);

    let letters = host.read("f.dead-letters").await;
    assert_eq!(letters.len(), 2);
    let letter = &letters[0];
    assert_eq!(
        (letter.key.as_deref(), letter.value.as_slice()),
        (Some("k"), b"trap".as_slice())
    );
    assert_eq!(letter.time, 1_000_037);
    let header = |name: &str| letter.headers[name].as_str();
    assert_eq!(header("n"), "1", "its own headers are untouched");
    assert_eq!(
        (header("tidemill-function"), header("tidemill-version")),
        ("f", "1")
    );
    assert_eq!(
        (header("tidemill-reason"), header("tidemill-attempts")),
        ("trap", "3")
    );
    assert_eq!(
        (header("tidemill-topic"), header("tidemill-partition")),
        ("in", "0")
    );
    assert_eq!(
        (header("tidemill-offset"), header("tidemill-time")),
        ("37", "1970-01-01T00:00:01.000037Z")
    );
    assert!(
        header("tidemill-error").contains("unreachable"),
        "{}",
        header("tidemill-error")
    );
    assert_eq!(letters[1].headers["tidemill-reason"], "deadline");
    let text = host.metrics.render();
    assert!(
        text.contains("tidemill_function_errors_total{function=\"f\",kind=\"trap\"}"),
        "{text}"
    );
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_wait_in_place_and_then_go_on() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", manifest(json!({}))).await;
    host.send(
        "in",
        0,
        &[(None, "e1"), (None, "R2"), (None, "r"), (None, "e3")],
    )
    .await;
    let report = host.caught_up("f").await;
    assert_eq!(
        host.values("out").await,
        ["e1", "R2", "e3"],
        "order is kept"
    );
    assert_eq!(
        (report.counts.effective, report.counts.dead_lettered),
        (3, 1)
    );
    let letters = host.read("f.dead-letters").await;
    assert_eq!(letters[0].headers["tidemill-reason"], "guest");
    assert_eq!(letters[0].headers["tidemill-error"], "r");
    assert_eq!(letters[0].headers["tidemill-attempts"], "3");
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_an_event_is_retried_the_function_says_so() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy(
        "f",
        manifest(json!({"retry": {"attempts": 9, "backoff": "1h..1h"}})),
    )
    .await;
    host.send("in", 0, &[(None, "e1"), (None, "r"), (None, "e2")])
        .await;
    let report = host
        .until("f", |report| report.status == FunctionStatus::Retrying)
        .await;
    assert_eq!(report.counts.retrying, 1);
    let why = report.status_reason.expect("it says why");
    assert!(
        why.contains("partition 0 of in") && why.contains("try 1 failed: r"),
        "{why}"
    );
    assert_eq!((report.tasks[0].position, report.tasks[0].lag), (1, 2));
    assert!(report.tasks[0].lag_seconds >= 0.0);
    // A version that can handle it takes over at once, in spite of the pause.
    host.deploy(
        "f",
        manifest(json!({"retry": {"attempts": 1, "exhausted": "skip"}})),
    )
    .await;
    let report = host.caught_up("f").await;
    assert_eq!(
        (
            report.counts.skipped,
            report.counts.effective,
            report.version
        ),
        (1, 2, 2)
    );
    assert_eq!(host.read("f.dead-letters").await, []);
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fatal_and_exhausted_stop_until_resumed_also_over_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 2, Format::Bytes).await;
    host.deploy(
        "f",
        manifest(json!({"retry": {"attempts": 2, "backoff": "1ms..1ms", "exhausted": "stop"}})),
    )
    .await;
    host.send("in", 0, &[(None, "e1"), (None, "x marks it"), (None, "e2")])
        .await;
    let stopped = host
        .until("f", |report| report.status == FunctionStatus::Stopped)
        .await;
    let why = stopped.status_reason.expect("it says why");
    assert!(
        why.contains("in 0:1") && why.contains("x marks it"),
        "{why}"
    );
    assert_eq!(
        host.values("out").await,
        ["e1"],
        "what was before it is committed"
    );
    host.send("in", 1, &[(None, "t")]).await;
    host.close().await;

    let host = Host::open(dir.path()).await;
    let report = host.processor.describe("f").await.expect("it is there");
    assert_eq!(report.status, FunctionStatus::Stopped);
    assert_eq!(report.tasks[1].lag, 1, "a stopped function doesn't read");
    // Both partitions hold something that stops it again; whichever comes first is the reason.
    host.processor.resume("f").await.expect("it resumes");
    let report = host
        .until("f", |report| report.status == FunctionStatus::Stopped)
        .await;
    let why = report.status_reason.expect("it says why");
    assert!(
        why.contains("x marks it") || why.contains("failed 2 times"),
        "{why}"
    );
    assert_eq!(report.counts.dead_lettered, 0);
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outputs_that_are_not_json_are_dead_letters_and_leave_no_state() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", counting(json!({"output": {"out": {"topic": "out"}}})))
        .await;
    let events = [
        (Some("k"), "2"),
        (Some("k"), "C is not JSON"),
        (Some("k"), "2"),
        (Some("other"), "e is not JSON either"),
        (Some("k"), "1"),
    ];
    host.send("in", 0, &events).await;
    let report = host.caught_up("f").await;
    assert_eq!(
        (report.counts.effective, report.counts.dead_lettered),
        (3, 2)
    );
    assert_eq!(
        host.count("f", "k").await,
        Some(2),
        "the refused event didn't count"
    );
    assert_eq!(host.values("out").await, ["2", "2", "1"]);
    let letters = host.read("f.dead-letters").await;
    for letter in &letters {
        assert_eq!(letter.headers["tidemill-reason"], "guest");
        assert_eq!(letter.headers["tidemill-attempts"], "1");
        assert!(letter.headers["tidemill-error"].contains("takes JSON"));
    }
    assert_eq!(letters[0].headers["tidemill-offset"], "1");
    assert_eq!(letters[1].headers["tidemill-offset"], "3");
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn taking_a_slot_for_what_it_is_not_breaks_the_contract() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    let mut manifest = counting(json!({}));
    manifest["state"]["count"]["kind"] = json!("map");
    host.deploy("f", manifest).await;
    host.send("in", 0, &[(Some("a"), "e"), (Some("a"), "c")])
        .await;
    let report = host.caught_up("f").await;
    assert_eq!(
        (report.counts.effective, report.counts.dead_lettered),
        (1, 1)
    );
    let letter = host.read("f.dead-letters").await.remove(0);
    let why = &letter.headers["tidemill-error"];
    assert!(why.contains("slot \"count\" is a map"), "{why}");
    host.close().await;
}
