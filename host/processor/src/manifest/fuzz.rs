//! Manifests of any text at all: understood or refused in words.

use super::*;
use tidemill_fuzz::fuzz;

#[test]
fn function_manifests() {
    let name: FunctionName = "carrier-delays".parse().expect("a name");
    fuzz(
        "function-manifest",
        &[],
        |_| {},
        |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else {
                return "not UTF-8".into();
            };
            let beside = serde_json::from_str(text).ok();
            let embedded = Manifest::resolve(Some(text), None, &name);
            if let Some(beside) = &beside {
                let alone = Manifest::resolve(None, Some(beside), &name);
                assert_eq!(alone.is_ok(), embedded.is_ok(), "{text}");
            }
            match embedded {
                Ok(manifest) => {
                    assert!(!manifest.inputs.is_empty());
                    format!("{} slots", "x".repeat(manifest.slots.len().min(3)))
                }
                Err(error) => {
                    assert!(!error.detail.is_empty());
                    error.detail
                }
            }
        },
    );
}
