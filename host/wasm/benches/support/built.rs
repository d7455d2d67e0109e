//! Functions that cargo has built.

use super::calling;
use std::path::{Path, PathBuf};
use tidemill_types::ByteSize;
use tidemill_wasm::{Instance, Sandbox, Settings};

/// The project's folder.
pub(crate) fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// An instance of a function of a workspace of the project; `built` says what builds it.
pub(crate) fn instance(workspace: &str, name: &str, built: &str) -> Instance {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| project().join(workspace).join("target"), PathBuf::from);
    let path = target.join(format!(
        "wasm32-unknown-unknown/release/{name}.component.wasm"
    ));
    let component = std::fs::read(&path).expect(built);
    let settings = Settings {
        cache_dir: None,
        cache_bytes: ByteSize(0),
        instances: 2,
    };
    let sandbox = Sandbox::new(settings).expect("a sandbox");
    let component = sandbox.compile(&component).expect("sound");
    calling::instance(&sandbox, &component)
}
