use super::*;
use serde_json::{Value, json};

fn name() -> FunctionName {
    "carrier-delays".parse().expect("a name")
}

fn read(manifest: Value) -> Result<Manifest> {
    Manifest::resolve(None, Some(&manifest), &name())
}

fn least() -> Value {
    json!({"input": [{"topic": "flights"}]})
}

/// The whole example of the API, as JSON.
fn example() -> Value {
    json!({
        "function": {"name": "carrier-delays", "description": "Delays per carrier"},
        "input": [{"topic": "flights", "start": "latest", "key": "/carrier"}],
        "output": {"out": {"topic": "carrier-delays", "partitions": 4}},
        "state": {"total": {"kind": "value"}},
        "time": {"disorder": "5m", "idle": "1m", "max_future": "10m"},
        "batch": {"events": 256, "bytes": "256KiB", "wait": "0ms"},
        "limits": {"memory": "64MiB", "deadline": "1s", "output_bytes": "8MiB", "output_events": 100_000,
            "state_value_bytes": "1MiB", "state_bytes": "1GiB", "log_lines": 200, "log_bytes": "64KiB"},
        "retry": {"attempts": 5, "backoff": "100ms..30s", "exhausted": "dead-letter", "order": "partition"},
        "config": {"threshold": 15}
    })
}

