//! What a standard library sees of its surroundings comes from the event alone: of the call's values, never
//! of the machine, of the instance's past or of where batches end.

use super::*;
use std::sync::OnceLock;
use tidemill_wasm::{Command, Commands, FailureKind, LogLevel, StateCell};

fn standard(target: &str) -> &'static [u8] {
    static PLAIN: OnceLock<Vec<u8>> = OnceLock::new();
    static WASI: OnceLock<Vec<u8>> = OnceLock::new();
    match target {
        "wasm32-wasip2" => WASI.get_or_init(|| crate::built::built("standard", target)),
        _ => PLAIN.get_or_init(|| crate::built::component("standard")),
    }
}

fn begin(sandbox: &Sandbox, component: &Component) -> Instance {
    let input = Some("in");
    sandbox
        .instantiate(component, LIMITS, Arc::new(Stateless { input }))
        .expect("an instance")
}

/// Texts with the offsets that begin at `first`, each under a key of its own, received at 7 s and so many µs.
fn texts(first: u64, texts: &[&str]) -> Vec<u8> {
    let mut rows = PackedRows::default();
    let mut packer = BatchPacker::default();
    packer.begin(1);
    for (text, offset) in texts.iter().zip(first..) {
        let (key, value) = (format!("k{offset}"), format!("{text:?}"));
        rows.push(
            Timestamp::from_micros(5),
            Some(key.as_bytes()),
            Some(value.as_bytes()),
            [],
        )
        .expect("push");
    }
    for (row, offset) in (0..rows.len()).zip(first..) {
        let event = Event {
            offset,
            ingest_time: Timestamp::from_micros(7_000_000 + i64::try_from(offset).expect("small")),
            commit: CommitSeq(1),
            row: rows.event(row),
        };
        packer.push(&event, u32::try_from(row).expect("small"));
        packer.clock(i64::MIN);
    }
    for _ in texts {
        packer.state(&[StateCell::Absent]);
    }
    packer.finish().to_vec()
}

/// What each event emitted.
fn emitted(instance: &mut Instance, first: u64, what: &[&str]) -> Vec<String> {
    let answer = instance
        .on_batch(CALL, &texts(first, what))
        .expect("an answer");
    let commands = Commands::parse(&answer, what.len(), 1, 1).expect("a sound answer");
    let values = commands.iter().filter_map(|(_, command)| match command {
        Command::Emit(emit) => emit.value,
        _ => None,
    });
    values
        .map(|value| String::from_utf8(value.to_vec()).expect("text"))
        .collect()
}

const TEXTS: [&str; 5] = [
    "one two three four five six seven",
    "a b c d e f g h i j k l m n",
    "one two three four five six seven",
    "x",
    "north east south west up down",
];

#[test]
fn hash_maps_list_the_same_wherever_batches_end() {
    let sandbox = sandbox();
    let component = sandbox
        .compile(standard("wasm32-unknown-unknown"))
        .expect("sound");
    assert!(!component.is_alone());
    let whole = emitted(&mut begin(&sandbox, &component), 0, &TEXTS);
    assert_eq!(whole.len(), TEXTS.len());
    assert_eq!(whole[0], whole[2], "the same text, in the same order");
    for cut in 1..TEXTS.len() {
        let mut instance = begin(&sandbox, &component);
        let mut parts = emitted(&mut instance, 0, &TEXTS[..cut]);
        parts.extend(emitted(&mut instance, cut as u64, &TEXTS[cut..]));
        assert_eq!(parts, whole, "cut at {cut}");
    }
    let mut instance = begin(&sandbox, &component);
    for (text, (offset, seen)) in TEXTS.iter().zip((0..).zip(&whole)) {
        let now = emitted(&mut instance, offset, &[text]);
        assert_eq!(now, std::slice::from_ref(seen));
    }
    assert!(
        instance.take_log().is_empty(),
        "it knows how to set keys back"
    );
}

#[test]
fn clocks_and_randomness_are_those_of_the_event() {
    let sandbox = sandbox();
    let component = sandbox.compile(standard("wasm32-wasip2")).expect("sound");
    assert!(component.is_alone(), "{:?}", component.imports());
    let alone = |offset, text| {
        let mut instance = begin(&sandbox, &component);
        let mut seen = emitted(&mut instance, offset, &[text]);
        let lines = instance.take_log();
        (seen.remove(0), lines)
    };
    let (seen, lines) = alone(3, "one two three four five six seven");
    for part in [
        r#""clock":7000003,"#,
        r#""passed":0,"#,
        r#""surroundings":0,"#,
        r#""file":"No such file or directory"#,
    ] {
        assert!(seen.contains(part), "no {part} in {seen}");
    }
    assert_eq!(lines.len(), 1);
    assert_eq!(
        (lines[0].level, lines[0].message.as_str()),
        (LogLevel::Warn, "saw one two three four five six seven")
    );
    assert_eq!(alone(3, "one two three four five six seven").0, seen);
    let other = alone(4, "one two three four five six seven").0;
    assert_ne!(other, seen, "another event draws other numbers");
    let failure = begin(&sandbox, &component)
        .on_batch(CALL, &texts(0, &["exit"]))
        .expect_err("it ends its process");
    assert_eq!(failure.kind, FailureKind::Trap);
    let words = "the function ended its process";
    assert!(failure.message.contains(words), "{failure:?}");
    works(&sandbox);
}
