use super::*;
use serde_json::json;

fn read(json: Value) -> Result<Schema> {
    Schema::read(json, OnMismatch::Reject)
}

fn flights() -> Schema {
    read(json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A flight",
        "type": "object",
        "required": ["carrier"],
        "properties": {
            "carrier": {"type": "string", "description": "two letters"},
            "dep_delay": {"type": ["number", "null"]},
            "flight": {"type": "integer"},
            "late": {"type": "boolean"},
            "time_hour": {"type": ["null", "string"], "format": "date-time"},
            "legs": {"type": "array"},
            "gate": {"type": "object"},
            "a/b~c": {"type": "string"}
        }
    }))
    .expect("a schema")
}

#[test]
fn what_cannot_be_checked_is_refused_with_its_place() {
    let with = |property: Value| json!({"type": "object", "properties": {"a": property}});
    let named = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}});
    let mut most = Map::new();
    for nth in 0..=PROPERTIES {
        most.insert(format!("p{nth}"), json!({"type": "string"}));
    }
    let cases = [
        (json!([]), "not an object"),
        (json!({"properties": {"a": {"type": "string"}}}), "at /type"),
        (json!({"type": "object"}), "at /properties"),
        (
            json!({"type": "object", "properties": {}}),
            "at /properties",
        ),
        (json!({"type": "object", "properties": most}), "1 to 200"),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "allOf": []}),
            "at /allOf",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}),
            "at /additionalProperties",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]}),
            "\"b\" is not among",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": "a"}),
            "at /required",
        ),
        (with(json!({})), "at /properties/a/type"),
        (with(json!({"type": "null"})), "one type"),
        (with(json!({"type": ["string", "integer"]})), "one type"),
        (with(json!({"type": "text"})), "\"text\" is none of"),
        (
            with(json!({"type": "string", "maxLength": 3})),
            "at /properties/a/maxLength",
        ),
        (
            with(json!({"type": "string", "format": "uuid"})),
            "at /properties/a/format",
        ),
        (
            with(json!({"type": "integer", "format": "date-time"})),
            "strings only",
        ),
        (
            with(json!({"type": "array", "items": {"type": "string"}})),
            "at /properties/a/items",
        ),
        (with(json!(true)), "at /properties/a"),
        (named(""), "1 to 200 bytes"),
        (named("a\nb"), "control characters"),
        (named("Offset"), "a column \"offset\" of its own"),
        (named("value"), "a column \"value\" of its own"),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}, "A": {"type": "string"}}}),
            "several spellings",
        ),
    ];
    for (json, says) in cases {
        let error = read(json.clone()).expect_err("refused");
        assert_eq!(error.code, "invalid-schema", "{json}");
        assert!(error.detail.contains(says), "{json}: {error}");
    }
}

