//! Functions that misbehave: the host and the neighbours are unharmed, and the reason is told.

use serde_json::{Value, json};
use tidemill_tests::{Host, component};

#[test]
fn a_rogue_function_hurts_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::start(dir.path(), &[]);
    host.topic("in", &json!({"partitions": 1}));
    host.topic("flights", &json!({"partitions": 1, "key": "/carrier"}));
    let quick = "[[input]]\ntopic = \"in\"\nstart = \"earliest\"\n[retry]\nattempts = 2\nbackoff = \"1ms..5ms\"\n[limits]\ndeadline = \"200ms\"\nmemory = \"16MiB\"\noutput_bytes = \"1MiB\"\n";
    let form = reqwest::blocking::multipart::Form::new()
        .file("component", component("tests/guests/rogue"))
        .unwrap()
        .text("manifest", quick);
    let answer = host
        .client()
        .put(host.url("/v1/functions/rogue"))
        .multipart(form)
        .send()
        .unwrap();
    assert_eq!(answer.status(), 201, "{}", answer.text().unwrap());
    assert_eq!(
        host.deploy(
            "carrier-delays",
            &component("functions/carrier-delays"),
            "?start=earliest"
        )
        .0,
        201
    );

    let what = [
        "fine", "trap", "fine", "loop", "fine", "hog", "fine", "deep", "fine", "flood", "fine",
    ];
    let lines: Vec<Value> = what
        .iter()
        .enumerate()
        .map(|(n, what)| json!({"n": n, "what": what}))
        .collect();
    host.append("in", &lines);
    host.append("flights", &[json!({"carrier": "UA", "dep_delay": 7})]);
    host.caught_up("carrier-delays");
    assert_eq!(
        host.events("carrier-delays").len(),
        1,
        "the neighbour is unharmed"
    );

    let report = host.caught_up("rogue");
    let out: Vec<_> = host
        .events("out")
        .iter()
        .map(|e| value(e)["n"].as_u64().unwrap())
        .collect();
    assert_eq!(
        out,
        [0, 2, 4, 6, 8, 10],
        "the neighbours in the batch commit, in order"
    );
    let dead = host.events("rogue.dead-letters");
    let reasons: Vec<_> = dead
        .iter()
        .map(|e| (value(e)["what"].clone(), header(e, "tidemill-reason")))
        .collect();
    let expected = [
        ("trap", "trap"),
        ("loop", "deadline"),
        ("hog", "memory"),
        ("deep", "trap"),
        ("flood", "output-limit"),
    ];
    assert_eq!(
        reasons,
        expected.map(|(what, reason)| (json!(what), reason.to_owned()))
    );
    assert_eq!(header(&dead[1], "tidemill-offset"), "3");
    assert_eq!(header(&dead[1], "tidemill-attempts"), "2");
    assert_eq!(
        (&report["counts"]["in"], &report["counts"]["dead_lettered"]),
        (&json!(11), &json!(5)),
        "{report}"
    );
    assert_eq!(host.get("/livez").0, 200);
}

#[test]
fn what_is_no_function_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::start(dir.path(), &[]);
    let core_module = b"\0asm\x01\0\0\0".to_vec();
    for (body, says) in [
        (b"".to_vec(), "empty"),
        (b"\x89PNG\r\n".to_vec(), "WebAssembly"),
        (core_module, "component"),
    ] {
        let (status, problem) = host.send("PUT", "/v1/functions/f", "application/wasm", body);
        assert_eq!(
            (status, problem["code"].as_str()),
            (422, Some("invalid-component")),
            "{problem}"
        );
        assert!(
            problem["detail"].as_str().unwrap().contains(says),
            "{problem}"
        );
    }
    assert_eq!(host.get("/v1/functions").1, json!({"functions": []}));
}

/// The value, also where its topic takes any bytes and so shows it as text.
fn value(event: &Value) -> Value {
    match &event["value"] {
        Value::String(text) => serde_json::from_str(text).unwrap(),
        value => value.clone(),
    }
}

fn header(event: &Value, name: &str) -> String {
    let headers = event["headers"].as_array().unwrap();
    let found = headers
        .iter()
        .find(|h| h[0] == name)
        .unwrap_or_else(|| panic!("no header {name} in {event}"));
    found[1].as_str().unwrap().to_owned()
}
