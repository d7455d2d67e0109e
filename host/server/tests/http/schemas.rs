//! Topics with a schema: what is refused, what goes to the dead letters, what is taken all the same.

use crate::client::TestHost;
use serde_json::{Value, json};

fn topic(on_mismatch: &str) -> String {
    let schema = json!({
        "type": "object",
        "properties": {"n": {"type": "integer"}, "name": {"type": ["string", "null"]}},
        "required": ["n"]
    });
    json!({"key": "/k", "schema": {"json": schema, "on_mismatch": on_mismatch}}).to_string()
}

const MIXED: &str = "{\"k\":\"a\",\"n\":1}\n{\"k\":\"b\",\"n\":\"two\"}\n{\"k\":\"c\",\"n\":3,\"name\":4}\n{\"k\":\"d\",\"n\":4,\"more\":[]}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_is_refused_with_its_place() {
    let host = TestHost::start().await;
    host.put("/v1/topics/t", topic("reject")).await.ok();
    let reply = host.post("t", "application/x-ndjson", MIXED).await;
    reply.refused(422, "invalid-events");
    let errors = &reply.json()["errors"];
    assert_eq!(
        (
            &errors[0]["index"],
            &errors[0]["pointer"],
            &errors[0]["line"]
        ),
        (&json!(1), &json!("/n"), &json!(2))
    );
    assert_eq!(errors[0]["reason"], "\"two\" is no integer");
    assert_eq!(
        (&errors[1]["index"], &errors[1]["pointer"]),
        (&json!(2), &json!("/name"))
    );
    assert_eq!(host.values("t").await, Vec::<Value>::new());

    // In every form, and a tombstone fits always.
    let typed = "application/vnd.tidemill.events+json";
    let events = r#"[{"key":"a","tombstone":true},{"key":"a","value":{"n":1.5}}]"#;
    let reply = host.post("t", typed, events).await;
    reply.refused(422, "invalid-events");
    assert_eq!(reply.json()["errors"][0]["pointer"], "/n");
    let tombstone = host
        .post("t", typed, r#"[{"key":"a","tombstone":true}]"#)
        .await;
    assert_eq!(tombstone.ok()["count"], 1);
    let mut head = vec![0; 32];
    head[20..24].copy_from_slice(&2_u32.to_le_bytes());
    let mut packed = Vec::new();
    for field in [1_u32, 1, 2, 0] {
        packed.extend_from_slice(&field.to_le_bytes());
    }
    packed.extend_from_slice(&head);
    packed.extend_from_slice(b"{}");
    let reply = host
        .post("t", "application/vnd.tidemill.batch", packed)
        .await;
    reply.refused(422, "invalid-events");

    let some = host
        .send(
            "POST /v1/topics/t/events?on_error=continue\ncontent-type: application/x-ndjson",
            MIXED,
        )
        .await
        .ok();
    assert_eq!((&some["count"], &some["refused"]), (&json!(2), &json!(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_becomes_a_dead_letter_in_the_same_step() {
    let host = TestHost::start().await;
    host.put("/v1/topics/t", topic("dead-letter")).await.ok();
    let reply = host.post("t", "application/x-ndjson", MIXED).await.ok();
    assert_eq!(
        (&reply["count"], &reply["dead_lettered"]),
        (&json!(2), &json!(2))
    );
    let partition = &reply["partitions"][0];
    assert_eq!(
        (&partition["first"], &partition["last"]),
        (&json!(0), &json!(1))
    );
    assert_eq!(reply["partitions"].as_array().unwrap().len(), 1);
    let taken: Vec<Value> = host
        .values("t")
        .await
        .iter()
        .map(|it| it["n"].clone())
        .collect();
    assert_eq!(taken, [1, 4]);
    let letters = host.events("t.dead-letters").await;
    assert_eq!(letters.len(), 2);
    assert_eq!(
        (&letters[0]["key"], &letters[1]["key"]),
        (&json!("b"), &json!("c"))
    );
    let headers = letters[0]["headers"].as_array().unwrap();
    let header = |name: &str| {
        let found = headers.iter().find(|header| header[0] == name);
        found.map_or(Value::Null, |header| header[1].clone())
    };
    assert_eq!(header("tidemill-reason"), "schema");
    assert_eq!(header("tidemill-error"), "/n: \"two\" is no integer");
    assert_eq!(header("tidemill-topic"), "t");

    // One alone, under a key, and sent again: once.
    let request = "POST /v1/topics/t/events\ncontent-type: application/json\nidempotency-key: one";
    for _ in 0..2 {
        let reply = host.send(request, r#"{"k":"e","n":null}"#).await.ok();
        assert_eq!(
            (&reply["count"], &reply["dead_lettered"]),
            (&json!(0), &json!(1))
        );
    }
    assert_eq!(host.events("t.dead-letters").await.len(), 3);

    // Streamed in chunks.
    let lines = format!("{MIXED}\n").repeat(50_000);
    let reply = host.post("t", "application/x-ndjson", &lines).await.ok();
    assert_eq!(
        (&reply["count"], &reply["dead_lettered"]),
        (&json!(100_000), &json!(100_000))
    );
    let ranges = host.get("/v1/topics/t.dead-letters").await.ok();
    assert_eq!(ranges["ranges"][0]["end"], 100_003);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_may_take_everything_and_its_schema_may_grow() {
    let host = TestHost::start().await;
    host.put("/v1/topics/t", topic("null")).await.ok();
    let reply = host.post("t", "application/x-ndjson", MIXED).await.ok();
    assert_eq!(
        (&reply["count"], reply.get("dead_lettered")),
        (&json!(4), None)
    );
    let patch = |properties: Value| {
        let schema = json!({"type": "object", "properties": properties, "required": ["n"]});
        let body = json!({"schema": {"json": schema}}).to_string();
        let head = "PATCH /v1/topics/t\ncontent-type: application/json";
        async { host.send(head, body).await }
    };
    let old = json!({"n": {"type": "integer"}, "name": {"type": ["string", "null"]}});
    let mut more = old.clone();
    more["more"] = json!({"type": "array"});
    let altered = patch(more.clone()).await.ok();
    assert_eq!(altered["schema"]["json"]["properties"], more);
    assert_eq!(
        altered["schema"]["on_mismatch"], "null",
        "it stays as it was"
    );
    patch(old).await.refused(409, "setting-fixed");
    let collides = json!({"schema": {"json": {"type": "object", "properties": {"offset": {"type": "integer"}}}}});
    let reply = host.put("/v1/topics/u", collides.to_string()).await;
    let detail = reply.refused(400, "invalid-schema");
    assert!(detail.contains("/properties/offset"), "{detail}");
    let long = format!("/v1/topics/{}", "x".repeat(195));
    host.put(&long, topic("dead-letter"))
        .await
        .refused(400, "invalid-name");
}
