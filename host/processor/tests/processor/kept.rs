//! Slots of every kind, time-to-live and timers in event time: what the host makes of the cases, and
//! whether it comes to the same as the tests that authors run.

use crate::host::{Host, conserved, process};
use keeper::{Ask, Said};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;
use tidemill::{Driver, Given, Time};
use tidemill_env::{Clock, Random};
use tidemill_log::Format;
use tidemill_processor::{FunctionReport, KeepState};
use tidemill_types::ByteSize;

#[path = "../../../../tests/guests/keeper/src/lib.rs"]
#[expect(unreachable_pub, reason = "it is a crate of its own, too")]
pub(crate) mod keeper;

const CASES: &str = include_str!("../../../../tests/cases/state_and_time.json");

#[derive(Deserialize)]
struct Case {
    id: String,
    title: String,
    steps: Vec<(String, i64, Vec<Ask>)>,
    expect: Vec<(String, String, Value)>,
}

/// The component of the guest `keeper`.
pub(crate) fn component() -> Vec<u8> {
    static BUILT: OnceLock<Vec<u8>> = OnceLock::new();
    BUILT
        .get_or_init(|| crate::built::component("keeper"))
        .clone()
}

/// A manifest from one topic to another, with batches of so many events.
pub(crate) fn manifest(input: &str, output: &str, events: u32) -> Value {
    json!({
        "input": [{"topic": input, "start": "earliest"}],
        "output": {"out": {"topic": output}},
        "retry": {"attempts": 5, "backoff": "1ms..2ms"},
        "time": {"disorder": "0s"},
        "batch": {"events": events},
    })
}

pub(crate) async fn deploy(host: &Host, name: &str, manifest: Value) {
    host.deploy_guest(name, component(), manifest, KeepState::Keep)
        .await
        .expect("it deploys");
}

/// What was said, in order: key, what about, what it was.
pub(crate) async fn said(host: &Host, topic: &str) -> Vec<(String, String, Value)> {
    let read = host.read(topic).await.into_iter().map(|seen| {
        let said: Said = serde_json::from_slice(&seen.value).expect("what it says");
        (seen.key.expect("keyed"), said.of, said.is)
    });
    read.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cases_of_state_and_time() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    let cases: Vec<Case> = serde_json::from_str(CASES).expect("cases");
    for (number, case) in cases.iter().enumerate() {
        let input = format!("in-{number}");
        host.topic(&input, 1, Format::Json).await;
        let events: Vec<_> = case
            .steps
            .iter()
            .map(|(key, time, asks)| (key.as_str(), time * 1000, json!(asks).to_string()))
            .collect();
        host.send_at(&input, 0, &events).await;
        for events in [1, 2, 256] {
            let (name, output) = (
                format!("f-{number}-{events}"),
                format!("out-{number}-{events}"),
            );
            deploy(&host, &name, manifest(&input, &output, events)).await;
            // What is due behind the last event has its turn before the task is idle.
            let report = host.until(&name, nothing_left).await;
            assert_eq!(
                said(&host, &output).await,
                case.expect,
                "{}: {} (batches of {events})",
                case.id,
                case.title
            );
            assert!(conserved(&report), "{:?}", report.counts);
        }
    }
    host.close().await;
}

pub(crate) fn nothing_left(report: &FunctionReport) -> bool {
    let mut tasks = report.tasks.iter();
    tasks.all(|task| task.lag == 0 && task.timers == Some(0))
}

const ROUNDS: u64 = 10;
const PARTITIONS: u32 = 2;

