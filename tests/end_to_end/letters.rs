//! Events that fail: parked by key under SIGKILL, and dead letters that people put back or discard.

use crate::crash::BUSY;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Command;
use tidemill_tests::{Host, Moments, component, kill_under_load, program};

fn deploy(host: &Host, manifest: &str) {
    let form = reqwest::blocking::multipart::Form::new()
        .file("component", component("tests/guests/rogue"))
        .unwrap()
        .text("manifest", manifest.to_owned());
    let url = host.url("/v1/functions/rogue");
    let answer = host.client().put(url).multipart(form).send().unwrap();
    assert!(answer.status().is_success(), "{}", answer.text().unwrap());
}

fn manifest(retry: &str) -> String {
    format!(
        "[[input]]\ntopic = \"in\"\nstart = \"earliest\"\n[retry]\n{retry}\n[limits]\ndeadline = \"200ms\"\n"
    )
}

fn conserved(counts: &Value) -> bool {
    let of = |name: &str| counts[name].as_u64().unwrap();
    let fates = of("filtered") + of("skipped") + of("dead_lettered") + of("late");
    of("in") == fates + of("effective") + of("retrying")
}

fn tidemill(host: &Host, args: &[&str]) -> (bool, String) {
    let mut command = Command::new(program());
    let command = command.args(args).env("TIDEMILL_HOST", host.url(""));
    let output = command.output().unwrap();
    let all = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(all).unwrap())
}

#[test]
fn killed_at_random_moments_keys_that_fail_lose_nothing_and_keep_their_order() {
    let rounds: u64 = std::env::var("TIDEMILL_TEST_KILLS")
        .ok()
        .map_or(15, |n| n.parse().expect("a number of rounds"));
    let dir = tempfile::tempdir().unwrap();
    let mut host = Host::start(dir.path(), &BUSY);
    host.topic("in", &json!({"partitions": 2, "key": "/k"}));
    let retry = "attempts = 3\nbackoff = \"1ms..20ms\"\norder = \"key\"";
    deploy(&host, &manifest(retry));
    let mut moments = Moments::of(0x5851_f42d_4c95_7f2d);
    for round in 0..rounds {
        kill_under_load(host, "in", 2, moments.next(20, 250), |writer| {
            for n in 0.. {
                let event = |i: u64| {
                    let n = n * 10 + i;
                    let what = if n % 23 == 7 { "trap" } else { "fine" };
                    json!({"k": n % 5, "what": what, "writer": round * 2 + writer.number, "n": n})
                };
                let lines: String = (0..10).map(|i| format!("{}\n", event(i))).collect();
                if writer.append(&lines).is_none() {
                    return;
                }
            }
        });
        host = Host::start(dir.path(), &BUSY);
        let (_, report) = host.get("/v1/functions/rogue");
        assert!(conserved(&report["counts"]), "{report}");
        assert!(conserved(&report["version_counts"]), "{report}");
    }
    let done = |host: &Host| {
        let (_, report) = host.get("/v1/functions/rogue");
        report["counts"]["retrying"] == 0
    };
    host.caught_up("rogue");
    host.until("nothing waits any more", || done(&host));
    let mut expected: BTreeMap<(String, u64), Vec<Value>> = BTreeMap::new();
    let mut traps = 0;
    for event in host.events("in") {
        match event["value"]["what"] == "trap" {
            true => traps += 1,
            false => of_key(&mut expected, &event, &event["value"]),
        }
    }
    let mut found = BTreeMap::new();
    for event in host.events("out") {
        let value: Value = serde_json::from_str(event["value"].as_str().unwrap_or_default())
            .unwrap_or_else(|_| event["value"].clone());
        of_key(&mut found, &event, &value);
    }
    assert_eq!(found, expected, "each once, in the order of its key");
    assert!(traps > 0);
    assert_eq!(host.events("rogue.dead-letters").len(), traps);
}

/// The events of a key and partition in order.
fn of_key(all: &mut BTreeMap<(String, u64), Vec<Value>>, event: &Value, value: &Value) {
    let key = event["key"].as_str().unwrap().to_owned();
    let partition = event["partition"].as_u64().unwrap();
    all.entry((key, partition)).or_default().push(value.clone());
}

#[test]
fn dead_letters_are_listed_put_back_and_discarded() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::start(dir.path(), &[]);
    host.topic("in", &json!({"partitions": 1, "key": "/k"}));
    deploy(&host, &manifest("attempts = 1"));
    let whats = ["fine", "trap", "dead", "fine", "dead"];
    let lines: Vec<Value> = whats
        .iter()
        .enumerate()
        .map(|(n, what)| json!({"k": "a", "n": n, "what": what}))
        .collect();
    host.append("in", &lines);
    host.caught_up("rogue");

    let (ok, listed) = tidemill(&host, &["dead-letters", "list", "rogue", "-o", "ndjson"]);
    assert!(ok, "{listed}");
    let listed: Vec<Value> = listed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(listed.len(), 3);
    let first = &listed[0];
    assert_eq!(
        [
            &first["letter"],
            &first["state"],
            &first["reason"],
            &first["value"],
            &first["offset"]
        ],
        [
            &json!("0:0"),
            &json!("open"),
            &json!("trap"),
            &lines[1],
            &json!(1)
        ]
    );
    let (ok, shown) = tidemill(&host, &["dead-letters", "show", "rogue", "0:2"]);
    assert!(ok && shown.contains("given up on demand"), "{shown}");

    let (ok, told) = tidemill(&host, &["dead-letters", "discard", "rogue", "0:2"]);
    assert!(ok && told.contains("1 discarded"), "{told}");
    let all = [
        "dead-letters",
        "redrive",
        "rogue",
        "--all",
        "--reason",
        "guest",
    ];
    let (ok, told) = tidemill(&host, &all);
    assert!(ok && told.contains("1 redriven"), "{told}");
    let mut report = Value::Null;
    host.until("it failed again", || {
        report = host.get("/v1/functions/rogue").1;
        report["counts"]["dead_lettered"] == 4
    });
    assert!(conserved(&report["counts"]), "{report}");
    assert_eq!(report["counts"]["redriven"], 1);
    let (ok, told) = tidemill(&host, &["dead-letters", "list", "rogue"]);
    let rows = told.lines().skip(1);
    let open: Vec<_> = rows.filter_map(|row| row.split(' ').next()).collect();
    assert!(ok && open == ["0:0", "0:3"], "{told}");

    let (_, page) = host.get("/v1/functions/rogue/dead-letters?all=true&limit=2");
    assert_eq!(page["next"], "0:2", "{page}");
    let path = "/v1/functions/rogue/dead-letters/redrive";
    for (body, status, code) in [
        ("{}", 400, "invalid-request"),
        (
            r#"{"letters": ["0:1"], "all": true}"#,
            400,
            "invalid-request",
        ),
        (r#"{"letters": ["one"]}"#, 400, "invalid-cursor"),
        (r#"{"letters": ["0:77"]}"#, 404, "dead-letter-not-found"),
    ] {
        let (answered, problem) = host.send("POST", path, "application/json", body);
        assert_eq!(
            (answered, problem["code"].as_str()),
            (status, Some(code)),
            "{problem}"
        );
    }
    let (_, again) = host.send("POST", path, "application/json", r#"{"letters": ["0:1"]}"#);
    assert_eq!(
        (&again["redriven"], &again["already"]),
        (&json!(0), &json!(["0:1"]))
    );
    let (ok, missing) = tidemill(&host, &["dead-letters", "show", "rouge", "0:0"]);
    assert!(!ok && missing.contains("rogue"), "{missing}");
}
