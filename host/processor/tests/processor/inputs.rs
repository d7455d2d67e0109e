//! Functions of several topics: their events come in the order in which they were committed, and come so again.

use crate::crash::{reopen, some_time};
use crate::host::{Host, conserved, counting, manifest, process, usual};
use crate::replays::{finished, verified, whole};
use serde_json::{Value, json};
use std::path::Path;
use tidemill_env::Random;
use tidemill_log::{Draft, Format};
use tidemill_processor::{
    Chosen, FunctionReport, KeepState, LetterQuery, Outcome, ReplayMode, Settings, Start,
};
use tidemill_types::{ByteSize, PackedRows, PartitionId, Timestamp};

const PARTITIONS: u32 = 2;

fn inputs(topics: &[&str]) -> Value {
    let inputs = topics
        .iter()
        .map(|topic| json!({"topic": topic, "start": "earliest"}));
    inputs.collect()
}

fn of(topics: &[&str]) -> Value {
    manifest(json!({"input": inputs(topics), "batch": {"events": 7}}))
}

/// One frame with events of several topics; each event says which frame it is of.
async fn frame(host: &Host, nth: u64, events: &[(&str, u32)]) {
    let mut draft = Draft::new();
    for (place, (topic, partition)) in events.iter().enumerate() {
        let topic = host.log.topic(topic).expect("the topic exists");
        let mut rows = PackedRows::default();
        let value = format!("e {nth:04} {} {place}", topic.name);
        let key = format!("k{}", nth % 5);
        let time = Timestamp::from_micros(i64::try_from(nth).expect("small"));
        rows.push(time, Some(key.as_bytes()), Some(value.as_bytes()), [])
            .expect("it fits");
        draft
            .append(topic.id, &rows, &[*partition])
            .expect("it fits");
    }
    let ticket = host.log.commit(draft).map_err(|(error, _)| error);
    ticket
        .expect("there is room")
        .durable()
        .await
        .expect("it is durable");
}

/// What a function that emits its events as they are has to emit on a partition, in order.
async fn expected(host: &Host, topics: &[&str], partition: u32) -> Vec<String> {
    let mut all = Vec::new();
    for (input, name) in topics.iter().enumerate() {
        let topic = host.log.topic(name).expect("the topic exists");
        let at = PartitionId {
            topic: topic.id,
            partition,
        };
        let limit = tidemill_log::ReadLimit {
            events: 100_000,
            bytes: 100 << 20,
        };
        let read = host.log.read(at, 0, limit).await.expect("it is there");
        for event in read.batches.iter().flat_map(tidemill_types::Batch::iter) {
            let value = String::from_utf8(event.row.value.unwrap_or_default().to_vec());
            all.push((event.commit, input, event.offset, value.expect("text")));
        }
    }
    all.sort_unstable();
    all.into_iter().map(|(.., value)| value).collect()
}

/// What was emitted for events of a partition: outputs go by their key, so that they are told by the way they
/// were read.
async fn emitted(host: &Host) -> Vec<String> {
    host.values("out").await
}

async fn live(dir: &Path, random: &Random, topics: &[&str], nth: &mut u64) {
    let host = reopen(dir).await;
    for _ in 0..random.below(40) {
        let count = 1 + random.below(4);
        let events: Vec<(&str, u32)> = (0..count)
            .map(|_| {
                let topic = usize::try_from(random.below(topics.len() as u64)).expect("small");
                (topics[topic], 0)
            })
            .collect();
        frame(&host, *nth, &events).await;
        *nth += 1;
    }
    some_time(&host, random.below(4)).await;
}