/// Requests that come to the same wherever and whenever they are handled.
pub(crate) fn asks(random: &Random, time: i64, depth: u32) -> Vec<Ask> {
    let pick = |list: &[&str]| {
        let at = random.below(list.len() as u64);
        list[usize::try_from(at).expect("small")].to_owned()
    };
    let number = |below: u64| i64::try_from(random.below(below)).expect("small");
    let map = || pick(&["map", "briefs"]);
    let entry = || pick(&["a", "aa", "b", "c", "~a"]);
    let ask = |_| match random.below(16) {
        0 => Ask::Set(pick(&["value", "brief"]), number(9)),
        1 => Ask::Clear(pick(&["value", "brief"])),
        2 | 3 => Ask::Get(pick(&["value", "brief"])),
        4 => Ask::Count(number(9)),
        5 => Ask::Push(number(9)),
        6 => Ask::Pop,
        7 | 8 => Ask::Put(map(), entry(), number(9)),
        9 => Ask::Remove(map(), entry()),
        10 => Ask::Scan(map(), pick(&["", "a"])),
        11 => Ask::Churn(map()),
        12 => Ask::Cancel(pick(&["t", "u"])),
        13 if random.below(4) == 0 => Ask::Then(pick(&["skip", "dead", "retry"])),
        14 | 15 if depth > 0 => {
            let asks = asks(random, time + 30, depth - 1);
            Ask::Timer(pick(&["t", "u"]), time + number(60) - 10, asks)
        }
        _ => Ask::Count(1),
    };
    (0..1 + random.below(4)).map(ask).collect()
}

type Sent = Vec<(String, i64, Vec<Ask>)>;

/// One life: sends events while the function runs, and ends without stopping anything.
async fn live(dir: &Path, random: &Random, sent: &mut [Sent]) {
    let host = crate::crash::reopen(dir).await;
    let (mut durable, clock) = (host.log.durable(), Clock::system());
    for _ in 0..1 + random.below(5) {
        let partition = u32::try_from(random.below(PARTITIONS.into())).expect("small");
        let sent = &mut sent[partition as usize];
        let fresh: Sent = (0..1 + random.below(60))
            .map(|number| {
                let now = i64::try_from(sent.len() as u64 + number).expect("small") * 3;
                let time = now - i64::try_from(random.below(20)).expect("small");
                let key = format!("p{partition}-{}", random.below(5));
                (key, time, asks(random, time, 2))
            })
            .collect();
        let events: Vec<_> = fresh
            .iter()
            .map(|(key, time, asks)| (key.as_str(), time * 1000, json!(asks).to_string()))
            .collect();
        host.send_at("in", partition, &events).await;
        sent.extend(fresh);
    }
    for _ in 0..random.below(4) {
        tokio::select! {
            moved = durable.changed() => moved.expect("the log lives"),
            () = clock.sleep(Duration::from_millis(20)) => {}
        }
    }
}

fn in_a_process(work: impl AsyncFnOnce()) {
    process(|runtime| runtime.block_on(work()));
}

#[test]
fn after_every_crash_it_comes_to_what_the_authors_test_says() {
    let dir = tempfile::tempdir().expect("a folder");
    let random = Random::seeded(23);
    let mut sent: Vec<Sent> = vec![Vec::new(); PARTITIONS as usize];
    in_a_process(async || {
        let host = Host::open(dir.path()).await;
        host.topic("in", PARTITIONS, Format::Json).await;
        deploy(&host, "f", manifest("in", "out", 16)).await;
    });
    for _ in 0..ROUNDS {
        in_a_process(async || live(dir.path(), &random, &mut sent).await);
    }
    in_a_process(async || {
        let host = crate::crash::reopen(dir.path()).await;
        // The last event makes every timer due, those that timers set included.
        for partition in 0..PARTITIONS {
            let end = (format!("p{partition}-0"), 10_000_000, Vec::new());
            let event = (end.0.as_str(), end.1 * 1000, "[]".to_owned());
            host.send_at("in", partition, &[event]).await;
            sent[partition as usize].push(end);
        }
        let report = host.until("f", nothing_left).await;
        assert!(conserved(&report), "{:?}", report.counts);
        check(&host, &report, &sent).await;
        host.close().await;
    });
}

