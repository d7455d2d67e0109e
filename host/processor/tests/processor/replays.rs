//! Versions over stored events once more: compared with what was committed, with another version, into a
//! topic, as a stream; and a function on events that aren't anywhere.

use crate::component;
use crate::host::{Host, counting, number};
use crate::kept;
use crate::kept::keeper::Ask;
use serde_json::json;
use std::time::Duration;
use tidemill_env::Clock;
use tidemill_log::{Draft, Format};
use tidemill_processor::{
    Diff, Fate, KeepState, Outcome, Point, Replay, ReplayMode, ReplayStatus, Replayed, Verified,
};
use tidemill_state::{Change, Changes, Scope};
use tidemill_types::{FunctionId, PackedRows, Timestamp};

/// `scripted.wat`, but it counts by two.
pub(crate) fn by_two() -> Vec<u8> {
    let one = "(i64.load (local.get $at)) (i64.const 1)";
    let text = include_str!("scripted.wat");
    assert!(text.contains(one), "it counts by one");
    let two = "(i64.load (local.get $at)) (i64.const 2)";
    component::guest("", &text.replace(one, two))
}

pub(crate) fn whole(mode: ReplayMode) -> Replay {
    Replay {
        version: None,
        from: Point::Earliest,
        to: Point::Latest,
        mode,
        examples: 10,
    }
}

/// Runs a replay to its end.
async fn outcome(host: &Host, name: &str, replay: Replay) -> Outcome {
    let begun = host.processor.replay(name, replay).await.expect("begins");
    finished(host, name, begun.id).await
}

/// What a replay comes to.
pub(crate) async fn finished(host: &Host, name: &str, id: u64) -> Outcome {
    let clock = Clock::system();
    for _ in 0..20_000 {
        let report = host.processor.replay_report(name, id).expect("is kept");
        match report.status {
            ReplayStatus::Running => clock.sleep(Duration::from_millis(1)).await,
            ReplayStatus::Failed(error) => panic!("{error}"),
            ReplayStatus::Done(outcome) => {
                assert_eq!(report.events, report.of, "all of it is done");
                return outcome;
            }
        }
    }
    panic!("it never ends");
}

