//! SIGKILL under producers that send again whatever wasn't acknowledged: every event is there exactly
//! once, whether its request had been written before the kill or not.

use crate::crash::BUSY;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidemill_tests::Host;

const BATCH: u64 = 20;

/// Sends numbered events, in requests that it repeats until they are acknowledged.
struct Sender {
    name: u64,
    /// Whether its requests have keys of their own rather than a producer's numbers.
    by_key: bool,
    /// Requests that were acknowledged.
    acknowledged: u64,
    /// Acknowledgements that said that the request had been written before.
    repeated: u64,
}

impl Sender {
    /// Sends the next request, which may be the last one again; whether there was an answer.
    fn send(&mut self, client: &reqwest::blocking::Client, url: &str) -> bool {
        let (name, seq) = (self.name, self.acknowledged);
        let lines = (seq * BATCH..(seq + 1) * BATCH)
            .map(|n| format!("{}\n", json!({"k": n % 7, "sender": name, "n": n})));
        let request = client
            .post(url)
            .header("content-type", "application/x-ndjson")
            .body(lines.collect::<String>());
        let request = match self.by_key {
            true => request.header("idempotency-key", format!("{name} {seq}")),
            false => request
                .header("producer-id", format!("sender-{name}"))
                .header("producer-epoch", 0)
                .header("producer-seq", seq),
        };
        let Ok(answer) = request.send() else {
            return false;
        };
        match answer.status().as_u16() {
            200 | 204 => {
                self.acknowledged += 1;
                self.repeated += u64::from(answer.headers().contains_key("idempotent-replayed"));
            }
            _ => assert!(answer.status().is_server_error(), "{answer:?}"),
        }
        true
    }
}

#[test]
fn what_is_sent_again_after_a_kill_is_there_once() {
    let rounds: u64 = std::env::var("TIDEMILL_TEST_KILLS")
        .ok()
        .map_or(30, |n| n.parse().expect("a number of rounds"));
    let dir = tempfile::tempdir().unwrap();
    let mut host = Host::start(dir.path(), &BUSY);
    host.topic("t", &json!({"partitions": 3, "key": "/k"}));
    let mut senders: Vec<Sender> = (0..4)
        .map(|name| Sender {
            name,
            by_key: name % 2 == 1,
            acknowledged: 0,
            repeated: 0,
        })
        .collect();
    let mut chance = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..rounds {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        load_and_kill(host, Duration::from_millis(20 + chance % 200), &mut senders);
        host = Host::start(dir.path(), &BUSY);
        if round % 10 == 9 || round + 1 == rounds {
            finish(&host, &mut senders);
            check(&host, &senders);
        }
    }
    assert!(
        senders.iter().map(|sender| sender.repeated).sum::<u64>() > 0,
        "no kill came between a commit and its acknowledgement: nothing was tested"
    );
}

fn load_and_kill(host: Host, until_kill: Duration, senders: &mut [Sender]) {
    let killed = AtomicBool::new(false);
    let url = host.url("/v1/topics/t/events");
    std::thread::scope(|scope| {
        for sender in senders {
            let (url, killed, client) = (&url, &killed, host.client().clone());
            scope.spawn(
                move || {
                    while !killed.load(Ordering::Acquire) && sender.send(&client, url) {}
                },
            );
        }
        let start = Instant::now();
        while start.elapsed() < until_kill {
            std::thread::yield_now();
        }
        host.kill();
        killed.store(true, Ordering::Release);
    });
}

/// Each sender's request that was under way is sent to its end.
fn finish(host: &Host, senders: &mut [Sender]) {
    let url = host.url("/v1/topics/t/events");
    for sender in senders {
        let before = sender.acknowledged;
        while sender.acknowledged == before {
            assert!(
                sender.send(host.client(), &url),
                "nobody kills the host now"
            );
        }
    }
}

fn check(host: &Host, senders: &[Sender]) {
    let mut by_sender: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for event in host.events("t") {
        let number = |field: &str| event["value"][field].as_u64().unwrap();
        by_sender
            .entry(number("sender"))
            .or_default()
            .push(number("n"));
    }
    for sender in senders {
        let mut there = by_sender.remove(&sender.name).unwrap_or_default();
        there.sort_unstable();
        let expected: Vec<u64> = (0..sender.acknowledged * BATCH).collect();
        assert_eq!(there, expected, "events of sender {}", sender.name);
    }
    let (_, topic) = host.get("/v1/topics/t");
    let ranges = topic["ranges"].as_array().unwrap().iter();
    let end = |range: &Value| range["end"].as_u64().unwrap();
    let sent: u64 = senders
        .iter()
        .map(|sender| sender.acknowledged * BATCH)
        .sum();
    assert_eq!(ranges.map(end).sum::<u64>(), sent);
}