async fn check(host: &Host, report: &FunctionReport, sent: &[Sent]) {
    let mut found: BTreeMap<String, Vec<(String, Value)>> = BTreeMap::new();
    for (key, of, is) in said(host, "out").await {
        found.entry(key).or_default().push((of, is));
    }
    let (mut emitted, mut letters) = (0, 0);
    for sent in sent {
        let mut t = Driver::of(keeper::keeper).with_disorder(Duration::ZERO);
        for (key, time, asks) in sent {
            t.send_event(
                Given::json(asks)
                    .key(key)
                    .time(Time::from_micros(time * 1000)),
            );
        }
        let mut expected: BTreeMap<String, Vec<(String, Value)>> = BTreeMap::new();
        for event in t.output::<Said>("out") {
            emitted += 1;
            let key = event.key_str().expect("text").to_owned();
            expected
                .entry(key)
                .or_default()
                .push((event.value.of, event.value.is));
        }
        for (key, expected) in expected {
            assert_eq!(found.remove(&key).unwrap_or_default(), expected, "{key}");
        }
        letters += t.dead_letters().len() as u64;
        for key in (0..5).map(|key| format!("{}{key}", &sent[0].0[..3])) {
            let stored = host
                .processor
                .state_get("f", "count", key.as_bytes(), None)
                .await;
            let count = stored
                .ok()
                .map(|entry| serde_json::from_slice(&entry.value).expect("a number"));
            assert_eq!(count, t.state::<i64>("count", &key), "{key}");
            let list = host
                .processor
                .state_list("f", "map", Some(key.as_bytes()), b"", None, 100);
            let list: Vec<_> = list
                .await
                .expect("lists")
                .entries
                .into_iter()
                .map(|entry| {
                    let name =
                        String::from_utf8(entry.entry.expect("of a map").to_vec()).expect("text");
                    (
                        name,
                        serde_json::from_slice::<i64>(&entry.value).expect("a number"),
                    )
                })
                .collect();
            assert_eq!(list, t.entries::<String, i64>("map", &key), "{key}");
        }
    }
    assert!(found.is_empty(), "{found:?}");
    let counts = report.counts;
    assert_eq!(counts.emitted, emitted);
    assert_eq!(counts.dead_lettered + counts.timers_dead_lettered, letters);
    assert!(counts.timers > 0);
}

/// Far more state than may be in memory: every count is right, and all of it is found again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_may_be_far_larger_than_memory() {
    const KEYS: usize = 6_000;
    let dir = tempfile::tempdir().expect("a folder");
    let open = async || {
        Host::open_small(dir.path(), ByteSize::mib(1), |_| {})
            .await
            .expect("opens")
    };
    let host = open().await;
    host.topic("in", 1, Format::Json).await;
    deploy(&host, "f", manifest("in", "out", 256)).await;
    let asks =
        json!([{"count": 1}, {"put": ["map", "a", 1]}, {"put": ["map", "b", 2]}, {"large": 600}])
            .to_string();
    let keys: Vec<String> = (0..KEYS).map(|key| format!("{key:05}")).collect();
    for round in 1..=2 {
        for part in keys.chunks(1_000) {
            let events: Vec<_> = part
                .iter()
                .map(|key| (key.as_str(), round, asks.clone()))
                .collect();
            host.send_at("in", 0, &events).await;
        }
    }
    let report = host.caught_up("f").await;
    assert_eq!(
        report.counts.effective,
        2 * KEYS as u64,
        "{:?}",
        report.counts
    );
    assert!(
        host.state.stats().live_bytes < 4 << 20,
        "{:?}",
        host.state.stats()
    );
    host.close().await;
    let host = open().await;
    let (mut after, mut counts) = (None, Vec::new());
    loop {
        let page = host
            .processor
            .state_list("f", "count", None, b"", after, 700)
            .await
            .expect("lists");
        counts.extend(
            page.entries
                .into_iter()
                .map(|entry| (entry.key, entry.value)),
        );
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let expected: Vec<_> = keys
        .iter()
        .map(|key| (key.clone().into(), "2".into()))
        .collect();
    assert!(counts == expected, "{} counts", counts.len());
    let blobs = host
        .processor
        .state_list("f", "blobs", None, b"0599", None, 100)
        .await
        .expect("lists");
    assert_eq!(blobs.entries.len(), 10);
    assert!(blobs.entries.iter().all(|entry| entry.value.len() == 602));
    let large: Vec<_> = (0..8).map(|n| json!({"large": 900_000 + n})).collect();
    for ask in large {
        host.send_at("in", 0, &[("large", 2, json!([ask]).to_string())])
            .await;
    }
    host.caught_up("f").await;
    let (mut after, mut sizes) = (None, Vec::new());
    loop {
        let page = host
            .processor
            .state_list("f", "blobs", Some(b"large"), b"", after, 100)
            .await
            .expect("lists");
        assert!(page.entries.len() <= 5, "a page ends where it is large");
        sizes.extend(page.entries.iter().map(|entry| entry.value.len()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(sizes, (900_002..900_010).collect::<Vec<_>>());
    host.close().await;
}
