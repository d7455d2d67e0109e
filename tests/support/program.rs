//! The program and the functions, built once per run.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

/// Root of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the repository")
}

/// The `tidemill` program, built in the profile of the tests; with the same selection of packages, so
/// that after `cargo test --workspace` nothing is left to compile.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let output = cargo()
            .args([
                "build",
                "--quiet",
                "--workspace",
                "--bins",
                "--tests",
                "--message-format",
                "json",
            ])
            .current_dir(repository())
            .output()
            .expect("cargo runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter(|message| {
                message["target"]["name"] == "tidemill"
                    && message["target"]["kind"][0] == "bin"
                    && message["profile"]["test"] == false
            })
            .find_map(|message| message["executable"].as_str().map(PathBuf::from))
            .expect("cargo names the executable")
    })
}

/// Cargo as if nobody had called it from cargo: what a test finds in its environment about its own
/// package would make build scripts run again, and everything above them compile once more.
pub fn cargo() -> Command {
    let mut command = Command::new(env!("CARGO"));
    without_package(&mut command);
    command
}

/// Takes what cargo says of the tests' own package out of a command's environment.
pub fn without_package(command: &mut Command) -> &mut Command {
    let stays = [
        "CARGO_HOME",
        "CARGO_TARGET_DIR",
        "CARGO_TERM_COLOR",
        "CARGO_INCREMENTAL",
    ];
    for (name, _) in std::env::vars_os() {
        let of_cargo = name.to_str().is_some_and(|name| {
            let settings = [
                "CARGO_NET_",
                "CARGO_HTTP_",
                "CARGO_REGISTR",
                "CARGO_BUILD_",
                "CARGO_PROFILE_",
            ];
            (name.starts_with("CARGO") || name == "OUT_DIR")
                && !stays.contains(&name)
                && !settings.iter().any(|prefix| name.starts_with(prefix))
        });
        if of_cargo {
            command.env_remove(name);
        }
    }
    command
}

/// A function's component, built from its crate by `tidemill build`. `crate_dir` is relative to the repository.
pub fn component(crate_dir: &str) -> PathBuf {
    static BUILT: OnceLock<Mutex<HashMap<String, PathBuf>>> = OnceLock::new();
    let mut built = BUILT
        .get_or_init(Mutex::default)
        .lock()
        .expect("no build panicked");
    built
        .entry(crate_dir.to_owned())
        .or_insert_with(|| {
            let output = without_package(&mut Command::new(program()))
                .args(["build", "-o", "json"])
                .arg(repository().join(crate_dir))
                .output()
                .expect("tidemill build runs");
            assert!(
                output.status.success(),
                "{crate_dir}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
            PathBuf::from(report["component"].as_str().expect("path of the component"))
        })
        .clone()
}
