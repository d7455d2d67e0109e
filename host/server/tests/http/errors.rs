//! Problems, their pages, and what operators ask.

use crate::client::TestHost;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_asked_wrongly_is_a_problem() {
    let host = TestHost::start().await;
    for (head, status, code) in [
        ("GET /", 404, "path-not-found"),
        ("GET /v1", 404, "path-not-found"),
        ("GET /v2/topics", 404, "path-not-found"),
        ("GET /v1/topics/", 404, "path-not-found"),
        ("GET /console", 404, "path-not-found"),
        ("GET /v1/topics?colour=1", 400, "invalid-request"),
        ("GET /v1/errors/nothing", 404, "error-not-found"),
        ("DELETE /v1/topics", 405, "method-not-allowed"),
        ("PUT /v1/topics/t/events", 405, "method-not-allowed"),
        ("POST /livez", 405, "method-not-allowed"),
    ] {
        host.send(head, "").await.refused(status, code);
    }
    let mut allowed: Vec<_> = host
        .send("POST /v1/topics/t", "")
        .await
        .header("allow")
        .unwrap()
        .split(',')
        .map(|method| method.trim().to_owned())
        .collect();
    allowed.sort();
    assert_eq!(allowed, ["DELETE", "GET", "HEAD", "PATCH", "PUT"]);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_has_a_number() {
    let host = TestHost::start().await;
    let given = host.send("GET /livez\nx-request-id: abc-1", "").await;
    assert_eq!(given.header("x-request-id"), Some("abc-1"));
    let made = host
        .get("/livez")
        .await
        .header("x-request-id")
        .unwrap()
        .to_owned();
    assert_eq!(made.len(), 16);
    for odd in ["a b", &"x".repeat(200)] {
        let reply = host
            .send(&format!("GET /nowhere\nx-request-id: {odd}"), "")
            .await;
        reply.refused(404, "path-not-found");
        assert_eq!(
            reply.header("x-request-id").unwrap().len(),
            16,
            "{odd:?} isn't taken over"
        );
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_are_bounded() {
    let host = TestHost::start().await;
    let reply = host
        .send(&format!("GET /livez\nx-big: {}", "x".repeat(64 << 10)), "")
        .await;
    reply.refused(431, "headers-too-large");
    let many: String = (0..1000).map(|n| format!("\nx-{n}: 1")).collect();
    assert_eq!(
        host.send(&format!("GET /livez{many}"), "").await.status,
        431
    );
    assert_eq!(host.get("/livez").await.status, 200, "others are served");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_code_is_explained() {
    let host = TestHost::start().await;
    let all = host.get("/v1/errors").await.ok();
    let all = all["errors"].as_array().unwrap();
    assert!(all.len() > 30);
    for listed in all {
        let page = host.get(listed["type"].as_str().unwrap()).await.ok();
        assert_eq!(page, *listed);
        assert!(page["meaning"].as_str().is_some() && page["remedy"].as_str().is_some());
    }
    let detail = host
        .get("/v1/errors/topic-not-fond")
        .await
        .refused(404, "error-not-found");
    assert!(
        detail.contains("Did you mean \"topic-not-found\"?"),
        "{detail}"
    );
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_see_what_goes_on() {
    let host = TestHost::start().await;
    assert_eq!(host.get("/livez").await.text(), "ok\n");
    assert_eq!(
        host.get("/readyz").await.ok(),
        json!({"ready": true, "degraded": []})
    );
    host.put("/v1/topics/t", "").await.ok();
    host.post("t", "application/json", "[1,2,3]").await.ok();
    host.post("t", "application/json", "{")
        .await
        .refused(422, "invalid-events");
    let metrics = host.get("/metrics").await;
    assert!(
        metrics
            .header("content-type")
            .unwrap()
            .starts_with("application/openmetrics-text")
    );
    for line in [
        "tidemill_ingest_events_total 3\n",
        "tidemill_ingest_bytes_total 3\n",
        "tidemill_ingest_refused_events_total 1\n",
        "tidemill_http_requests_total{route=\"/v1/topics/{topic}/events\",status=\"200\"} 1\n",
        "tidemill_http_requests_total{route=\"/v1/topics/{topic}/events\",status=\"422\"} 1\n",
        "tidemill_http_request_seconds_count{route=\"/v1/topics/{topic}\"} 1\n",
    ] {
        assert!(
            metrics.text().contains(line),
            "{line:?} in {}",
            metrics.text()
        );
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_description_names_what_answers() {
    let host = TestHost::start().await;
    let document = host.get("/v1/openapi.json").await.ok();
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() >= 15);
    let append = document["paths"]["/v1/topics/{topic}/events"]["post"].to_string();
    assert!(
        append.contains(r#""in":"header","name":"Idempotency-Key""#),
        "{append}"
    );
    for (path, methods) in paths {
        let concrete = path
            .replace("{topic}", "none")
            .replace("{function}", "none")
            .replace("{code}", "none");
        for (method, operation) in methods.as_object().unwrap() {
            let reply = host
                .send(&format!("{} {concrete}", method.to_uppercase()), "")
                .await;
            let code = if reply.header("content-type") == Some("application/problem+json") {
                reply.json()["code"].clone()
            } else {
                Value::Null
            };
            assert!(
                code != "path-not-found" && code != "method-not-allowed",
                "{method} {path}: {}",
                reply.status
            );
            let unknown = host
                .send(
                    &format!("{} {concrete}?colour=1", method.to_uppercase()),
                    "",
                )
                .await;
            assert!(
                path.starts_with("/v1/openapi")
                    || !path.starts_with("/v1")
                    || unknown.status >= 400,
                "{method} {path} takes any parameter"
            );
            assert!(operation["responses"]["default"].is_object());
        }
    }
    host.stop().await;
}
