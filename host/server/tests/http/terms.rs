//! Appends that take effect once or under a condition.

use crate::client::{Reply, TestHost, chunked};
use serde_json::{Value, json};
use tidemill_types::ByteSize;
use tokio::io::AsyncWriteExt;

/// Sends what a step of a case says.
async fn perform(host: &TestHost, topic: &str, step: &Value) -> Reply {
    let text = |name: &str| step[name].as_str();
    let mut head = format!(
        "POST /v1/topics/{topic}/events{}\ncontent-type: {}",
        text("query").unwrap_or_default(),
        text("type").unwrap_or("application/json")
    );
    if let Some(producer) = text("producer") {
        let [id, epoch, seq] = producer.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{producer:?}")
        };
        head += &format!("\nproducer-id: {id}\nproducer-epoch: {epoch}\nproducer-seq: {seq}");
    }
    let named = [("idempotency-key", "key"), ("if-match", "if_match")];
    for (header, name) in named {
        if let Some(value) = text(name) {
            head += &format!("\n{header}: {value}");
        }
    }
    if let Some(headers) = text("headers") {
        head += &format!("\n{headers}");
    }
    host.send(&head, text("body").unwrap()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cases() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("terms.json")).unwrap();
    let mut host = TestHost::start().await;
    for (nth, case) in cases.iter().enumerate() {
        let topic = format!("t{nth}");
        host.put(&format!("/v1/topics/{topic}"), "").await.ok();
        // Each step finds what those before it left, whether the host was started again or not.
        for (at, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            if at % 3 == 2 {
                host = TestHost::over(host.stop().await, |_| ()).await;
            }
            let reply = perform(&host, &topic, step).await;
            let place = format!("{} step {at}: {step}: {reply:?}", case["id"]);
            match step["code"].as_str() {
                Some(code) => {
                    let status = step["status"].as_u64().unwrap().try_into().unwrap();
                    let detail = reply.refused(status, code);
                    assert!(
                        detail.contains(step["says"].as_str().unwrap_or_default()),
                        "{place}"
                    );
                }
                None => assert_eq!(u64::from(reply.status), step["status"], "{place}"),
            }
            for (name, value) in step["header"].as_object().into_iter().flatten() {
                assert_eq!(reply.header(name), value.as_str(), "{name}: {place}");
            }
            for (name, value) in step["member"].as_object().into_iter().flatten() {
                assert_eq!(&reply.json()[name], value, "{name}: {place}");
            }
            if let Some(written) = step["written"].as_str() {
                let there = &reply.json()["partitions"][0];
                let number = |name: &str| there[name].as_u64().unwrap();
                let shown = format!(
                    "{}:{}-{}",
                    number("partition"),
                    number("first"),
                    number("last")
                );
                assert_eq!(shown, written, "{place}");
            }
        }
        let there: Vec<Value> = host
            .values(&topic)
            .await
            .iter()
            .map(|value| value["n"].clone())
            .collect();
        assert_eq!(Value::from(there), case["log"], "{}", case["id"]);
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_copies_of_one_request_at_once_are_appended_once() {
    let host = TestHost::start().await;
    host.put("/v1/topics/t", r#"{"partitions": 3}"#).await.ok();
    for (round, terms) in [
        "\nidempotency-key: a",
        "\nproducer-id: p\nproducer-epoch: 0\nproducer-seq: 0",
    ]
    .into_iter()
    .enumerate()
    {
        let head = format!("POST /v1/topics/t/events\ncontent-type: application/json{terms}");
        let replies = futures::future::join_all((0..32).map(|_| host.send(&head, "[1,2,3]"))).await;
        let new =
            |reply: &&Reply| reply.status == 200 && reply.header("idempotent-replayed").is_none();
        assert_eq!(replies.iter().filter(new).count(), 1, "{terms}");
        let first = replies.iter().find(new).unwrap().json();
        for reply in &replies {
            match reply.status {
                200 => assert_eq!(reply.json(), first),
                204 => assert_eq!(reply.header("idempotent-replayed"), Some("true")),
                other => panic!("{other} {reply:?}"),
            }
        }
        assert_eq!(host.events("t").await.len(), 3 * (round + 1));
    }
    let metrics = host.get("/metrics").await;
    assert!(
        metrics
            .text()
            .contains("\ntidemill_replayed_appends_total 62\n"),
        "{}",
        metrics.text()
    );
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_on_terms_is_one_commit_or_nothing() {
    let host = TestHost::with(|config| config.http.body_bytes = ByteSize::mib(5)).await;
    host.put("/v1/topics/t", "").await.ok();
    let lines = |bytes: usize| format!("\"{}\"\n", "x".repeat(1021)).repeat(bytes / 1024);
    let terms = "\nif-match: \"0:0\"\nproducer-id: p\nproducer-epoch: 0\nproducer-seq: 0";
    let head = format!("POST /v1/topics/t/events\ncontent-type: application/x-ndjson{terms}");
    let refused = host.send(&head, lines(6 << 20)).await;
    let detail = refused.refused(413, "too-large");
    assert!(detail.contains("one commit"), "{detail}");
    assert_eq!(refused.json()["no_side_effects"], true);
    assert_eq!(host.events("t").await.len(), 0);
    // Above the length from which others are streamed, and of unknown length.
    let body = lines(4608 << 10);
    assert_eq!(host.send(&head, &body).await.ok()["count"], 4608);
    let request = format!(
        "POST /v1/topics/t/events HTTP/1.1\r\nhost: t\r\nconnection: close\r\ntransfer-encoding: chunked\r\ncontent-type: application/x-ndjson{}\r\n\r\n",
        terms.replace('\n', "\r\n")
    );
    let mut parts: Vec<&[u8]> = body.as_bytes().chunks(1 << 20).collect();
    parts.push(b"");
    let again = host
        .raw(&[request.as_bytes(), &chunked(&parts)].concat())
        .await;
    assert_eq!(
        (again.status, again.header("tidemill-written")),
        (204, Some("0:0-4607"))
    );
    host.stop().await;
}

/// SX-05: a body that breaks off appends nothing, and the whole one is appended once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_breaks_off_does_not_use_up_its_key() {
    let host = TestHost::start().await;
    host.put("/v1/topics/t", "").await.ok();
    let head = "POST /v1/topics/t/events\ncontent-type: application/x-ndjson\nidempotency-key: a";
    let cut = format!(
        "{} HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n{}\r\n\r\n4\r\n1\n2\n\r\n",
        head.lines().next().unwrap(),
        head.lines().skip(1).collect::<Vec<_>>().join("\r\n")
    );
    let mut connection = host.connect().await;
    connection.write_all(cut.as_bytes()).await.unwrap();
    drop(connection);
    let body = "1\n2\n3\n4\n5\n";
    let whole = host.send(head, body).await;
    assert_eq!(
        (
            whole.ok()["count"].as_u64(),
            whole.header("idempotent-replayed")
        ),
        (Some(5), None)
    );
    assert_eq!(
        host.send(head, body).await.header("idempotent-replayed"),
        Some("true")
    );
    assert_eq!(host.events("t").await.len(), 5);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_events_in_another_coding_are_the_same_request() {
    let host = TestHost::start().await;
    host.put("/v1/topics/t", "").await.ok();
    let head = "POST /v1/topics/t/events\ncontent-type: application/json\nidempotency-key: a";
    let first = host.send(head, "[1,2]").await.ok();
    let compressed = zstd::encode_all(&b"[1,2]"[..], 1).unwrap();
    let again = host
        .send(&format!("{head}\ncontent-encoding: zstd"), compressed)
        .await;
    assert_eq!(
        (again.ok(), again.header("idempotent-replayed")),
        (first, Some("true"))
    );
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_condition_on_one_partition_sends_events_without_key_there() {
    let host = TestHost::start().await;
    host.put("/v1/topics/t", r#"{"partitions": 8}"#).await.ok();
    for end in 0..4 {
        let head = format!(
            "POST /v1/topics/t/events\ncontent-type: application/json\nif-match: \"5:{end}\""
        );
        let reply = host.send(&head, "[1]").await;
        assert_eq!(
            reply.ok()["partitions"],
            json!([{"partition": 5, "first": end, "last": end, "end": end + 1}])
        );
        assert_eq!(
            reply.header("etag"),
            Some(format!("\"5:{}\"", end + 1).as_str())
        );
    }
    let head = "POST /v1/topics/t/events?key=k\ncontent-type: application/json\nif-match: \"5:4\"";
    let detail = host.send(head, "1").await.refused(400, "invalid-header");
    assert!(
        detail.contains("name every partition that the events go to"),
        "{detail}"
    );
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_host_cannot_remember_it_refuses() {
    let host = TestHost::with(|config| {
        config.log.idempotency_bytes = ByteSize(1);
        config.log.producer_bytes = ByteSize(1);
    })
    .await;
    host.put("/v1/topics/t", "").await.ok();
    let send = |terms: &'static str| {
        let head = format!("POST /v1/topics/t/events\ncontent-type: application/json\n{terms}");
        let host = &host;
        async move { host.send(&head, "1").await }
    };
    send("idempotency-key: a").await.ok();
    send("producer-id: p\nproducer-epoch: 0\nproducer-seq: 0")
        .await
        .ok();
    for (terms, code, seconds) in [
        ("idempotency-key: b", "idempotency-keys-full", 24 * 3600),
        (
            "producer-id: q\nproducer-epoch: 0\nproducer-seq: 0",
            "producers-full",
            7 * 24 * 3600,
        ),
    ] {
        let full = send(terms).await;
        full.refused(503, code);
        let problem = full.json();
        assert_eq!(
            (&problem["retryable"], &problem["no_side_effects"]),
            (&json!(true), &json!(true))
        );
        let wait: u64 = full.header("retry-after").unwrap().parse().unwrap();
        assert!((seconds - 600..=seconds).contains(&wait), "{wait}");
    }
    assert_eq!(
        send("idempotency-key: a")
            .await
            .header("idempotent-replayed"),
        Some("true")
    );
    send("producer-id: p\nproducer-epoch: 0\nproducer-seq: 1")
        .await
        .ok();
    assert_eq!(host.events("t").await.len(), 3);
    host.stop().await;
}
