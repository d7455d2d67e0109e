//! What WebAssembly leaves to the machine is settled or refused, so that all machines do alike.

use super::*;

/// Traps unless what it computes is the one NaN that the specification calls canonical.
fn computes(what: &str) -> String {
    format!(
        r#"(func (export "on-batch") (param i32 i32 i32 i64 i64) (param $batch i32) (param $len i32) (result i32)
          (local $zero f64)
          (local.set $zero (f64.load (i32.const 0)))
          (if (i64.ne (i64.reinterpret_f64 {what}) (i64.const 0x7ff8000000000000)) (then (unreachable)))
          (call $ok (call $answer (i32.const 1) (i32.const 0) (i32.const 0)) (i32.const 40)))"#
    )
}

#[test]
fn a_value_that_is_no_number_has_one_form() {
    let sandbox = sandbox();
    for what in [
        "(f64.div (local.get $zero) (local.get $zero))",
        "(f64.sqrt (f64.sub (local.get $zero) (f64.const 1)))",
        "(f64.add (f64.reinterpret_i64 (i64.const 0xfff4000000000001)) (local.get $zero))",
        "(f64.promote_f32 (f32.demote_f64 (f64.div (local.get $zero) (local.get $zero))))",
        "(f64x2.extract_lane 1 (f64x2.div (f64x2.splat (local.get $zero)) (f64x2.splat (local.get $zero))))",
    ] {
        let component = compile(&sandbox, "", &computes(what));
        let answer = start(&sandbox, &component, LIMITS).on_batch(CALL, &batch(&[b"a"]));
        assert!(answer.is_ok(), "{what}: {answer:?}");
    }
}

#[test]
fn what_machines_may_do_differently_is_refused() {
    let sandbox = sandbox();
    for (what, fields) in [
        (
            "relaxed SIMD",
            "(func (param v128) (result v128) (i32x4.relaxed_trunc_f32x4_s (local.get 0)))",
        ),
        (
            "threads",
            "(func (result i32) (i32.atomic.load (i32.const 0)))",
        ),
        ("a second memory", "(memory 1)"),
    ] {
        let bytes = component::guest("", &format!("{FILTER} {fields}"));
        let refused = sandbox.compile(&bytes).expect_err(what);
        assert!(
            refused.detail.starts_with("does not validate: "),
            "{what}: {refused}"
        );
    }
    works(&sandbox);
}

#[test]
fn memory_grows_alike_whatever_was_granted() {
    // Traps unless the memory grows by 16 MiB.
    let body = r#"
        (func (export "on-batch") (param i32 i32 i32 i64 i64) (param $batch i32) (param $len i32) (result i32)
          (if (i32.eq (memory.grow (i32.const 256)) (i32.const -1)) (then (unreachable)))
          (call $ok (call $answer (i32.const 1) (i32.const 0) (i32.const 0)) (i32.const 40)))"#;
    let sandbox = sandbox();
    let component = compile(&sandbox, "", body);
    let granted = |granted| {
        let services = Arc::new(Stateless::default());
        sandbox
            .instantiate_within(&component, LIMITS, granted, services)
            .expect("an instance")
            .on_batch(CALL, &batch(&[b"a"]))
    };
    let all = granted(LIMITS.memory).expect("there is room");
    let little = granted(ByteSize::mib(1)).expect_err("there is none for now");
    assert_eq!(
        little.kind,
        tidemill_wasm::FailureKind::Short,
        "it is told to nobody but the host, which calls again"
    );
    assert_eq!(granted(LIMITS.memory), Ok(all));
}
