//! The host itself: restarts, its directory, slow and stuck clients, a gentle stop.

use crate::client::{TestHost, config};
use serde_json::json;
use std::time::Duration;
use tidemill_server::{Host, Shutdown, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_is_there_after_a_restart() {
    let host = TestHost::start().await;
    host.put("/v1/topics/t", r#"{"partitions": 3}"#).await.ok();
    for n in 0..20 {
        host.post("t", "application/json", n.to_string()).await.ok();
    }
    let before = host.events("t").await;
    let host = TestHost::over(host.stop().await, |_| ()).await;
    assert_eq!(host.events("t").await, before);
    assert_eq!(before.len(), 20);
    assert_eq!(
        host.post("t", "application/json", "20").await.ok()["count"],
        1
    );
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_has_one_host() {
    let host = TestHost::start().await;
    let second = Host::start(config(&host.dir, |_| ())).await.err().unwrap();
    assert_eq!(second.code, "directory-in-use");
    assert!(
        second
            .detail
            .contains(&host.dir.path().join("data").display().to_string()),
        "{second}"
    );
    assert_eq!(host.get("/livez").await.status, 200);
    let dir = host.stop().await;
    TestHost::over(dir, |_| ()).await.stop().await;
}

#[tokio::test]
async fn only_loopback_is_listened_on() {
    let dir = tempfile::tempdir().unwrap();
    let open = config(&dir, |config| config.listen = "0.0.0.0:0".parse().unwrap());
    assert_eq!(
        Host::start(open.clone()).await.err().unwrap().code,
        "not-loopback"
    );
    let listener = tokio::net::TcpListener::bind(open.listen).await.unwrap();
    assert_eq!(
        run(open, listener, Shutdown::new()).await.unwrap_err().code,
        "not-loopback"
    );
    assert!(
        !dir.path().join("data").exists(),
        "refused before anything is made"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_ends_when_it_is_asked_to() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&dir, |_| ());
    let listener = tokio::net::TcpListener::bind(config.listen).await.unwrap();
    let shutdown = Shutdown::new();
    let running = tokio::spawn(run(config, listener, shutdown.clone()));
    shutdown.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_bodies_are_given_up() {
    let host = TestHost::with(|config| config.http.body_timeout = Duration::from_millis(50)).await;
    host.put("/v1/topics/t", "").await.ok();
    for head in [
        "content-type: application/json\r\ncontent-length: 10",
        "content-type: application/x-ndjson\r\ntransfer-encoding: chunked",
    ] {
        let reply = host.raw(format!("POST /v1/topics/t/events HTTP/1.1\r\nhost: t\r\nconnection: close\r\n{head}\r\n\r\n").as_bytes()).await;
        reply.refused(408, "request-timeout");
    }
    assert_eq!(host.events("t").await.len(), 0);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stuck_clients_do_not_hold_up_a_stop() {
    let host = TestHost::with(|config| config.http.stop_timeout = Duration::from_millis(50)).await;
    host.put("/v1/topics/t", "").await.ok();
    let mut stuck = host.connect().await;
    stuck.write_all(b"POST /v1/topics/t/events HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n[1,").await.unwrap();
    let mut idle = host.connect().await;
    let waiting = host.get("/v1/topics/t/events?from=latest&wait=60s");
    let ((), page) = tokio::join!(
        async {
            host.get("/livez").await;
        },
        async {
            tokio::select! { page = waiting => Some(page), () = tokio::task::yield_now() => None }
        }
    );
    assert!(page.is_none_or(|page| page.ok()["events"] == json!([])));
    host.stop().await;
    let mut rest = Vec::new();
    let _ = idle.read_to_end(&mut rest).await;
    assert!(rest.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_requests_share_a_connection() {
    let host = TestHost::start().await;
    host.put("/v1/topics/t", "").await.ok();
    let one = "POST /v1/topics/t/events HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: 1\r\n\r\n";
    let refused = "POST /v1/topics/t/events HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: 1\r\n\r\n{";
    let mut connection = host.connect().await;
    connection
        .write_all(format!("{one}1{refused}{one}2").as_bytes())
        .await
        .unwrap();
    let mut got = String::new();
    let mut part = [0; 4096];
    while got.matches("HTTP/1.1 ").count() < 3 || !got.ends_with('}') {
        let read = connection.read(&mut part).await.unwrap();
        assert!(read > 0, "{got}");
        got.push_str(std::str::from_utf8(&part[..read]).unwrap());
    }
    let statuses: Vec<_> = got
        .split("HTTP/1.1 ")
        .skip(1)
        .map(|answer| &answer[..3])
        .collect();
    assert_eq!(statuses, ["200", "422", "200"]);
    assert_eq!(host.values("t").await, [json!(1), json!(2)]);
    host.stop().await;
}
