//! Functions that misbehave: the reason is clear, the host is unharmed, the next instance works.

use super::*;
use tidemill_wasm::{Commands, Failure, FailureKind};

/// Runs `body` as the function's `on-batch` and checks that the sandbox survives.
fn fails(body: &str, limits: CallLimits) -> Failure {
    let sandbox = sandbox();
    let fields = format!(
        r#"(func $handle (export "on-batch") (param i32 i32 i32 i64 i64) (param $batch i32) (param $len i32) (result i32) {body})"#
    );
    let component = compile(&sandbox, "", &fields);
    let mut instance = start(&sandbox, &component, limits);
    let failure = instance
        .on_batch(CALL, &batch(&[b"a"]))
        .expect_err("it misbehaves");
    let after = instance
        .on_batch(CALL, &batch(&[b"a"]))
        .expect_err("it is gone");
    assert_eq!(after.kind, FailureKind::Trap);
    assert!(after.message.contains("failed before"), "{after:?}");
    assert_eq!(
        start(&sandbox, &component, limits).on_batch(CALL, &batch(&[b"a"])),
        Err(failure.clone()),
        "the next instance fails the same way"
    );
    works(&sandbox);
    failure
}

#[test]
fn traps_name_their_place() {
    let failure = fails(
        "(call $inner) (i32.const 0)) (func $inner (unreachable)",
        LIMITS,
    );
    assert_eq!(failure.kind, FailureKind::Trap);
    assert_eq!(
        failure.message,
        "wasm trap: wasm `unreachable` instruction executed (in inner < handle)"
    );
}

#[test]
fn frames_are_named_as_their_author_wrote_them() {
    let inner = "_ZN5rogue5outer5inner17h0123456789abcdefE";
    let failure = fails(
        &format!("(call $inner) (i32.const 0)) (func $inner (@name \"{inner}\") (unreachable)"),
        LIMITS,
    );
    assert!(
        failure
            .message
            .ends_with("(in rogue::outer::inner < handle)"),
        "{failure:?}"
    );
}

#[test]
fn an_endless_loop_meets_its_deadline() {
    let limits = CallLimits {
        deadline: Duration::from_millis(50),
        ..LIMITS
    };
    let failure = fails("(loop (br 0)) (unreachable)", limits);
    assert_eq!(failure.kind, FailureKind::Deadline);
    assert_eq!(failure.message, "deadline of 50ms passed");
}

#[test]
fn a_memory_hog_meets_its_limit() {
    let body = "(loop (br_if 0 (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) (unreachable)";
    let limits = CallLimits {
        memory: ByteSize::mib(16),
        ..LIMITS
    };
    let failure = fails(body, limits);
    assert_eq!(failure.kind, FailureKind::Memory);
    assert_eq!(failure.message, "memory limit of 16MiB");
}

#[test]
fn a_refused_growth_that_is_taken_well_is_no_failure() {
    let body = r#"
        (func (export "on-batch") (param i32 i32 i32 i64 i64) (param $batch i32) (param $len i32) (result i32)
          (drop (memory.grow (i32.const 60000)))
          (if (i32.eqz (i32.load offset=4 (local.get $batch))) (then (unreachable)))
          (call $ok (local.get $batch) (local.get $len)))"#;
    let sandbox = sandbox();
    let mut instance = start(&sandbox, &compile(&sandbox, "", body), LIMITS);
    instance.on_batch(CALL, &batch(&[b"a"])).expect("an answer");
    let failure = instance
        .on_batch(CALL, &batch(&[]))
        .expect_err("a trap behind a refusal");
    assert_eq!(failure.kind, FailureKind::Memory);
}

#[test]
fn memory_that_does_not_fit_from_the_start() {
    let sandbox = sandbox();
    let component = compile(&sandbox, "", FILTER);
    let limits = CallLimits {
        memory: ByteSize(64 << 10),
        ..LIMITS
    };
    let failure = sandbox
        .instantiate(&component, limits, Arc::new(Stateless::default()))
        .expect_err("two pages");
    assert_eq!(
        (failure.kind, failure.message.as_str()),
        (FailureKind::Memory, "memory limit of 64KiB")
    );
    works(&sandbox);
}

#[test]
fn endless_recursion_overflows_only_its_own_stack() {
    let failure = fails(
        "(call $deep (i32.const 1))) (func $deep (param i32) (result i32) (i32.add (local.get 0) (call $deep (local.get 0)))",
        LIMITS,
    );
    assert_eq!(failure.kind, FailureKind::Trap);
    assert_eq!(
        failure.message,
        "wasm trap: call stack exhausted (in deep (16 times))"
    );
}

