//! Functions as far as they go without a component: uploads that are refused, names that aren't there.

use crate::client::TestHost;
use serde_json::json;

fn form(parts: &[(&str, &str, &[u8])]) -> (String, Vec<u8>) {
    let mut body = Vec::new();
    for (name, headers, bytes) in parts {
        body.extend_from_slice(
            format!("--xyz\r\ncontent-disposition: form-data; name=\"{name}\"\r\n{headers}\r\n")
                .as_bytes(),
        );
        body.extend_from_slice(bytes);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--xyz--\r\n");
    (
        "PUT /v1/functions/f\ncontent-type: multipart/form-data; boundary=xyz".to_owned(),
        body,
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uploads_that_are_refused() {
    let host = TestHost::start().await;
    let wasm = "PUT /v1/functions/f\ncontent-type: application/wasm";
    for (body, says) in [
        (&b""[..], "empty"),
        (b"\x89PNG\r\n\x1a\n", "WebAssembly"),
        (b"(component)", "WebAssembly"),
        (b"\0asm\x01\0\0\0", "component"),
    ] {
        let detail = host
            .send(wasm, body)
            .await
            .refused(422, "invalid-component");
        assert!(detail.contains(says), "{says:?} in {detail}");
    }
    host.send("PUT /v1/functions/f\ncontent-type: text/plain", "x")
        .await
        .refused(415, "unsupported-media-type");
    host.send(
        "PUT /v1/functions/a%2Fb\ncontent-type: application/wasm",
        "x",
    )
    .await
    .refused(400, "invalid-name");
    host.send(
        "PUT /v1/functions/f?start=soon\ncontent-type: application/wasm",
        "x",
    )
    .await
    .refused(400, "invalid-request");
    host.send(
        "PUT /v1/functions/f?state=maybe\ncontent-type: application/wasm",
        "x",
    )
    .await
    .refused(400, "invalid-request");
    for (parts, status, code) in [
        (
            vec![("manifest", "", &b"[function]"[..])],
            400,
            "invalid-request",
        ),
        (
            vec![("component", "", b"x"), ("component", "", b"x")],
            400,
            "invalid-request",
        ),
        (
            vec![("component", "", b"x"), ("colour", "", b"x")],
            400,
            "invalid-request",
        ),
        (
            vec![("component", "", b"x"), ("manifest", "", b"[function")],
            422,
            "invalid-manifest",
        ),
        (
            vec![
                ("component", "", b"x"),
                ("manifest", "content-type: application/json\r\n", b"{"),
            ],
            422,
            "invalid-manifest",
        ),
        (vec![("component", "", b"x")], 422, "invalid-component"),
    ] {
        let (head, body) = form(&parts);
        host.send(&head, body).await.refused(status, code);
    }
    assert_eq!(
        host.get("/v1/functions").await.ok(),
        json!({"functions": []}),
        "no half of a function is listed"
    );
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_that_are_not_there() {
    let host = TestHost::start().await;
    for head in [
        "GET /v1/functions/f",
        "DELETE /v1/functions/f",
        "POST /v1/functions/f/pause",
        "POST /v1/functions/f/resume",
        "GET /v1/functions/f/state?slot=a",
        "GET /v1/functions/f/logs",
    ] {
        let detail = host.send(head, "").await.refused(404, "function-not-found");
        assert_eq!(detail, "There is no function \"f\".", "{head}");
    }
    for (query, why) in [
        (
            "level=loud",
            "level=\"loud\": write trace or debug or info or warn or error",
        ),
        ("limit=0", "limit=0: 1 to 10000 lines can be asked for"),
        ("version=x", "version=\"x\": write a whole number"),
        ("key=a&key_base64=YQ==", "give key or key_base64, not both"),
        ("since=1h", "There is no function \"f\"."),
    ] {
        let answer = host.get(&format!("/v1/functions/f/logs?{query}")).await;
        assert_eq!(answer.json()["detail"], why, "{query}");
    }
    host.get("/v1/functions/a%00")
        .await
        .refused(400, "invalid-name");
    host.stop().await;
}
