//! DuckDB as an independent reader of the Parquet files.

use crate::python;
use serde_json::Value;
use std::process::Command;

const SCRIPT: &str = "import duckdb, json, sys\nprint(json.dumps([list(r) for r in duckdb.sql(sys.argv[1]).fetchall()], default=str))";

/// The rows of a query.
pub fn duckdb(sql: &str) -> Vec<Vec<Value>> {
    let output = Command::new(python::bin().join("python"))
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
