//! A function's versions as people work with them: deployed, gone back to, run again, compared, asked, run
//! side by side, put in force.

use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use tidemill_tests::{Host, component, program};

/// Runs the program; answers whether all went well, and what it printed.
fn tidemill(host: &Host, args: &[&str]) -> (bool, String) {
    let mut command = Command::new(program());
    let command = command.args(args).env("TIDEMILL_HOST", host.url(""));
    let output = command.output().unwrap();
    let all = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(all).unwrap())
}

fn well(host: &Host, args: &[&str]) -> String {
    let (ok, told) = tidemill(host, args);
    assert!(ok, "{args:?}: {told}");
    told
}

/// The component with another threshold beside it.
fn package(dir: &Path, threshold: u32) -> String {
    let dir = dir.join(format!("above-{threshold}"));
    std::fs::create_dir(&dir).unwrap();
    let file = dir.join("delayed-flights.wasm");
    std::fs::copy(component("functions/delayed-flights"), &file).unwrap();
    let manifest = format!(
        "[function]\nname = \"delayed-flights\"\n[[input]]\ntopic = \"flights\"\nstart = \"earliest\"\n[config]\nthreshold = {threshold}\n"
    );
    std::fs::write(dir.join("function.toml"), manifest).unwrap();
    file.to_str().unwrap().to_owned()
}

fn flights(delays: &[u32]) -> Vec<Value> {
    let flight = |delay: &u32| {
        json!({"carrier": "UA", "flight": 7, "route": "JFK-LAX", "dep_delay": delay,
            "time_hour": "2013-01-01T10:00:00Z"})
    };
    delays.iter().map(flight).collect()
}

/// Minutes of the events of a topic.
fn minutes(events: &[Value]) -> Vec<u64> {
    let minutes = events.iter().map(|event| &event["value"]["minutes"]);
    minutes.map(|minutes| minutes.as_u64().unwrap()).collect()
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn versions_are_run_again_compared_asked_and_run_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::start(&dir.path().join("host"), &[]);
    host.topic("flights", &json!({"partitions": 1, "key": "/carrier"}));
    let (low, high) = (package(dir.path(), 15), package(dir.path(), 60));
    let name = "delayed-flights";

    well(&host, &["deploy", &low]);
    host.append("flights", &flights(&[10, 20, 70]));
    host.caught_up(name);
    well(&host, &["deploy", &high]);
    host.append("flights", &flights(&[30, 90]));
    host.caught_up(name);
    well(&host, &["functions", "rollback", name, "1"]);
    host.append("flights", &flights(&[31]));
    host.caught_up(name);
    let emitted = [20, 70, 90, 31];
    assert_eq!(minutes(&host.events(name)), emitted);

    let told = well(&host, &["replay", name, "--verify"]);
    assert!(told.contains("everything is as it was committed"), "{told}");
    let (ok, told) = tidemill(&host, &["replay", "delayed-flights@1", "--diff", "2"]);
    assert!(
        !ok && told.contains("6 events: 3 the same, 3 different"),
        "{told}"
    );
    assert!(told.contains("+ delayed-flights 0  UA  {"), "{told}");
    let file = dir.path().join("outputs.ndjson");
    let file = file.to_str().unwrap();
    well(&host, &["replay", "delayed-flights@2", "--file", file]);
    let lines = std::fs::read_to_string(file).unwrap();
    let lines: Vec<Value> = lines.lines().map(json_of).collect();
    assert_eq!(minutes(&lines), [70, 90]);
    assert_eq!(lines[0]["topic"], name);

    let asked = dir.path().join("asked.ndjson");
    let text: String = flights(&[20, 80])
        .iter()
        .map(|f| format!("{f}\n"))
        .collect();
    std::fs::write(&asked, text).unwrap();
    let ask = |which: &str| {
        let asked = asked.to_str().unwrap();
        json_of(&well(
            &host,
            &["functions", "invoke", which, asked, "-o", "json"],
        ))
    };
    let outcomes = |answer: &Value| {
        let events = answer["events"].as_array().unwrap().clone();
        events
            .iter()
            .map(|e| e["outcome"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(outcomes(&ask(name)), ["effective", "effective"]);
    let answer = ask("delayed-flights@2");
    assert_eq!(outcomes(&answer), ["filtered", "effective"]);
    assert_eq!(answer["events"][1]["emitted"][0]["value"]["minutes"], 80);
    assert_eq!(minutes(&host.events(name)), emitted, "nothing was written");

    let told = well(&host, &["deploy", &high, "--shadow"]);
    assert!(told.contains("deployed beside delayed-flights"), "{told}");
    host.append("flights", &flights(&[32, 91]));
    host.caught_up("delayed-flights.shadow");
    host.kill();
    let host = Host::start(&dir.path().join("host"), &[]);
    host.append("flights", &flights(&[92]));
    host.caught_up(name);
    host.caught_up("delayed-flights.shadow");
    let side = host.events("delayed-flights.shadow.out");
    assert_eq!(minutes(&side), [91, 92]);
    let told = well(&host, &["functions", "list"]);
    assert!(told.contains("delayed-flights.shadow"), "{told}");
    let told = well(&host, &["functions", "describe", name]);
    assert!(
        told.contains("delayed-flights.shadow runs beside it"),
        "{told}"
    );
    let metrics = host.get("/metrics").1;
    let counted = "function=\"delayed-flights.shadow\"";
    assert!(metrics.as_str().unwrap().contains(counted));
    let (ok, told) = tidemill(&host, &["functions", "shadow", name, "diff"]);
    assert!(
        !ok && told.contains("3 events: 2 the same, 1 different"),
        "{told}"
    );

    well(&host, &["functions", "shadow", name, "promote"]);
    let (_, report) = host.get("/v1/functions/delayed-flights");
    assert_eq!(
        (&report["version"], &report["shadow"]),
        (&json!(4), &json!(null))
    );
    host.append("flights", &flights(&[33, 93]));
    host.caught_up(name);
    let emitted = [20, 70, 90, 31, 32, 91, 92, 93];
    assert_eq!(minutes(&host.events(name)), emitted);
    let (ok, told) = tidemill(&host, &["functions", "shadow", name, "stop"]);
    assert!(!ok && told.contains("shadow-not-found"), "{told}");
    let told = well(&host, &["replay", name, "--verify"]);
    assert!(told.contains("everything is as it was committed"), "{told}");
}
