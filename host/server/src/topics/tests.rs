use super::settings::*;
use serde_json::{Value, json};
use tidemill_log::{Retention, TopicSettings};

fn check(request: Value) -> Result<TopicSettings, String> {
    let request: TopicRequest =
        serde_json::from_value(request).map_err(|error| error.to_string())?;
    request.check().map_err(|problem| problem.detail)
}

fn shown(settings: TopicSettings) -> Value {
    let topic = tidemill_log::Topic {
        id: tidemill_types::TopicId(1),
        name: "t".parse().unwrap(),
        settings,
    };
    to_json(&topic)
}

#[test]
fn settings_are_shown_as_they_are_asked_for() {
    let asked = json!({
        "partitions": 4, "format": "json", "key": "/carrier",
        "time": {"from": "value", "pointer": "/time_hour", "unit": "ms"},
        "retention": {"age": "7d", "bytes": "10GiB", "hold_for": "1d", "tombstone_age": "2h"},
        "cleanup": "compact+delete", "ack": "memory", "bloom": true,
        "schema": {"on_mismatch": "dead-letter",
                   "json": {"type": "object", "properties": {"carrier": {"type": "string"}}}}
    });
    let mut expected = asked.clone();
    expected["name"] = json!("t");
    assert_eq!(shown(check(asked).unwrap()), expected);
    assert_eq!(check(json!({})).unwrap(), TopicSettings::default());
    let header =
        check(json!({"format": "bytes", "time": {"from": "header", "name": "ts"}})).unwrap();
    assert_eq!(
        shown(header)["time"],
        json!({"from": "header", "name": "ts", "unit": "rfc3339"})
    );
}

#[test]
fn wrong_settings_are_refused_by_name() {
    for (request, says) in [
        (json!({"partition": 4}), "unknown field `partition`"),
        (json!({"partitions": 0}), "partitions: 0"),
        (json!({"partitions": 10_001}), "partitions: 10001"),
        (
            json!({"format": "xml"}),
            "format: \"xml\" is none of json, bytes",
        ),
        (
            json!({"key": "carrier"}),
            "key: \"carrier\" is not a JSON pointer",
        ),
        (json!({"format": "bytes", "key": "/a"}), "format"),
        (
            json!({"time": {"from": "value"}}),
            "time.pointer: is missing",
        ),
        (json!({"time": {"from": "header"}}), "time.name: is missing"),
        (
            json!({"time": {"from": "ingest", "unit": "s"}}),
            "time.unit",
        ),
        (json!({"time": {"from": "moon"}}), "time.from"),
        (
            json!({"time": {"pointer": "/t", "unit": "h"}}),
            "time.unit: \"h\" is none of rfc3339, s, ms, us, ns",
        ),
        (
            json!({"time": {"pointer": "/t", "units": "s"}}),
            "unknown field `units`",
        ),
        (
            json!({"retention": {"age": "long"}}),
            "retention.age: \"long\" is not a duration",
        ),
        (
            json!({"retention": {"bytes": "1XB"}}),
            "retention.bytes: \"1XB\" is not a size",
        ),
        (
            json!({"retention": {"hold_for": "x"}}),
            "retention.hold_for",
        ),
        (
            json!({"cleanup": "all"}),
            "cleanup: \"all\" is none of delete, compact, compact+delete",
        ),
        (json!({"ack": "object"}), "ack"),
        (
            json!({"schema": {"json": {"type": "array"}}}),
            "the schema can't be used at /type",
        ),
        (
            json!({"format": "bytes", "schema": {"json": {}}}),
            "schema: goes with format \"json\" only",
        ),
        (
            json!({"schema": {"json": {}, "on_mismatch": "drop"}}),
            "schema.on_mismatch: \"drop\" is none of reject, dead-letter, null",
        ),
        (
            json!({"schema": {"on_mismatch": "null"}}),
            "missing field `json`",
        ),
    ] {
        let refusal = check(request.clone()).expect_err(&request.to_string());
        assert!(refusal.contains(says), "{request}: {refusal}");
    }
}

#[test]
fn only_retention_changes() {
    let now = check(json!({"partitions": 2, "retention": {"age": "1d", "bytes": "1GiB"}})).unwrap();
    let change = |request: Value| -> Result<Retention, &'static str> {
        let change: TopicChange = serde_json::from_value(request).unwrap();
        let checked = change.check(&now).map_err(|problem| problem.code);
        checked.map(|(retention, _)| retention)
    };
    let age = |text| tidemill_types::parse_duration(text).ok();
    assert_eq!(
        change(json!({"retention": {"age": "2d"}, "partitions": 2})),
        Ok(Retention {
            age: age("2d"),
            ..now.retention
        })
    );
    assert_eq!(
        change(json!({"retention": {"bytes": null}})),
        Ok(Retention {
            bytes: None,
            ..now.retention
        })
    );
    assert_eq!(
        change(json!({"retention": {"hold_for": "6h", "tombstone_age": "1h"}})),
        Ok(Retention {
            hold_for: age("6h"),
            tombstone_age: age("1h").unwrap(),
            ..now.retention
        })
    );
    assert_eq!(
        change(json!({"retention": {"tombstone_age": null}})),
        Ok(now.retention)
    );
    assert_eq!(change(json!({})), Ok(now.retention));
    assert_eq!(change(json!({"partitions": 3})), Err("setting-fixed"));
    assert_eq!(
        change(json!({"retention": {"age": "x"}})),
        Err("invalid-setting")
    );
}

#[test]
fn a_schema_may_grow() {
    let schema = |names: &[&str]| {
        let properties: serde_json::Map<_, _> = names
            .iter()
            .map(|name| ((*name).to_owned(), json!({"type": "string"})))
            .collect();
        json!({"json": {"type": "object", "properties": properties}})
    };
    let now = check(json!({"schema": schema(&["a"])})).unwrap();
    let change = |request: Value| {
        let change: TopicChange = serde_json::from_value(request).unwrap();
        change.check(&now).map_err(|problem| problem.code)
    };
    let (_, more) = change(json!({"schema": schema(&["a", "b"])})).unwrap();
    more.unwrap().follows(now.schema.as_deref()).expect("grown");
    let (_, none) = change(json!({"bloom": false})).unwrap();
    assert_eq!(none, None);
    assert_eq!(change(json!({"bloom": true})).err(), Some("setting-fixed"));
}

#[test]
fn differences_are_named() {
    let one = check(json!({"partitions": 2})).unwrap();
    let other = check(json!({"partitions": 3, "ack": "memory"})).unwrap();
    assert_eq!(differences(&one, &other), ["partitions", "ack"]);
}
