//! A function of two topics is killed under load: each event is handled once, in the order of commits, and a
//! replay comes to the same bytes.

use crate::crash::BUSY;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use tidemill_tests::{Host, Moments, Writer, component, kill_under_load};

const WRITERS: u64 = 2;
const TOPICS: [&str; 2] = ["orders", "payments"];

/// Appends to both topics in turn: the one that the writer is for, and the other one beside it.
fn write(writer: &Writer<'_>, client: &reqwest::blocking::Client, payments: &str, number: u64) {
    let mut next = number * 1_000_000;
    loop {
        let entry = |n| json!({"account": format!("k{}", n % 7), "amount": n % 100, "n": n});
        let lines = (next..next + 5).map(|n| format!("{}\n", entry(n)));
        let lines = lines.collect::<String>();
        if writer.append(&lines).is_none() {
            return;
        }
        let request = client
            .post(payments)
            .header("content-type", "application/x-ndjson");
        if request.body(lines).send().is_err() {
            return;
        }
        next += 5;
    }
}

#[test]
fn two_topics_are_read_as_one_over_kills() {
    let rounds: u64 = std::env::var("TIDEMILL_TEST_KILLS")
        .ok()
        .map_or(8, |n| n.parse().expect("a number of rounds"));
    let dir = tempfile::tempdir().unwrap();
    let mut host = Host::start(dir.path(), &BUSY);
    for topic in TOPICS {
        host.topic(topic, &json!({"partitions": 2, "key": "/account"}));
    }
    let (status, answer) = host.deploy("ledger", &component("tests/guests/ledger"), "");
    assert_eq!(status, 201, "{answer}");
    assert_eq!(answer["inputs"], json!(TOPICS));
    let mut moments = Moments::of(0x51ed_270b_35a1_9c4f);
    for round in 0..rounds {
        let until_kill = moments.next(50, 300);
        let payments = host.url("/v1/topics/payments/events");
        let client = host.client().clone();
        kill_under_load(host, "orders", WRITERS, until_kill, |writer| {
            write(writer, &client, &payments, round * WRITERS + writer.number);
        });
        host = Host::start(dir.path(), &BUSY);
    }
    let report = host.caught_up("ledger");
    let tasks = report["tasks"].as_array().unwrap().iter();
    let rows = tasks.map(|task| (task["topic"].as_str().unwrap(), &task["partition"]));
    let rows: Vec<_> = rows
        .map(|(topic, partition)| (topic, partition.as_u64().unwrap()))
        .collect();
    assert_eq!(
        rows,
        [
            ("orders", 0),
            ("orders", 1),
            ("payments", 0),
            ("payments", 1)
        ]
    );
    check(&host, &report);
    verify(&host);
}

/// Each event led to one output, those of a topic in its order, and sums go on from each other.
fn check(host: &Host, report: &Value) {
    let mut amounts = BTreeMap::new();
    for topic in TOPICS {
        for event in host.events(topic) {
            let place = (
                topic.to_owned(),
                event["partition"].as_u64().unwrap(),
                event["offset"].as_u64().unwrap(),
            );
            let amount = event["value"]["amount"].as_i64().unwrap();
            amounts.insert(place, if topic == "orders" { amount } else { -amount });
        }
    }
    assert_eq!(report["counts"]["in"], amounts.len());
    assert_eq!(report["counts"]["emitted"], amounts.len());
    let mut owes: BTreeMap<String, i64> = BTreeMap::new();
    let mut last: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut drawn = BTreeSet::new();
    for event in host.events("owed") {
        let (key, value) = (event["key"].as_str().unwrap().to_owned(), &event["value"]);
        let topic = value["topic"].as_str().unwrap();
        let (partition, offset) = (
            value["partition"].as_u64().unwrap(),
            value["offset"].as_u64().unwrap(),
        );
        let amount = amounts.remove(&(topic.to_owned(), partition, offset));
        let amount = amount.unwrap_or_else(|| panic!("{event} is there twice, or of no event"));
        let before = last.insert((key.clone(), topic.to_owned()), offset);
        assert!(
            before.is_none_or(|before| before < offset),
            "order of {event}"
        );
        let owes = owes.entry(key).or_default();
        *owes += amount;
        assert_eq!(value["owes"], *owes, "{event}");
        assert!(
            drawn.insert(value["drawn"].as_u64().unwrap()),
            "{event} drew what another drew"
        );
    }
    assert!(amounts.is_empty(), "events without an output: {amounts:?}");
}

fn verify(host: &Host) {
    let path = "/v1/functions/ledger/replay";
    let (status, begun) = host.send("POST", path, "application/json", r#"{"verify":true}"#);
    assert_eq!(status, 202, "{begun}");
    let path = format!("{path}/{}", begun["id"]);
    let mut last = Value::Null;
    host.until("the replay is done", || {
        last = host.get(&path).1;
        last["status"] != "running"
    });
    assert_eq!(last["result"]["equal"], true, "{last}");
}
