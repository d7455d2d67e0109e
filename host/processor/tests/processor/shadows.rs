//! A version beside the one in force: it begins where the function stands, changes nothing of it, is
//! compared with it, and is put in force or stopped.

use crate::host::{Host, Seen, counting, number, scripted};
use crate::replays::{by_two, finished};
use serde_json::{Value, json};
use tidemill_log::{Draft, Format};
use tidemill_processor::{Deploy, Deployed, Diff, KeepState, Outcome, ReplayMode};
use tidemill_types::{PackedRows, Result, Timestamp};

async fn beside(host: &Host, component: Vec<u8>, state: KeepState) -> Result<Deployed> {
    beside_as(host, component, counting(json!({})), state).await
}

async fn beside_as(
    host: &Host,
    component: Vec<u8>,
    manifest: Value,
    state: KeepState,
) -> Result<Deployed> {
    let deploy = Deploy {
        name: "f".parse().expect("a name"),
        component: component.into(),
        manifest: Some(manifest),
        start: None,
        state,
        dry_run: false,
    };
    host.processor.deploy_shadow(deploy).await
}

async fn diff(host: &Host) -> Diff {
    let begun = host.processor.shadow_diff("f", 10).await.expect("begins");
    match finished(host, "f", begun.id).await {
        Outcome::Diff(diff) => *diff,
        other => panic!("{other:?}"),
    }
}

fn counts(events: &[Seen]) -> Vec<(Option<&str>, u64)> {
    let events = events.iter();
    events
        .map(|event| (event.key.as_deref(), number(&event.value)))
        .collect()
}

