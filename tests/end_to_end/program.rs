//! The program people type.

use serde_json::json;
use std::process::{Command, Output};
use tidemill_tests::{Host, program};

fn tidemill(host: &Host, args: &[&str]) -> Output {
    Command::new(program())
        .args(args)
        .env("TIDEMILL_HOST", host.url(""))
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_second_host_on_the_same_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let first = Host::start(dir.path(), &[]);
    let refusal = Host::try_start(dir.path(), &[]).err().expect("refused");
    assert!(
        refusal.contains(&dir.path().display().to_string()),
        "names the directory: {refusal}"
    );
    assert_eq!(first.get("/livez").0, 200, "the first is undisturbed");
    first.kill();
    Host::start(dir.path(), &[]);
}

#[test]
fn events_go_in_and_come_out() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::start(dir.path(), &[]);
    assert!(
        tidemill(&host, &["topic", "create", "orders", "--partitions", "2"])
            .status
            .success()
    );
    let file = dir.path().join("orders.csv");
    std::fs::write(&file, "id,what\n1,\"a, b\"\n2,c\n").unwrap();
    let produced = tidemill(
        &host,
        &[
            "produce",
            "orders",
            file.to_str().unwrap(),
            "--key-pointer",
            "/id",
        ],
    );
    assert!(produced.status.success(), "{}", text(&produced.stderr));
    let consumed = tidemill(&host, &["consume", "orders", "-f", "%k %v\\n"]);
    let mut lines: Vec<_> = text(&consumed.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(
        lines,
        [
            r#"1 {"id":"1","what":"a, b"}"#,
            r#"2 {"id":"2","what":"c"}"#
        ]
    );
    let listed = tidemill(&host, &["topic", "list", "-o", "json"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed["topics"][0]["name"], json!("orders"));
}

#[test]
fn events_are_kept_as_long_as_the_topic_says_and_taken_away_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::start(dir.path(), &[]);
    let run = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let output = tidemill(&host, &words);
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        output
    };
    run("topic create t --retention-age 7d --hold-for 1h");
    run("topic alter t --retention-age none --retention-bytes 1GiB");
    let described = run("topic describe t");
    assert!(text(&described.stdout).contains("1GiB"), "{described:?}");
    let (_, topic) = host.get("/v1/topics/t");
    let kept = json!({"age": null, "bytes": "1GiB", "hold_for": "1h", "tombstone_age": "1d"});
    assert_eq!(topic["retention"], kept);
    host.append("t", &[json!(0), json!(1), json!(2)]);
    let done = run("topic truncate t --partition 0 --before 2 -o json");
    let said: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(said, json!({"partition": 0, "start": 2, "end": 3}));
    assert_eq!(text(&run("consume t -f %o").stdout), "2");
    let above = tidemill(
        &host,
        &[
            "topic",
            "truncate",
            "t",
            "--partition",
            "0",
            "--before",
            "9",
        ],
    );
    assert_eq!(above.status.code(), Some(1), "{above:?}");
    assert!(text(&above.stderr).contains("its end 3"), "{above:?}");
}

#[test]
fn exit_codes_tell_what_happened() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::start(dir.path(), &[]);
    host.topic("orders", &json!({}));
    let cases: [(&[&str], i32); 5] = [
        (&["topic", "describe", "orders"], 0),
        (&["topic", "describe"], 2),
        (&["topic", "describe", "order"], 3),
        (&["topic", "create", "orders", "--partitions", "7"], 5),
        (&["topic", "list", "--host", "http://127.0.0.1:1"], 6),
    ];
    for (args, code) in cases {
        let output = tidemill(&host, args);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{args:?}: {}",
            text(&output.stderr)
        );
    }
    let missing = tidemill(&host, &["topic", "describe", "order"]);
    assert!(
        text(&missing.stderr).contains("hint:"),
        "{}",
        text(&missing.stderr)
    );
    assert!(
        text(&missing.stderr).contains("orders"),
        "names the nearest topic: {}",
        text(&missing.stderr)
    );
}

#[test]
fn a_new_function_builds_and_tests_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let output = Command::new(program())
            .args(args)
            .current_dir(dir.path())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{args:?}: {}",
            text(&output.stderr)
        );
        output
    };
    run(&["new", "first-steps"]);
    run(&["test", "first-steps"]);
    let built = run(&["build", "first-steps", "-o", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&built.stdout).unwrap();
    let component = std::path::PathBuf::from(report["component"].as_str().unwrap());
    assert!(std::fs::read(&component).unwrap().starts_with(b"\0asm"));
}
