//! What a function may ask of its host.

use super::*;
use tidemill_wasm::{FailureKind, LogLevel};

const HOST: &str = r#"
    (import "tidemill:function/host@0.1.0" "log" (func $log (param i32 i32 i32 i32)))
    (import "tidemill:function/host@0.1.0" "config" (func $config (param i32)))
    (import "tidemill:function/host@0.1.0" "input-topic" (func $input_topic (param i32 i32)))
    (import "tidemill:function/host@0.1.0" "state-get" (func $state_get (param i32 i32 i32 i32)))
    (import "tidemill:function/host@0.1.0" "map-get" (func $map_get (param i32 i32 i32 i32 i32 i32)))
    (import "tidemill:function/host@0.1.0" "map-scan" (func $map_scan (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))"#;

struct Flights;

impl HostServices for Flights {
    fn state_get(&self, slot: u32, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        match key {
            b"AB" => Err("state can't be read".into()),
            _ => Ok((slot == 2 && key == b"UA").then(|| b"seven".to_vec())),
        }
    }
    fn map_get(&self, slot: u32, key: &[u8], entry: &[u8]) -> Result<Vec<u8>, String> {
        Ok([&slot.to_le_bytes()[..], key, b"/", entry].concat())
    }
    fn map_scan(&self, slot: u32, key: &[u8], wanted: &MapScan<'_>) -> Result<Vec<u8>, String> {
        let MapScan {
            prefix,
            from,
            behind,
            limit,
        } = wanted;
        let numbers = [slot, u32::from(*behind), *limit]
            .map(u32::to_le_bytes)
            .concat();
        Ok([&numbers[..], key, b"/", prefix, b"/", from].concat())
    }
    fn config(&self) -> &str {
        r#"{"threshold":15}"#
    }
    fn input_topic(&self, input: u32) -> Option<&str> {
        (input == 1).then_some("flights")
    }
}

fn instance(body: &str) -> Instance {
    let sandbox = sandbox();
    let fields = format!(
        r#"(func (export "on-batch") (param $input i32) (param i32 i32 i64 i64) (param $batch i32) (param $len i32) (result i32) (local $i i32) {body})"#
    );
    let component = compile(&sandbox, HOST, &fields);
    assert!(
        component
            .imports()
            .contains(&"tidemill:function/host@0.1.0".to_owned()),
        "{:?}",
        component.imports()
    );
    sandbox
        .instantiate(&component, LIMITS, Arc::new(Flights))
        .expect("an instance")
}

#[test]
fn configuration_and_topics() {
    let mut asks = instance(
        "(call $config (i32.const 64)) (call $ok (i32.load (i32.const 64)) (i32.load (i32.const 68)))",
    );
    assert_eq!(
        asks.on_batch(CALL, &[]).expect("text"),
        br#"{"threshold":15}"#
    );

    let topic = "(call $input_topic (local.get $input) (i32.const 64)) (call $ok (i32.load (i32.const 64)) (i32.load (i32.const 68)))";
    let mut asks = instance(topic);
    assert_eq!(
        asks.on_batch(Call { input: 1, ..CALL }, &[]).expect("text"),
        b"flights"
    );
    let failure = asks
        .on_batch(Call { input: 9, ..CALL }, &[])
        .expect_err("no such input");
    assert_eq!(failure.kind, FailureKind::Trap);
    assert!(failure.message.contains("no input 9"), "{failure:?}");
}

#[test]
fn committed_state() {
    // The answer is the option's discriminant and, behind it, the value.
    let body = |key: &str| {
        format!(
            r#"
        (call $state_get (i32.const 2) (i32.const 512) (i32.const 2) (i32.const 64))
        (if (i32.load8_u (i32.const 64)) (then (return (call $ok (i32.load (i32.const 68)) (i32.load (i32.const 72))))))
        (call $ok (i32.const 64) (i32.const 1))) (data (i32.const 512) "{key}""#
        )
    };
    assert_eq!(
        instance(&body("UA")).on_batch(CALL, &[]).expect("a value"),
        b"seven"
    );
    assert_eq!(
        instance(&body("AA")).on_batch(CALL, &[]).expect("none"),
        b"\0"
    );
}

#[test]
fn state_that_cannot_be_read_fails_the_call() {
    let body = r#"(call $state_get (i32.const 2) (i32.const 512) (i32.const 2) (i32.const 64))
        (call $ok (i32.const 0) (i32.const 0))) (data (i32.const 512) "AB""#;
    let failure = instance(body).on_batch(CALL, &[]).expect_err("unreadable");
    assert!(
        failure.message.contains("state can't be read"),
        "{failure:?}"
    );
}

#[test]
fn entries_of_maps() {
    let body = r#"(call $map_get (i32.const 3) (i32.const 512) (i32.const 2) (i32.const 514) (i32.const 3) (i32.const 64))
        (call $ok (i32.load (i32.const 64)) (i32.load (i32.const 68)))) (data (i32.const 512) "UAkey""#;
    assert_eq!(
        instance(body).on_batch(CALL, &[]).expect("an entry"),
        b"\x03\0\0\0UA/key"
    );
    let body = r#"(call $map_scan (i32.const 3) (i32.const 512) (i32.const 2) (i32.const 514) (i32.const 1) (i32.const 514) (i32.const 3)
          (i32.const 1) (i32.const 9) (i32.const 64))
        (call $ok (i32.load (i32.const 64)) (i32.load (i32.const 68)))) (data (i32.const 512) "UAkey""#;
    assert_eq!(
        instance(body).on_batch(CALL, &[]).expect("entries"),
        b"\x03\0\0\0\x01\0\0\0\x09\0\0\0UA/k/key"
    );
}