pub(crate) async fn verified(host: &Host, name: &str) -> Verified {
    match outcome(host, name, whole(ReplayMode::Verify)).await {
        Outcome::Verified(verified) => *verified,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn diff(host: &Host, name: &str, left: u32) -> Diff {
    match outcome(host, name, whole(ReplayMode::Diff(left))).await {
        Outcome::Diff(diff) => *diff,
        other => panic!("{other:?}"),
    }
}

const EVENTS: [(Option<&str>, &str); 8] = [
    (Some("a"), "c"),
    (Some("b"), "c"),
    (Some("a"), "e"),
    (Some("a"), "C"),
    (Some("b"), "dead"),
    (Some("c"), "R"),
    (Some("c"), "t"),
    (None, "e"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_committed_is_found_again_over_all_versions() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 2, Format::Bytes).await;
    host.topic("out", 1, Format::Bytes).await;
    host.deploy("f", counting(json!({}))).await;
    for partition in [0, 1] {
        host.send("in", partition, &EVENTS).await;
    }
    host.caught_up("f").await;
    host.deploy_guest("f", by_two(), counting(json!({})), KeepState::Keep)
        .await
        .expect("deploys");
    host.send("out", 0, &[(Some("a"), "of somebody else")])
        .await;
    for partition in [0, 1] {
        host.send("in", partition, &EVENTS).await;
    }
    let report = host.caught_up("f").await;
    host.log.seal().await.expect("seals");
    host.close().await;

    let host = Host::open(dir.path()).await;
    let found = verified(&host, "f").await;
    assert!(found.is_same(), "{found:?}");
    assert_eq!((found.versions, found.events), ((1, 2), 32));
    assert_eq!(
        found.found,
        report.counts.emitted + report.counts.dead_lettered,
        "letters are looked for, too"
    );
    assert_eq!(
        found.state.same, 4,
        "two keys that were counted on each partition"
    );

    // State that no event led to.
    let mut changes = Changes::new(Scope {
        function: FunctionId(1),
        partition: 1,
    });
    let changed = [&0_i64.to_le_bytes()[..], &7_u64.to_le_bytes()].concat();
    changes.push(Change::Set {
        slot: 0,
        key: b"a",
        value: &changed,
    });
    let mut draft = Draft::new();
    draft.state(changes.as_bytes());
    let ticket = host
        .log
        .commit(draft)
        .map_err(|(error, _)| error)
        .expect("commits");
    host.state
        .apply(ticket.commit, changes.as_bytes())
        .expect("applies");
    ticket.durable().await.expect("durable");
    let found = verified(&host, "f").await;
    assert!(!found.is_same());
    assert_eq!((found.missing, found.state.different), (0, 1));
    let example = &found.state.examples[0];
    assert_eq!(
        (example.slot.as_str(), &example.key[..]),
        ("count", &b"a"[..])
    );
    assert_eq!(number(example.left.as_ref().expect("a value")), 7);
    assert_eq!(number(example.right.as_ref().expect("a value")), 6);
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_component_would_have_said_is_missing() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", counting(json!({}))).await;
    let other = json!({"output": {"out": {"topic": "elsewhere", "format": "bytes"}}});
    let other = host.deploy_guest("g", by_two(), counting(other), KeepState::Keep);
    let other = other.await.expect("deploys");
    host.send("in", 0, &EVENTS).await;
    host.caught_up("f").await;
    // The registry says that version 1 was something else.
    let key = "version/f/0000000001";
    let (_, entry) = host.log.entries(key).pop().expect("its entry");
    let mut entry: serde_json::Value = serde_json::from_slice(&entry).expect("JSON");
    entry["digest"] = json!(other.digest);
    let mut draft = Draft::new();
    draft.entry(key, Some(entry.to_string().as_bytes()));
    let ticket = host
        .log
        .commit(draft)
        .map_err(|(error, _)| error)
        .expect("commits");
    ticket.durable().await.expect("durable");
    let found = verified(&host, "f").await;
    assert_eq!((found.missing, found.totals.len()), (2, 0), "{found:?}");
    assert_eq!(found.examples[0].topic, "out");
    assert_eq!(found.state.different, 2);
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_versions_are_compared_event_by_event() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 2, Format::Bytes).await;
    host.deploy("f", counting(json!({}))).await;
    host.send("in", 0, &EVENTS).await;
    host.send("in", 1, &[(Some("z"), "e"), (Some("z"), "f")])
        .await;
    host.caught_up("f").await;
    let before = host.read("out").await;
    host.deploy_guest("f", by_two(), counting(json!({})), KeepState::Keep)
        .await
        .expect("deploys");
    let found = diff(&host, "f", 1).await;
    assert_eq!((found.left.version, found.right.version), (1, 2));
    assert_eq!((found.events, found.same, found.different), (10, 8, 2));
    assert_eq!(found.left.emitted, found.right.emitted);
    let first = &found.examples[0];
    assert_eq!((first.partition, first.offset), (0, 0));
    assert_eq!(first.value.as_deref(), Some(&b"c"[..]));
    let counted =
        |side: &[tidemill_processor::Emitted]| number(side[0].value.as_ref().expect("a value"));
    assert_eq!((counted(&first.left), counted(&first.right)), (1, 2));
    assert_eq!((found.state.same, found.state.different), (0, 2));
    let same = diff(&host, "f", 2).await;
    assert_eq!((same.different, same.same), (0, 10));
    assert!(same.state.is_same() && same.state.same == 2);
    assert_eq!(host.read("out").await, before, "nothing was committed");
    let left: Vec<_> = std::fs::read_dir(dir.path().join("replay"))
        .expect("a folder")
        .collect();
    assert!(left.is_empty(), "their state is gone: {left:?}");
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outputs_come_as_a_stream_or_go_into_a_topic() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", counting(json!({}))).await;
    host.send("in", 0, &EVENTS).await;
    host.caught_up("f").await;
    let part = Replay {
        from: Point::Offset(1),
        to: Point::Offset(4),
        ..whole(ReplayMode::Into("aside".into()))
    };
    let mut coming = host
        .processor
        .replay_stream("f", part.clone())
        .await
        .expect("begins");
    let mut values = Vec::new();
    let mut done = false;
    while let Some(some) = coming.recv().await {
        match some.expect("it can be read") {
            Replayed::Events(events) => values.extend(events.into_iter().map(|e| e.value)),
            Replayed::Stopped(..) => panic!("it stopped"),
            Replayed::Done => done = true,
        }
    }
    assert!(done, "it says that this was all");
    let one = 1_u64.to_le_bytes();
    let values: Vec<_> = values
        .iter()
        .map(|v| v.as_deref().expect("a value"))
        .collect();
    assert_eq!(
        values,
        [&one[..], b"e", b"C"],
        "state is empty where it begins"
    );
    let Outcome::Into {
        topic,
        emitted,
        stopped,
    } = outcome(&host, "f", part).await
    else {
        panic!("it goes into a topic");
    };
    assert_eq!((topic.as_str(), emitted, stopped.len()), ("aside", 3, 0));
    let aside = host.read("aside").await;
    let said: Vec<_> = aside.iter().map(|seen| &seen.value[..]).collect();
    assert_eq!(said, values);
    assert_eq!(aside[0].headers["tidemill-replay-of"], "out");
    for (name, code) in [("out", "invalid-replay"), ("in", "invalid-replay")] {
        let refused = host
            .processor
            .replay("f", whole(ReplayMode::Into(name.into())))
            .await;
        assert_eq!(refused.expect_err("its own").code, code);
    }
    let unknown = host.processor.replay("f", whole(ReplayMode::Diff(9))).await;
    assert_eq!(unknown.expect_err("never was").code, "version-not-found");
    assert_eq!(
        host.processor
            .replay_report("f", 99)
            .expect_err("never was")
            .code,
        "replay-not-found"
    );
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_lies_before_a_reset_needs_no_history_and_what_was_taken_away_is_said() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", counting(json!({}))).await;
    host.send("in", 0, &EVENTS).await;
    host.caught_up("f").await;
    host.try_deploy("f", counting(json!({})), KeepState::Reset)
        .await
        .expect("deploys");
    host.send("in", 0, &EVENTS).await;
    host.caught_up("f").await;
    let found = verified(&host, "f").await;
    assert!(found.is_same(), "{found:?}");
    assert_eq!((found.versions, found.events), ((2, 2), 8));
    let at = |topic: &str| tidemill_types::PartitionId {
        topic: host.log.topic(topic).expect("there").id,
        partition: 0,
    };
    host.log.truncate(at("out"), 1).await.expect("truncates");
    let found = verified(&host, "f").await;
    assert!(found.is_same() && found.gone["out"] > 0, "{found:?}");
    host.log.truncate(at("in"), 9).await.expect("truncates");
    let refused = host.processor.replay("f", whole(ReplayMode::Verify)).await;
    let refused = refused.expect_err("its beginning is gone");
    assert_eq!(refused.code, "replay-impossible");
    assert!(refused.detail.contains("0:9"), "{refused}");
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_of_every_kind_and_timers_are_verified() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 2, Format::Json).await;
    kept::deploy(&host, "f", kept::manifest("in", "out", 7)).await;
    let mut sent: Vec<(&str, i64, String)> = Vec::new();
    for n in 0..200_i64 {
        let key = ["a", "b", "c"][usize::try_from(n % 3).expect("small")];
        let entry = format!("e{}", n % 11);
        let asks = match n % 6 {
            0 => vec![Ask::Count(n), Ask::Push(n), Ask::Set("brief".into(), n)],
            1 => vec![
                Ask::Put("map".into(), entry, n),
                Ask::Scan("map".into(), "e".into()),
            ],
            2 => vec![Ask::Timer(
                entry,
                10 * n + 35,
                vec![Ask::Count(1), Ask::Pop],
            )],
            3 => vec![
                Ask::Put("briefs".into(), entry.clone(), n),
                Ask::Look("briefs".into(), entry),
            ],
            4 => vec![
                Ask::Set("value".into(), n),
                Ask::Then(["skip", "dead"][usize::from(n % 4 == 0)].into()),
            ],
            _ => vec![
                Ask::Churn("map".into()),
                Ask::Get("brief".into()),
                Ask::Watermark,
            ],
        };
        sent.push((key, n * 10_000, serde_json::to_string(&asks).expect("JSON")));
    }
    for (partition, part) in [(0, &sent[..120]), (1, &sent[60..]), (0, &sent[120..])] {
        host.send_at("in", partition, part).await;
    }
    let report = host.caught_up("f").await;
    assert!(report.counts.timers > 10, "{:?}", report.counts);
    let found = verified(&host, "f").await;
    assert!(found.is_same(), "{found:?}");
    assert!(found.state.same > 10 && found.found > 200, "{found:?}");
    let same = diff(&host, "f", 1).await;
    assert_eq!(same.different, 0, "{:?}", same.examples);
    assert!(same.state.is_same());
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_is_asked_and_nothing_changes() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 4, Format::Bytes).await;
    host.deploy("f", counting(json!({}))).await;
    let at = tidemill_types::partition_of_key(b"a", 4);
    host.send("in", at, &[(Some("a"), "c"), (Some("a"), "c")])
        .await;
    host.caught_up("f").await;
    let before = host.read("out").await;
    let mut rows = PackedRows::default();
    for (key, value) in [
        ("a", "c"),
        ("b", "c"),
        ("a", "c"),
        ("a", "t"),
        ("a", "skip"),
    ] {
        let time = Timestamp::from_micros(5);
        rows.push(time, Some(key.as_bytes()), Some(value.as_bytes()), [])
            .expect("it fits");
    }
    let invoked = host
        .processor
        .invoke("f", None, KeepState::Keep, rows.clone(), None)
        .await
        .expect("is asked");
    let fates: Vec<_> = invoked.events.iter().map(|event| event.fate).collect();
    let (effective, letter) = (Some(Fate::Effective), Some(Fate::DeadLettered));
    assert_eq!(
        fates,
        [effective, effective, effective, letter, Some(Fate::Skipped)]
    );
    let counted = |nth: usize| {
        let value = invoked.events[nth].emitted[0].value.as_ref();
        number(value.expect("a value"))
    };
    assert_eq!([counted(0), counted(1), counted(2)], [3, 1, 4]);
    let letter = &invoked.events[3].emitted[0];
    assert_eq!(letter.topic, "f.dead-letters");
    assert!(invoked.events[4].emitted.is_empty());
    let counts = invoked.counts;
    assert_eq!(
        (
            counts.events_in,
            counts.emitted,
            counts.dead_lettered,
            counts.skipped
        ),
        (5, 3, 1, 1)
    );
    assert_eq!((invoked.state.different, invoked.state.only_right), (1, 1));
    assert_eq!(host.read("out").await, before, "nothing was committed");
    assert_eq!(host.count("f", "a").await, Some(2));
    assert!(host.read("f.dead-letters").await.is_empty());
    assert_eq!(invoked.version, 1);

    // An earlier version, without the state there is.
    host.deploy_guest("f", by_two(), counting(json!({})), KeepState::Keep)
        .await
        .expect("deploys");
    for (version, state, counted) in [
        (None, KeepState::Keep, 4),
        (Some(1), KeepState::Keep, 3),
        (Some(2), KeepState::Reset, 2),
        (Some(1), KeepState::Reset, 1),
    ] {
        let invoked = host
            .processor
            .invoke("f", version, state, rows.clone(), None);
        let invoked = invoked.await.expect("is asked");
        assert_eq!(invoked.version, version.unwrap_or(2));
        let value = invoked.events[0].emitted[0].value.as_ref();
        assert_eq!(number(value.expect("a value")), counted, "{version:?}");
    }
    let unknown = host
        .processor
        .invoke("f", Some(9), KeepState::Keep, rows, None);
    assert_eq!(
        unknown.await.expect_err("never was").code,
        "version-not-found"
    );

    // One that stops says so, and of which events it says nothing.
    let mut rows = PackedRows::default();
    for value in ["e", "x", "e"] {
        let (time, key) = (Timestamp::from_micros(5), Some(&b"a"[..]));
        rows.push(time, key, Some(value.as_bytes()), [])
            .expect("it fits");
    }
    let invoked = host
        .processor
        .invoke("f", None, KeepState::Keep, rows, None);
    let invoked = invoked.await.expect("is asked");
    let fates: Vec<_> = invoked.events.iter().map(|event| event.fate).collect();
    assert_eq!(fates, [effective, None, None]);
    assert!(invoked.stopped.is_some());
    host.close().await;
}
