//! DuckDB as an independent reader of the Parquet files, from a Python environment under `target/`.

use crate::repository;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

const SCRIPT: &str = "import duckdb, json, sys\nprint(json.dumps([list(r) for r in duckdb.sql(sys.argv[1]).fetchall()], default=str))";

/// The rows of a query.
pub fn duckdb(sql: &str) -> Vec<Vec<Value>> {
    let output = Command::new(python())
        .args(["-c", SCRIPT, sql])
        .output()
        .expect("python runs");
    assert!(
        output.status.success(),
        "{sql}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn python() -> &'static PathBuf {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let place = repository().join("target/python");
        let python = place.join("bin/python");
        let has_it = Command::new(&python)
            .args(["-c", "import duckdb"])
            .output()
            .is_ok_and(|o| o.status.success());
        if !has_it {
            run(Command::new("python3").args(["-m", "venv"]).arg(&place));
            run(Command::new(&python)
                .args(["-m", "pip", "install", "--quiet", "-r"])
                .arg(repository().join("tests/requirements.txt")));
        }
        python
    })
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
