//! Events come through once, in order, counted.

use crate::host::{Host, counting, manifest, number};
use serde_json::json;
use tidemill_log::Format;
use tidemill_processor::FunctionStatus;
use tidemill_types::{ByteSize, partition_of_key};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_outcome_is_counted_and_outputs_keep_everything() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 2, Format::Bytes).await;
    host.deploy("f", manifest(json!({}))).await;
    let events = [
        (Some("a"), "e1"),
        (None, "e2"),
        (Some("a"), "filtered"),
        (Some("a"), "skipped"),
        (Some("b"), "dead"),
        (Some("b"), "undecodable"),
        (Some("a"), "e3"),
    ];
    host.send("in", 1, &events).await;
    let report = host.caught_up("f").await;
    let counts = report.counts;
    assert_eq!(
        (counts.events_in, counts.emitted, counts.effective),
        (7, 3, 3)
    );
    assert_eq!(
        (counts.filtered, counts.skipped, counts.dead_lettered),
        (1, 1, 2)
    );
    assert_eq!(report.status, FunctionStatus::Running);
    let watermark = report.tasks[1]
        .watermark
        .expect("events were seen")
        .micros();
    assert_eq!(
        watermark,
        1_000_006 - 300_000_000 - 1,
        "highest time, less 5 minutes, less 1 µs"
    );
    assert_eq!((report.tasks[1].position, report.tasks[1].end), (7, 7));

    let out = host.read("out").await;
    let in_partition = |partition| {
        let of = out.iter().filter(move |seen| seen.partition == partition);
        of.map(|seen| String::from_utf8_lossy(&seen.value).into_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(out.len(), 3);
    let keyed = partition_of_key(b"a", 2);
    for seen in &out {
        assert_eq!(seen.headers.get("n").map(String::as_str), Some("1"));
        let expected = if seen.key.is_some() { keyed } else { 1 };
        assert_eq!(seen.partition, expected, "by key, or beside the input");
    }
    let order: Vec<String> = in_partition(keyed);
    let keyed_only: Vec<&String> = order.iter().filter(|value| *value != "e2").collect();
    assert_eq!(keyed_only, ["e1", "e3"]);
    let letters = host.read("f.dead-letters").await;
    assert_eq!(letters[0].headers["tidemill-reason"], "guest");
    assert_eq!(letters[0].headers["tidemill-error"], "dead");
    assert_eq!(letters[1].headers["tidemill-reason"], "decode");
    assert_eq!(letters[1].headers["tidemill-offset"], "5");
    let text = host.metrics.render();
    assert!(
        text.contains("tidemill_function_events_in_total{function=\"f\"} 7"),
        "{text}"
    );
    assert!(
        text.contains("tidemill_function_dead_letters_total{function=\"f\"} 2"),
        "{text}"
    );
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_per_key_follow_each_other_across_batches_and_restarts() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", counting(json!({"batch": {"events": 7}})))
        .await;
    for _ in 0..10 {
        host.send(
            "in",
            0,
            &[(Some("a"), "c"), (Some("b"), "c"), (Some("a"), "c")],
        )
        .await;
    }
    host.send("in", 0, &[(None, "c")]).await;
    let report = host.caught_up("f").await;
    assert_eq!(
        (report.counts.skipped, report.counts.effective),
        (1, 30),
        "no key, no state"
    );
    let lines = host.lines("f").await;
    assert_eq!(lines.len(), 1, "said once: {lines:?}");
    assert_eq!(
        (host.count("f", "a").await, host.count("f", "b").await),
        (Some(20), Some(10))
    );
    host.close().await;

    let host = Host::open(dir.path()).await;
    assert_eq!(
        host.caught_up("f").await.counts,
        report.counts,
        "exact after a restart"
    );
    host.send("in", 0, &[(Some("a"), "c")]).await;
    host.until("f", |report| report.counts.events_in == 32)
        .await;
    let counts: Vec<u64> = host
        .read("out")
        .await
        .iter()
        .filter(|seen| seen.key.as_deref() == Some("a"))
        .map(|seen| number(&seen.value))
        .collect();
    assert_eq!(counts, (1..=21).collect::<Vec<u64>>());
    let listed = host
        .processor
        .state_list("f", "count", None, b"", None, 10)
        .await
        .expect("lists");
    let listed: Vec<_> = listed
        .entries
        .iter()
        .map(|entry| (&entry.key[..], number(&entry.value)))
        .collect();
    assert_eq!(listed, [(b"a".as_slice(), 21), (b"b", 10)]);
    let after = host
        .processor
        .state_list("f", "count", None, b"", Some((0, "a".into())), 10)
        .await;
    assert_eq!(after.expect("lists").entries.len(), 1);
    assert_eq!(host.count("f", "nobody").await, None);
    let missing = host
        .processor
        .state_get("f", "cuont", b"a", None)
        .await
        .expect_err("no such slot");
    assert_eq!(missing.code, "slot-not-found");
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_feed_each_other() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 2, Format::Bytes).await;
    host.deploy(
        "first",
        manifest(json!({"output": {"out": {"topic": "middle", "format": "bytes"}}})),
    )
    .await;
    host.deploy(
        "second",
        manifest(json!({"input": [{"topic": "middle", "start": "earliest"}]})),
    )
    .await;
    let sent: Vec<String> = (0..500).map(|n| format!("e{n}")).collect();
    let events: Vec<_> = sent
        .iter()
        .map(|value| (Some("k"), value.as_str()))
        .collect();
    host.send("in", 0, &events).await;
    host.until("second", |report| report.counts.events_in == 500)
        .await;
    assert_eq!(host.values("out").await, sent, "all, once, in order");
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn little_room_and_a_short_memory_slow_it_down_and_lose_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let narrow = |settings: &mut tidemill_log::Settings| {
        settings.in_flight_bytes = ByteSize(16 << 10);
        settings.tail_bytes = ByteSize(16 << 10);
    };
    let host = Host::open_with(dir.path(), narrow)
        .await
        .expect("the host opens");
    host.topic("in", 2, Format::Bytes).await;
    let value = "2".repeat(200);
    for round in 0..20 {
        host.send("in", round % 2, &[(Some("k"), value.as_str()); 50])
            .await;
    }
    host.deploy("f", counting(json!({"batch": {"events": 20}})))
        .await;
    let report = host
        .until("f", |report| report.counts.events_in == 1000)
        .await;
    assert_eq!(
        (report.counts.effective, report.counts.emitted),
        (1000, 1000)
    );
    let listed = host
        .processor
        .state_list("f", "count", None, b"", None, 10)
        .await
        .expect("lists");
    let listed: Vec<_> = listed
        .entries
        .iter()
        .map(|entry| (entry.partition, number(&entry.value)))
        .collect();
    assert_eq!(listed, [(0, 500), (1, 500)]);
    assert_eq!(host.read("out").await.len(), 1000);
    host.close().await;
}
