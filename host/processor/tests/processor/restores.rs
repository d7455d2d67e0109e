//! Going back to where a version was left, with the state of then: what was read since is read again, and state,
//! positions and totals are what they would be had nothing been between.

use crate::crash::{reopen, some_time};
use crate::host::{Host, conserved, counting, manifest, number, process, usual};
use crate::replays::{by_two, verified};
use crate::shadows::COUNT;
use serde_json::{Value, json};
use std::time::Duration;
use tidemill_env::Random;
use tidemill_log::Format;
use tidemill_processor::{
    Chosen, Deploy, Deployed, KeepState, LetterQuery, Rollback, Settings, VersionReport,
};
use tidemill_state::Scope;
use tidemill_types::{ByteSize, FunctionId, PartitionId, Result};

async fn back(host: &Host, version: u32, again: bool, dry_run: bool) -> Result<Deployed> {
    let rollback = Rollback {
        version,
        state: KeepState::Restore { again },
        dry_run,
    };
    host.processor.rollback("f", rollback).await
}

async fn two(host: &Host, changes: Value) -> Deployed {
    host.deploy_guest("f", by_two(), counting(changes), KeepState::Keep)
        .await
        .expect("deploys")
}

/// The version that counts by two.
fn by_two_deployed() -> Deploy {
    Deploy {
        name: "f".parse().expect("a name"),
        component: by_two().into(),
        manifest: Some(counting(json!({}))),
        start: None,
        state: KeepState::Keep,
        dry_run: false,
    }
}

async fn counts(host: &Host) -> Vec<u64> {
    let out = host.read("out").await;
    out.iter().map(|event| number(&event.value)).collect()
}

/// Versions of which it is kept what they were when they were left.
async fn kept(host: &Host) -> Vec<u32> {
    let versions = host.processor.versions("f").await.expect("there");
    let ready = |version: &&VersionReport| version.kept.is_some_and(|kept| kept.ready);
    let kept = versions.iter().filter(ready);
    kept.map(|version| version.version).collect()
}