#[test]
fn values_that_fit_and_values_that_do_not() {
    let schema = flights();
    let good = [
        r#"{"carrier":"UA"}"#,
        r#" { "carrier" : "UA" , "dep_delay" : null, "time_hour": null }"#,
        r#"{"carrier":"\u0055A","flight":1545,"dep_delay":-2.5e1,"late":false,"legs":[{}],"gate":{"x":[]}}"#,
        r#"{"carrier":"UA","flight":1.0,"time_hour":"2013-01-01T05:00:00-05:00"}"#,
        r#"{"carrier":1,"carrier":"UA","other":{"carrier":1},"\ud800":1}"#,
        r#"{"carrier":"UA","flight":-9223372036854775808}"#,
    ];
    for value in good {
        assert_eq!(schema.check(value.as_bytes()), Ok(()), "{value}");
    }
    let bad = [
        (r#"[]"#, "", "is not an object"),
        ("null", "", "is not an object"),
        (r#"{"carrier":"UA""#, "", "is not JSON"),
        ("{}", "/carrier", "is missing"),
        (r#"{"carrier":null}"#, "/carrier", "null is no string"),
        (
            r#"{"carrier":"UA","carrier":1}"#,
            "/carrier",
            "1 is no string",
        ),
        (r#"{"carrier":"\ud800"}"#, "/carrier", "no text"),
        (
            r#"{"carrier":"UA","dep_delay":"2"}"#,
            "/dep_delay",
            "\"2\" is no number",
        ),
        (
            r#"{"carrier":"UA","dep_delay":1e999}"#,
            "/dep_delay",
            "too large",
        ),
        (
            r#"{"carrier":"UA","flight":1.5}"#,
            "/flight",
            "1.5 is no integer",
        ),
        (
            r#"{"carrier":"UA","flight":9223372036854775808}"#,
            "/flight",
            "64 bits",
        ),
        (
            r#"{"carrier":"UA","flight":null}"#,
            "/flight",
            "null is no integer",
        ),
        (r#"{"carrier":"UA","late":0}"#, "/late", "0 is no boolean"),
        (
            r#"{"carrier":"UA","time_hour":"noon"}"#,
            "/time_hour",
            "noon",
        ),
        (
            r#"{"carrier":"UA","time_hour":5}"#,
            "/time_hour",
            "date-time",
        ),
        (r#"{"carrier":"UA","legs":{}}"#, "/legs", "is no array"),
        (r#"{"carrier":"UA","gate":[]}"#, "/gate", "is no object"),
        (r#"{"carrier":"UA","a/b~c":1}"#, "/a~1b~0c", "is no string"),
    ];
    for (value, pointer, says) in bad {
        let wrong = schema.check(value.as_bytes()).expect_err(value);
        assert_eq!(wrong.pointer, pointer, "{value}");
        assert!(wrong.reason.contains(says), "{value}: {}", wrong.reason);
    }
    assert_eq!(schema.check(b"\xff").expect_err("bytes").pointer, "");
}

#[test]
fn cells_are_typed_and_null_where_nothing_fits() {
    let schema = flights();
    let names: Vec<&str> = schema
        .properties()
        .iter()
        .map(|it| it.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "a/b~c",
            "carrier",
            "dep_delay",
            "flight",
            "gate",
            "late",
            "legs",
            "time_hour"
        ]
    );
    let value = br#"{"carrier":"U\u0041","flight":7.0,"dep_delay":1,"late":true,"legs":[1, 2],"gate":null,"time_hour":"1970-01-01T00:00:01Z"}"#;
    let cells: Vec<Cell<'_>> = schema.cells(Some(value)).collect();
    let text = |text: &'static str| Cell::Text(text.into());
    assert_eq!(
        cells,
        [
            Cell::Null,
            text("UA"),
            Cell::Number(1.0),
            Cell::Integer(7),
            Cell::Null,
            Cell::Boolean(true),
            text("[1, 2]"),
            Cell::Time(1_000_000),
        ]
    );
    let some: Vec<Cell<'_>> = schema.cells(Some(br#"{"carrier":1,"flight":8}"#)).collect();
    assert_eq!(
        (&some[1], &some[3]),
        (&Cell::Null, &Cell::Integer(8)),
        "only what doesn't fit"
    );
    for nothing in [None, Some(&b"{oops"[..]), Some(b"\xff"), Some(b"3")] {
        assert!(schema.cells(nothing).all(|cell| cell == Cell::Null));
    }
}

#[test]
fn only_what_may_be_absent_can_be_added() {
    let schema = |properties: Value, required: Value| {
        read(json!({"type": "object", "properties": properties, "required": required}))
            .expect("good")
    };
    let before = schema(json!({"a": {"type": "string"}}), json!(["a"]));
    let more = json!({"a": {"type": "string", "title": "A"}, "b": {"type": "integer"}});
    let after = schema(more.clone(), json!(["a"]));
    after.follows(Some(&before)).expect("one more");
    let first = schema(more.clone(), json!([]));
    first.follows(None).expect("a first one");
    let refused = [
        (schema(more.clone(), json!(["a", "b"])), "\"b\" is new"),
        (schema(more, json!(["b"])), "\"a\" can't be changed"),
        (
            schema(json!({"b": {"type": "string"}}), json!([])),
            "\"a\" can't be taken away",
        ),
        (
            schema(json!({"a": {"type": "integer"}}), json!(["a"])),
            "\"a\" can't be changed",
        ),
    ];
    for (after, says) in refused {
        let error = after.follows(Some(&before)).expect_err("refused");
        assert_eq!(error.code, "setting-fixed");
        assert!(error.detail.contains(says), "{error}");
    }
    assert!(before.follows(None).is_err());
}
