//! Reading: pages, positions, long polls, lines and server-sent events.

use crate::client::TestHost;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn filled(partitions: u32, events: u64) -> TestHost {
    let host = TestHost::start().await;
    host.put("/v1/topics/t", json!({"partitions": partitions, "key": "/n", "time": {"from": "value", "pointer": "/n", "unit": "s"}}).to_string()).await.ok();
    let lines: String = (0..events).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    if events > 0 {
        host.post("t", "application/x-ndjson", lines).await.ok();
    }
    host
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_bring_each_event_once() {
    let host = filled(3, 1000).await;
    for limit in [1, 7, 100, 10_000] {
        let mut start = "from=earliest".to_owned();
        let mut seen = Vec::new();
        loop {
            let page = host
                .get(&format!("/v1/topics/t/events?{start}&limit={limit}"))
                .await
                .ok();
            let events = page["events"].as_array().unwrap();
            assert!(events.len() <= limit);
            let total: u64 = page["ends"]
                .as_object()
                .unwrap()
                .values()
                .map(|end| end.as_u64().unwrap())
                .sum();
            assert_eq!((page["ends"].as_object().unwrap().len(), total), (3, 1000));
            if events.is_empty() {
                break;
            }
            seen.extend(
                events
                    .iter()
                    .map(|event| event["value"]["n"].as_u64().unwrap()),
            );
            start = format!("cursor={}", page["next"].as_str().unwrap());
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..1000).collect::<Vec<_>>(), "limit {limit}");
    }
    let page = host.get("/v1/topics/t/events?limit=30").await.ok();
    let mut of_each = [0; 3];
    page["events"].as_array().unwrap().iter().for_each(|event| {
        of_each[usize::try_from(event["partition"].as_u64().unwrap()).unwrap()] += 1
    });
    assert_eq!(of_each, [10, 10, 10], "a fair share of each partition");
    let small = host
        .get("/v1/topics/t/events?partition=0&offset=0&max_bytes=1")
        .await
        .ok();
    assert_eq!(
        small["events"].as_array().unwrap().len(),
        1,
        "at least one event comes"
    );
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn positions() {
    let host = filled(1, 10).await;
    for (query, first, next) in [
        ("", json!(0), "0:10"),
        ("from=earliest", json!(0), "0:10"),
        ("from=latest", Value::Null, "0:10"),
        ("partition=0", json!(0), "0:10"),
        ("partition=0&offset=4", json!(4), "0:10"),
        ("partition=0&offset=4&limit=2", json!(4), "0:6"),
        ("partition=0&offset=10", Value::Null, "0:10"),
        ("partition=0&offset=99&clamp=true", Value::Null, "0:10"),
        ("cursor=0:7", json!(7), "0:10"),
        ("time=1970-01-01T00:00:03Z", json!(3), "0:10"),
        ("time=1970-01-01T00:00:03.5Z", json!(4), "0:10"),
        ("time=1971-01-01T00:00:00Z", Value::Null, "0:10"),
    ] {
        let page = host.get(&format!("/v1/topics/t/events?{query}")).await.ok();
        assert_eq!(
            (&page["events"][0]["offset"], &page["next"]),
            (&first, &json!(next)),
            "{query}"
        );
    }
    let reply = host.get("/v1/topics/t/events?partition=0&offset=11").await;
    reply.refused(416, "offset-out-of-range");
    let problem = reply.json();
    assert_eq!(
        (&problem["partition"], &problem["start"], &problem["end"]),
        (&json!(0), &json!(0), &json!(10))
    );
    for (query, status, code) in [
        ("partition=1", 404, "partition-not-found"),
        ("cursor=5:0", 404, "partition-not-found"),
        ("cursor=0", 400, "invalid-request"),
        ("limit=0", 400, "invalid-request"),
        ("limit=10001", 400, "invalid-request"),
        ("max_bytes=1GiB", 400, "invalid-request"),
        ("wait=61s", 400, "invalid-request"),
        ("wait=soon", 400, "invalid-request"),
        ("offset=1", 400, "invalid-request"),
        (
            "from=earliest&time=1970-01-01T00:00:00Z",
            400,
            "invalid-request",
        ),
        ("ofset=1", 400, "invalid-request"),
    ] {
        host.get(&format!("/v1/topics/t/events?{query}"))
            .await
            .refused(status, code);
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_poll_ends_with_the_first_event() {
    let host = filled(2, 0).await;
    let waiting = host.get("/v1/topics/t/events?from=latest&wait=60s");
    let appending = async {
        // Whichever comes first, the answer is the same.
        host.post("t", "application/json", r#"{"n":5}"#).await.ok();
    };
    let (page, ()) = tokio::join!(waiting, appending);
    let page = page.ok();
    let again = host
        .get(&format!(
            "/v1/topics/t/events?cursor={}",
            page["next"].as_str().unwrap()
        ))
        .await
        .ok();
    let came = page["events"].as_array().unwrap().len() + again["events"].as_array().unwrap().len();
    assert!(came <= 1);
    assert_eq!(host.values("t").await, [json!({"n": 5})]);
    let nothing = host
        .get("/v1/topics/t/events?from=latest&wait=1ms")
        .await
        .ok();
    assert_eq!(nothing["events"], json!([]));
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_carry_the_cursor_in_a_header() {
    let host = TestHost::start().await;
    host.put("/v1/topics/t", "").await.ok();
    host.post("t", "application/json", "{\n \"a\": 1\n}")
        .await
        .ok();
    host.post("t", "application/json", "2").await.ok();
    let reply = host
        .send("GET /v1/topics/t/events\naccept: application/x-ndjson", "")
        .await;
    assert_eq!(
        (reply.header("content-type"), reply.header("tidemill-next")),
        (Some("application/x-ndjson"), Some("0:2"))
    );
    let lines: Vec<Value> = reply
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (&lines[0]["value"], &lines[1]["value"], lines.len()),
        (&json!({"a": 1}), &json!(2), 2)
    );
    let page = host.get("/v1/topics/t/events").await;
    assert!(
        page.text().contains("\"value\":{\n \"a\": 1\n},"),
        "byte for byte"
    );
    host.send("GET /v1/topics/t/events\naccept: image/png", "")
        .await
        .refused(406, "not-acceptable");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_sent_events_resume() {
    let host = filled(1, 3).await;
    let mut connection = host.connect().await;
    connection.write_all(b"GET /v1/topics/t/events HTTP/1.1\r\nhost: t\r\naccept: text/event-stream\r\nlast-event-id: 0:1\r\n\r\n").await.unwrap();
    let mut got = String::new();
    let mut part = [0; 4096];
    while !got.contains("id: 0:3\n") {
        let read = connection.read(&mut part).await.unwrap();
        assert!(read > 0, "{got}");
        got.push_str(std::str::from_utf8(&part[..read]).unwrap());
    }
    host.post("t", "application/json", r#"{"n":3}"#).await.ok();
    while !got.contains("id: 0:4\ndata: {\"partition\":0,\"offset\":3,") {
        let read = connection.read(&mut part).await.unwrap();
        assert!(read > 0, "{got}");
        got.push_str(std::str::from_utf8(&part[..read]).unwrap());
    }
    assert!(
        got.contains("text/event-stream")
            && got.contains("id: 0:2\ndata: {\"partition\":0,\"offset\":1,"),
        "{got}"
    );
    assert!(
        !got.contains("\"offset\":0,"),
        "what was seen isn't sent again: {got}"
    );
    // The stream ends when the host stops.
    let (_, rest) = tokio::join!(host.stop(), async {
        let mut rest = Vec::new();
        connection.read_to_end(&mut rest).await.map(|_| rest)
    });
    assert!(rest.unwrap().ends_with(b"0\r\n\r\n"));
}
