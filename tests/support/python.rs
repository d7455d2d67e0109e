//! What the tests need of Python's packages: an environment under `target/`, made when it is missing.

use crate::repository;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The folder with the environment's programs.
pub(crate) fn bin() -> &'static Path {
    static BIN: OnceLock<PathBuf> = OnceLock::new();
    BIN.get_or_init(|| {
        let place = repository().join("target/python");
        let bin = place.join("bin");
        if !is_complete(&bin) {
            run(Command::new("python3").args(["-m", "venv"]).arg(&place));
            run(Command::new(bin.join("python"))
                .args(["-m", "pip", "install", "--quiet", "-r"])
                .arg(repository().join("tests/requirements.txt")));
        }
        bin
    })
}

fn is_complete(bin: &Path) -> bool {
    let duckdb = Command::new(bin.join("python"))
        .args(["-c", "import duckdb"])
        .output();
    duckdb.is_ok_and(|output| output.status.success()) && bin.join("weed").exists()
}

fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}; python3 with venv is needed"));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
