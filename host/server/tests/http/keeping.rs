//! What goes and what stays: truncation, retention, compacted topics, lookup by time.

use crate::client::TestHost;
use serde_json::{Value, json};

async fn topic(host: &TestHost, settings: Value) {
    host.put("/v1/topics/t", settings.to_string()).await.ok();
}

async fn truncate(host: &TestHost, query: &str) -> crate::client::Reply {
    host.send(&format!("DELETE /v1/topics/t/events{query}"), "")
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncation_moves_the_start() {
    let host = TestHost::start().await;
    topic(&host, json!({})).await;
    let lines: String = (0..15).map(|n| format!("{n}\n")).collect();
    host.post("t", "application/x-ndjson", lines).await.ok();
    let answer = truncate(&host, "?partition=0&before=10").await;
    assert_eq!(answer.ok(), json!({"partition": 0, "start": 10, "end": 15}));
    let again = truncate(&host, "?partition=0&before=4").await.ok();
    assert_eq!(again["start"], 10, "it never goes back");

    let below = host.get("/v1/topics/t/events?partition=0&offset=9").await;
    let detail = below.refused(416, "offset-out-of-range");
    assert!(detail.contains("start 10"), "{detail}");
    let problem = below.json();
    assert_eq!(
        (&problem["start"], &problem["end"]),
        (&json!(10), &json!(15))
    );
    host.get("/v1/topics/t/events?cursor=0:3")
        .await
        .refused(416, "offset-out-of-range");
    let page = host
        .get("/v1/topics/t/events?partition=0&offset=3&clamp=true&limit=1")
        .await
        .ok();
    assert_eq!(page["events"][0]["offset"], 10);
    assert_eq!(host.values("t").await, [10, 11, 12, 13, 14]);
    let described = host.get("/v1/topics/t").await.ok();
    assert_eq!(described["ranges"][0]["start"], 10);

    let above = truncate(&host, "?partition=0&before=16").await;
    above.refused(416, "offset-out-of-range");
    assert_eq!(above.json()["end"], 15);
    for query in [
        "",
        "?partition=0",
        "?before=1",
        "?partition=x&before=1",
        "?partition=0&after=1",
    ] {
        truncate(&host, query).await.refused(400, "invalid-request");
    }
    truncate(&host, "?partition=7&before=1")
        .await
        .refused(404, "partition-not-found");
    host.send("DELETE /v1/topics/u/events?partition=0&before=1", "")
        .await
        .refused(404, "topic-not-found");

    let all = truncate(&host, "?partition=0&before=15").await.ok();
    assert_eq!(all, json!({"partition": 0, "start": 15, "end": 15}));
    let dir = host.stop().await;
    let host = TestHost::over(dir, |_| ()).await;
    assert_eq!(host.values("t").await, Vec::<Value>::new());
    host.post("t", "application/json", "99").await.ok();
    let page = host.get("/v1/topics/t/events?from=earliest").await.ok();
    assert_eq!(page["events"][0]["offset"], 15, "offsets go on");
    let metrics = host.get("/metrics").await;
    assert!(metrics.text().contains("tidemill_truncated_events_total"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compacted_topic_needs_keys() {
    let host = TestHost::start().await;
    topic(&host, json!({"cleanup": "compact", "format": "bytes"})).await;
    let refused = host.post("t", "application/octet-stream", "x").await;
    refused.refused(422, "invalid-events");
    let reason = refused.json()["errors"][0]["reason"].to_string();
    assert!(reason.contains("has no key"), "{reason}");
    let typed = "application/vnd.tidemill.events+json";
    for event in [
        json!({"value": "x"}),
        json!({"value": "x", "key": null}),
        json!({"tombstone": true}),
    ] {
        host.post("t", typed, event.to_string())
            .await
            .refused(422, "invalid-events");
    }
    let mut packed = Vec::new();
    for word in [1_u32, 1, 1, 0] {
        packed.extend_from_slice(&word.to_le_bytes());
    }
    // A row without flags: a value of one byte, no key.
    let mut head = [0; 32];
    head[20] = 1;
    packed.extend_from_slice(&head);
    packed.push(b'x');
    let refused = host
        .post("t", "application/vnd.tidemill.batch", packed)
        .await;
    refused.refused(422, "invalid-events");
    assert_eq!(
        host.values("t").await,
        Vec::<Value>::new(),
        "nothing appended"
    );

    let events = json!([
        {"key": "", "value": "an empty key is a key"},
        {"key": "A", "value_base64": ""},
        {"key": "A", "tombstone": true},
    ]);
    host.post("t", typed, events.to_string()).await.ok();
    let head = "POST /v1/topics/t/events?key=A\ncontent-type: application/octet-stream";
    host.send(head, "last").await.ok();
    let events = host.events("t").await;
    assert_eq!(events.len(), 4);
    assert_eq!(
        (&events[1]["tombstone"], &events[2]["tombstone"]),
        (&Value::Null, &json!(true))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_start_by_either_time() {
    let host = TestHost::start().await;
    topic(
        &host,
        json!({"time": {"from": "value", "pointer": "/s", "unit": "s"}}),
    )
    .await;
    for second in [100, 50, 200] {
        let event = json!({ "s": second }).to_string();
        host.post("t", "application/json", event).await.ok();
    }
    let from = async |query: String| {
        let page = host.get(&format!("/v1/topics/t/events?{query}")).await.ok();
        page["events"][0]["offset"].as_u64()
    };
    assert_eq!(from("time=1970-01-01T00:01:00Z".into()).await, Some(0));
    assert_eq!(
        from("time=1970-01-01T00:02:30Z&time_of=event".into()).await,
        Some(2)
    );
    assert_eq!(from("time=1970-01-01T00:03:21Z".into()).await, None);
    assert_eq!(
        from("time=1970-01-01T00:03:21Z&time_of=ingest".into()).await,
        Some(0)
    );
    let events = host.events("t").await;
    let ingested = events[1]["ingest_time"].as_str().unwrap();
    let found = from(format!("time={ingested}&time_of=ingest"))
        .await
        .unwrap();
    assert!(found <= 1, "the first with that time or a later one");
    host.get("/v1/topics/t/events?time_of=ingest")
        .await
        .refused(400, "invalid-request");
    truncate(&host, "?partition=0&before=2").await.ok();
    assert_eq!(from("time=1970-01-01T00:01:00Z".into()).await, Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_takes_sealed_events_by_itself() {
    let host = TestHost::with(|config| {
        config.log.segment_age = std::time::Duration::from_millis(1);
    })
    .await;
    topic(&host, json!({"retention": {"age": "1ms"}})).await;
    host.post("t", "application/x-ndjson", "1\n2\n3\n")
        .await
        .ok();
    let clock = tidemill_env::Clock::system();
    loop {
        let range = host.get("/v1/topics/t").await.ok()["ranges"][0].take();
        if range["start"] == 3 {
            assert_eq!((&range["end"], &range["bytes"]), (&json!(3), &json!(0)));
            break;
        }
        clock.sleep(std::time::Duration::from_millis(20)).await;
    }
    host.get("/v1/topics/t/events?partition=0&offset=0")
        .await
        .refused(416, "offset-out-of-range");
    let answer = host.post("t", "application/json", "4").await.ok();
    assert_eq!(answer["partitions"][0]["first"], 3);
}
