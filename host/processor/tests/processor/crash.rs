//! Exactly once over crashes: everything is dropped without a word at arbitrary moments, and opened
//! again.

use crate::host::{Host, counting, number, process};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tidemill_env::{Clock, Random};
use tidemill_log::Format;

const ROUNDS: u64 = 12;
const KEYS: u64 = 20;
const PARTITIONS: u32 = 2;

/// Opens again after a crash; what was going on may take a moment to end.
pub(crate) async fn reopen(dir: &Path) -> Host {
    let clock = Clock::system();
    for _ in 0..2_000 {
        match Host::try_open(dir).await {
            Ok(host) => return host,
            Err(error) if error.code == "directory-in-use" => {
                clock.sleep(Duration::from_millis(5)).await;
            }
            Err(error) => panic!("can't be opened again: {error}"),
        }
    }
    panic!("the directory is never let go");
}

/// One life: sends events while the function runs, and ends without stopping anything.
async fn live(dir: &Path, random: &Random, sent: &mut BTreeMap<(u32, String), u64>) {
    let host = reopen(dir).await;
    for _ in 0..1 + random.below(6) {
        let partition = u32::try_from(random.below(u64::from(PARTITIONS))).expect("small");
        let keys: Vec<String> = (0..1 + random.below(200))
            .map(|_| format!("k{}", random.below(KEYS)))
            .collect();
        let events: Vec<_> = keys.iter().map(|key| (Some(key.as_str()), "c")).collect();
        host.send("in", partition, &events).await;
        for key in keys {
            *sent.entry((partition, key)).or_default() += 1;
        }
    }
    some_time(&host, random.below(4)).await;
}

/// Until so much more is durable, or nothing comes any more.
pub(crate) async fn some_time(host: &Host, steps: u64) {
    let (mut durable, clock) = (host.log.durable(), Clock::system());
    for _ in 0..steps {
        tokio::select! {
            moved = durable.changed() => moved.expect("the log lives"),
            () = clock.sleep(Duration::from_millis(20)) => {}
        }
    }
}

#[test]
fn outputs_and_state_equal_a_recount_after_every_crash() {
    let dir = tempfile::tempdir().expect("a folder");
    let random = Random::seeded(11);
    let mut sent = BTreeMap::new();
    process(|runtime| {
        runtime.block_on(async {
            let host = Host::open(dir.path()).await;
            host.topic("in", PARTITIONS, Format::Bytes).await;
            host.deploy("f", counting(json!({"batch": {"events": 16}})))
                .await;
        });
    });
    for _ in 0..ROUNDS {
        process(|runtime| runtime.block_on(live(dir.path(), &random, &mut sent)));
    }
    process(|runtime| {
        runtime.block_on(async {
            let host = reopen(dir.path()).await;
            check(&host, &sent).await;
            host.close().await;
        });
    });
}

async fn check(host: &Host, sent: &BTreeMap<(u32, String), u64>) {
    let report = host.caught_up("f").await;
    let total: u64 = sent.values().sum();
    assert_eq!(
        (report.counts.events_in, report.counts.effective),
        (total, total)
    );
    assert_eq!(host.read("in").await.len() as u64, total);
    // Each key's count was emitted once per event, one after the other. A key sent to both partitions
    // counts in each; both kinds of counts go to the key's output partition.
    let mut emitted: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for seen in host.read("out").await {
        emitted
            .entry(seen.key.expect("keyed"))
            .or_default()
            .push(number(&seen.value));
    }
    for key in (0..KEYS).map(|key| format!("k{key}")) {
        let counts: Vec<u64> = (0..PARTITIONS)
            .filter_map(|partition| sent.get(&(partition, key.clone())).copied())
            .collect();
        let mut expected: Vec<u64> = counts.iter().flat_map(|count| 1..=*count).collect();
        let mut found = emitted.remove(&key).unwrap_or_default();
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected, "{key}");
    }
    assert!(emitted.is_empty());
    let stored = host
        .processor
        .state_list("f", "count", None, b"", None, 10_000)
        .await
        .expect("lists")
        .entries;
    let stored: BTreeMap<_, _> = stored
        .iter()
        .map(|entry| {
            let key = String::from_utf8(entry.key.to_vec()).expect("text");
            ((entry.partition, key), number(&entry.value))
        })
        .collect();
    assert_eq!(&stored, sent);
}
