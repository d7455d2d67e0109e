//! Calls of functions that behave.

use super::*;
use tidemill_wasm::{Command, Commands, FailureKind, Outcome, StateCell};

#[test]
fn events_come_back_as_they_went_in() {
    let sandbox = sandbox();
    let mut instance = start(&sandbox, &compile(&sandbox, "", PASSTHROUGH), LIMITS);
    let mut rows = PackedRows::default();
    let time = Timestamp::from_micros(-5);
    rows.push(time, Some(b"k"), Some(b"one"), [("h", b"\xff".as_slice())])
        .expect("push");
    rows.push(time, None, None, []).expect("push");
    let mut packer = BatchPacker::default();
    // Other calls before make the guest's memory dirty and its allocator start over.
    for _ in 0..3 {
        packer.begin(1);
        for row in 0..2 {
            let event = Event {
                offset: 3 + row as u64,
                ingest_time: time,
                commit: CommitSeq(1),
                row: rows.event(row),
            };
            packer.push(&event, u32::try_from(row).expect("small"));
        }
        packer.state(&[StateCell::Value(b"state")]);
        packer.state(&[StateCell::Absent]);
        let answer = instance.on_batch(CALL, packer.finish()).expect("an answer");
        let commands = Commands::parse(&answer, 2, 1, 1).expect("a sound answer");
        assert_eq!(commands.outcome(1), Outcome::Effect);
        let emits: Vec<_> = commands
            .iter()
            .map(|(event, command)| match command {
                Command::Emit(emit) => (
                    event,
                    emit.key,
                    emit.value,
                    emit.headers.collect::<Vec<_>>(),
                    emit.time,
                ),
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [
            (
                0,
                Some(b"k".as_slice()),
                Some(b"one".as_slice()),
                vec![("h", b"\xff".as_slice())],
                None,
            ),
            (1, None, None, vec![], None),
        ];
        assert_eq!(emits, expected);
    }
}

#[test]
fn the_call_reaches_the_guest() {
    // Answers with its parameters, which is no sound answer but can be looked at.
    let echo = r#"
        (func (export "on-batch") (param i32 i32 i32 i64 i64 i32 i32) (result i32)
          (i32.store (i32.const 64) (local.get 0))
          (i32.store (i32.const 68) (local.get 1))
          (i32.store (i32.const 72) (local.get 2))
          (i64.store (i32.const 80) (local.get 3))
          (i64.store (i32.const 88) (local.get 4))
          (call $ok (i32.const 64) (i32.const 32)))"#;
    let sandbox = sandbox();
    let mut instance = start(&sandbox, &compile(&sandbox, "", echo), LIMITS);
    let call = Call {
        input: 1,
        partition: 2,
        attempt: 3,
        watermark: -4,
        seed: u64::MAX,
    };
    let answer = instance.on_batch(call, &[]).expect("bytes");
    let numbers: Vec<_> = answer
        .chunks(8)
        .map(|n| i64::from_le_bytes(n.try_into().expect("8")))
        .collect();
    assert_eq!(numbers, [1 | 2 << 32, 3, -4, -1]);
}

#[test]
fn beyond_the_pool_instances_come_on_demand_and_give_their_place_back() {
    let sandbox = Sandbox::new(Settings {
        cache_dir: None,
        cache_bytes: ByteSize(0),
        instances: 1,
    })
    .expect("a sandbox");
    let component = compile(&sandbox, "", FILTER);
    let mut all: Vec<_> = (0..6)
        .map(|_| start(&sandbox, &component, LIMITS))
        .collect();
    for instance in &mut all {
        instance.on_batch(CALL, &batch(&[b"a"])).expect("an answer");
    }
    drop(all);
    works(&sandbox);

    let hog = r#"(func (export "on-batch") (param i32 i32 i32 i64 i64 i32 i32) (result i32) (loop (br 0)) (unreachable))"#;
    let looping = compile(&sandbox, "", hog);
    let limits = CallLimits {
        deadline: Duration::from_millis(20),
        ..LIMITS
    };
    let mut both = [(); 4].map(|()| start(&sandbox, &looping, limits));
    for instance in &mut both {
        let failure = instance
            .on_batch(CALL, &[])
            .expect_err("a deadline with either allocator");
        assert_eq!(failure.kind, FailureKind::Deadline);
    }
}

#[test]
fn instances_outlive_their_sandbox_and_may_change_threads() {
    let sandbox = sandbox();
    let looping = r#"(func (export "on-batch") (param i32 i32 i32 i64 i64 i32 i32) (result i32) (loop (br 0)) (unreachable))"#;
    let limits = CallLimits {
        deadline: Duration::from_millis(20),
        ..LIMITS
    };
    let mut instance = start(&sandbox, &compile(&sandbox, "", looping), limits);
    drop(sandbox);
    let failure = std::thread::spawn(move || instance.on_batch(CALL, &[]))
        .join()
        .expect("no panic")
        .expect_err("its deadline ticks go on");
    assert_eq!(failure.kind, FailureKind::Deadline);
}
