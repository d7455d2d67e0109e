//! SIGKILL at random moments while a bank of two functions, one behind the other, is at work, deployed
//! anew, gone back and paused: the sum never changes, each transfer arrives once, and a replay finds again
//! all that was committed.

use crate::crash::BUSY;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use tidemill_tests::{Host, Moments, Writer, component, kill_under_load};

const ACCOUNTS: u64 = 20;
const WRITERS: u64 = 2;

/// The manifest of one of the two, with batches of so many events.
fn manifest(name: &str, events: u64) -> String {
    let (input, output) = match name {
        "debit" => ("topic = \"transfers\"\nkey = \"/give/from\"", "credits"),
        _ => ("topic = \"credits\"", "nowhere"),
    };
    format!(
        "[[input]]\n{input}\nstart = \"earliest\"\n[output.credits]\ntopic = \"{output}\"\nformat = \"json\"\n\
         [retry]\nattempts = 2\nbackoff = \"1ms..5ms\"\n[time]\ndisorder = \"50ms\"\nidle = \"1s\"\n[batch]\nevents = {events}\n"
    )
}

/// Deploys one of them; `None`: the host is gone.
fn deploy(client: &reqwest::blocking::Client, base: &str, name: &str, events: u64) -> Option<u16> {
    let form = reqwest::blocking::multipart::Form::new()
        .file("component", component("tests/guests/bank"))
        .expect("the component")
        .text("manifest", manifest(name, events));
    let request = client
        .put(format!("{base}/v1/functions/{name}"))
        .multipart(form);
    Some(request.send().ok()?.status().as_u16())
}

fn order(client: &reqwest::blocking::Client, url: &str, body: &Value) -> Option<u16> {
    let request = client
        .post(url)
        .header("content-type", "application/json")
        .body(body.to_string());
    Some(request.send().ok()?.status().as_u16())
}

/// Deploys, goes back and pauses until the host is gone.
fn disturb(client: &reqwest::blocking::Client, base: &str, moment: &AtomicU64) -> Option<()> {
    loop {
        let number = moment.fetch_add(1, Ordering::Relaxed);
        let name = ["debit", "credit"][usize::from(number % 2 == 1)];
        let function = format!("{base}/v1/functions/{name}");
        let status = match number % 6 {
            0 | 3 => deploy(client, base, name, 1 + number * 7 % 40)?,
            1 | 4 => order(
                client,
                &format!("{function}/rollback"),
                &json!({"version": 1}),
            )?,
            _ => {
                order(client, &format!("{function}/pause"), &json!({}))?;
                order(client, &format!("{function}/resume"), &json!({}))?
            }
        };
        assert!(status < 500, "{name}: {status}");
    }
}

/// A transfer as a line; every eighth is taken back, and every sixteenth traps.
fn transfer(id: u64) -> Value {
    let then = match id % 16 {
        3 | 11 => "skip",
        7 => "trap",
        _ => "",
    };
    let after = [0, 0, 5, 60][usize::try_from(id / 3 % 4).expect("small")];
    json!({"give": {
        "id": id,
        "from": format!("a{}", id * 7 % ACCOUNTS),
        "to": format!("a{}", id * 11 % ACCOUNTS),
        "amount": id % 100,
        "after": after,
        "then": then,
        "at": id % 1_000_000,
    }})
}

fn write(writer: &Writer<'_>, number: u64) -> Vec<u64> {
    let mut acknowledged = Vec::new();
    let mut next = number * 1_000_000;
    loop {
        let lines = (next..next + 10).map(|id| format!("{}\n", transfer(id)));
        match writer.append(&lines.collect::<String>()) {
            Some(_) => acknowledged.extend(next..next + 10),
            None => return acknowledged,
        }
        next += 10;
    }
}

#[test]
fn a_bank_that_is_killed_and_deployed_anew_keeps_its_sum() {
    let rounds: u64 = std::env::var("TIDEMILL_TEST_KILLS")
        .ok()
        .map_or(8, |n| n.parse().expect("a number of rounds"));
    let dir = tempfile::tempdir().unwrap();
    let mut host = Host::start(dir.path(), &BUSY);
    let time = json!({"from": "value", "pointer": "/give/at", "unit": "ms"});
    host.topic("transfers", &json!({"partitions": 2, "time": time}));
    host.topic("credits", &json!({"partitions": 3}));
    for name in ["debit", "credit"] {
        assert_eq!(deploy(host.client(), &host.url(""), name, 7), Some(201));
    }
    let (mut acknowledged, moment) = (Vec::new(), AtomicU64::new(0));
    let mut moments = Moments::of(0x9e37_79b9_7f4a_7c15);
    for round in 0..rounds {
        let until_kill = moments.next(50, 400);
        let (base, client) = (host.url(""), host.client().clone());
        let wrote = kill_under_load(host, "transfers", WRITERS + 1, until_kill, |writer| {
            if writer.number == WRITERS {
                disturb(&client, &base, &moment);
                return Vec::new();
            }
            write(writer, round * WRITERS + writer.number)
        });
        acknowledged.extend(wrote.into_iter().flatten());
        host = Host::start(dir.path(), &BUSY);
    }
    settle(&host);
    check(&host, &acknowledged);
    for name in ["debit", "credit"] {
        verify(&host, name);
    }
}

