//! Long NDJSON bodies: committed in chunks, answered once, and what is left when they break.

use crate::client::{TestHost, chunked};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const HEAD: &str = "POST /v1/topics/t/events HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-type: application/x-ndjson\r\n";

fn line(n: u64) -> String {
    format!("{{\"n\":{n},\"pad\":\"{}\"}}\n", "x".repeat(1000))
}

async fn numbers(host: &TestHost) -> Vec<u64> {
    let mut all: Vec<u64> = host
        .values("t")
        .await
        .iter()
        .map(|value| value["n"].as_u64().unwrap())
        .collect();
    all.sort_unstable();
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_body_lands_whole() {
    let host = TestHost::start().await;
    host.put("/v1/topics/t", r#"{"partitions": 2, "key": "/n"}"#)
        .await
        .ok();
    let lines: String = (0..6000).map(line).collect();
    for (nth, chunked_transfer) in [(0_u64, false), (1, true)] {
        let mut request = HEAD.as_bytes().to_vec();
        if chunked_transfer {
            request.extend(b"transfer-encoding: chunked\r\n\r\n");
            let parts: Vec<&[u8]> = lines.as_bytes().chunks(60_001).collect();
            request.extend(chunked(&parts));
            request.extend(b"0\r\n\r\n");
        } else {
            request.extend(format!("content-length: {}\r\n\r\n", lines.len()).as_bytes());
            request.extend(lines.as_bytes());
        }
        let answer = host.raw(&request).await.ok();
        assert_eq!(answer["count"], 6000);
        let covered: u64 = answer["partitions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| p["end"].as_u64().unwrap() - p["first"].as_u64().unwrap())
            .sum();
        assert_eq!(covered, 6000);
        let expected: Vec<u64> = (0..6000)
            .flat_map(|n| vec![n; usize::try_from(nth).unwrap() + 1])
            .collect();
        assert_eq!(numbers(&host).await, expected);
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_line_ends_it_and_names_what_is_written() {
    let host = TestHost::start().await;
    host.put("/v1/topics/t", "").await.ok();
    let mut lines: String = (0..5000).map(line).collect();
    lines.push_str("{\"n\":\n");
    lines.extend((5001..5010).map(line));
    let request = format!("{HEAD}content-length: {}\r\n\r\n{lines}", lines.len());
    let reply = host.raw(request.as_bytes()).await;
    let detail = reply.refused(422, "invalid-events");
    assert!(detail.contains("line 5001"), "{detail}");
    let problem = reply.json();
    assert_eq!(
        (&problem["errors"][0]["index"], &problem["no_side_effects"]),
        (&json!(5000), &json!(false))
    );
    let (count, line) = (
        problem["committed"]["count"].as_u64().unwrap(),
        problem["committed"]["line"].as_u64().unwrap(),
    );
    assert!(count > 0 && count < 5000 && count == line, "{problem}");
    assert_eq!(numbers(&host).await, (0..count).collect::<Vec<_>>());
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_breaks_off_writes_no_part_of_a_line() {
    let host = TestHost::start().await;
    host.put("/v1/topics/t", "").await.ok();
    // Atomic forms: nothing. A stream: whole lines at most.
    for (head, body) in [
        (
            "content-type: application/json\r\ncontent-length: 100\r\n\r\n",
            "[{\"n\":1},{\"n\":2}",
        ),
        (
            "content-type: application/x-ndjson\r\ncontent-length: 100\r\n\r\n",
            "{\"n\":1}\n{\"n\":2",
        ),
        (
            "content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
            "9\r\n[{\"n\":1},\r\n",
        ),
        (
            "content-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n",
            "2\r\n12\r\n",
        ),
    ] {
        let mut connection = host.connect().await;
        connection
            .write_all(
                format!("POST /v1/topics/t/events HTTP/1.1\r\nhost: t\r\n{head}{body}").as_bytes(),
            )
            .await
            .unwrap();
        connection.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ = connection.read_to_end(&mut answer).await;
        assert!(
            !String::from_utf8_lossy(&answer).contains(" 200 "),
            "{head} {body}"
        );
    }
    assert_eq!(host.values("t").await, Vec::<Value>::new());
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_stream_is_seen_while_it_goes_on() {
    let host = TestHost::start().await;
    host.put("/v1/topics/t", "").await.ok();
    let mut connection = host.connect().await;
    connection
        .write_all(format!("{HEAD}transfer-encoding: chunked\r\n\r\n").as_bytes())
        .await
        .unwrap();
    for n in 0..3_u64 {
        connection
            .write_all(&chunked(&[
                format!("{{\"n\":{n}}}\n{{\"half").as_bytes(),
                b"\":1}\n",
            ]))
            .await
            .unwrap();
        let page = host
            .get(&format!(
                "/v1/topics/t/events?partition=0&offset={}&wait=60s",
                2 * n
            ))
            .await
            .ok();
        assert_eq!(page["events"][0]["value"], json!({"n": n}));
    }
    connection.write_all(b"0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("\"count\":6"), "{answer}");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_without_end_is_refused() {
    let host = TestHost::start().await;
    host.put("/v1/topics/t", "").await.ok();
    let request = format!(
        "{HEAD}content-length: {}\r\n\r\n{}",
        6 << 20,
        "1".repeat(6 << 20)
    );
    let detail = host.raw(request.as_bytes()).await.refused(413, "too-large");
    assert!(detail.contains("line 1 has more than"), "{detail}");
    host.stop().await;
}
