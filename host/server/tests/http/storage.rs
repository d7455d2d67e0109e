//! Object storage that is away: appends go on as long as the journal may grow, sealed history can't be
//! read and that is said, the host knows it, and all is well once it is back.

use crate::client::TestHost;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use tidemill_types::ByteSize;

/// Waits for something that the host does by itself.
async fn until<T>(mut asked: impl AsyncFnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(seen) = asked().await {
                return seen;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting)
        .await
        .unwrap()
}

async fn archived(host: &TestHost) -> u64 {
    let shown = host.get("/v1/topics/t").await.ok();
    shown["ranges"][0]["archived_end"].as_u64().unwrap()
}

async fn degraded(host: &TestHost) -> Vec<Value> {
    let ready = host.get("/readyz").await.ok();
    ready["degraded"].as_array().unwrap().clone()
}

/// Takes the folder of segments away, or brings it back.
fn rename(dir: &Path, from: &str, to: &str) {
    let objects = dir.join("data/objects");
    std::fs::rename(objects.join(from), objects.join(to)).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_whose_storage_is_away_goes_on_within_bounds() {
    let host = TestHost::with(|config| {
        config.log.segment_age = Duration::from_millis(1);
        config.log.tail_bytes = ByteSize(0);
        config.log.journal_file_bytes = ByteSize(256 << 10);
        config.log.journal_bytes = ByteSize::mib(1);
        config.storage.attempts = 1;
    })
    .await;
    host.put("/v1/topics/t", "{}").await.ok();
    host.post("t", "application/json", "0").await.ok();
    until(async || (archived(&host).await == 1).then_some(())).await;
    assert!(degraded(&host).await.is_empty());

    // A file where a folder should be.
    rename(host.dir.path(), "topics", "away");
    std::fs::write(host.dir.path().join("data/objects/topics"), "").unwrap();
    let long = format!("\"{}\"", "x".repeat(100_000));
    let mut count = 1;
    let refused = until(async || {
        let reply = host.post("t", "application/json", &long).await;
        if reply.status == 200 {
            count += 1;
            return None;
        }
        Some(reply)
    })
    .await;
    let detail = refused.refused(503, "journal-full");
    assert!(detail.contains("log.journal_bytes"), "{detail}");
    assert_eq!(refused.header("retry-after"), Some("5"));
    assert_eq!(refused.json()["no_side_effects"], true);
    assert!(count > 5, "only {count} were taken");
    let why = until(async || degraded(&host).await.pop()).await;
    let why = why.as_str().unwrap();
    assert!(why.starts_with("object storage has failed since"), "{why}");
    let metrics = host.get("/metrics").await;
    assert!(
        metrics
            .text()
            .contains("tidemill_object_storage_reachable 0")
    );
    assert!(metrics.text().contains("tidemill_sealing_failures_total"));

    let sealed = host.get("/v1/topics/t/events?partition=0&offset=0").await;
    sealed.refused(503, "storage-failed");
    assert_eq!(sealed.json()["retryable"], true);
    let newer = host
        .get("/v1/topics/t/events?partition=0&offset=1&limit=1")
        .await
        .ok();
    assert_eq!(newer["events"][0]["offset"], 1, "the journal is read");
    let stats = host.get("/v1/topics/t/stats").await.ok();
    assert_eq!(stats["partitions"][0]["earliest"], Value::Null);
    assert_eq!(stats["partitions"][0]["latest"]["offset"], count - 1);

    std::fs::remove_file(host.dir.path().join("data/objects/topics")).unwrap();
    rename(host.dir.path(), "away", "topics");
    until(async || (archived(&host).await == count).then_some(())).await;
    until(async || {
        let reply = host.post("t", "application/json", "1").await;
        (reply.status == 200).then_some(())
    })
    .await;
    assert!(degraded(&host).await.is_empty());
    let values = host.values("t").await;
    assert_eq!((values.len() as u64, &values[0]), (count + 1, &json!(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topics_figures_say_what_is_where() {
    let host = TestHost::with(|config| {
        config.log.segment_bytes = ByteSize(10_000);
        config.log.segment_age = Duration::from_millis(1);
    })
    .await;
    let settings = json!({"partitions": 2, "key": "/k"});
    host.put("/v1/topics/t", settings.to_string()).await.ok();
    let empty = host.get("/v1/topics/t/stats").await.ok();
    assert_eq!(empty["compression"], Value::Null);
    assert_eq!(empty["partitions"][1]["latest"], Value::Null);

    let line = |n: u32| format!("{}\n", json!({"k": "a", "n": n, "text": "x".repeat(200)}));
    let lines: String = (0..100).map(line).collect();
    host.post("t", "application/x-ndjson", lines).await.ok();
    let stats = until(async || {
        let stats = host.get("/v1/topics/t/stats").await.ok();
        (stats["hot"]["journal_bytes"] == 0 && stats["rates"]["events_per_second"] != 0.0)
            .then_some(stats)
    })
    .await;
    assert_eq!(
        (&stats["topic"], &stats["offsets"]),
        (&json!("t"), &json!(100))
    );
    assert_eq!(stats["cold"]["events"], 100);
    assert!(stats["cold"]["segments"].as_u64().unwrap() >= 2, "{stats}");
    assert!(
        stats["compression"]["ratio"].as_f64().unwrap() > 1.0,
        "{stats}"
    );
    let partitions = stats["partitions"].as_array().unwrap();
    let one = partitions.iter().find(|it| it["end"] == 100).unwrap();
    assert_eq!(
        (&one["start"], &one["archived_end"]),
        (&json!(0), &json!(100))
    );
    assert_eq!(one["earliest"]["offset"], 0);
    assert_eq!(one["latest"]["offset"], 99);
    assert!(
        one["latest"]["ingest_time"]
            .as_str()
            .unwrap()
            .ends_with('Z')
    );
    assert_eq!(stats["cold"]["bytes"], one["cold"]["bytes"]);

    host.get("/v1/topics/u/stats")
        .await
        .refused(404, "topic-not-found");
    host.get("/v1/topics/t/stats?x=1")
        .await
        .refused(400, "invalid-request");
}
