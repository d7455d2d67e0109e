//! Inputs keyed by a pointer: events of one key meet in one task, exactly once.

use crate::crash::reopen;
use crate::host::{Host, conserved, counting, manifest};
use crate::kept::{self, asks};
use crate::replays::{diff, verified};
use serde_json::{Value, json};
use tidemill_env::Random;
use tidemill_log::Format;
use tidemill_processor::FunctionReport;
use tidemill_types::{Timestamp, partition_of_key};

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

    let mut between = host.read("f.by-key").await;
    // Marks of time are no events.
    between.retain(|seen| !seen.value.is_empty());
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

/// `keeper` on a topic of several partitions, keyed by the first number that an event says.
async fn keeping(host: &Host, name: &str, idle: &str, batch: u32) {
    let manifest = json!({
        "input": [{"topic": "in", "start": "earliest", "key": "/0/count"}],
        "output": {"out": {"topic": format!("{name}-out")}},
        "time": {"disorder": "0s", "idle": idle, "max_future": "1h"},
        "batch": {"events": batch},
    });
    kept::deploy(host, name, manifest).await;
}

/// Sends an event of a key with more to do.
async fn ask(host: &Host, partition: u32, (key, ms): (u32, i64), more: &[Value]) {
    let asks: Vec<Value> = [json!({"count": key})]
        .iter()
        .chain(more)
        .cloned()
        .collect();
    let asks = json!(asks).to_string();
    host.send_at("in", partition, &[("own", ms * 1000, asks)])
        .await;
}

/// How far time is on a partition of the internal topic.
fn watermark(report: &FunctionReport, partition: u32) -> Option<i64> {
    let mut tasks = report.tasks.iter();
    let task = tasks.find(|task| task.topic.contains(".by-key") && task.partition == partition);
    let micros = task.expect("it is there").watermark;
    micros.map(Timestamp::micros)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_is_as_far_as_in_the_source_partition_furthest_behind() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 2, Format::Json).await;
    keeping(&host, "f", "1h", 256).await;
    let (here, other) = (partition_of_key(b"1", 2), 1 - partition_of_key(b"1", 2));
    ask(&host, 0, (1, 100), &[json!({"timer": ["end", 50, []]})]).await;
    let report = host.until("f", |report| report.counts.events_in == 1).await;
    assert_eq!(
        watermark(&report, here),
        None,
        "nothing is known of the second"
    );
    ask(&host, 1, (1, 40), &[]).await;
    let report = host.until("f", |report| report.counts.events_in == 2).await;
    assert_eq!(
        (report.counts.timers, watermark(&report, here)),
        (0, Some(39_999))
    );
    ask(&host, 1, (1, 60), &[]).await;
    let report = host.until("f", |report| report.counts.timers == 1).await;
    assert_eq!(watermark(&report, here), Some(59_999));
    // The other partition of the internal topic gets no event, and is told all the same.
    let told = |report: &FunctionReport| watermark(report, other) == Some(59_999);
    let report = host.until("f", told).await;
    assert!(conserved(&report), "{:?}", report.counts);
    // What lies too far in the future moves nothing.
    let far = 7_258_118_400_000;
    ask(&host, 0, (1, far), &[]).await;
    ask(&host, 1, (1, far), &[]).await;
    ask(&host, 1, (1, 80), &[]).await;
    let report = host.until("f", |report| report.counts.events_in == 6).await;
    assert_eq!(watermark(&report, here), Some(79_999));
    let report = host
        .until("f", |report| watermark(report, other) == Some(79_999))
        .await;
    assert_eq!(report.counts.late, 0);
    let counted = "function_future_events_total{function=\"f\"} 2";
    let shown = host.metrics.render();
    assert!(shown.contains(counted), "{shown}");

    let events = host.read("f.by-key").await;
    let marks = events.iter().filter(|seen| seen.value.is_empty());
    assert!(marks.clone().count() > 0, "there are marks");
    assert!(marks.clone().all(|mark| mark.key.is_none()));
    let same = verified(&host, "f").await;
    assert!(same.is_same(), "{same:?}");
    assert_eq!(same.events, 6, "marks are none");
    keeping(&host, "f", "1h", 1).await;
    let compared = diff(&host, "f", 1).await;
    assert_eq!((compared.events, compared.different), (6, 0));
    assert_eq!(compared.same, 6, "marks are none");
    host.close().await;

    let host = reopen(dir.path()).await;
    let report = host.caught_up("f").await;
    assert_eq!(
        (watermark(&report, here), watermark(&report, other)),
        (Some(79_999), Some(79_999))
    );
    assert_eq!(
        host.read("f.by-key").await.len(),
        events.len(),
        "nobody is told twice"
    );
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_partition_that_is_idle_holds_nothing_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 2, Format::Json).await;
    keeping(&host, "f", "50ms", 256).await;
    ask(&host, 0, (1, 10), &[json!({"timer": ["end", 20, []]})]).await;
    ask(&host, 0, (1, 25), &[]).await;
    let report = host.until("f", |report| report.counts.timers == 1).await;
    let here = partition_of_key(b"1", 2);
    assert_eq!(watermark(&report, here), Some(24_999));
    let same = verified(&host, "f").await;
    assert!(same.is_same(), "{same:?}");
    assert_eq!(same.events, 2);
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_several_sources_are_on_time_and_come_to_the_same_wherever_batches_end() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut host = Host::open(dir.path()).await;
    host.topic("in", 3, Format::Json).await;
    keeping(&host, "f", "1h", 7).await;
    let random = Random::seeded(41);
    // Each source partition is in order, the second a minute behind the first, the third two.
    for step in 0..120 {
        let source = u32::try_from(random.below(3)).expect("small");
        let time = 1_000_000 + step * 20 - i64::from(source) * 60_000;
        let key = u32::try_from(random.below(4)).expect("small");
        let more: Vec<Value> = asks(&random, time, 1)
            .iter()
            .map(|ask| json!(ask))
            .collect();
        ask(&host, source, (key, time), &more).await;
        if step == 60 {
            host.close().await;
            host = reopen(dir.path()).await;
        }
    }
    let report = host
        .until("f", |report| report.counts.events_in == 120)
        .await;
    assert!(conserved(&report), "{:?}", report.counts);
    let slowest = 1_000_000 + 120 * 20 - 120_000;
    for partition in 0..3 {
        let told = |report: &FunctionReport| {
            watermark(report, partition).is_some_and(|at| at > (slowest - 120 * 20) * 1000)
        };
        let report = host.until("f", told).await;
        assert!(watermark(&report, partition) < Some(slowest * 1000));
    }
    host.processor.pause("f").await.expect("pauses");
    let same = verified(&host, "f").await;
    assert!(same.is_same(), "{same:?}");
    assert_eq!(same.events, 120);
    host.close().await;
}
