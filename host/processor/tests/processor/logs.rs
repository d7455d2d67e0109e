//! What functions log: kept in a topic, found again, followed.

use crate::host::{Host, counting};
use serde_json::json;
use tidemill_log::Format;
use tidemill_processor::{KeepState, LogLevel, LogQuery};

/// What is asked for with nothing left out.
fn all() -> LogQuery {
    LogQuery {
        limit: 100,
        ..LogQuery::default()
    }
}

async fn messages(host: &Host, query: LogQuery) -> Vec<String> {
    let mut reader = host.processor.logs("f", query).expect("it is there");
    let lines = reader.last().await.expect("lines are read");
    lines.into_iter().map(|line| line.message).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_stay_over_restarts_and_are_followed() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", counting(json!({}))).await;
    assert!(host.lines("f").await.is_empty());
    let mut follower = host.processor.logs("f", all()).expect("it is there");
    assert!(follower.last().await.expect("read").is_empty());
    host.send("in", 0, &[(Some("a"), "c"), (None, "c")]).await;
    let come = follower.next().await.expect("read").expect("a line");
    assert_eq!(come.len(), 1, "the topic was made with it: {come:?}");
    assert_eq!((come[0].level, come[0].version), (LogLevel::Warn, 1));
    host.close().await;

    let host = Host::open(dir.path()).await;
    assert_eq!(host.lines("f").await, come, "nothing is forgotten");
    let mut follower = host.processor.logs("f", all()).expect("it is there");
    assert_eq!(follower.last().await.expect("read"), come);
    // A task says it once, and this is another one.
    host.send("in", 0, &[(None, "c")]).await;
    let more = follower.next().await.expect("read").expect("a line");
    assert_eq!((more.len(), more[0].offset), (1, 2));
    host.caught_up("f").await;
    host.processor.pause("f").await.expect("it pauses");
    host.send("in", 0, &[(Some("a"), "c"), (Some("b"), "c")])
        .await;
    host.processor.observe();
    let metrics = host.metrics.render();
    for line in [
        "tidemill_function_lag_events{function=\"f\"} 2",
        "tidemill_function_running{function=\"f\"} 0",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    host.processor
        .delete("f", KeepState::Reset)
        .await
        .expect("it goes");
    assert_eq!(host.read("f.logs").await.len(), 2, "they outlive it");
    host.processor.observe();
    let gone = "function_lag_events{function=\"f\"}";
    assert!(!host.metrics.render().contains(gone));
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_are_found_by_what_they_are_about() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", counting(json!({}))).await;
    host.topic("f.logs", 1, Format::Json).await;
    let line = |second: u32, level: &str, version: u32, partition: u32| {
        let time = format!("2026-01-01T00:00:0{second}Z");
        json!({"time": time, "level": level, "version": version, "partition": partition, "offset": 1,
               "message": second.to_string()})
        .to_string()
    };
    let start = 1_767_225_600_000_000;
    let lines = [
        ("a", start, line(0, "debug", 1, 0)),
        ("b", start + 1_000_000, line(1, "info", 1, 1)),
        ("c", start + 2_000_000, line(2, "warn", 2, 0)),
        ("a", start + 3_000_000, line(3, "error", 2, 1)),
        ("a", start + 4_000_000, "\"somebody else's\"".to_owned()),
    ];
    host.send_at("f.logs", 0, &lines).await;
    for (query, expected) in [
        (all(), vec!["0", "1", "2", "3"]),
        (
            LogQuery {
                limit: 2,
                level: Some(LogLevel::Debug),
                ..all()
            },
            vec!["2", "3"],
        ),
        (
            LogQuery {
                level: Some(LogLevel::Warn),
                ..all()
            },
            vec!["2", "3"],
        ),
        (
            LogQuery {
                version: Some(1),
                ..all()
            },
            vec!["0", "1"],
        ),
        (
            LogQuery {
                partition: Some(1),
                ..all()
            },
            vec!["1", "3"],
        ),
        (
            LogQuery {
                key: Some("a".into()),
                ..all()
            },
            vec!["0", "3"],
        ),
        (
            LogQuery {
                since: Some("2026-01-01T00:00:02Z".parse().expect("a time")),
                ..all()
            },
            vec!["2", "3"],
        ),
    ] {
        assert_eq!(messages(&host, query.clone()).await, expected, "{query:?}");
    }
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_of_several_topics_say_which() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    for topic in ["a", "b"] {
        host.topic(topic, 1, Format::Bytes).await;
    }
    let inputs = json!([
        {"topic": "a", "start": "earliest"},
        {"topic": "b", "start": "earliest"},
    ]);
    host.deploy("f", counting(json!({"input": inputs}))).await;
    host.send("a", 0, &[(Some("k"), "c")]).await;
    host.caught_up("f").await;
    // What has no key is told of, and where it was seen.
    host.send("b", 0, &[(None, "c")]).await;
    host.caught_up("f").await;
    let of = async |topic: &str| {
        let query = LogQuery {
            topic: Some(topic.to_owned()),
            ..all()
        };
        let mut reader = host.processor.logs("f", query).expect("it is there");
        reader.last().await.expect("lines are read")
    };
    let lines = of("b").await;
    assert_eq!(lines.len(), 1);
    assert_eq!((lines[0].topic.as_deref(), lines[0].offset), (Some("b"), 0));
    assert!(of("a").await.is_empty());
    host.close().await;
}