pub(crate) const COUNT: [(Option<&str>, &str); 3] =
    [(Some("a"), "c"), (Some("b"), "c"), (Some("a"), "c")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_goes_on_from_a_copy_of_the_state_and_touches_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 2, Format::Bytes).await;
    host.deploy("f", counting(json!({}))).await;
    host.send("in", 0, &COUNT).await;
    host.caught_up("f").await;
    let begun = beside(&host, by_two(), KeepState::Keep).await;
    let begun = begun.expect("begins");
    assert_eq!(begun.manifest.name.as_str(), "f.shadow");
    assert_eq!(begun.manifest.outputs[0].topic.as_str(), "f.shadow.out");
    host.send("in", 0, &COUNT).await;
    host.send("in", 1, &COUNT).await;
    host.caught_up("f").await;
    let report = host.caught_up("f.shadow").await;
    assert_eq!((report.counts.events_in, report.counts.emitted), (6, 6));
    let beside_what = report.shadow_of.expect("says what it is");
    assert_eq!(
        (beside_what.function.as_str(), beside_what.empty),
        ("f", false)
    );
    let live = host.processor.describe("f").await.expect("is there");
    assert_eq!(live.shadow.expect("is told").as_str(), "f.shadow");
    assert_eq!((live.version, live.counts.emitted), (1, 9));
    // Which partition is asked for the key.
    let of = |zero, one| match tidemill_types::partition_of_key(b"a", 2) {
        0 => Some(zero),
        _ => Some(one),
    };
    assert_eq!(host.count("f", "a").await, of(4, 2));
    assert_eq!(host.count("f.shadow", "a").await, of(6, 4));
    host.close().await;

    let host = Host::open(dir.path()).await;
    host.send("in", 0, &COUNT[..2]).await;
    host.caught_up("f").await;
    host.caught_up("f.shadow").await;
    let side = host.read("f.shadow.out").await;
    let (a, b) = (Some("a"), Some("b"));
    let of_key = |wanted| {
        let mut of_it = counts(&side);
        of_it.retain(|(key, _)| *key == wanted);
        of_it.sort_unstable();
        of_it
    };
    assert_eq!(
        of_key(a),
        [(a, 2), (a, 4), (a, 4), (a, 6), (a, 8)],
        "partition 0 went on from 2, partition 1 began at nothing"
    );
    assert_eq!(of_key(b), [(b, 2), (b, 3), (b, 5)]);
    let out = host.read("out").await;
    assert_eq!(out.len(), 11, "nothing of the shadow's is there");

    let found = diff(&host).await;
    assert_eq!((found.events, found.same, found.different), (8, 0, 8));
    assert_eq!((found.left.version, found.right.version), (1, 2));
    assert_eq!((found.left.emitted, found.right.emitted), (8, 8));
    let first = &found.examples[0];
    assert_eq!((first.partition, first.offset), (0, 3));
    let counted =
        |side: &[tidemill_processor::Emitted]| number(side[0].value.as_ref().expect("a value"));
    assert_eq!((counted(&first.left), counted(&first.right)), (3, 4));
    assert_eq!((found.state.same, found.state.different), (0, 4));
    let asked = tidemill_types::partition_of_key(b"a", 2);
    let mut states = found.state.examples.iter();
    let state = states.find(|state| (state.partition, &state.key[..]) == (asked, b"a"));
    let state = state.expect("it differs");
    let sides = [&state.left, &state.right];
    let sides = sides.map(|side| number(side.as_ref().expect("a value")));
    let (live, shadow) = (
        host.count("f", "a").await,
        host.count("f.shadow", "a").await,
    );
    assert_eq!(
        sides.map(Some),
        [live, shadow],
        "what the diff comes to is what there is"
    );

    let dry = host.processor.promote_shadow("f", KeepState::Keep, true);
    let dry = dry.await.expect("would do");
    assert_eq!((dry.version, dry.plan.changes.len()), (2, 1));
    let done = host.processor.promote_shadow("f", KeepState::Keep, false);
    assert_eq!(done.await.expect("is promoted").version, 2);
    let gone = host.processor.describe("f.shadow").await;
    assert_eq!(gone.expect_err("is over").code, "function-not-found");
    for topic in ["f.shadow.out", "f.shadow.dead-letters"] {
        assert!(host.log.topic(topic).is_none(), "{topic}");
    }
    host.send("in", 0, &COUNT[..1]).await;
    host.caught_up("f").await;
    assert_eq!(
        host.count("f", "a").await,
        of(7, 2),
        "its own state, counted by two"
    );
    host.close().await;
    let host = Host::open(dir.path()).await;
    let live = host.processor.describe("f").await.expect("is there");
    assert_eq!((live.version, live.shadow), (2, None));
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_version_beside_itself_does_the_same() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    let waits = json!({"retry": {"attempts": 100, "backoff": "1h..2h", "order": "key"}});
    let kept = counting(waits);
    host.deploy("f", kept.clone()).await;
    // One event waits for an hour, and the next of its key behind it.
    host.send("in", 0, &COUNT).await;
    host.send("in", 0, &[(Some("w"), "r"), (Some("w"), "c")])
        .await;
    host.until("f", |report| report.counts.retrying == 2).await;
    let begun = beside_as(&host, scripted(), kept, KeepState::Keep).await;
    begun.expect("begins");
    let report = host
        .until("f.shadow", |report| report.tasks[0].lag == 0)
        .await;
    assert_eq!(
        (report.counts.events_in, report.counts.retrying),
        (2, 2),
        "what waits, waits there, too"
    );
    host.send(
        "in",
        0,
        &[(Some("w"), "c"), (Some("a"), "c"), (Some("d"), "dead")],
    )
    .await;
    for name in ["f", "f.shadow"] {
        let report = host.until(name, |report| report.tasks[0].lag == 0).await;
        assert_eq!(report.counts.retrying, 3, "{name}");
    }
    let found = diff(&host).await;
    assert_eq!((found.events, found.different), (3, 0), "{found:?}");
    assert!(found.state.is_same());
    let letters = host.read("f.shadow.dead-letters").await;
    assert_eq!(letters.len(), 1);
    host.processor.stop_shadow("f").await.expect("stops");
    let again = host.processor.stop_shadow("f").await;
    assert_eq!(again.expect_err("is over").code, "shadow-not-found");
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_state_it_begins_at_nothing_and_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    let none = beside(&host, scripted(), KeepState::Keep).await;
    assert_eq!(
        none.expect_err("nothing to run beside").code,
        "function-not-found"
    );
    host.deploy("f", counting(json!({}))).await;
    host.send("in", 0, &COUNT).await;
    host.caught_up("f").await;
    beside(&host, scripted(), KeepState::Reset)
        .await
        .expect("begins");
    host.send("in", 0, &COUNT).await;
    host.caught_up("f").await;
    host.caught_up("f.shadow").await;
    assert_eq!(host.count("f", "a").await, Some(4));
    assert_eq!(host.count("f.shadow", "a").await, Some(2));
    let found = diff(&host).await;
    assert_eq!((found.events, found.different), (3, 3));

    let twice = beside(&host, by_two(), KeepState::Keep).await;
    assert_eq!(twice.expect_err("one is enough").code, "shadow-exists");
    let direct = host
        .try_deploy("f.shadow", counting(json!({})), KeepState::Keep)
        .await;
    assert_eq!(direct.expect_err("is a shadow").code, "is-shadow");
    let verify = crate::replays::whole(ReplayMode::Verify);
    let verify = host.processor.replay("f.shadow", verify).await;
    assert_eq!(
        verify.expect_err("it began with a copy").code,
        "replay-impossible"
    );

    // With the function goes what runs beside it.
    host.processor
        .delete("f", KeepState::Keep)
        .await
        .expect("is deleted");
    assert!(host.processor.names().is_empty());
    for (prefix, left) in [("function/", 1), ("version/f.shadow", 0)] {
        assert_eq!(host.log.entries(prefix).len(), left, "{prefix}");
    }
    host.deploy("f", counting(json!({}))).await;
    assert_eq!(host.count("f", "a").await, Some(4), "that was kept");
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_was_being_copied_is_gone_at_the_next_start() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", counting(json!({}))).await;
    host.send("in", 0, &COUNT).await;
    host.caught_up("f").await;
    beside(&host, by_two(), KeepState::Keep)
        .await
        .expect("begins");
    // As the record is while its state is copied.
    let (key, entry) = host.log.entries("function/f.shadow").pop().expect("there");
    let mut entry: Value = serde_json::from_slice(&entry).expect("JSON");
    entry["standing"] = json!("deleted");
    let mut draft = Draft::new();
    draft.entry(&key, Some(entry.to_string().as_bytes()));
    let ticket = host.log.commit(draft).map_err(|(error, _)| error);
    ticket.expect("commits").durable().await.expect("durable");
    host.close().await;

    let host = Host::open(dir.path()).await;
    assert!(host.log.entries("function/f.shadow").is_empty());
    assert!(host.log.topic("f.shadow.out").is_none());
    let live = host.processor.describe("f").await.expect("is there");
    assert_eq!(live.shadow, None);
    let numbers = [entry["id"].as_u64(), entry["shadow"]["kept"].as_u64()];
    for number in numbers {
        let number = u32::try_from(number.expect("a number")).expect("small");
        assert!(host.log.positions(number * 4).is_empty(), "{number}");
        let scope = tidemill_state::Scope {
            function: tidemill_types::FunctionId(number),
            partition: 0,
        };
        let left = host.state.list(scope, 0, b"", None, 10).expect("is read");
        assert!(left.is_empty(), "{number}");
    }
    assert_eq!(host.count("f", "a").await, Some(2));
    let again = beside(&host, by_two(), KeepState::Keep).await;
    again.expect("nothing is in its way");
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_keyed_by_a_pointer_shares_its_events_with_its_shadow() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 2, Format::Json).await;
    let by_key = counting(json!({
        "input": [{"topic": "in", "start": "earliest", "key": "/k"}],
    }));
    host.deploy("f", by_key.clone()).await;
    let send = async |n: usize| {
        let topic = host.log.topic("in").expect("there");
        let mut rows = PackedRows::default();
        for nth in 0..n {
            let value = json!({"k": format!("k{}", nth % 3)}).to_string();
            let time = Timestamp::from_micros(1);
            rows.push(time, None, Some(value.as_bytes()), [])
                .expect("it fits");
        }
        let partitions: Vec<u32> = (0..).take(n).map(|nth| nth % 2).collect();
        let mut draft = Draft::new();
        draft.append(topic.id, &rows, &partitions).expect("it fits");
        let ticket = host.log.commit(draft).map_err(|(error, _)| error);
        ticket.expect("commits").durable().await.expect("durable");
    };
    send(10).await;
    host.caught_up("f").await;
    let begun = beside_as(&host, scripted(), by_key, KeepState::Keep).await;
    begun.expect("begins");
    send(30).await;
    host.caught_up("f").await;
    let report = host.until("f.shadow", |report| report.counts.events_in == 30);
    let report = report.await;
    assert_eq!(report.tasks.len(), 2, "no tasks that move events");
    assert_eq!(report.tasks[0].topic, "f.by-key");
    assert!(host.log.topic("f.shadow.by-key").is_none());
    let found = diff(&host).await;
    assert_eq!((found.events, found.different), (30, 0), "{found:?}");
    assert_eq!(
        found.left,
        tidemill_processor::Told {
            version: 1,
            ..found.right.clone()
        }
    );
    host.close().await;
}
