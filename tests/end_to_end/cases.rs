//! Behaviour cases as data, over HTTP against the real program: `tests/cases/log.json` and `functions.json`.
//!
//! A case has a topic called after it (`$t`) with the settings it names, and steps. A step is one of
//!
//! - `{"send": "POST /v1/…", "body": JSON, "text": "…", "type": "…", "headers": {…}}`: a request. The
//!   answer must have `status` (200 if not said), the problem's `code`, and all that `has` says: members
//!   of objects that it names, elements of arrays all; `says` are parts of its text, `answers` its headers
//!   (null: not there). In `text`, `{x*N}` stands for so many letters.
//! - `{"log": "$t", "is": ["0:A=1", …]}`: all events of a topic of one partition, as offset, key and
//!   value; `!` stands for no value, and an event without key begins with `=`.
//! - `{"deploy": "name", "component": "…", "manifest": "…"}`: a function, by the folder of its crate.
//! - `{"kill": true}`: SIGKILL and a new start.
//!
//! With `"until": true` a step is repeated until it comes true.

use serde_json::{Value, json};
use tidemill_tests::{Host, component, repository};

/// Everything is sealed and compacted soon.
const SOON: [(&str, &str); 6] = [
    ("TIDEMILL_LOG__JOURNAL_FILE_BYTES", "4MiB"),
    ("TIDEMILL_LOG__SEGMENT_AGE", "100ms"),
    // What is in memory is read as it is, compacted or not.
    ("TIDEMILL_LOG__TAIL_BYTES", "1B"),
    ("TIDEMILL_LOG__COMPACTION_INTERVAL", "50ms"),
    ("TIDEMILL_LOG__COMPACTION_PERCENT", "1"),
    ("TIDEMILL_LOG__IDEMPOTENCY_WINDOW", "2s"),
];

#[test]
fn the_log_behaves_as_its_cases_say() {
    behaves("tests/cases/log.json");
}

#[test]
fn functions_behave_as_their_cases_say() {
    behaves("tests/cases/functions.json");
}

fn behaves(file: &str) {
    let file = repository().join(file);
    let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut host = Host::start(dir.path(), &SOON);
    for (nth, case) in cases.iter().enumerate() {
        let topic = format!("case-{nth}");
        host.topic(&topic, &case["topic"]);
        for (at, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            let place = format!("{}, step {at}: {step}", case["id"]);
            let step = in_case(step, &topic);
            if step["kill"] == true {
                host.kill();
                host = Host::start(dir.path(), &SOON);
            } else if step["until"] == true {
                host.until_ok(&place, || perform(&host, &step));
            } else {
                perform(&host, &step).unwrap_or_else(|difference| panic!("{place}: {difference}"));
            }
        }
    }
}

/// A step of the case with this topic.
fn in_case(step: &Value, topic: &str) -> Value {
    match step {
        Value::String(text) => text.replace("$t", topic).into(),
        Value::Array(elements) => elements.iter().map(|it| in_case(it, topic)).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, it)| (name.clone(), in_case(it, topic)))
            .collect(),
        other => other.clone(),
    }
}

/// Does a step; what is otherwise than it says.
fn perform(host: &Host, step: &Value) -> Result<(), String> {
    if let Some(request) = step["send"].as_str() {
        return send(host, request, step);
    }
    if let Some(name) = step["deploy"].as_str() {
        return deploy(host, name, step);
    }
    let topic = step["log"].as_str().expect("a step of a known kind");
    let there: Vec<Value> = host.events(topic).iter().map(shown).collect();
    fits(&there.into(), &step["is"], topic)
}

