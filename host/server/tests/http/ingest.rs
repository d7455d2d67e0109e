//! Appending in every form, and what is refused.

use crate::client::TestHost;
use serde_json::{Value, json};
use std::io::Write;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_form_lands() {
    let host = TestHost::start().await;
    host.put("/v1/topics/t", r#"{"key": "/k"}"#).await.ok();
    for (content_type, body, count) in [
        ("application/json", r#"{"k":"a","n":1}"#, 1),
        (
            "application/json",
            r#"[{"k":"a","n":2},{"k":"b","n":3}]"#,
            2,
        ),
        (
            "application/x-ndjson",
            "{\"k\":\"a\",\"n\":4}\n\n{\"k\":\"b\",\"n\":5}",
            2,
        ),
        (
            "application/vnd.tidemill.events+json",
            r#"[{"key":"c","value":{"n":6},"headers":[["a","1"],["A",{"base64":"/wA="}]],"time":"2013-01-01T10:15:00Z"}]"#,
            1,
        ),
        (
            "application/vnd.tidemill.events+ndjson",
            "{\"value\":{\"k\":\"d\",\"n\":7}}\n{\"key_base64\":\"/w==\",\"tombstone\":true}\n",
            2,
        ),
    ] {
        let reply = host.post("t", content_type, body).await;
        assert_eq!(reply.status, 200, "{content_type} {}", reply.text());
        let answer = reply.json();
        assert_eq!(
            (&answer["count"], &answer["ack"]),
            (&json!(count), &json!("fsync")),
            "{content_type}"
        );
        let written = &answer["partitions"][0];
        let (first, last, end) = (
            written["first"].as_u64().unwrap(),
            written["last"].as_u64().unwrap(),
            written["end"].as_u64().unwrap(),
        );
        assert_eq!(
            (written["partition"].as_u64(), last - first + 1, end),
            (Some(0), count, last + 1)
        );
    }
    let events = host.events("t").await;
    let keys: Vec<_> = events
        .iter()
        .map(|event| {
            event
                .get("key")
                .or(event.get("key_base64"))
                .unwrap()
                .as_str()
                .unwrap()
        })
        .collect();
    assert_eq!(keys, ["a", "a", "b", "a", "b", "c", "d", "/w=="]);
    assert_eq!(events[1]["value"], json!({"k": "a", "n": 2}));
    assert_eq!(
        events[5]["headers"],
        json!([["a", "1"], ["A", {"base64": "/wA="}]])
    );
    assert_eq!(events[5]["time"], "2013-01-01T10:15:00Z");
    assert_eq!(
        (&events[7]["value"], &events[7]["tombstone"]),
        (&Value::Null, &json!(true))
    );
    assert_eq!(
        events
            .iter()
            .map(|event| event["offset"].as_u64().unwrap())
            .collect::<Vec<_>>(),
        (0..8).collect::<Vec<_>>()
    );
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn raw_and_packed_bodies() {
    let host = TestHost::start().await;
    host.put(
        "/v1/topics/raw",
        r#"{"format": "bytes", "time": {"from": "header", "name": "Taken-At", "unit": "s"}}"#,
    )
    .await
    .ok();
    let post = |headers: &str, body: &'static [u8]| {
        let head = format!("POST /v1/topics/raw/events?key=cam%201{headers}");
        let host = &host;
        async move { host.send(&head, body).await }
    };
    post("\ncontent-type: image/png\ntaken-at: 12.5", b"\x89PNG")
        .await
        .ok();
    post("\ntaken-at: 13", b"no type").await.ok();
    post("\nevent-time: 1970-01-01T00:00:14Z", b"event time")
        .await
        .ok();
    assert!(
        post("\ntaken-at: noon", b"x")
            .await
            .refused(400, "invalid-time")
            .contains("noon")
    );
    post("", b"x").await.refused(422, "invalid-events");
    post("\ntaken-at: 1", b"").await.refused(400, "empty-body");
    let events = host.events("raw").await;
    let shown: Vec<_> = events
        .iter()
        .map(|e| json!([e["key"], e["value"], e["value_base64"], e["time"]]))
        .collect();
    assert_eq!(
        shown,
        [
            json!(["cam 1", null, "iVBORw==", "1970-01-01T00:00:12.5Z"]),
            json!(["cam 1", "no type", null, "1970-01-01T00:00:13Z"]),
            json!(["cam 1", "event time", null, "1970-01-01T00:00:14Z"]),
        ]
    );

    host.put("/v1/topics/packed", "").await.ok();
    let mut rows = tidemill_types::PackedRows::default();
    let time = tidemill_types::Timestamp::from_micros(5);
    rows.push(
        time,
        Some(b"k"),
        Some(b"{\"a\": 1}"),
        [("h", b"v".as_slice())],
    )
    .unwrap();
    rows.push(time, None, Some(b"not json"), []).unwrap();
    let fields = [1, 2, u32::try_from(rows.payload.len()).unwrap(), 0];
    let mut body: Vec<u8> = fields.into_iter().flat_map(u32::to_le_bytes).collect();
    body.extend(rows.heads.iter().flat_map(|head| head.to_bytes()));
    body.extend(&rows.payload);
    assert_eq!(
        host.post("packed", "application/vnd.tidemill.batch", &body)
            .await
            .ok()["count"],
        2
    );
    host.post(
        "packed",
        "application/vnd.tidemill.batch",
        &body[..body.len() - 1],
    )
    .await
    .refused(400, "invalid-rows");
    let events = host.events("packed").await;
    assert_eq!(
        (
            &events[0]["key"],
            &events[0]["value"],
            &events[0]["headers"]
        ),
        (&json!("k"), &json!({"a": 1}), &json!([["h", "v"]]))
    );
    assert_eq!(events[1]["value_base64"], "bm90IGpzb24=");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_bad_event_refuses_all() {
    let host = TestHost::start().await;
    host.put(
        "/v1/topics/t",
        r#"{"key": "/k", "time": {"from": "value", "pointer": "/t"}}"#,
    )
    .await
    .ok();
    let good = r#"{"t":"2013-01-01T00:00:00Z"}"#;
    let body = format!("{good}\n{good}\n{{\"v\":\n{{\"t\":7}}\n{good}\n");
    let reply = host.post("t", "application/x-ndjson", &body).await;
    let detail = reply.refused(422, "invalid-events");
    assert!(
        detail.starts_with("2 events are refused; the first, line 3: EOF while parsing"),
        "{detail}"
    );
    let errors = reply.json()["errors"].clone();
    assert_eq!(
        (
            &errors[0]["index"],
            &errors[0]["line"],
            &errors[1]["index"],
            &errors[1]["pointer"]
        ),
        (&json!(2), &json!(3), &json!(3), &json!("/t"))
    );
    assert_eq!(host.events("t").await.len(), 0);

    let head = "POST /v1/topics/t/events?on_error=continue\ncontent-type: application/x-ndjson";
    let answer = host.send(head, &body).await.ok();
    assert_eq!(
        (&answer["count"], &answer["refused"], &answer["errors"]),
        (&json!(3), &json!(2), &errors)
    );
    assert_eq!(
        host.events("t").await.len(),
        3,
        "the count in the answer is the count in the log"
    );
    host.send(head, "{").await.refused(422, "invalid-events");

    let many = "x\n".repeat(500);
    let reply = host.post("t", "application/x-ndjson", many).await;
    assert_eq!(
        (
            reply.json()["errors"].as_array().unwrap().len(),
            &reply.json()["refused"]
        ),
        (100, &json!(500))
    );
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_not_taken() {
    let host = TestHost::start().await;
    host.put("/v1/topics/t", "").await.ok();
    let json = "content-type: application/json";
    let ndjson = "content-type: application/x-ndjson";
    for (query, headers, body, status, code, says) in [
        (
            "",
            "content-type: text/html",
            "{}",
            415,
            "unsupported-media-type",
            "application/x-ndjson",
        ),
        ("", "x-a: b", "{}", 415, "unsupported-media-type", "missing"),
        (
            "",
            "content-type: application/json\ncontent-encoding: x-foo",
            "{}",
            415,
            "unsupported-encoding",
            "x-foo",
        ),
        (
            "",
            "content-type: application/json\ncontent-encoding: gzip",
            "{}",
            400,
            "incomplete-body",
            "compressed",
        ),
        ("", json, "", 400, "empty-body", "no event"),
        ("", json, "[]", 400, "empty-body", "no event"),
        ("", json, " \n", 400, "empty-body", "no event"),
        ("", ndjson, "", 400, "empty-body", "no event"),
        ("", ndjson, "\n\n", 400, "empty-body", "no event"),
        ("", json, "{\"x\":NaN}", 422, "invalid-events", "column 6"),
        ("", json, "[1,]", 422, "invalid-events", "index 1"),
        (
            "",
            ndjson,
            "1\n{\"x\":NaN}\n",
            422,
            "invalid-events",
            "line 2",
        ),
        (
            "?colour=1",
            json,
            "{}",
            400,
            "invalid-request",
            "\"colour\"",
        ),
        (
            "?key=a&key_pointer=/b",
            json,
            "{}",
            400,
            "invalid-request",
            "not both",
        ),
        (
            "?key_pointer=b",
            json,
            "{}",
            400,
            "invalid-request",
            "JSON pointer",
        ),
        (
            "?key_pointer=/b",
            json,
            "{\"b\":{}}",
            422,
            "invalid-events",
            "at /b",
        ),
        (
            "?on_error=ignore",
            json,
            "{}",
            400,
            "invalid-request",
            "refuse or continue",
        ),
        (
            "",
            "content-type: application/json\nevent-time: now",
            "{}",
            400,
            "invalid-time",
            "event-time",
        ),
        (
            "",
            "content-type: application/json\nevent-time: 2013-01-01T00:00:00Z",
            "[{}]",
            400,
            "invalid-request",
            "single",
        ),
        (
            "",
            "content-type: application/x-ndjson\nevent-time: 2013-01-01T00:00:00Z",
            "1\n2",
            400,
            "invalid-request",
            "single",
        ),
    ] {
        let reply = host
            .send(&format!("POST /v1/topics/t/events{query}\n{headers}"), body)
            .await;
        let detail = reply.refused(status, code);
        assert!(detail.contains(says), "{says:?} in {detail}");
        assert_eq!(
            (&reply.json()["no_side_effects"], &reply.json()["retryable"]),
            (&json!(true), &json!(false))
        );
    }
    assert_eq!(host.events("t").await.len(), 0);
    host.post("nowhere", "application/json", "{}")
        .await
        .refused(404, "topic-not-found");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_numbers_and_keys_stay_what_they_are() {
    let host = TestHost::start().await;
    host.put("/v1/topics/ids", r#"{"key": "/id", "partitions": 4}"#)
        .await
        .ok();
    let values = [
        "{\"id\":9007199254740993}",
        "{\"id\":9007199254740992}",
        "{\"id\":18446744073709551615}",
        "{\"id\":-9223372036854775808}",
        "{\"id\":1e400}",
        "{\"id\":-0.0}",
    ];
    host.post("ids", "application/x-ndjson", values.join("\n"))
        .await
        .ok();
    let page = host.get("/v1/topics/ids/events?limit=10000").await;
    for value in values {
        assert!(
            page.text().contains(&format!("\"value\":{value},")),
            "{value} in {}",
            page.text()
        );
    }
    // Not every parser takes 1e400, so the keys are looked for in the text.
    let mut keys: Vec<_> = page
        .text()
        .split("\"key\":\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    keys.sort();
    assert_eq!(
        keys,
        [
            "-0.0",
            "-9223372036854775808",
            "18446744073709551615",
            "1e400",
            "9007199254740992",
            "9007199254740993"
        ]
    );

    host.put("/v1/topics/keys", r#"{"key": "/k", "partitions": 4}"#)
        .await
        .ok();
    for _ in 0..3 {
        host.post(
            "keys",
            "application/x-ndjson",
            "{\"k\":null}\n{\"k\":\"\"}\n{}\n",
        )
        .await
        .ok();
    }
    let events = host.events("keys").await;
    let partitions = |key: &Value| -> std::collections::BTreeSet<u64> {
        events
            .iter()
            .filter(|event| event["key"] == *key)
            .map(|event| event["partition"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(
        events.iter().filter(|event| event["key"].is_null()).count(),
        6
    );
    assert_eq!(partitions(&json!("")).len(), 1, "the empty key is a key");
    assert!(
        partitions(&Value::Null).len() > 1,
        "events without key spread"
    );
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sizes_are_bounded() {
    let host =
        TestHost::with(|config| config.http.body_bytes = tidemill_types::ByteSize::mib(4)).await;
    host.put("/v1/topics/t", "").await.ok();
    let value = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    host.post("t", "application/json", value(1 << 20))
        .await
        .ok();
    let reply = host
        .post("t", "application/json", value((1 << 20) + 1))
        .await;
    let detail = reply.refused(413, "too-large");
    assert!(
        detail.contains("1048577 bytes") && detail.contains("1048576 are allowed"),
        "{detail}"
    );
    let three = format!("1\n{}\n3\n", value((1 << 20) + 1));
    host.post("t", "application/x-ndjson", &three)
        .await
        .refused(413, "too-large");
    assert_eq!(host.events("t").await.len(), 1);
    let head = "POST /v1/topics/t/events?on_error=continue\ncontent-type: application/x-ndjson";
    assert_eq!(host.send(head, three).await.ok()["count"], 2);

    // Refused by its announced length, before anything of it is sent.
    let head = "POST /v1/topics/t/events HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: 999999999\r\nexpect: 100-continue\r\n\r\n";
    host.raw(head.as_bytes()).await.refused(413, "too-large");
    // Refused as soon as it is too long.
    let mut body = b"POST /v1/topics/t/events HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    body.extend(crate::client::chunked(&vec![&[b' '; 1 << 16][..]; 100]));
    body.extend(b"0\r\n\r\n");
    host.raw(&body).await.refused(413, "too-large");
    assert_eq!(host.events("t").await.len(), 3);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compressed_bodies_and_bombs() {
    let host = TestHost::start().await;
    host.put("/v1/topics/t", "").await.ok();
    let gzip = |body: &[u8]| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(body).unwrap();
        gzip.finish().unwrap()
    };
    let head = |encoding: &str| {
        format!(
            "POST /v1/topics/t/events\ncontent-type: application/x-ndjson\ncontent-encoding: {encoding}"
        )
    };
    assert_eq!(
        host.send(&head("gzip"), gzip(b"1\n2\n")).await.ok()["count"],
        2
    );
    assert_eq!(
        host.send(
            &head("zstd"),
            zstd::encode_all(&b"3\n4\n5\n"[..], 3).unwrap()
        )
        .await
        .ok()["count"],
        3
    );
    let zeros = vec![b'0'; 64 << 20];
    for (encoding, bomb) in [
        ("gzip", gzip(&zeros)),
        ("zstd", zstd::encode_all(&zeros[..], 3).unwrap()),
    ] {
        assert!(bomb.len() < 1 << 20);
        let detail = host
            .send(&head(encoding), bomb)
            .await
            .refused(413, "too-large");
        assert!(
            detail.contains("33554432 bytes after decompression"),
            "{detail}"
        );
    }
    let cut = gzip(b"6\n7\n");
    host.send(&head("gzip"), &cut[..cut.len() - 4])
        .await
        .refused(400, "incomplete-body");
    assert_eq!(
        host.values("t").await,
        [json!(1), json!(2), json!(3), json!(4), json!(5)]
    );
    host.stop().await;
}
