//! Components for tests, out of the crates beside this file. Included with `#[path]`.

use std::path::Path;
use std::process::Command;

/// The component of the crate with this name, built now.
pub(crate) fn component(name: &str) -> Vec<u8> {
    wit_component::ComponentEncoder::default()
        .module(&built(name, "wasm32-unknown-unknown"))
        .and_then(|mut encoder| encoder.encode())
        .expect("the module carries its world")
}

/// What cargo makes of the crate with this name for a target.
pub(crate) fn built(name: &str, target: &str) -> Vec<u8> {
    let guests = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|dir| dir.join("tests/guests"))
        .find(|dir| dir.is_dir())
        .expect("the guests lie in this repository");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guests");
    let output = Command::new(env!("CARGO"))
        .args(["build", "--release", "--target", target])
        .args(["--package", name])
        .arg("--manifest-path")
        .arg(guests.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&folder)
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{name} can't be built: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let made = folder.join(format!("{target}/release/{name}.wasm"));
    std::fs::read(&made).unwrap_or_else(|e| panic!("{}: {e}", made.display()))
}
