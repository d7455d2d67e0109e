//! Topics: their life, their names, and many hands at once.

use crate::client::TestHost;
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topics_life() {
    let host = TestHost::start().await;
    assert_eq!(host.get("/v1/topics").await.ok(), json!({"topics": []}));
    let asked = json!({
        "partitions": 2, "format": "json", "key": "/k", "time": {"from": "value", "pointer": "/t", "unit": "ms"},
        "retention": {"age": "7d", "bytes": "10GiB", "hold_for": null, "tombstone_age": "1d"}, "cleanup": "delete", "ack": "fsync",
        "schema": null, "bloom": false
    });
    let created = host.put("/v1/topics/flights", asked.to_string()).await;
    assert_eq!(created.status, 201);
    let mut shown = asked.clone();
    shown["name"] = json!("flights");
    assert_eq!(created.ok(), shown);
    let again = host.put("/v1/topics/flights", asked.to_string()).await;
    assert_eq!((again.status, again.ok()), (200, shown.clone()));
    let other = host
        .put(
            "/v1/topics/flights",
            json!({"partitions": 3, "format": "json"}).to_string(),
        )
        .await;
    let detail = other.refused(409, "topic-exists");
    assert!(
        detail.contains("differ in partitions, key, time, retention"),
        "{detail}"
    );
    assert_eq!(
        other.json()["fields"],
        json!(["partitions", "key", "time", "retention"])
    );
    assert_eq!(
        host.get("/v1/topics").await.ok(),
        json!({"topics": [shown.clone()]})
    );

    host.post("flights", "application/json", r#"{"k":"a","t":1}"#)
        .await
        .ok();
    let described = host.get("/v1/topics/flights").await.ok();
    let ends: u64 = described["ranges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|range| range["end"].as_u64().unwrap())
        .sum();
    assert_eq!(
        (described["ranges"].as_array().unwrap().len(), ends),
        (2, 1)
    );

    let patch = |body: &'static str| {
        host.send(
            "PATCH /v1/topics/flights\ncontent-type: application/json",
            body,
        )
    };
    assert_eq!(
        patch(r#"{"retention": {"age": "1d", "bytes": null}}"#)
            .await
            .ok()["retention"],
        json!({"age": "1d", "bytes": null, "hold_for": null, "tombstone_age": "1d"})
    );
    assert_eq!(
        host.get("/v1/topics/flights").await.ok()["retention"],
        json!({"age": "1d", "bytes": null, "hold_for": null, "tombstone_age": "1d"})
    );
    patch(r#"{"partitions": 9}"#)
        .await
        .refused(409, "setting-fixed");
    patch(r#"{"colour": 1}"#)
        .await
        .refused(400, "invalid-request");

    let gone = host.send("DELETE /v1/topics/flights", "").await;
    assert_eq!((gone.status, gone.body.len()), (204, 0));
    let detail = host
        .get("/v1/topics/flights")
        .await
        .refused(404, "topic-not-found");
    assert_eq!(detail, "There is no topic \"flights\".");
    host.send("DELETE /v1/topics/flights", "")
        .await
        .refused(404, "topic-not-found");
    host.put("/v1/topics/flights", "").await.ok();
    assert_eq!(
        host.events("flights").await,
        Vec::<serde_json::Value>::new(),
        "nothing of the old one is left"
    );
    let detail = host
        .get("/v1/topics/flihgts")
        .await
        .refused(404, "topic-not-found");
    assert_eq!(
        detail,
        "There is no topic \"flihgts\". Did you mean \"flights\"?"
    );
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_and_bodies_that_cannot_be() {
    let host = TestHost::start().await;
    let long = format!("/v1/topics/{}", "x".repeat(201));
    for (head, body, status, code) in [
        ("PUT /v1/topics/..%2Fx", "", 400, "invalid-name"),
        ("PUT /v1/topics/%2E%2E", "", 400, "invalid-name"),
        ("PUT /v1/topics/a%00b", "", 400, "invalid-name"),
        ("PUT /v1/topics/%FF", "", 400, "invalid-request"),
        ("PUT /v1/topics/a%20b", "", 400, "invalid-name"),
        (&format!("PUT {long}"), "", 400, "invalid-name"),
        ("GET /v1/topics/..%2Fx/events", "", 400, "invalid-name"),
        ("PUT /v1/topics/", "", 404, "path-not-found"),
        ("PUT /v1/topics/../x", "", 404, "path-not-found"),
        ("PUT /v1/topics/t?colour=1", "", 400, "invalid-request"),
        ("PUT /v1/topics/t", "{", 400, "invalid-request"),
        ("PUT /v1/topics/t", "[]", 400, "invalid-request"),
        (
            "PUT /v1/topics/t",
            r#"{"partitions": -1}"#,
            400,
            "invalid-request",
        ),
        (
            "PUT /v1/topics/t",
            r#"{"partitions": 10001}"#,
            400,
            "invalid-setting",
        ),
        (
            "PUT /v1/topics/t",
            r#"{"partition": 1}"#,
            400,
            "invalid-request",
        ),
        (
            "PUT /v1/topics/t\ncontent-type: text/html",
            "{}",
            415,
            "unsupported-media-type",
        ),
    ] {
        let reply = host.send(head, body).await;
        reply.refused(status, code);
    }
    assert_eq!(
        host.get("/v1/topics").await.ok(),
        json!({"topics": []}),
        "none of them made a topic"
    );
    let made: Vec<_> = std::fs::read_dir(host.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(made, ["data"], "nothing outside the data directory");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_at_once_make_one() {
    let host = TestHost::start().await;
    let replies = futures::future::join_all(
        (0..20).map(|_| host.put("/v1/topics/t", r#"{"partitions": 3}"#)),
    )
    .await;
    let mut statuses: Vec<_> = replies.iter().map(|reply| reply.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [vec![200; 19], vec![201]].concat());
    assert_eq!(
        host.get("/v1/topics").await.ok()["topics"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    host.stop().await;
}
