//! Going back with state over HTTP and by the program, with SIGKILL in the middle: whatever moment the host dies
//! at, the function is what one of its versions was, each event has one fate since, and state equals a recount.

use crate::crash::BUSY;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use tidemill_tests::{Host, Moments, Writer, component, kill_under_load, program};

const CARRIERS: [&str; 4] = ["UA", "B6", "AA", "DL"];
const NAME: &str = "carrier-delays";

/// Deploys another version of it; `None`: the host is gone.
fn another(client: &reqwest::blocking::Client, base: &str, number: u64) -> Option<u16> {
    let form = reqwest::blocking::multipart::Form::new()
        .file("component", component("functions/carrier-delays"))
        .expect("the component")
        .text("manifest", format!("[config]\nnumber = {number}\n"));
    let request = client.put(format!("{base}/v1/functions/{NAME}"));
    Some(request.multipart(form).send().ok()?.status().as_u16())
}

/// Goes back to a version with its state; what can't be gone back to any more is refused.
fn back(client: &reqwest::blocking::Client, base: &str, version: u64) -> Option<u16> {
    let asked = json!({"version": version, "state": "restore", "again": true});
    let request = client
        .post(format!("{base}/v1/functions/{NAME}/rollback"))
        .header("content-type", "application/json")
        .body(asked.to_string());
    Some(request.send().ok()?.status().as_u16())
}

fn newest(client: &reqwest::blocking::Client, base: &str) -> Option<u64> {
    let request = client.get(format!("{base}/v1/functions/{NAME}"));
    let report: Value = request.send().ok()?.json().ok()?;
    report["version"].as_u64()
}

/// Deploys and goes back until the host is gone; counts how often it went back.
fn disturb(
    client: &reqwest::blocking::Client,
    base: &str,
    (nth, went): (&AtomicU64, &AtomicU64),
) -> Option<()> {
    loop {
        let number = nth.fetch_add(1, Ordering::Relaxed);
        let status = match number % 2 {
            0 => another(client, base, number)?,
            _ => {
                let version = newest(client, base)?;
                let status = back(client, base, version.saturating_sub(1))?;
                went.fetch_add(u64::from(status == 200), Ordering::Relaxed);
                status
            }
        };
        // 409: its state wasn't kept, for the host ended while it was copied.
        assert!(status < 500 && status != 400, "{status}");
    }
}

fn write(writer: &Writer<'_>, number: u64) {
    let mut next = number * 1_000_000;
    loop {
        let event = |n: u64| {
            let carrier = CARRIERS[usize::try_from(n % 4).expect("small")];
            json!({"carrier": carrier, "dep_delay": n % 60, "n": n})
        };
        let lines = (next..next + 10).map(|n| format!("{}\n", event(n)));
        if writer.append(&lines.collect::<String>()).is_none() {
            return;
        }
        next += 10;
    }
}

/// Each event has one fate, and state equals a recount; outputs are there at least once for each event.
fn check(host: &Host) {
    let report = host.caught_up(NAME);
    let flights = host.events("flights");
    let counts = &report["counts"];
    let count = |name: &str| counts[name].as_u64().expect("a count");
    assert_eq!(count("in"), flights.len() as u64, "{report}");
    assert_eq!(count("emitted"), flights.len() as u64, "{report}");
    assert_eq!(count("dead_lettered") + count("skipped"), 0, "{report}");
    let mut recount: BTreeMap<&str, (u64, f64)> = BTreeMap::new();
    for event in &flights {
        let entry = recount.entry(event["key"].as_str().expect("a key"));
        let (flights, minutes) = entry.or_default();
        *flights += 1;
        *minutes += event["value"]["dep_delay"].as_f64().expect("a delay");
    }
    let mut highest: BTreeMap<String, u64> = BTreeMap::new();
    let outputs = host.events("carrier-delays");
    assert!(outputs.len() >= flights.len());
    for output in &outputs {
        let seen = output["value"]["flights"].as_u64().expect("a count");
        let key = output["key"].as_str().expect("a key").to_owned();
        let most = highest.entry(key).or_default();
        assert!(
            seen <= *most + 1,
            "outputs go on by one, from where the state went back to: {output}"
        );
        *most = (*most).max(seen);
    }
    for (carrier, (flights, minutes)) in recount {
        assert_eq!(highest.get(carrier), Some(&flights), "outputs of {carrier}");
        let (status, state) = host.get(&format!(
            "/v1/functions/{NAME}/state?slot=total&key={carrier}"
        ));
        assert_eq!(status, 200, "{state}");
        let state = &state["value"];
        assert_eq!(
            (state["flights"].as_u64(), state["minutes"].as_f64()),
            (Some(flights), Some(minutes)),
            "state of {carrier}"
        );
    }
}

#[test]
fn killed_while_it_goes_back_a_function_is_what_a_version_was() {
    let rounds: u64 = std::env::var("TIDEMILL_TEST_KILLS")
        .ok()
        .map_or(8, |n| n.parse().expect("a number of rounds"));
    let dir = tempfile::tempdir().expect("a folder");
    let mut host = Host::start(dir.path(), &BUSY);
    host.topic("flights", &json!({"partitions": 2, "key": "/carrier"}));
    let carrier_delays = component("functions/carrier-delays");
    let (status, answer) = host.deploy(NAME, &carrier_delays, "?start=earliest");
    assert_eq!(status, 201, "{answer}");
    let (nth, went) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut moments = Moments::of(0x1234_5678_9abc_def1);
    for round in 0..rounds {
        let until_kill = moments.next(100, 600);
        let (base, client) = (host.url(""), host.client().clone());
        kill_under_load(host, "flights", 2, until_kill, |writer| {
            match writer.number {
                1 => drop(disturb(&client, &base, (&nth, &went))),
                _ => write(writer, round),
            }
        });
        host = Host::start(dir.path(), &BUSY);
        check(&host);
    }
    by_the_program(&host);
    check(&host);
}

/// The same by the program, which says what it comes to and does it when told to.
fn by_the_program(host: &Host) {
    let (base, client) = (host.url(""), host.client());
    let version = newest(client, &base).expect("it answers");
    assert_eq!(another(client, &base, 1 << 40), Some(200));
    host.append(
        "flights",
        &[json!({"carrier": "UA", "dep_delay": 1, "n": 0})],
    );
    host.caught_up(NAME);
    let run = |more: &[&str]| {
        let number = version.to_string();
        let mut command = Command::new(program());
        command.args(["functions", "rollback", NAME, &number, "--state", "restore"]);
        let done = command.args(more).env("TIDEMILL_HOST", &base);
        done.output().expect("the program runs")
    };
    let told = run(&[]);
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert_eq!(told.status.code(), Some(5), "{said}");
    assert!(said.contains("1 events that were handled since"), "{said}");
    let done = run(&["--yes"]);
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}
