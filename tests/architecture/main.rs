//! Architecture as a test: who may know whom, who owns which heavy dependency, how long files may get.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and wait for separate processes"
)]

mod cases;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tidemill_tests::repository;

/// Layer of each crate under `host/`; a crate may only know crates of lower layers.
const LAYERS: [(&str, u8); 8] = [
    ("types", 1),
    ("env", 1),
    ("log", 2),
    ("wasm", 2),
    ("state", 2),
    ("processor", 3),
    ("server", 4),
    ("cli", 5),
];

/// `env` speaks in values of `types`, the one sideways step.
const SIDEWAYS: [(&str, &str); 1] = [("env", "types")];

/// The contract's crate that hosts share with functions.
const CONTRACT: &str = "json";

/// Heavy dependencies and the only crates that may have them.
const OWNERS: [(&str, &[&str]); 14] = [
    ("hyper", &["server"]),
    ("hyper-util", &["server"]),
    ("axum", &["server"]),
    ("toml", &["server"]),
    ("wasmtime", &["wasm"]),
    ("wasmparser", &["wasm"]),
    ("object_store", &["env"]),
    ("prometheus-client", &["env"]),
    ("parquet", &["log"]),
    ("arrow-array", &["log"]),
    ("arrow-buffer", &["log"]),
    ("arrow-schema", &["log"]),
    ("lsm-tree", &["state"]),
    ("clap", &["cli"]),
];

fn dependencies(manifest: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(manifest).expect("manifest");
    let manifest: toml::Table = text.parse().expect("TOML");
    manifest
        .get("dependencies")
        .and_then(toml::Value::as_table)
        .map(|t| t.keys().cloned().collect())
        .unwrap_or_default()
}

fn crates() -> BTreeMap<String, BTreeSet<String>> {
    std::fs::read_dir(repository().join("host"))
        .expect("host/")
        .map(|entry| entry.expect("entry").path())
        .map(|path| {
            (
                path.file_name()
                    .expect("name")
                    .to_string_lossy()
                    .into_owned(),
                dependencies(&path.join("Cargo.toml")),
            )
        })
        .collect()
}

#[test]
fn nobody_knows_a_crate_beside_or_above() {
    let layers: BTreeMap<_, _> = LAYERS.into();
    let mut wrong = Vec::new();
    for (name, dependencies) in crates() {
        let Some(layer) = layers.get(name.as_str()) else {
            panic!("host/{name} has no layer: give it one in ARCHITECTURE.md and here");
        };
        for other in dependencies
            .iter()
            .filter_map(|d| d.strip_prefix("tidemill-"))
        {
            let allowed = other == CONTRACT
                || layers.get(other).is_some_and(|l| l < layer)
                || SIDEWAYS.contains(&(name.as_str(), other));
            if !allowed {
                wrong.push(format!("{name} -> {other}"));
            }
        }
    }
    assert!(wrong.is_empty(), "imports sideways or upwards: {wrong:?}");
}

#[test]
fn heavy_dependencies_have_one_owner() {
    let mut wrong = Vec::new();
    for (name, dependencies) in crates() {
        for (heavy, owners) in OWNERS {
            if dependencies.contains(heavy) && !owners.contains(&name.as_str()) {
                wrong.push(format!("{name} has {heavy}, which belongs to {owners:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_program_knows_only_the_server() {
    let cli: Vec<_> = crates()["cli"]
        .iter()
        .filter(|d| d.starts_with("tidemill"))
        .cloned()
        .collect();
    assert_eq!(cli, ["tidemill-server"]);
}

#[test]
fn the_top_level_is_the_agreed_one() {
    let agreed = [
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "Cargo.lock",
        "Cargo.toml",
        "LICENSE",
        "README.md",
        "deploy",
        "functions",
        "host",
        "sdk",
        "tests",
        "wit",
        "target",
    ];
    let strangers: Vec<_> = std::fs::read_dir(repository())
        .expect("repository")
        .map(|entry| {
            entry
                .expect("entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .filter(|name| !name.starts_with('.') && !agreed.contains(&name.as_str()))
        .collect();
    assert!(
        strangers.is_empty(),
        "not agreed at the top level: {strangers:?}"
    );
}

#[test]
fn source_files_stay_readable() {
    let mut files = Vec::new();
    for folder in ["host", "sdk", "functions", "tests"] {
        rust_files(&repository().join(folder), &mut files);
    }
    assert!(
        files.len() > 50,
        "only {} files found: is the walk right?",
        files.len()
    );
    let long: Vec<_> = files
        .iter()
        .map(|path| {
            (
                path,
                std::fs::read_to_string(path)
                    .expect("source")
                    .lines()
                    .count(),
            )
        })
        .filter(|(_, lines)| *lines > 600)
        .collect();
    assert!(long.is_empty(), "over 600 lines: {long:#?}");
}

#[test]
fn nothing_is_left_for_later_in_the_code() {
    let mut files = Vec::new();
    for folder in ["host", "sdk", "functions"] {
        rust_files(&repository().join(folder), &mut files);
    }
    let words = ["todo!(", "unimplemented!(", "#[ignore"];
    let left: Vec<_> = files
        .iter()
        .filter_map(|path| {
            let text = std::fs::read_to_string(path).expect("source");
            words
                .iter()
                .find(|word| text.contains(*word))
                .map(|word| format!("{}: {word}", path.display()))
        })
        .collect();
    assert!(left.is_empty(), "{left:#?}");
}

fn rust_files(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("folder") {
        let path = entry.expect("entry").path();
        let name = path
            .file_name()
            .expect("name")
            .to_string_lossy()
            .into_owned();
        if path.is_dir() && name != "target" {
            rust_files(&path, out);
        } else if name.ends_with(".rs") {
            out.push(path);
        }
    }
}