#[test]
fn defaults_are_those_of_the_example() {
    let full = read(example()).expect("the example");
    let bare = read(least()).expect("only an input");
    assert_eq!(
        (
            bare.time,
            bare.batch_events,
            bare.batch_bytes,
            bare.batch_wait,
            bare.limits.memory
        ),
        (
            full.time.clone(),
            full.batch_events,
            full.batch_bytes,
            full.batch_wait,
            full.limits.memory
        )
    );
    assert_eq!(
        (&bare.limits, bare.retry),
        (&full.limits, full.retry.clone())
    );
    assert_eq!(full.batch_bytes, ByteSize(256 << 10));
    assert_eq!(full.config, r#"{"threshold":15}"#);
    assert_eq!(bare.config, "{}");
    assert_eq!(full.inputs[0].key.as_deref(), Some("/carrier"));
    assert_eq!(
        (full.outputs[0].name.as_str(), full.outputs[0].partitions),
        ("out", Some(4))
    );
    assert_eq!(
        full.slot_kinds().into_iter().collect::<Vec<_>>(),
        [("total", "value")]
    );
    assert_eq!(
        (bare.inputs[0].start, bare.outputs.len(), bare.slots.len()),
        (Start::Latest, 0, 0)
    );
}

#[test]
fn beside_overrides_key_by_key() {
    let embedded = example().to_string();
    let beside = json!({
        "input": [{"start": "2013-01-01T00:00:00Z"}],
        "output": {"out": {"topic": "elsewhere"}},
        "retry": {"attempts": 2, "backoff": "1s..1s", "exhausted": "stop"},
        "config": {"more": [1]}
    });
    let other: FunctionName = "other".parse().expect("a name");
    let manifest = Manifest::resolve(Some(&embedded), Some(&beside), &other).expect("valid");
    assert_eq!(manifest.name, other);
    let input = &manifest.inputs[0];
    assert_eq!(
        (input.topic.as_str(), input.key.as_deref()),
        ("flights", Some("/carrier"))
    );
    assert_eq!(
        input.start,
        Start::At(Timestamp::from_micros(1_356_998_400_000_000))
    );
    assert_eq!(manifest.outputs[0].topic.as_str(), "elsewhere");
    assert_eq!(
        manifest.outputs[0].partitions,
        Some(4),
        "kept from the embedded one"
    );
    assert_eq!(
        (manifest.retry.attempts, manifest.retry.exhausted),
        (2, Exhausted::Stop)
    );
    assert_eq!(manifest.retry.backoff_most, Duration::from_secs(1));
    assert_eq!(manifest.config, r#"{"more":[1],"threshold":15}"#);
    let again = Manifest::resolve(None, Some(&manifest.source), &other).expect("its own source");
    assert_eq!(again, manifest);
}

#[test]
fn order_comes_from_the_lists() {
    let mut manifest = example();
    manifest["output"] = json!({"a": {"topic": "a"}, "b": {"topic": "b", "format": "bytes"}});
    let refused = read(manifest.clone()).expect_err("no order");
    assert!(
        refused.detail.contains("function.outputs_order"),
        "{refused}"
    );
    manifest["function"]["outputs_order"] = json!(["b", "a"]);
    manifest["function"]["slots_order"] = json!(["total"]);
    let read_back = read(manifest.clone()).expect("with order");
    let names: Vec<_> = read_back
        .outputs
        .iter()
        .map(|o| (o.name.as_str(), o.format))
        .collect();
    assert_eq!(names, [("b", Format::Bytes), ("a", Format::Json)]);
    manifest["function"]["outputs_order"] = json!(["b", "b"]);
    assert!(read(manifest).is_err());
}

/// Each: a change of the least manifest, and what the refusal must say.
#[test]
fn refusals_say_where_and_what() {
    let cases = [
        (
            json!({"inputs": [{"topic": "a"}]}),
            &["inputs", "\"input\""][..],
        ),
        (json!({"input": []}), &["needs an input"]),
        (
            json!({"input": [{"topic": "a"}, {"topic": "b"}, {"topic": "a"}]}),
            &["input[2].topic", "\"a\" is input[0]'s topic already"],
        ),
        (
            json!({"input": vec![json!({"topic": "a"}); 17]}),
            &["17 inputs", "at most 16"],
        ),
        (
            json!({"input": [{"start": "latest"}]}),
            &["input[0].topic", "missing"],
        ),
        (
            json!({"input": [{"topic": "a b"}]}),
            &["input[0].topic", "a b"],
        ),
        (
            json!({"input": [{"topic": "a", "start": "newest"}]}),
            &["input[0].start", "newest", "earliest"],
        ),
        (
            json!({"input": [{"topic": "a", "key": "carrier"}]}),
            &["input[0].key", "JSON pointer"],
        ),
        (
            json!({"batch": {"event": 3}}),
            &["batch.event", "\"events\""],
        ),
        (
            json!({"batch": {"events": 0}}),
            &["batch.events", "1 to 10000"],
        ),
        (
            json!({"batch": {"events": "many"}}),
            &["batch.events", "\"many\""],
        ),
        (
            json!({"batch": {"bytes": "256"}}),
            &["batch.bytes", "outside"],
        ),
        (
            json!({"limits": {"memory": "64 MB"}, "batch": 3}),
            &["batch", "table"],
        ),
        (
            json!({"limits": {"deadline": "1.5s"}}),
            &["limits.deadline", "1.5s"],
        ),
        (
            json!({"retry": {"backoff": "30s..100ms"}}),
            &["retry.backoff", "100ms..30s"],
        ),
        (json!({"retry": {"backoff": "100ms"}}), &["retry.backoff"]),
        (
            json!({"retry": {"order": "topic"}}),
            &["retry.order", "\"key\""],
        ),
        (
            json!({"retry": {"exhausted": "drop"}}),
            &["retry.exhausted", "\"drop\""],
        ),
        (json!({"retry": {"attempts": 0}}), &["retry.attempts"]),
        (
            json!({"state": {"seen": {"ttl_time": "ingest"}}}),
            &["state.seen.ttl_time", "processing"],
        ),
        (
            json!({"function": {"timers": "yes"}}),
            &["function.timers", "true or false"],
        ),
        (
            json!({"state": {"seen": {"kind": "heap"}}}),
            &["state.seen.kind", "counter"],
        ),
        (
            json!({"state": {"seen": {"ttl": "0s"}}}),
            &["state.seen.ttl", "outside"],
        ),
        (
            json!({"output": {"out": {}}}),
            &["output.out.topic", "missing"],
        ),
        (
            json!({"output": {"out": {"topic": "t", "partition": 3}}}),
            &["output.out.partition", "\"partitions\""],
        ),
        (json!({"config": [1]}), &["config", "table"]),
        (json!({"function": {"name": "no/good"}}), &["function.name"]),
    ];
    for (change, words) in cases {
        let mut manifest = least();
        for (key, value) in change.as_object().expect("a table") {
            if key == "inputs" {
                manifest = json!({});
            }
            manifest[key] = value.clone();
        }
        let refused = read(manifest).expect_err(&change.to_string());
        assert_eq!(refused.code, "invalid-manifest");
        for word in words {
            assert!(
                refused.detail.contains(word),
                "{change}: {refused} lacks {word:?}"
            );
        }
    }
    assert!(Manifest::resolve(None, None, &name()).is_err());
    assert!(Manifest::resolve(Some("{"), None, &name()).is_err());
}

#[test]
fn slots_have_kinds_and_ends() {
    let mut manifest = least();
    manifest["function"] = json!({"slots_order": ["d", "a", "b", "c"], "timers": true});
    manifest["state"] = json!({
        "a": {"kind": "map", "ttl": "30d"},
        "b": {"kind": "counter", "ttl": "1h", "ttl_time": "processing"},
        "c": {"kind": "list"},
        "d": {},
    });
    let read = read(manifest).expect("valid");
    let shown: Vec<_> = read
        .slots
        .iter()
        .map(|slot| (slot.name.as_str(), slot.kind, slot.slot_ttl()))
        .collect();
    let ttl = |clock, hours: i64| {
        let micros = hours * 3_600_000_000;
        Some(SlotTtl { clock, micros })
    };
    assert_eq!(
        shown,
        [
            ("d", SlotKind::Value, None),
            ("a", SlotKind::Map, ttl(Clock::Event, 720)),
            ("b", SlotKind::Counter, ttl(Clock::Processing, 1)),
            ("c", SlotKind::List, None),
        ]
    );
    assert!(read.timers);
}