#[test]
fn a_huge_answer_is_not_taken() {
    // 2 MiB where 1 MiB is allowed.
    let body = "(call $ok (call $alloc (i32.const 0) (i32.const 0) (i32.const 8) (i32.const 0x200000)) (i32.const 0x200000))";
    let failure = fails(body, LIMITS);
    assert_eq!(failure.kind, FailureKind::OutputLimit);
    assert_eq!(failure.message, "output_bytes limit of 1MiB");
    // A limit below what any host call may carry is kept exactly.
    let limits = CallLimits {
        output_bytes: ByteSize(39),
        ..LIMITS
    };
    let failure = fails(
        "(call $ok (call $answer (i32.const 1) (i32.const 0) (i32.const 0)) (i32.const 40))",
        limits,
    );
    assert_eq!(
        (failure.kind, failure.message.as_str()),
        (FailureKind::OutputLimit, "output_bytes limit of 39B")
    );
}

#[test]
fn an_answer_outside_of_its_memory() {
    let failure = fails("(call $ok (i32.const -8) (i32.const 16))", LIMITS);
    assert_eq!(failure.kind, FailureKind::Trap);
    assert!(failure.message.contains("out of bounds"), "{failure:?}");
}

/// One event with a million outputs of nothing.
const MILLION: &str = r#"
    (func (export "on-batch") (param i32 i32 i32 i64 i64) (param $batch i32) (param $len i32) (result i32)
      (local $answer i32) (local $command i32) (local $end i32)
      (local.set $answer (call $answer (i32.const 1) (i32.const 1000000) (i32.const 0)))
      (i32.store8 offset=32 (local.get $answer) (i32.const 1))
      (local.set $command (i32.add (local.get $answer) (i32.const 40)))
      (local.set $end (i32.add (local.get $command) (i32.const 32000000)))
      (loop $next
        (i32.store8 (local.get $command) (i32.const 1))
        (local.set $command (i32.add (local.get $command) (i32.const 32)))
        (br_if $next (i32.ne (local.get $command) (local.get $end))))
      (call $ok (local.get $answer) (i32.const 32000040)))"#;

#[test]
fn a_million_outputs_meet_the_limit_or_fit() {
    let sandbox = sandbox();
    let component = compile(&sandbox, "", MILLION);
    let failure = start(&sandbox, &component, LIMITS)
        .on_batch(CALL, &batch(&[b"a"]))
        .expect_err("32 MB");
    assert_eq!(failure.kind, FailureKind::OutputLimit);
    works(&sandbox);
    let limits = CallLimits {
        output_bytes: ByteSize::mib(32),
        ..LIMITS
    };
    let answer = start(&sandbox, &component, limits)
        .on_batch(CALL, &batch(&[b"a"]))
        .expect("32 MB");
    let commands = Commands::parse(&answer, 1, 0, 1).expect("a sound answer");
    assert_eq!(commands.iter().count(), 1_000_000);
}

#[test]
fn nonsense_is_found_out() {
    let body = r#"(func (export "on-batch") (param i32 i32 i32 i64 i64) (param $batch i32) (param $len i32) (result i32)
        (call $ok (local.get $batch) (local.get $len)))"#;
    let sandbox = sandbox();
    let mut instance = start(&sandbox, &compile(&sandbox, "", body), LIMITS);
    let answer = instance.on_batch(CALL, &batch(&[b"a"])).expect("bytes");
    Commands::parse(&answer, 1, 0, 0)
        .map(|_| ())
        .expect_err("a batch is no answer");
    let empty = r#"(func (export "on-batch") (param i32 i32 i32 i64 i64 i32 i32) (result i32) (call $ok (i32.const 0) (i32.const 0)))"#;
    let answer = start(&sandbox, &compile(&sandbox, "", empty), LIMITS)
        .on_batch(CALL, &[])
        .expect("no bytes");
    let error = Commands::parse(&answer, 1, 0, 0)
        .map(|_| ())
        .expect_err("no bytes are no answer");
    assert!(error.contains("byte 0"), "{error}");
}

#[test]
fn the_guest_s_own_words() {
    let body = r#"
        (i32.store8 (i32.const 16) (i32.const 1))
        (i32.store (i32.const 20) (i32.const 512))
        (i32.store (i32.const 24) (i32.const 9))
        (i32.const 16)) (data (i32.const 512) "out of \c3\a9""#;
    let failure = fails(body, LIMITS);
    assert_eq!(
        failure,
        Failure {
            kind: FailureKind::Trap,
            message: "out of é".into()
        }
    );
}

#[test]
fn a_start_that_loops_or_traps() {
    let sandbox = sandbox();
    let limits = CallLimits {
        deadline: Duration::from_millis(30),
        ..LIMITS
    };
    for (start, kind, words) in [
        (
            "(loop (br 0))",
            FailureKind::Deadline,
            "deadline of 30ms passed",
        ),
        ("(unreachable)", FailureKind::Trap, "unreachable"),
        (
            "(drop (memory.grow (i32.const 60000))) (unreachable)",
            FailureKind::Memory,
            "memory limit of 64MiB",
        ),
    ] {
        let fields = format!("(func $begin {start}) (start $begin) {FILTER}");
        let component = compile(&sandbox, "", &fields);
        let failure = sandbox
            .instantiate(&component, limits, Arc::new(Stateless::default()))
            .expect_err("no start");
        assert_eq!(failure.kind, kind);
        assert!(failure.message.contains(words), "{failure:?}");
    }
    works(&sandbox);
}
