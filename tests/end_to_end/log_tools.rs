//! `tidemill log`: what a host that was killed has left, whole and damaged.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tidemill_tests::{Host, program};

const SETTINGS: [(&str, &str); 2] = [
    ("TIDEMILL_LOG__SEGMENT_AGE", "1h"),
    ("TIDEMILL_LOG__JOURNAL_FILE_BYTES", "1MiB"),
];

fn log(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(program());
    command.arg("log").args(args).arg(dir);
    command.output().unwrap()
}

fn answer(output: &Output) -> Value {
    let failed = || String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", failed()))
}

fn filled(dir: &Path) {
    let host = Host::start(dir, &SETTINGS);
    host.topic("t", &json!({}));
    for n in 0..50 {
        host.append("t", &[json!({"n": n})]);
    }
    let output = log(dir, &["verify", "-o", "json"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(answer(&output)["running"], true);
    let warned = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(warned.contains("a host is running on"), "{warned}");
    let refused = log(dir, &["repair", "--accept-loss"]);
    assert_eq!(refused.status.code(), Some(5), "{refused:?}");
    host.kill();
}

/// The journal file with the last frames.
fn newest(dir: &Path) -> PathBuf {
    let files = std::fs::read_dir(dir.join("journal")).unwrap();
    let files = files.map(|entry| entry.unwrap().path());
    let journal = files.filter(|path| path.extension().is_some_and(|e| e == "journal"));
    let inspected = answer(&log(dir, &["inspect", "-o", "json"]));
    let used = |path: &PathBuf| {
        let files = inspected["files"].as_array().unwrap();
        let shown = path.to_str().unwrap();
        files
            .iter()
            .any(|it| it["file"] == shown && it["frames"] != 0)
    };
    journal.filter(used).max().expect("a file with frames")
}

#[test]
fn what_was_killed_is_whole_and_what_is_damaged_is_found_and_cut() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let output = log(dir.path(), &["inspect", "--frames", "-o", "ndjson"]);
    let lines = String::from_utf8(output.stdout).unwrap();
    let frames: Vec<Value> = lines
        .lines()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    let numbers: Vec<u64> = frames
        .iter()
        .map(|it| it["sequence"].as_u64().unwrap())
        .collect();
    assert!(
        numbers
            .iter()
            .zip(&numbers[1..])
            .all(|(one, next)| one + 1 == *next)
    );
    let events = frames
        .iter()
        .filter(|it| it["sections"][0]["kind"] == "append");
    assert_eq!(events.count(), 50);
    let few = log(
        dir.path(),
        &["inspect", "--frames", "--from", "10", "--limit", "3"],
    );
    let few = String::from_utf8(few.stdout).unwrap();
    assert_eq!(few.lines().count(), 4, "a head and three frames: {few}");
    assert!(log(dir.path(), &["verify", "--deep"]).status.success());
    let plan = answer(&log(dir.path(), &["repair", "-o", "json"]));
    assert_eq!(
        (&plan["plan"], &plan["done"]),
        (&json!("nothing"), &json!(false))
    );

    // A bit in the middle of the 20th event's frame flips.
    let damaged = &frames[frames.len() - 31];
    let path = newest(dir.path());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[usize::try_from(damaged["byte"].as_u64().unwrap()).unwrap() + 70] ^= 0x10;
    std::fs::write(&path, &bytes).unwrap();
    let refusal = Host::try_start(dir.path(), &SETTINGS)
        .err()
        .expect("refused");
    assert!(refusal.contains("log repair --dry-run"), "{refusal}");

    let output = log(dir.path(), &["verify", "-o", "json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let finding = &answer(&output)["findings"][0];
    assert_eq!(finding["weight"], "wrong");
    assert_eq!(finding["place"], path.to_str().unwrap());
    let missing = damaged["sequence"].as_u64().unwrap();
    let what = finding["what"].as_str().unwrap();
    assert!(
        what.contains(&format!("frame {missing} is damaged")),
        "{what}"
    );
    let table = String::from_utf8(log(dir.path(), &["verify"]).stdout).unwrap();
    assert!(table.contains("to do: "), "{table}");

    let plan = answer(&log(dir.path(), &["repair", "--dry-run", "-o", "json"]));
    assert_eq!(
        (&plan["plan"], plan["keeps"].as_u64()),
        (&json!("cut"), Some(missing - 1))
    );
    assert_eq!(
        std::fs::read(&path).unwrap(),
        bytes,
        "a dry run changes nothing"
    );
    assert_eq!(log(dir.path(), &["repair"]).status.code(), Some(5));
    let done = answer(&log(dir.path(), &["repair", "--accept-loss", "-o", "json"]));
    let kept = Path::new(done["kept"].as_str().unwrap()).join(path.file_name().unwrap());
    assert_eq!(std::fs::read(kept).unwrap(), bytes);

    let host = Host::start(dir.path(), &SETTINGS);
    let numbers = host
        .events("t")
        .into_iter()
        .map(|it| it["value"]["n"].as_u64().unwrap());
    assert_eq!(numbers.collect::<Vec<_>>(), (0..19).collect::<Vec<_>>());
    host.append("t", &[json!({"n": 100})]);
    assert!(host.terminate().success());
    assert!(log(dir.path(), &["verify", "--deep"]).status.success());
}

#[test]
fn a_folder_that_is_no_data_directory_is_told() {
    let dir = tempfile::tempdir().unwrap();
    for command in ["inspect", "verify", "repair"] {
        let output = log(dir.path(), &[command]);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("[no-journal]"), "{said}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