/// Numbers under which a value lies.
fn numbers(host: &Host, partitions: u32) -> Vec<u32> {
    let lies = |function: &u32| {
        (0..partitions).any(|partition| {
            let function = FunctionId(*function);
            let scope = Scope {
                function,
                partition,
            };
            let found = host.state.list(scope, 0, b"", None, 1);
            !found.expect("lists").is_empty()
        })
    };
    (0..40).filter(lies).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn positions_in_several_topics_go_back_together() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    for topic in ["in", "more"] {
        host.topic(topic, 1, Format::Bytes).await;
    }
    let input = |topic| json!({"topic": topic, "start": "earliest"});
    let both = json!({"input": [input("in"), input("more")]});
    host.deploy("f", counting(both.clone())).await;
    host.send("in", 0, &COUNT).await;
    host.send("more", 0, &COUNT).await;
    host.caught_up("f").await;
    two(&host, both).await;
    host.send("in", 0, &COUNT[..1]).await;
    host.send("more", 0, &COUNT).await;
    host.caught_up("f").await;
    assert_eq!(host.count("f", "a").await, Some(4 + 2 * 3));

    let plan = back(&host, 1, false, true).await.expect("it would").plan;
    let comes_to = plan.again.expect("something runs again");
    assert_eq!((comes_to.events, comes_to.emitted), (4, 4));
    let starts = plan.start.iter().map(|at| (at.topic.as_str(), at.offset));
    assert_eq!(starts.collect::<Vec<_>>(), [("in", 3), ("more", 3)]);
    back(&host, 1, true, false).await.expect("goes back");
    let report = host.caught_up("f").await;
    assert_eq!(host.count("f", "a").await, Some(4 + 3));
    assert_eq!(report.counts.events_in, 10);
    assert_eq!(report.version_counts.events_in, 4);
    let verified = verified(&host, "f").await;
    assert!(verified.is_same(), "{verified:?}");
    assert_eq!((verified.versions, verified.events), ((1, 3), 10));
    host.close().await;

    // What was undone can be had again, after a start, too.
    let host = Host::open(dir.path()).await;
    back(&host, 2, true, false).await.expect("goes forward");
    host.caught_up("f").await;
    assert_eq!(host.count("f", "a").await, Some(4 + 2 * 3));
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_and_positions_are_what_they_were_and_events_since_run_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", counting(json!({}))).await;
    host.send("in", 0, &COUNT).await;
    let left = host.caught_up("f").await;
    two(&host, json!({})).await;
    host.send("in", 0, &COUNT).await;
    host.send("in", 0, &[(Some("a"), "dead")]).await;
    host.caught_up("f").await;
    assert_eq!(host.count("f", "a").await, Some(6));

    let plan = back(&host, 1, false, true).await.expect("it would").plan;
    let comes_to = plan.again.expect("something runs again");
    assert_eq!((comes_to.version, comes_to.events), (1, 4));
    assert_eq!((comes_to.emitted, comes_to.dead_lettered), (3, 1));
    assert_eq!(
        (plan.moves, plan.resets, plan.start[0].offset),
        (true, false, 3)
    );
    let refused = back(&host, 1, false, false).await.expect_err("not said");
    assert_eq!(refused.code, "runs-again");
    assert!(
        refused.detail.contains("4 events that were handled since")
            && refused.detail.contains("again=true"),
        "{refused}"
    );
    assert_eq!(
        host.processor.describe("f").await.expect("there").version,
        2
    );

    let done = back(&host, 1, true, false).await.expect("goes back");
    assert_eq!((done.version, done.rollback_of), (3, Some(1)));
    let report = host.caught_up("f").await;
    assert_eq!(host.count("f", "a").await, Some(4));
    assert_eq!(counts(&host).await, [1, 1, 2, 4, 3, 6, 3, 2, 4]);
    assert_eq!(
        report.counts.events_in,
        left.counts.events_in + 4,
        "what was between is undone in the totals, too"
    );
    assert_eq!(report.version_counts.events_in, 4);
    let verified = verified(&host, "f").await;
    assert!(verified.is_same(), "{verified:?}");
    assert_eq!((verified.versions, verified.events), ((1, 3), 7));

    let versions = host.processor.versions("f").await.expect("there");
    let told: Vec<_> = versions.iter().map(|v| (v.version, v.restored)).collect();
    assert_eq!(told, [(3, Some(1)), (2, None), (1, None)]);
    assert_eq!(kept(&host).await, [2, 1]);
    host.close().await;

    // The same once more, after a start; and what was undone can be had again.
    let host = Host::open(dir.path()).await;
    host.send("in", 0, &COUNT[..1]).await;
    host.caught_up("f").await;
    assert_eq!(host.count("f", "a").await, Some(5));
    let once_more = back(&host, 1, true, false).await.expect("goes back");
    assert_eq!(once_more.plan.again.expect("again").events, 5);
    host.caught_up("f").await;
    assert_eq!(host.count("f", "a").await, Some(5));
    let forward = back(&host, 2, true, false).await;
    assert_eq!(
        forward.expect_err("two newer ones are kept").code,
        "restore-impossible"
    );
    assert_eq!(kept(&host).await, [3, 1]);
    assert_eq!(
        numbers(&host, 1).len(),
        3,
        "in force, and two that are kept"
    );
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_undone_can_be_had_again_and_passes_over_what_it_had_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 2, Format::Json).await;
    let keyed = || counting(json!({"input": [{"topic": "in", "key": "/k", "start": "earliest"}]}));
    host.deploy("f", keyed()).await;
    let send = async |partition| {
        let event = [(None, r#"{"k":"a"}"#), (None, r#"{"k":"b"}"#)];
        host.send("in", partition, &event).await;
    };
    send(0).await;
    host.until("f", |report| report.counts.events_in == 2).await;
    host.deploy_guest("f", by_two(), keyed(), KeepState::Keep)
        .await
        .expect("deploys");
    send(1).await;
    host.until("f", |report| report.counts.events_in == 4).await;
    host.processor.pause("f").await.expect("pauses");
    let undone = back(&host, 1, true, false).await.expect("goes back");
    let comes_to = undone.plan.again.expect("again");
    assert_eq!((comes_to.events, comes_to.passed_over), (2, 0));
    let ahead = back(&host, 2, false, true).await.expect("it would");
    let comes_to = ahead.plan.again.expect("again");
    assert_eq!((comes_to.events, comes_to.passed_over), (0, 2));
    let refused = back(&host, 2, false, false).await.expect_err("not said");
    assert!(
        refused.detail.contains("2 events are passed over"),
        "{refused}"
    );
    back(&host, 2, true, false).await.expect("goes on");
    let paused = host.processor.describe("f").await.expect("there");
    assert_eq!(paused.counts.events_in, 4, "as version 2 was left");
    host.processor.resume("f").await.expect("resumes");
    send(0).await;
    let report = host.until("f", |report| report.counts.events_in == 6).await;
    assert!(conserved(&report), "{report:?}");
    assert_eq!(host.read("in").await.len(), 6);
    let mut brought = host.read("f.by-key").await;
    brought.retain(|seen| !seen.value.is_empty());
    assert_eq!(brought.len(), 6, "each was brought there once");
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_refused_where_it_cannot_be_what_it_was() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", counting(json!({}))).await;
    host.send("in", 0, &COUNT).await;
    host.caught_up("f").await;
    let refuse = async |version, says: &str| {
        let refused = back(&host, version, true, false)
            .await
            .expect_err("impossible");
        assert_eq!(refused.code, "restore-impossible");
        assert!(refused.detail.contains(says), "{refused}");
    };
    refuse(1, "none is kept").await;
    two(&host, json!({})).await;
    host.send("in", 0, &COUNT).await;
    host.caught_up("f").await;
    let beside = by_two_deployed();
    host.processor
        .deploy_shadow(beside.clone())
        .await
        .expect("begins");
    refuse(1, "promote or stop it first").await;
    host.processor.stop_shadow("f").await.expect("stops");
    let at = PartitionId {
        topic: host.log.topic("in").expect("there").id,
        partition: 0,
    };
    host.log.truncate(at, 3).await.expect("truncated");
    back(&host, 1, true, true)
        .await
        .expect("all that runs again is there");
    host.log.truncate(at, 4).await.expect("truncated");
    refuse(
        1,
        "was left at 0:3 of topic \"in\", but what was read from there on is gone",
    )
    .await;
    let state = KeepState::Restore { again: true };
    let deploy = tidemill_processor::Deploy { state, ..beside };
    let refused = host.processor.deploy(deploy).await.expect_err("no version");
    assert_eq!(refused.code, "invalid-request");
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_of_before_are_as_they_were_and_those_since_are_done_with() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    let failing = || counting(json!({"retry": {"attempts": 1, "backoff": "1ms..2ms"}}));
    host.deploy("f", failing()).await;
    host.send(
        "in",
        0,
        &[(Some("a"), "c"), (Some("a"), "R1"), (Some("a"), "dead")],
    )
    .await;
    host.caught_up("f").await;
    // "R" goes through when it is tried a second time.
    let places = async |all: bool| {
        let query = LetterQuery {
            all,
            limit: 100,
            ..LetterQuery::default()
        };
        let page = host.processor.dead_letters("f", &query).await;
        let letters = page.expect("lists").letters;
        letters
            .iter()
            .map(|letter| letter.place)
            .collect::<Vec<_>>()
    };
    assert_eq!(places(false).await, [(0, 0), (0, 1)]);
    host.deploy("f", counting(json!({"config": {"n": 2}})))
        .await;
    let dealt = host
        .processor
        .redrive("f", Chosen::These(vec![(0, 1)]))
        .await;
    assert_eq!(dealt.expect("put back").count, 1);
    host.send("in", 0, &[(Some("b"), "dead too")]).await;
    host.until("f", |report| report.counts.dead_lettered == 4)
        .await;
    assert_eq!(places(false).await, [(0, 0), (0, 2), (0, 3)]);
    host.processor.pause("f").await.expect("pauses");
    back(&host, 1, true, false).await.expect("goes back");
    assert_eq!(places(false).await, [(0, 0), (0, 1)], "as it was");
    assert_eq!(places(true).await.len(), 4);
    host.processor.resume("f").await.expect("resumes");
    host.caught_up("f").await;
    assert_eq!(
        places(false).await,
        [(0, 0), (0, 1), (0, 4)],
        "it failed again"
    );
    let all = Chosen::All(LetterQuery {
        limit: 100,
        ..LetterQuery::default()
    });
    let dealt = host.processor.redrive("f", all).await.expect("put back");
    assert_eq!(dealt.count, 3);
    let report = host
        .until("f", |report| report.counts.dead_lettered == 6)
        .await;
    assert!(conserved(&report), "{report:?}");
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_is_kept_than_wanted_and_nothing_stays_behind() {
    let dir = tempfile::tempdir().expect("a folder");
    let open = async |restores, age| {
        let settings = Settings {
            restores,
            restore_age: age,
            ..usual()
        };
        Host::open_as(dir.path(), ByteSize::mib(16), settings, |_| {})
            .await
            .expect("the host opens")
    };
    let (long, short) = (Duration::from_secs(3600), Duration::ZERO);
    let host = open(3, long).await;
    host.topic("in", 2, Format::Bytes).await;
    host.deploy("f", counting(json!({}))).await;
    host.send("in", 0, &COUNT).await;
    host.send("in", 1, &COUNT).await;
    host.caught_up("f").await;
    for n in 0..5 {
        host.deploy("f", counting(json!({"config": {"n": n}})))
            .await;
    }
    assert_eq!(kept(&host).await, [5, 4, 3]);
    assert_eq!(numbers(&host, 2).len(), 4);
    host.close().await;

    let host = open(1, long).await;
    host.deploy("f", counting(json!({"config": {"n": 9}})))
        .await;
    assert_eq!(kept(&host).await, [6]);
    assert_eq!(numbers(&host, 2).len(), 2);
    host.send("in", 1, &COUNT[..1]).await;
    host.caught_up("f").await;
    back(&host, 6, true, false).await.expect("goes back");
    host.caught_up("f").await;
    assert_eq!(kept(&host).await, [7], "what was undone");
    assert_eq!(numbers(&host, 2).len(), 2);
    host.close().await;

    let host = open(0, long).await;
    back(&host, 7, true, false).await.expect("goes back");
    assert_eq!((kept(&host).await, numbers(&host, 2).len()), (vec![], 1));
    host.deploy("f", counting(json!({"config": {"n": 10}})))
        .await;
    assert_eq!((kept(&host).await, numbers(&host, 2).len()), (vec![], 1));
    host.close().await;

    let host = open(2, long).await;
    host.deploy("f", counting(json!({"config": {"n": 11}})))
        .await;
    assert_eq!((kept(&host).await.len(), numbers(&host, 2).len()), (1, 2));
    host.close().await;
    let host = open(2, short).await;
    assert_eq!((kept(&host).await, numbers(&host, 2).len()), (vec![], 1));
    host.deploy("f", counting(json!({"config": {"n": 12}})))
        .await;
    host.processor
        .delete("f", KeepState::Reset)
        .await
        .expect("deleted");
    assert_eq!(numbers(&host, 2), [0; 0]);
    assert_eq!(host.log.entries("restore/"), []);
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_without_state_goes_back_by_its_positions_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", manifest(json!({}))).await;
    host.send("in", 0, &[(Some("a"), "e1")]).await;
    host.caught_up("f").await;
    host.deploy("f", manifest(json!({"config": {"n": 1}})))
        .await;
    host.send("in", 0, &[(Some("a"), "e2")]).await;
    host.caught_up("f").await;
    back(&host, 1, true, false).await.expect("goes back");
    host.caught_up("f").await;
    assert_eq!(host.values("out").await, ["e1", "e2", "e2"]);
    host.close().await;
}

/// Lives that end at any moment while versions are deployed and gone back to: in the end each event counts once for
/// the version that counts by one, whatever was between.
#[test]
fn killed_at_any_moment_it_is_one_or_the_other() {
    let (dir, random) = (tempfile::tempdir().expect("a folder"), Random::seeded(11));
    let mut sent = 0;
    process(|runtime| {
        runtime.block_on(async {
            let host = reopen(dir.path()).await;
            host.topic("in", 1, Format::Bytes).await;
            host.deploy("f", counting(json!({}))).await;
            host.send("in", 0, &[(Some("a"), "c")]).await;
            sent += 1;
            host.caught_up("f").await;
        });
    });
    for round in 0..8 {
        process(|runtime| {
            runtime.block_on(async {
                let host = reopen(dir.path()).await;
                let report = host.caught_up("f").await;
                let versions = host.processor.versions("f").await.expect("there");
                let by_one = versions.last().expect("the first").digest.clone();
                if report.digest == by_one {
                    assert_eq!(host.count("f", "a").await, Some(sent), "round {round}");
                }
                let processor = host.processor.clone();
                let last = versions
                    .iter()
                    .find(|v| v.digest == by_one)
                    .expect("the first");
                let of = last.version;
                let deploys = report.digest == by_one;
                let work = tokio::spawn(async move {
                    if deploys {
                        let deploy = by_two_deployed();
                        return processor.deploy(deploy).await;
                    }
                    let rollback = Rollback {
                        version: of,
                        state: KeepState::Restore { again: true },
                        dry_run: false,
                    };
                    processor.rollback("f", rollback).await
                });
                host.send("in", 0, &[(Some("a"), "c"), (Some("a"), "c")])
                    .await;
                sent += 2;
                match random.below(3) {
                    0 => match work.await.expect("no panic") {
                        Ok(_) => {}
                        // What was being kept when a life ended can't be gone back to: another way to one.
                        Err(wrong) => {
                            assert_eq!(wrong.code, "restore-impossible");
                            start_over(&host).await;
                        }
                    },
                    _ => some_time(&host, random.below(6)).await,
                }
            });
        });
    }
    process(|runtime| {
        runtime.block_on(async {
            let host = reopen(dir.path()).await;
            host.caught_up("f").await;
            assert!(numbers(&host, 1).len() <= 3);
            start_over(&host).await;
            host.caught_up("f").await;
            assert_eq!(host.count("f", "a").await, Some(sent));
            host.close().await;
        });
    });
}

/// From the beginning, without state, by one.
async fn start_over(host: &Host) {
    let deploy = tidemill_processor::Deploy {
        name: "f".parse().expect("a name"),
        component: crate::host::scripted().into(),
        manifest: Some(counting(json!({}))),
        start: Some(tidemill_processor::Start::Earliest),
        state: KeepState::Reset,
        dry_run: false,
    };
    host.processor.deploy(deploy).await.expect("deploys");
}
