//! What functions remember, from outside: slots of every kind, timers over a kill, listing and export.

use serde_json::{Value, json};
use std::process::Command;
use tidemill_tests::{Host, component, program};

/// Year 2000, so that event times of the test are far from the clock's.
fn time(seconds: u64) -> String {
    format!("2000-01-01T00:{:02}:{:02}Z", seconds / 60, seconds % 60)
}

fn ask(host: &Host, key: &str, seconds: u64, asks: &Value) {
    let event = json!([{"key": key, "time": time(seconds), "value": asks}]);
    let (status, answer) = host.send(
        "POST",
        "/v1/topics/in/events",
        "application/vnd.tidemill.events+json",
        event.to_string().into_bytes(),
    );
    assert_eq!(status, 200, "{answer}");
}

fn said(host: &Host) -> Vec<(Value, Value, Value)> {
    let events = host.events("out");
    let said = events.iter().map(|event| {
        let value = &event["value"];
        (
            event["key"].clone(),
            value["of"].clone(),
            value["is"].clone(),
        )
    });
    said.collect()
}

fn export(host: &Host, more: &[&str]) -> Vec<Value> {
    let output = Command::new(program())
        .args(["state", "export", "keeper", "-o", "ndjson"])
        .args(more)
        .env("TIDEMILL_HOST", host.url(""))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines = String::from_utf8(output.stdout).unwrap();
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn slots_timers_and_their_export_outlast_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::start(dir.path(), &[]);
    host.topic("in", &json!({"partitions": 1}));
    let (status, deployed) = host.deploy("keeper", &component("tests/guests/keeper"), "");
    assert_eq!(status, 201, "{deployed}");
    assert_eq!(deployed["state"]["map"], "map");
    let puts: Vec<_> = (0..30)
        .map(|n| json!({"put": ["map", format!("e{n:02}"), n]}))
        .collect();
    ask(&host, "A", 1, &json!(puts));
    ask(
        &host,
        "B",
        1,
        &json!([{"count": 3}, {"push": 7}, {"put": ["map", "x", 1]}]),
    );
    // Disorder is five minutes.
    ask(
        &host,
        "A",
        2,
        &json!([{"timer": ["t", 946_684_860_000_u64, [{"count": 1}]]}]),
    );
    let report = host.caught_up("keeper");
    let task = &report["tasks"][0];
    assert_eq!(
        (&task["timers"], &report["counts"]["timers"]),
        (&json!(1), &json!(0)),
        "{report}"
    );
    assert_eq!(task["watermark"], "1999-12-31T23:55:01.999999Z");
    host.kill();

    let host = Host::start(dir.path(), &[]);
    ask(&host, "~", 361, &json!([]));
    host.until("the timer has had its turn", || {
        let (_, report) = host.get("/v1/functions/keeper");
        report["counts"]["timers"] == 1
    });
    let tail = said(&host).split_off(2);
    assert_eq!(
        tail,
        [
            (json!("A"), json!("t"), json!(946_684_860_000_u64)),
            (json!("A"), json!("count"), json!(1))
        ]
    );

    let state = "/v1/functions/keeper/state?slot=map";
    let (_, entry) = host.get(&format!("{state}&key=A&entry=e07"));
    assert_eq!(
        entry,
        json!({"slot": "map", "partition": 0, "key": "A", "entry": "e07", "value": 7})
    );
    let (_, page) = host.get(&format!("{state}&key=A&prefix=e1&limit=4"));
    let names = |page: &Value| -> Vec<Value> {
        page["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["entry"].clone())
            .collect()
    };
    assert_eq!(names(&page), ["e10", "e11", "e12", "e13"]);
    let cursor = page["next"].as_str().unwrap();
    let (_, page) = host.get(&format!(
        "{state}&key=A&prefix=e1&limit=400&cursor={cursor}"
    ));
    assert_eq!((names(&page).len(), &page["next"]), (6, &Value::Null));
    let (_, page) = host.get(&format!("{state}&prefix=B"));
    assert_eq!(names(&page), ["x"]);
    let (status, problem) = host.get("/v1/functions/keeper/state?slot=count&key=A&entry=a");
    assert_eq!((status, &problem["code"]), (400, &json!("invalid-request")));
    let (status, problem) = host.get(&format!("{state}&key=A&entry=none"));
    assert_eq!((status, &problem["code"]), (404, &json!("key-not-found")));

    let all = export(&host, &[]);
    let of = |slot: &str| all.iter().filter(|line| line["slot"] == slot).count();
    assert_eq!(
        (of("map"), of("count"), of("list"), all.len()),
        (31, 2, 1, 34)
    );
    assert!(all.contains(&json!({"slot": "list", "partition": 0, "key": "B", "value": [7]})));
    assert_eq!(export(&host, &["--slot", "count"]).len(), 2);
}
