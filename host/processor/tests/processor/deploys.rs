//! What deployments do to a function that is at work, and what components may not do.

use crate::component;
use crate::host::{Host, counting, manifest, number, scripted};
use crate::replays::by_two;
use serde_json::json;
use std::cell::Cell;
use std::collections::BTreeMap;
use tidemill_log::Format;
use tidemill_processor::{FunctionReport, KeepState};

const FILTER: &str = include_str!("../../../../tests/guests/wat/filter.wat");

/// Components that aren't functions of this host, and words of the refusal.
fn refused() -> Vec<(Vec<u8>, &'static str)> {
    let core = wat::parse_str(r#"(module (func (export "run") (result i32) (i32.const 0)))"#);
    let core = core.expect("a module");
    let world = |wit: &str| component::of_world(wit, "w", &core);
    let starting = |start: &str| {
        let fields = format!("(func $begin {start}) (start $begin) {FILTER}");
        component::guest("", &fields)
    };
    vec![
        (Vec::new(), "empty: "),
        (b"\x89PNG\r\n\x1a\n".to_vec(), "not WebAssembly: "),
        (b"(component)".to_vec(), "not WebAssembly: "),
        (core.clone(), "core module: "),
        (
            world("package a:b; world w { export run: func() -> u32; }"),
            "missing export: a function exports `on-batch`, this component exports `run`",
        ),
        (starting("(loop (br 0))"), "deadline of 200ms passed"),
        (starting("(unreachable)"), "unreachable"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_is_refused_leaves_the_one_before_at_work() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", counting(json!({}))).await;
    for (sent, (component, words)) in (1..).zip(refused()) {
        let deployed = host.deploy_guest("f", component, counting(json!({})), KeepState::Keep);
        let refused = deployed.await.expect_err(words);
        assert_eq!(refused.code, "invalid-component", "{refused}");
        assert!(refused.detail.contains(words), "{refused}: no {words}");
        host.send("in", 0, &[(Some("k"), "2")]).await;
        let report = host.caught_up("f").await;
        assert_eq!((report.version, report.counts.effective), (1, sent));
        assert_eq!(host.count("f", "k").await, Some(sent));
    }
    let versions = host.processor.versions("f").await;
    assert_eq!(versions.expect("it exists").len(), 1);
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_event_is_handled_by_one_version_and_versions_follow_each_other() {
    const PARTITIONS: u32 = 2;
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", PARTITIONS, Format::Bytes).await;
    let few = counting(json!({"batch": {"events": 3}}));
    host.deploy("f", few.clone()).await;
    // The first version counts by one, the second by two, the third by one again.
    let (mut rounds, done) = (0, Cell::new(false));
    let round = async || {
        for partition in 0..PARTITIONS {
            let key = format!("k{partition}");
            let events = [(Some(key.as_str()), "c"); 5];
            host.send("in", partition, &events).await;
        }
    };
    let load = async {
        while !done.get() {
            round().await;
            rounds += 1;
        }
    };
    let deploys = async {
        for component in [by_two(), scripted()] {
            // Each version has its part of each partition, however slow the others are.
            let before = host.processor.describe("f").await.expect("it is there");
            let moved = |report: &FunctionReport| {
                let mut tasks = report.tasks.iter().zip(&before.tasks);
                tasks.all(|(task, before)| task.position > before.position)
            };
            host.until("f", moved).await;
            host.deploy_guest("f", component, few.clone(), KeepState::Keep)
                .await
                .expect("it deploys");
        }
        done.set(true);
    };
    tokio::join!(load, deploys);
    round().await;
    rounds += 1;
    let report = host.caught_up("f").await;
    assert_eq!(report.version, 3);
    let mut counts: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for seen in host.read("out").await {
        let of_key = counts.entry(seen.key.expect("keyed")).or_default();
        of_key.push(number(&seen.value));
    }
    assert_eq!(counts.len(), PARTITIONS as usize);
    for (key, counts) in counts {
        assert_eq!(counts.len(), rounds * 5, "one output for each event");
        let steps: Vec<u64> = std::iter::once(&0)
            .chain(&counts)
            .zip(&counts)
            .map(|(before, after)| after - before)
            .collect();
        let mut versions = steps.clone();
        versions.dedup();
        assert_eq!(versions, [1, 2, 1], "{key}: {steps:?}");
        let last = counts.last().copied();
        assert_eq!(host.count("f", &key).await, last, "state is of one mind");
    }
    host.close().await;
}

/// Emits each event to output 0, and to an output that is never declared if its value begins with `n`.
const UNDECLARED: &str = r#"
    (func (export "on-batch") (param i32 i32 i32 i64 i64) (param $batch i32) (param $len i32) (result i32)
      (local $events i32) (local $answer i32) (local $command i32) (local $i i32) (local $port i32)
      (local.set $events (i32.load offset=4 (local.get $batch)))
      (local.set $answer (call $answer (local.get $events) (i32.mul (local.get $events) (i32.const 2)) (i32.const 0)))
      (local.set $command (i32.add (local.get $answer) (call $commands_at (local.get $events))))
      (block $done
        (loop $next
          (br_if $done (i32.eq (local.get $i) (local.get $events)))
          (i32.store8 offset=32 (i32.add (local.get $answer) (local.get $i)) (i32.const 1))
          (local.set $port (i32.mul (i32.const 7) (i32.eq (i32.const 110) (i32.load8_u
            (i32.add (i32.add (local.get $batch) (i32.load offset=32 (local.get $batch)))
              (i32.load offset=16 (i32.add (local.get $batch) (i32.add (i32.const 48) (i32.mul (local.get $i) (i32.const 32))))))))))
          (i32.store8 (local.get $command) (i32.const 1))
          (i32.store offset=4 (local.get $command) (local.get $i))
          (i32.store8 offset=32 (local.get $command) (i32.const 1))
          (i32.store16 offset=34 (local.get $command) (local.get $port))
          (i32.store offset=36 (local.get $command) (local.get $i))
          (local.set $command (i32.add (local.get $command) (i32.const 64)))
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br $next)))
      (call $ok (local.get $answer) (call $payload_at (local.get $events) (i32.mul (local.get $events) (i32.const 2)))))"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_emitted_to_an_output_that_was_never_declared_is_seen_nowhere() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    let guest = component::guest("", UNDECLARED);
    host.deploy_guest("f", guest, manifest(json!({})), KeepState::Keep)
        .await
        .expect("it deploys");
    let topics = host.log.topics().len();
    host.send("in", 0, &[(None, "a"), (None, "nope"), (None, "b")])
        .await;
    let report = host.caught_up("f").await;
    assert_eq!(host.read("out").await.len(), 4, "two of each neighbour");
    assert_eq!(report.counts.dead_lettered, 1);
    let letter = host.read("f.dead-letters").await.remove(0);
    assert_eq!(letter.value, b"nope");
    let why = &letter.headers["tidemill-error"];
    assert!(why.contains("output 7"), "{why}");
    assert_eq!(host.log.topics().len(), topics, "no topic was made");
    host.close().await;
}