#[test]
fn several_topics_come_in_commit_order_over_crashes_and_come_so_again() {
    let topics = ["a", "b", "c"];
    let dir = tempfile::tempdir().expect("a folder");
    let random = Random::seeded(29);
    let mut nth = 0;
    process(|runtime| {
        runtime.block_on(async {
            let host = Host::open(dir.path()).await;
            for topic in topics {
                host.topic(topic, 1, Format::Bytes).await;
            }
            host.deploy("f", of(&topics)).await;
        });
    });
    for _ in 0..10 {
        process(|runtime| runtime.block_on(live(dir.path(), &random, &topics, &mut nth)));
    }
    process(|runtime| {
        runtime.block_on(async {
            let host = reopen(dir.path()).await;
            let report = host.caught_up("f").await;
            let rows: Vec<_> = report
                .tasks
                .iter()
                .map(|t| (t.topic.as_str(), t.partition))
                .collect();
            assert_eq!(rows, [("a", 0), ("b", 0), ("c", 0)]);
            let expected = expected(&host, &topics, 0).await;
            assert_eq!(emitted(&host).await, expected);
            assert_eq!(report.counts.events_in, expected.len() as u64);
            let same = verified(&host, "f").await;
            assert!(same.is_same(), "{same:?}");
            assert_eq!(
                (same.events, same.found),
                (expected.len() as u64, expected.len() as u64)
            );
            let into = whole(ReplayMode::Into("again".into()));
            let begun = host.processor.replay("f", into).await.expect("begins");
            let Outcome::Into { emitted: count, .. } = finished(&host, "f", begun.id).await else {
                panic!("another replay");
            };
            assert_eq!(count, expected.len() as u64);
            assert_eq!(host.values("again").await, expected, "in the same order");
            host.close().await;
        });
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inputs_are_added_reordered_and_dropped_and_nothing_is_read_twice() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    for topic in ["a", "b"] {
        host.topic(topic, 1, Format::Bytes).await;
    }
    let step = |nth: u64| frame(&host, nth, &[("a", 0), ("b", 0)]);
    step(0).await;
    host.deploy("f", counting(json!({"input": inputs(&["a"])})))
        .await;
    host.caught_up("f").await;
    for (nth, topics) in [
        (1, &["a", "b"][..]),
        (2, &["b", "a"]),
        (3, &["b"]),
        (4, &["b", "a"]),
    ] {
        host.deploy("f", counting(json!({"input": inputs(topics)})))
            .await;
        host.caught_up("f").await;
        step(nth).await;
        host.caught_up("f").await;
    }
    let report = host.caught_up("f").await;
    let a_and_b = 5 + 5;
    assert_eq!(
        (report.counts.events_in, report.counts.effective),
        (a_and_b, a_and_b)
    );
    let mut values = host.values("out").await;
    assert_eq!(values.len(), 10);
    values.sort_unstable();
    values.dedup();
    assert_eq!(values.len(), 10, "each once");
    let same = verified(&host, "f").await;
    assert!(same.is_same(), "{same:?}");
    assert_eq!(same.events, a_and_b);
    host.close().await;
}

/// Topics in which the first function of a host stands.
fn stands_in(host: &Host) -> Vec<String> {
    let positions = host.log.positions(4);
    let names = positions.iter().map(|position| {
        let topic = host.log.topic_by_id(position.at.topic);
        topic.expect("it is there").name.to_string()
    });
    names.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_it_stood_in_a_dropped_input_is_kept_as_long_as_the_version_before_can_be_gone_back_to()
 {
    for restores in [0, 1] {
        let dir = tempfile::tempdir().expect("a folder");
        let settings = Settings {
            restores,
            ..usual()
        };
        let host = Host::open_as(dir.path(), ByteSize::mib(16), settings, |_| {})
            .await
            .expect("the host opens");
        for topic in ["a", "b"] {
            host.topic(topic, 1, Format::Bytes).await;
        }
        let deploy = async |topics: &[&str], number: u32| {
            let changes = json!({"input": inputs(topics), "config": {"n": number}});
            host.deploy("f", counting(changes)).await;
        };
        deploy(&["a", "b"], 1).await;
        for nth in 0..3 {
            frame(&host, nth, &[("a", 0), ("b", 0)]).await;
        }
        host.until("f", |report| report.counts.events_in == 6).await;
        deploy(&["a"], 2).await;
        if restores > 0 {
            assert_eq!(stands_in(&host), ["a", "b"], "it can be gone back to");
            deploy(&["a", "b"], 3).await;
            frame(&host, 3, &[("b", 0)]).await;
            host.until("f", |report| report.counts.events_in == 7).await;
            deploy(&["a"], 4).await;
            assert_eq!(stands_in(&host), ["a", "b"]);
            deploy(&["a"], 5).await;
        }
        assert_eq!(stands_in(&host), ["a"], "nobody needs the other");
        frame(&host, 4, &[("a", 0)]).await;
        let before = host.caught_up("f").await.counts.events_in;
        deploy(&["a", "b"], 6).await;
        let all = host.log.topic("b").map(|topic| topic.id).expect("there");
        let all = host.log.ranges(all).expect("there")[0].end;
        let again = |report: &FunctionReport| report.counts.events_in == before + all;
        let report = host.until("f", again).await;
        assert!(conserved(&report), "{report:?}");
        let same = verified(&host, "f").await;
        assert!(same.is_same(), "{same:?}");
        host.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_go_back_to_the_input_they_came_from() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    for topic in ["a", "b"] {
        host.topic(topic, PARTITIONS, Format::Bytes).await;
    }
    host.deploy("f", of(&["a", "b"])).await;
    host.send("a", 1, &[(None, "e first")]).await;
    host.send("b", 1, &[(None, "e second"), (None, "dead")])
        .await;
    host.caught_up("f").await;
    let letter = host.read("f.dead-letters").await.pop().expect("a letter");
    let place = ["topic", "partition", "offset"]
        .map(|of| letter.headers[&format!("tidemill-{of}")].as_str());
    assert_eq!(place, ["b", "1", "1"]);
    let all = Chosen::All(LetterQuery {
        limit: 10,
        ..LetterQuery::default()
    });
    let dealt = host.processor.redrive("f", all).await.expect("goes back");
    assert_eq!(dealt.count, 1);
    let report = host
        .until("f", |report| {
            report.counts.dead_lettered == 2 && report.counts.retrying == 0
        })
        .await;
    assert!(conserved(&report));
    let letters = host.read("f.dead-letters").await;
    assert_eq!(letters[1].headers["tidemill-topic"], "b");
    assert_eq!(letters[1].headers["tidemill-redriven"], "1");
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_event_of_an_input_that_is_dropped_becomes_a_dead_letter() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    for topic in ["a", "b", "c"] {
        host.topic(topic, 1, Format::Bytes).await;
    }
    let parking = |topics: &[&str]| {
        let retry = json!({"attempts": 3, "backoff": "1h..1h", "order": "key"});
        manifest(json!({"input": inputs(topics), "retry": retry}))
    };
    host.deploy("f", parking(&["a", "b", "c"])).await;
    host.send("b", 0, &[(Some("k"), "retry"), (Some("k"), "e behind")])
        .await;
    host.send("a", 0, &[(Some("j"), "e goes on")]).await;
    host.until("f", |report| {
        report.counts.retrying == 2 && report.counts.effective == 1
    })
    .await;
    host.deploy("f", parking(&["c", "a"])).await;
    let report = host.until("f", |report| report.counts.retrying == 0).await;
    assert_eq!(report.counts.dead_lettered, 2);
    let letters = host.read("f.dead-letters").await;
    assert!(
        letters
            .iter()
            .all(|letter| letter.headers["tidemill-topic"] == "b")
    );
    assert!(letters[0].headers["tidemill-error"].contains("doesn't read its topic \"b\" any more"));
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inputs_of_other_numbers_of_partitions_meet_by_a_key() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("a", 3, Format::Json).await;
    host.topic("b", 2, Format::Json).await;
    let refused = host.try_deploy("f", of(&["a", "b"]), KeepState::Keep).await;
    let refused = refused.expect_err("they don't fit");
    assert_eq!(refused.code, "invalid-manifest");
    assert!(
        refused
            .detail
            .contains("topic \"a\" has 3 partitions and topic \"b\" has 2"),
        "{refused}"
    );
    let keyed = json!([
        {"topic": "a", "start": "earliest"},
        {"topic": "b", "start": "earliest", "key": "/0"},
    ]);
    host.deploy("f", counting(json!({"input": keyed}))).await;
    host.send("b", 0, &[(None, "[\"k\"]"), (None, "[\"j\"]")])
        .await;
    host.send("b", 1, &[(None, "[\"k\"]")]).await;
    let on = tidemill_types::partition_of_key(b"k", 3);
    host.send("a", on, &[(Some("k"), "[1]")]).await;
    let report = host.until("f", |report| report.counts.events_in == 4).await;
    let topics: std::collections::BTreeSet<_> = report
        .tasks
        .iter()
        .map(|task| task.topic.as_str())
        .collect();
    assert_eq!(
        topics.into_iter().collect::<Vec<_>>(),
        ["a", "b", "f.by-key.b"]
    );
    assert_eq!(host.processor.users_of("f.by-key.b").len(), 1);
    let moved = json!([{"topic": "b", "key": "/0"}, {"topic": "a"}]);
    let refused = host
        .try_deploy("f", counting(json!({"input": moved})), KeepState::Keep)
        .await
        .expect_err("its place is part of its internal topic's name");
    assert_eq!(refused.code, "invalid-manifest");
    host.processor
        .delete("f", KeepState::Reset)
        .await
        .expect("goes");
    assert!(
        host.log.topic("f.by-key.b").is_none(),
        "the internal topic goes with it"
    );
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn begun_elsewhere_all_inputs_are() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    for topic in ["a", "b"] {
        host.topic(topic, 1, Format::Bytes).await;
    }
    frame(&host, 0, &[("a", 0), ("b", 0)]).await;
    host.deploy("f", of(&["a", "b"])).await;
    host.caught_up("f").await;
    let again = tidemill_processor::Deploy {
        name: "f".parse().expect("a name"),
        component: crate::host::scripted().into(),
        manifest: Some(of(&["a", "b"])),
        start: Some(Start::Earliest),
        state: KeepState::Keep,
        dry_run: false,
    };
    let deployed = host.processor.deploy(again).await.expect("goes back");
    let plan: Vec<_> = deployed
        .plan
        .start
        .iter()
        .map(|s| (s.topic.as_str(), s.offset))
        .collect();
    assert_eq!(
        (plan, deployed.plan.moves),
        (vec![("a", 0), ("b", 0)], true)
    );
    let report = host.until("f", |report| report.counts.events_in == 4).await;
    assert_eq!(
        report
            .tasks
            .iter()
            .map(|task| task.position)
            .collect::<Vec<_>>(),
        [1, 1]
    );
    let same = verified(&host, "f").await;
    assert!(same.is_same(), "{same:?}");
    host.close().await;
}

/// `keeper` on two topics, one of which counts as idle after a while.
async fn keeping(host: &Host, name: &str, idle: &str) {
    let manifest = json!({
        "input": inputs(&["a", "b"]),
        "output": {"out": {"topic": format!("{name}-out")}},
        "time": {"disorder": "0s", "idle": idle},
    });
    crate::kept::deploy(host, name, manifest).await;
}

async fn ask(host: &Host, topic: &str, ms: i64, asks: Value) {
    host.send_at(topic, 0, &[("k", ms * 1000, asks.to_string())])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_is_as_far_as_in_the_topic_furthest_behind_unless_that_is_idle() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    for topic in ["a", "b"] {
        host.topic(topic, 1, Format::Json).await;
    }
    keeping(&host, "patient", "1h").await;
    keeping(&host, "hasty", "50ms").await;
    let count = json!([{"count": 1}]);
    ask(
        &host,
        "a",
        10,
        json!([{"timer": ["first", 20, count]}, {"timer": ["second", 90, count]}]),
    )
    .await;
    ask(&host, "a", 25, json!([])).await;
    // Nothing comes of the other topic: after a while nobody waits for it, and no event is needed for that.
    let report = host
        .until("hasty", |report| report.counts.timers == 1)
        .await;
    assert_eq!(
        report.tasks[0].watermark,
        Some(Timestamp::from_micros(24_999))
    );
    let report = host.caught_up("patient").await;
    assert_eq!((report.counts.timers, report.tasks[0].watermark), (0, None));
    ask(&host, "b", 22, json!([])).await;
    let report = host
        .until("patient", |report| report.counts.timers == 1)
        .await;
    assert_eq!(
        report.tasks[0].watermark,
        Some(Timestamp::from_micros(21_999))
    );
    ask(&host, "a", 100, json!([])).await;
    ask(&host, "b", 80, json!([])).await;
    let report = host.caught_up("patient").await;
    assert_eq!(report.counts.timers, 1, "the other topic is at 80");
    ask(&host, "b", 95, json!([])).await;
    for name in ["patient", "hasty"] {
        host.until(name, |report| report.counts.timers == 2).await;
        let same = verified(&host, name).await;
        assert!(same.is_same(), "{name}: {same:?}");
        let said: Vec<_> = crate::kept::said(&host, &format!("{name}-out")).await;
        let tags: Vec<_> = said.iter().map(|(_, of, _)| of.as_str()).collect();
        assert_eq!(tags, ["first", "count", "second", "count"], "{name}");
    }
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_clock_made_due_at_the_end_is_found_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    for topic in ["a", "b"] {
        host.topic(topic, 1, Format::Json).await;
    }
    keeping(&host, "f", "20ms").await;
    let count = json!([{"count": 1}]);
    let asks = json!([{"timer": ["waits", 10, count]}, {"timer-in": ["soon", 30, count]}]);
    ask(&host, "a", 1, asks).await;
    ask(&host, "a", 15, json!([])).await;
    host.until("f", |report| report.counts.timers == 2).await;
    let same = verified(&host, "f").await;
    assert!(same.is_same(), "{same:?}");
    host.close().await;
}
