//! A function over whole batches, with an outcome for each event.

use crate::host::{Host, conserved, manifest};
use serde_json::json;
use tidemill_log::Format;
use tidemill_processor::KeepState;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_event_of_a_batch_has_its_own_outcome() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Json).await;
    let component = crate::built::component("batches");
    let manifest = manifest(json!({"output": {"out": {"topic": "out", "format": "json"}}}));
    host.deploy_guest("f", component, manifest, KeepState::Keep)
        .await
        .expect("it deploys");
    let ask = |n: u64, then: &str| json!({"add": n, "then": then}).to_string();
    let values = [
        ask(1, "go"),
        ask(10, "skip"),
        ask(100, "go"),
        "{}".to_owned(),
        ask(1000, "dead"),
        ask(5, "go"),
        ask(7, "trap"),
        ask(20, "go"),
    ];
    let events: Vec<_> = values
        .iter()
        .map(|value| (Some("k"), value.as_str()))
        .collect();
    host.send("in", 0, &events).await;
    let report = host.caught_up("f").await;
    assert_eq!(host.values("out").await, ["1", "101", "106", "126"]);
    let letters: Vec<_> = host
        .read("f.dead-letters")
        .await
        .into_iter()
        .map(|letter| {
            (
                letter.headers["tidemill-offset"].clone(),
                letter.headers["tidemill-reason"].clone(),
            )
        })
        .collect();
    let expected = [("3", "decode"), ("4", "guest"), ("6", "trap")];
    assert_eq!(
        letters,
        expected.map(|(offset, why)| (offset.to_owned(), why.to_owned()))
    );
    let counts = report.counts;
    assert_eq!(
        (
            counts.events_in,
            counts.effective,
            counts.skipped,
            counts.dead_lettered
        ),
        (8, 4, 1, 3)
    );
    assert!(conserved(&report));
    let sum = host
        .processor
        .state_get("f", "sum", b"k", None)
        .await
        .expect("stored");
    assert_eq!(sum.value, "126");
    let together = host
        .read("out")
        .await
        .iter()
        .any(|seen| seen.headers["of"] != "1");
    assert!(together, "more than one event at once");
    host.close().await;
}