#[test]
fn log_lines_with_level_and_event() {
    let mut logs = instance(
        r#"
        (call $log (i32.const 3) (i32.const 5) (i32.const 512) (i32.const 4))
        (call $log (i32.const 0) (i32.const 6) (i32.const 512) (i32.const 0))
        (call $ok (i32.const 0) (i32.const 0))) (data (i32.const 512) "late""#,
    );
    logs.on_batch(CALL, &[]).expect("an answer");
    let lines: Vec<_> = logs
        .take_log()
        .into_iter()
        .map(|line| (line.level, line.event, line.message))
        .collect();
    assert_eq!(
        lines,
        [
            (LogLevel::Warn, 5, "late".to_owned()),
            (LogLevel::Trace, 6, String::new())
        ]
    );
    assert!(logs.take_log().is_empty());
}

#[test]
fn a_flood_of_log_is_cut_off_and_counted() {
    let mut logs = instance(
        r#"
        (loop $next
          (call $log (i32.const 2) (local.get $i) (i32.const 512) (i32.const 4))
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br_if $next (i32.ne (local.get $i) (i32.const 10000))))
        (unreachable)) (data (i32.const 512) "more""#,
    );
    logs.on_batch(CALL, &[]).expect_err("a trap");
    let lines = logs.take_log();
    assert_eq!(lines.len(), 257, "what was logged before a trap is kept");
    assert_eq!(lines[255].event, 255);
    assert!(
        lines[256]
            .message
            .starts_with("9744 more lines were dropped"),
        "{:?}",
        lines[256]
    );
    assert!(logs.take_log().is_empty());
}

#[test]
fn long_lines_are_cut_and_their_bytes_are_bounded() {
    // 100 KiB of two-byte characters per line, starting at an odd place.
    let mut logs = instance(
        r#"
        (memory.fill (i32.const 1024) (i32.const 0xc3) (i32.const 0))
        (local.set $i (call $alloc (i32.const 0) (i32.const 0) (i32.const 8) (i32.const 102401)))
        (call $fill (local.get $i))
        (call $log (i32.const 2) (i32.const 0) (local.get $i) (i32.const 102401))
        (call $log (i32.const 2) (i32.const 1) (local.get $i) (i32.const 102401))
        (call $ok (i32.const 0) (i32.const 0)))
      (func $fill (param $at i32) (local $n i32)
        (i32.store8 (local.get $at) (i32.const 97))
        (loop $next
          (i32.store16 offset=1 (i32.add (local.get $at) (local.get $n)) (i32.const 0xa9c3))
          (local.set $n (i32.add (local.get $n) (i32.const 2)))
          (br_if $next (i32.ne (local.get $n) (i32.const 102400))))"#,
    );
    logs.on_batch(CALL, &[]).expect("an answer");
    let lines = logs.take_log();
    assert_eq!(lines.len(), 2);
    assert_eq!(
        lines[0].message.len(),
        (8 << 10) - 1,
        "cut between two characters"
    );
    assert!(lines[0].message.starts_with("aéé"));
}

#[test]
fn manifests_are_found_wherever_they_lie() {
    let sandbox = sandbox();
    let section = |text: &str| format!("{FILTER} (@custom \"tidemill-manifest\" \"{text}\")");
    let inner = component::guest("", &section("{}"));
    assert_eq!(
        sandbox.compile(&inner).expect("sound").manifest(),
        Some("{}")
    );
    assert_eq!(compile(&sandbox, "", FILTER).manifest(), None);

    let mut outer = inner.clone();
    // A custom section: id 0, length, length of the name, name, bytes. The first one found counts.
    outer.extend(b"\0\x14\x11tidemill-manifest[]");
    let outer = sandbox.compile(&outer).expect("sound");
    assert_eq!(outer.manifest(), Some("{}"));
    assert_ne!(
        outer.digest(),
        sandbox.compile(&inner).expect("sound").digest()
    );
}

#[test]
fn digests_are_those_of_everybody() {
    let bytes = component::guest("", FILTER);
    let component = sandbox().compile(&bytes).expect("sound");
    let digest = component
        .digest()
        .strip_prefix("sha256:")
        .expect("its kind");
    assert_eq!(digest.len(), 64);
    assert!(
        digest
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    );
}
