//! Outputs that don't fit the schema of their topic.

use crate::host::{Host, manifest};
use serde_json::json;
use std::sync::Arc;
use tidemill_log::{OnMismatch, Schema, TopicSettings};

async fn out(host: &Host, on_mismatch: OnMismatch) {
    let json = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let settings = TopicSettings {
        schema: Some(Arc::new(Schema::read(json, on_mismatch).expect("a schema"))),
        ..TopicSettings::default()
    };
    let name = "out".parse().expect("a name");
    host.log.create_topic(&name, settings).await.expect("made");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_event_that_led_to_it_becomes_a_dead_letter() {
    for on_mismatch in [OnMismatch::Reject, OnMismatch::DeadLetter] {
        let dir = tempfile::tempdir().expect("a folder");
        let host = Host::open(dir.path()).await;
        host.topic("in", 1, tidemill_log::Format::Bytes).await;
        out(&host, on_mismatch).await;
        host.deploy("f", manifest(json!({}))).await;
        let events = [r#"{"n":1}"#, r#"{"n":"x"}"#, r#"{"n":3}"#];
        host.send("in", 0, &events.map(|value| (Some("k"), value)))
            .await;
        let report = host.caught_up("f").await;
        assert_eq!((report.counts.emitted, report.counts.dead_lettered), (2, 1));
        assert_eq!(host.values("out").await, [events[0], events[2]]);
        let letters = host.read("f.dead-letters").await;
        assert_eq!(letters.len(), 1);
        assert_eq!(letters[0].value, events[1].as_bytes());
        let error = &letters[0].headers["tidemill-error"];
        assert!(
            error.contains("schema at /n: \"x\" is no integer"),
            "{error}"
        );
        host.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_takes_everything_takes_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, tidemill_log::Format::Bytes).await;
    out(&host, OnMismatch::Null).await;
    host.deploy("f", manifest(json!({}))).await;
    host.send("in", 0, &[(Some("k"), r#"{"n":"x"}"#)]).await;
    host.caught_up("f").await;
    assert_eq!(host.values("out").await, [r#"{"n":"x"}"#]);
    host.close().await;
}
