//! What is no function of this host is refused, and the refusal starts with the check that failed.

use super::*;
use proptest::prelude::*;
use tidemill_types::ErrorKind;

fn refuses(bytes: &[u8], check: &str, words: &[&str]) {
    let sandbox = sandbox();
    let error = sandbox.compile(bytes).expect_err(check);
    assert_eq!(
        (error.kind, error.code),
        (ErrorKind::Invalid, "invalid-component")
    );
    assert!(error.detail.starts_with(&format!("{check}: ")), "{error}");
    for word in words {
        assert!(error.detail.contains(word), "{error}: no {word}");
    }
    works(&sandbox);
}

#[test]
fn no_bytes() {
    refuses(b"", "empty", &[]);
}

#[test]
fn other_files() {
    refuses(b"\x89PNG\r\n\x1a\n", "not WebAssembly", &["tidemill build"]);
    refuses(b"\0as", "not WebAssembly", &[]);
}

#[test]
fn a_core_module() {
    refuses(
        &component::module("", FILTER),
        "core module",
        &["tidemill build"],
    );
}

#[test]
fn a_component_cut_off_anywhere() {
    let bytes = component::guest("", FILTER);
    for end in [8, 9, bytes.len() / 2, bytes.len() - 1] {
        let error = sandbox().compile(&bytes[..end]).expect_err("cut off");
        let check = error.detail.split(':').next().expect("a check");
        assert!(
            ["does not validate", "missing export"].contains(&check),
            "{error}"
        );
    }
}

#[test]
fn a_module_in_it_that_does_not_validate() {
    let bytes = component::guest("", FILTER);
    let add = [0x6a, 0x0b];
    let at = bytes.windows(2).rposition(|two| two == add);
    let mut bytes = bytes;
    // i32.add becomes f64.add.
    bytes[at.expect("an addition")] = 0xa0;
    refuses(&bytes, "does not validate", &["type mismatch"]);
}

#[test]
fn another_world() {
    let wit = "package other:thing@1.0.0; world thing { export greet: func() -> u32; export part: interface { f: func(); } }";
    let module = wat::parse_str(
        r#"(module (func (export "greet") (result i32) (i32.const 1)) (func (export "part#f")))"#,
    )
    .expect("a module");
    let bytes = component::of_world(wit, "thing", &module);
    refuses(
        &bytes,
        "missing export",
        &["`on-batch`", "`greet`", "`part`"],
    );
}

#[test]
fn an_export_of_another_type() {
    let module = |func: &str| {
        wat::parse_str(format!("(module (memory (export \"memory\") 1) {func})")).expect("a module")
    };
    let realloc =
        r#"(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (unreachable))"#;
    let short = component::of_world(
        "package a:b; world w { export on-batch: func() -> u32; }",
        "w",
        &module(r#"(func (export "on-batch") (result i32) (i32.const 1))"#),
    );
    refuses(&short, "wrong export", &["`on-batch`", "@0.1.0"]);
    let text = component::of_world(
        "package a:b; world w { export on-batch: func(a: list<u8>, b: list<u8>) -> result<list<u8>, string>; }",
        "w",
        &module(&format!(
            "{realloc} (func (export \"on-batch\") (param i32 i32 i32 i32) (result i32) (unreachable))"
        )),
    );
    refuses(&text, "wrong export", &["`on-batch`"]);
}

#[test]
fn imports_of_others() {
    let wit = |import: &str, package: &str| {
        format!(
            "package a:b; world w {{ import {import}; export on-batch: func() -> u32; }}
             package {package} {{ interface {} {{ f: func(); }} }}",
            import.split(['/', '@']).nth(1).expect("an interface"),
        )
    };
    let import = |name: &str, package: &str| {
        let module = wat::parse_str(format!(
            r#"(module (import "{name}" "f" (func $f)) (func (export "on-batch") (result i32) (call $f) (i32.const 1)))"#
        ))
        .expect("a module");
        component::of_world(&wit(name, package), "w", &module)
    };
    for (name, package, words) in [
        (
            "wasi:sockets/tcp@0.2.6",
            "wasi:sockets@0.2.6",
            "functions have no network",
        ),
        (
            "wasi:random/random@0.3.0",
            "wasi:random@0.3.0",
            "this host serves WASI 0.2",
        ),
        (
            "wasi:keyvalue/store@0.2.0",
            "wasi:keyvalue@0.2.0",
            "no such surroundings",
        ),
    ] {
        let wasi = import(name, package);
        refuses(&wasi, "forbidden import", &[&format!("`{name}`"), words]);
    }
    let later = import("tidemill:function/host@0.9.0", "tidemill:function@0.9.0");
    refuses(
        &later,
        "forbidden import",
        &["`tidemill:function/host@0.9.0`", "…@0.1.0"],
    );
    let foreign = import("some:body/else@1.2.3", "some:body@1.2.3");
    refuses(
        &foreign,
        "forbidden import",
        &["`some:body/else@1.2.3`", "nothing else"],
    );
}

#[test]
fn the_contract_s_import_with_another_type() {
    let module = wat::parse_str(
        r#"(module (import "tidemill:function/host@0.1.0" "config" (func $f (result i32)))
             (memory (export "memory") 1)
             (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (unreachable))
             (func (export "cabi_post_on-batch") (param i32))
             (func (export "on-batch") (param i32 i32 i32 i64 i64 i32 i32) (result i32) (call $f)))"#,
    )
    .expect("a module");
    let wit = include_str!("../../../../wit/function.wit")
        .replace("config: func() -> string", "config: func() -> u32");
    refuses(
        &component::of_world(&wit, "function", &module),
        "wrong import",
        &["host@0.1.0", "config"],
    );
}

#[test]
fn a_manifest_that_is_not_text() {
    let bytes = component::guest(
        "",
        &format!("{FILTER} (@custom \"tidemill-manifest\" \"\\ff\")"),
    );
    refuses(&bytes, "manifest", &["UTF-8"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever a byte is changed to: the component is refused, or it runs within its limits.
    #[test]
    fn damaged_components_harm_nobody(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let sandbox = sandbox();
        let mut bytes = component::guest("", PASSTHROUGH);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let limits = CallLimits { deadline: Duration::from_millis(20), ..LIMITS };
        if let Ok(component) = sandbox.compile(&bytes)
            && let Ok(mut instance) = sandbox.instantiate(&component, limits, Arc::new(Stateless::default()))
            && let Ok(answer) = instance.on_batch(CALL, &batch(&[b"a"]))
        {
            let _ = tidemill_wasm::Commands::parse(&answer, 1, 0, 1);
        }
        works(&sandbox);
    }
}

#[test]
fn more_code_than_is_compiled() {
    let large = format!("{FILTER} (func {})", "nop ".repeat(600 << 10));
    refuses(
        &component::guest("", &large),
        "too much code",
        &["614402 bytes", "CODE_BODY_BYTES (512KiB)"],
    );
    let many = format!("{FILTER} {}", "(func) ".repeat(200_001));
    refuses(
        &component::guest("", &many),
        "too much code",
        &["CODE_FUNCTIONS (200000)"],
    );
    let body = format!("(func {})", "nop ".repeat(510 << 10));
    let much = format!("{FILTER} {}", body.repeat(65));
    refuses(
        &component::guest("", &much),
        "too much code",
        &["CODE_BYTES (32MiB)"],
    );
}