fn send(host: &Host, request: &str, step: &Value) -> Result<(), String> {
    let (method, path) = request.split_once(' ').expect("method and path");
    let mut request = host
        .client()
        .request(method.parse().expect("a method"), host.url(path));
    let kind = step["type"].as_str().unwrap_or("application/json");
    if let Some(text) = step["text"].as_str() {
        request = request
            .header("content-type", kind)
            .body(letters(text).into_bytes());
    } else if !step["body"].is_null() {
        request = request
            .header("content-type", kind)
            .body(step["body"].to_string());
    }
    for (name, value) in step["headers"].as_object().into_iter().flatten() {
        request = request.header(name, value.as_str().expect("a header's text"));
    }
    let answer = request.send().expect("an answer");
    let status = answer.status().as_u16();
    let headers = answer.headers().clone();
    let text = answer.text().expect("a body");
    let body: Value = serde_json::from_str(&text).unwrap_or_else(|_| text.clone().into());
    let wanted = step["status"].as_u64().unwrap_or(200);
    if u64::from(status) != wanted {
        return Err(format!("status {status} {text}"));
    }
    if let Some(code) = step["code"].as_str() {
        fits(&body["code"], &code.into(), "code")?;
    }
    for (name, value) in step["answers"].as_object().into_iter().flatten() {
        let there = headers
            .get(name)
            .map(|it| String::from_utf8_lossy(it.as_bytes()));
        fits(&json!(there), value, name)?;
    }
    for part in step["says"].as_array().into_iter().flatten() {
        let part = part.as_str().expect("text");
        if !text.contains(part) {
            return Err(format!("{part} is not in {text}"));
        }
    }
    match step.get("has") {
        Some(has) => fits(&body, has, "answer"),
        None => Ok(()),
    }
}

fn deploy(host: &Host, name: &str, step: &Value) -> Result<(), String> {
    let folder = step["component"].as_str().expect("a crate's folder");
    let form = reqwest::blocking::multipart::Form::new()
        .file("component", component(folder))
        .expect("the component")
        .text(
            "manifest",
            step["manifest"].as_str().unwrap_or_default().to_owned(),
        );
    let answer = host
        .client()
        .put(host.url(&format!("/v1/functions/{name}")))
        .multipart(form)
        .send()
        .expect("an answer");
    match answer.status().as_u16() {
        200 | 201 => Ok(()),
        status => Err(format!("{status} {}", answer.text().unwrap_or_default())),
    }
}

/// Text with `{x*N}` written out.
fn letters(text: &str) -> String {
    let Some((before, rest)) = text.split_once("{x*") else {
        return text.to_owned();
    };
    let (count, behind) = rest.split_once('}').expect("{x*N}");
    let count = count.parse().expect("a number of letters");
    format!("{before}{}{}", "x".repeat(count), letters(behind))
}

/// An event as offset, key and value.
fn shown(event: &Value) -> Value {
    let key = event["key"].as_str().unwrap_or_default();
    let offset = &event["offset"];
    match event["tombstone"] == true {
        true => format!("{offset}:{key}!").into(),
        false => format!("{offset}:{key}={}", event["value"]).into(),
    }
}

/// Whether a value has all that is wanted.
fn fits(is: &Value, wanted: &Value, place: &str) -> Result<(), String> {
    match (is, wanted) {
        (Value::Object(_), Value::Object(members)) => members
            .iter()
            .try_for_each(|(name, wanted)| fits(&is[name], wanted, &format!("{place}.{name}"))),
        (Value::Array(there), Value::Array(elements)) if there.len() == elements.len() => {
            let both = there.iter().zip(elements).enumerate();
            let mut both = both.map(|(nth, (is, wanted))| (is, wanted, format!("{place}.{nth}")));
            both.try_for_each(|(is, wanted, place)| fits(is, wanted, &place))
        }
        _ if is == wanted => Ok(()),
        _ => Err(format!("{place} is {is}, not {wanted}")),
    }
}

#[test]
fn what_is_wanted_has_to_be_there() {
    let is = json!({"a": 1, "b": [{"c": null, "d": 2}]});
    for wanted in [json!({}), json!({"a": 1, "b": [{"d": 2}]}), is.clone()] {
        assert_eq!(fits(&is, &wanted, "x"), Ok(()));
    }
    for wanted in [
        json!({"a": 2}),
        json!({"b": []}),
        json!({"b": [{"e": 1}]}),
        json!([]),
    ] {
        assert!(fits(&is, &wanted, "x").is_err(), "{wanted}");
    }
    assert_eq!(letters("a{x*3}b{x*1}"), "axxxbx");
}
