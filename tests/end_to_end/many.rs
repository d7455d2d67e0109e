//! Many functions with little to do, and one with much: an idle one costs no instance, instances stay within
//! their memory, metrics within their bound, and every function says once what it has to say, also after a kill.

use serde_json::{Value, json};
use std::path::Path;
use tidemill_tests::{Host, component};

const FUNCTIONS: u64 = 60;
const LIMIT: u64 = 12 << 20;
const SETTINGS: [(&str, &str); 3] = [
    ("TIDEMILL_FUNCTIONS__MEMORY_BYTES", "12MiB"),
    ("TIDEMILL_FUNCTIONS__IDLE", "200ms"),
    ("TIDEMILL_FUNCTIONS__METRICS", "5"),
];
const SWAMPED: u64 = 40_000;

#[test]
fn functions_that_are_idle_have_no_instance_and_each_says_everything_once() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::start(dir.path(), &SETTINGS);
    let components = ["count", "keys"].map(|it| component(&format!("tests/guests/bench-{it}")));
    for nth in 0..FUNCTIONS {
        let which = &components[usize::try_from(nth).unwrap() % components.len()];
        deploy(&host, which, &format!("in-{nth}"));
    }
    deploy(&host, &components[0], "swamp");
    let lines_of_few = metrics(&host).lines().count();
    say(&host, 0);
    without_instances(&host);
    host.kill();

    let host = Host::start(dir.path(), &SETTINGS);
    assert_eq!(
        figure(&host, "tidemill_function_instances"),
        0,
        "nobody has anything to do"
    );
    let body: Vec<Value> = (0..SWAMPED).map(|n| event("k", n)).collect();
    for body in body.chunks(10_000) {
        host.append("swamp", body);
    }
    // These are at work while the other one is.
    for round in 1..3 {
        say(&host, round);
        assert!(figure(&host, "tidemill_function_instances_bytes") <= LIMIT);
    }
    let report = host.caught_up("on-swamp");
    assert_eq!(report["counts"]["emitted"], SWAMPED);
    for nth in 0..FUNCTIONS {
        let counts = &host.caught_up(&format!("on-in-{nth}"))["counts"];
        assert_eq!((&counts["in"], &counts["emitted"]), (&json!(3), &json!(3)));
    }
    without_instances(&host);
    let lines = metrics(&host).lines().count();
    assert!(
        lines < lines_of_few + lines_of_few / 2,
        "metrics of {FUNCTIONS} functions have {lines} lines, they had {lines_of_few}"
    );
}

/// A component between topics of its own.
fn deploy(host: &Host, component: &Path, input: &str) {
    host.topic(input, &json!({"partitions": 1, "key": "/user"}));
    let manifest = format!(
        "[[input]]\ntopic = \"{input}\"\nstart = \"earliest\"\n[output.out]\ntopic = \"{input}.out\"\n"
    );
    let (status, answer) = host.deploy_with(&format!("on-{input}"), component, manifest);
    assert_eq!(status, 201, "{answer}");
}

/// An event for every function, and what came of all so far.
fn say(host: &Host, round: u64) {
    for nth in 0..FUNCTIONS {
        host.append(&format!("in-{nth}"), &[event("k", round)]);
    }
    for nth in 0..FUNCTIONS {
        host.caught_up(&format!("on-in-{nth}"));
        let said: Vec<Value> = host
            .events(&format!("in-{nth}.out"))
            .into_iter()
            .map(|event| event["value"].clone())
            .collect();
        let expected: Vec<Value> = (0..=round)
            .map(|n| match nth % 2 {
                0 => json!({"events": n + 1, "last": n}),
                _ => json!(n + 1),
            })
            .collect();
        assert_eq!(said, expected, "of function {nth}");
    }
}

fn event(user: &str, n: u64) -> Value {
    json!({"user": user, "n": n})
}

fn without_instances(host: &Host) {
    host.until("all instances have gone", || {
        figure(host, "tidemill_function_instances") == 0
    });
    assert_eq!(figure(host, "tidemill_function_instances_bytes"), 0);
}

fn metrics(host: &Host) -> String {
    let (status, text) = host.get("/metrics");
    assert_eq!(status, 200);
    text.as_str().unwrap().to_owned()
}

fn figure(host: &Host, name: &str) -> u64 {
    let metrics = metrics(host);
    let value = metrics
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap().parse().unwrap()
}