/// Lets everything arrive: events from far ahead make the timers of all partitions due.
fn settle(host: &Host) {
    for name in ["debit", "credit"] {
        let resumed = order(
            host.client(),
            &host.url(&format!("/v1/functions/{name}/resume")),
            &json!({}),
        );
        assert_eq!(resumed, Some(200));
    }
    let far = |number: u64| {
        let mut last = transfer((1 << 40) + (number << 4));
        last["give"]["from"] = json!(format!("end{number}"));
        last["give"]["after"] = json!(0);
        last["give"]["at"] = json!(1_000_000_000_u64);
        last
    };
    host.append("transfers", &(0..40).map(far).collect::<Vec<_>>());
    for name in ["debit", "credit"] {
        host.until(&format!("{name} is at rest"), || {
            let (_, report) = host.get(&format!("/v1/functions/{name}"));
            let tasks = report["tasks"].as_array().expect("tasks");
            tasks
                .iter()
                .all(|task| task["lag"] == 0 && task["timers"] == 0)
        });
    }
}

fn check(host: &Host, acknowledged: &[u64]) {
    let mut all = BTreeMap::new();
    let mut traps = 0;
    for event in host.events("transfers") {
        let give = event["value"]["give"].clone();
        let id = give["id"].as_u64().expect("a number");
        traps += usize::from(give["then"] == "trap");
        assert!(
            all.insert(id, give).is_none(),
            "transfer {id} is there twice"
        );
    }
    for id in acknowledged {
        assert!(
            all.contains_key(id),
            "transfer {id} was acknowledged and is lost"
        );
    }
    let mut balances: BTreeMap<(&str, String), i64> = BTreeMap::new();
    let mut left = all;
    left.retain(|_, give| give["then"] == "");
    for give in left.values() {
        let account = |of: &str| give[of].as_str().expect("an account").to_owned();
        let amount = give["amount"].as_i64().expect("an amount");
        *balances.entry(("debit", account("from"))).or_default() -= amount;
        *balances.entry(("credit", account("to"))).or_default() += amount;
    }
    for event in host.events("credits") {
        let get = &event["value"]["get"];
        let id = get["id"].as_u64().expect("a number");
        let give = left.remove(&id);
        let give = give.unwrap_or_else(|| panic!("transfer {id} arrived twice, or never was"));
        assert_eq!(
            (&event["key"], &get["amount"]),
            (&give["to"], &give["amount"])
        );
    }
    assert!(left.is_empty(), "transfers that never arrived: {left:?}");
    assert_eq!(balances.values().sum::<i64>(), 0);
    for ((name, account), balance) in &balances {
        let path = format!("/v1/functions/{name}/state?slot=balance&key={account}");
        assert_eq!(
            host.get(&path).1["value"],
            json!(balance),
            "{name} {account}"
        );
    }
    assert_eq!(host.events("debit.dead-letters").len(), traps);
    assert_eq!(host.events("credit.dead-letters"), Vec::<Value>::new());
}

/// A replay over all versions comes to the same bytes, as long as all of them are kept.
fn verify(host: &Host, name: &str) {
    const KEPT: u64 = 100;
    let (_, report) = host.get(&format!("/v1/functions/{name}"));
    if report["version"].as_u64().expect("a number") > KEPT {
        return;
    }
    let path = format!("/v1/functions/{name}/replay");
    let (status, begun) = host.send("POST", &path, "application/json", r#"{"verify":true}"#);
    assert_eq!(status, 202, "{begun}");
    let path = format!("{path}/{}", begun["id"]);
    let mut last = Value::Null;
    host.until(&format!("the replay of {name} is done"), || {
        last = host.get(&path).1;
        last["status"] != "running"
    });
    assert_eq!(last["result"]["equal"], true, "{last}");
}
