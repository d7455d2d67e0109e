//! The imports that only functions with a grant have.

use super::*;
use tidemill_wasm::{HTTP, SECRETS};

struct Granting;

impl HostServices for Granting {
    fn state_get(&self, _: u32, _: &[u8]) -> Result<Option<Vec<u8>>, String> {
        Ok(None)
    }
    fn map_get(&self, _: u32, _: &[u8], _: &[u8]) -> Result<Vec<u8>, String> {
        Ok(Vec::new())
    }
    fn map_scan(&self, _: u32, _: &[u8], _: &MapScan<'_>) -> Result<Vec<u8>, String> {
        Ok(Vec::new())
    }
    fn config(&self) -> &'static str {
        "{}"
    }
    fn input_topic(&self, _: u32) -> Option<&str> {
        None
    }
    fn secret(&self, name: &str) -> Result<Vec<u8>, String> {
        match name {
            "token" => Ok(b"hush".to_vec()),
            other => Err(format!("there is no {other}")),
        }
    }
}

/// Answers with the secret whose name lies at 64, or why there is none.
fn tells(name: &str) -> (String, String) {
    let len = name.len();
    let import =
        r#"(import "tidemill:function/secrets@0.1.0" "get" (func $get (param i32 i32 i32)))"#;
    let fields = format!(
        r#"(data (i32.const 64) "{name}")
        (func (export "on-batch") (param i32 i32 i32 i64 i64 i32 i32) (result i32)
          (call $get (i32.const 64) (i32.const {len}) (i32.const 96))
          (call $ok (i32.load (i32.const 100)) (i32.load (i32.const 104))))"#
    );
    let compiled = compile(&sandbox(), import, &fields);
    // Its world names the contract's types, too.
    assert!(compiled.imports().iter().any(|import| import == SECRETS));
    let told = |services: Arc<dyn HostServices>| {
        let instance = sandbox().instantiate(&compiled, LIMITS, services);
        let answer = instance.expect("an instance").on_batch(CALL, &[]);
        String::from_utf8(answer.expect("text")).expect("text")
    };
    (
        told(Arc::new(Granting)),
        told(Arc::new(Stateless::default())),
    )
}

#[test]
fn secrets_are_told_to_those_who_may_know_them() {
    let none = "this function was granted no secrets".to_owned();
    assert_eq!(tells("token"), ("hush".into(), none.clone()));
    assert_eq!(tells("other"), ("there is no other".into(), none));
}

#[test]
fn who_uses_no_grant_names_none() {
    let imports = compile(&sandbox(), "", FILTER).imports().to_vec();
    assert!(
        !imports
            .iter()
            .any(|import| import == SECRETS || import == HTTP),
        "{imports:?}"
    );
}
