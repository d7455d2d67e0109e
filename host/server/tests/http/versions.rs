//! Versions and replays as far as they go without a component.

use crate::client::TestHost;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_asked_of_versions_and_replays_is_checked() {
    let host = TestHost::start().await;
    let json = "\ncontent-type: application/json";
    for (head, body) in [
        ("GET /v1/functions/f/versions", ""),
        ("POST /v1/functions/f/rollback", r#"{"version": 1}"#),
        ("POST /v1/functions/f/replay", r#"{"verify": true}"#),
        ("POST /v1/functions/f/replay", r#"{"stream": true}"#),
        ("POST /v1/functions/f/invoke", "1"),
        ("GET /v1/functions/f/shadow", ""),
        ("DELETE /v1/functions/f/shadow", ""),
        ("POST /v1/functions/f/shadow/promote", ""),
        ("POST /v1/functions/f/shadow/diff", "{}"),
        ("GET /v1/functions/f/replay/1", ""),
        ("DELETE /v1/functions/f/replay/1", ""),
    ] {
        let head = format!("{head}{}", if body.is_empty() { "" } else { json });
        host.send(&head, body)
            .await
            .refused(404, "function-not-found");
    }
    for (body, says) in [
        ("{}", "say one of"),
        (r#"{"verify": true, "diff": 1}"#, "say one of"),
        (r#"{"stream": true, "into": "x"}"#, "say one of"),
        (r#"{"verify": true, "from": 3}"#, "neither from"),
        (r#"{"diff": 1, "from": "soon"}"#, "an offset as a number"),
    ] {
        let head = format!("POST /v1/functions/f/replay{json}");
        let detail = host.send(&head, body).await.refused(422, "invalid-replay");
        assert!(detail.contains(says), "{detail}");
    }
    for body in [
        "{}",
        r#"{"version": 1, "state": "maybe"}"#,
        r#"{"version": 1, "x": 2}"#,
    ] {
        let head = format!("POST /v1/functions/f/rollback{json}");
        host.send(&head, body).await.refused(400, "invalid-request");
    }
    for query in ["?state=some", "?version=two", "?x=1"] {
        let head = format!("POST /v1/functions/f/invoke{query}{json}");
        host.send(&head, "1").await.refused(400, "invalid-request");
    }
    host.stop().await;
}
