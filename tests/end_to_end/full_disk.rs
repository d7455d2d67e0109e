//! A full disk: writes are refused with 507, reads go on, nothing acknowledged is lost, and it
//! recovers when there is space again. The disk is a small one of its own, mounted for the test.

use serde_json::json;
use std::path::PathBuf;
use tidemill_tests::Host;

const SETTINGS: [(&str, &str); 4] = [
    ("TIDEMILL_LOG__JOURNAL_FILE_BYTES", "4MiB"),
    ("TIDEMILL_LOG__RESERVE_BYTES", "8MiB"),
    ("TIDEMILL_LOG__SEGMENT_AGE", "1h"),
    ("TIDEMILL_LOG__SEGMENT_BYTES", "1GiB"),
];

#[test]
fn a_full_disk_refuses_writes_and_loses_nothing() {
    let mount_point = tempfile::tempdir().unwrap();
    let host = Host::start_on_small_disk(mount_point.path(), "96m", &SETTINGS);
    let inside = PathBuf::from(format!(
        "/proc/{}/root{}",
        host.pid(),
        mount_point.path().display()
    ));
    host.topic("t", &json!({"format": "json"}));
    host.append("t", &[json!({"n": 0})]);

    let filler = inside.join("filler");
    fill(&filler);
    let mut accepted = 1_u64;
    host.until("a write is refused", || {
        let (status, answer) = host.send(
            "POST",
            "/v1/topics/t/events",
            "application/json",
            json!({"n": accepted}).to_string(),
        );
        if status == 200 {
            accepted += 1;
            return false;
        }
        assert_eq!(
            (
                status,
                answer["code"].as_str(),
                answer["no_side_effects"].as_bool()
            ),
            (507, Some("storage-full"), Some(true)),
            "{answer}"
        );
        true
    });
    assert_eq!(
        numbers(&host),
        (0..accepted).collect::<Vec<_>>(),
        "reads go on"
    );

    std::fs::remove_file(&filler).unwrap();
    host.until("writes are accepted again", || {
        host.send(
            "POST",
            "/v1/topics/t/events",
            "application/json",
            json!({"n": accepted}).to_string(),
        )
        .0 == 200
    });
    assert_eq!(numbers(&host), (0..=accepted).collect::<Vec<_>>());
}

fn numbers(host: &Host) -> Vec<u64> {
    host.events("t")
        .iter()
        .map(|e| e["value"]["n"].as_u64().unwrap())
        .collect()
}

/// Writes until the disk is full.
fn fill(file: &std::path::Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(file).unwrap();
    let block = vec![1_u8; 64 << 10];
    while file.write_all(&block).is_ok() {}
}
