//! Memory stays below what is planned with, whatever comes: many large bodies at once, senders that
//! stop in the middle, readers of large pages. Who finds no room is told to come again.

use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tidemill_tests::Host;

const LIMIT: u64 = 256 << 20;
const SENDERS: usize = 24;
const ROUNDS: usize = 6;
/// Of a body: about 2 MB, appended as a whole.
const LINES: u64 = 10_000;

#[test]
fn memory_stays_below_its_limit_under_load() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [
        ("TIDEMILL_MEMORY__LIMIT", "256MiB"),
        ("TIDEMILL_HTTP__BUSY_WAIT", "50ms"),
        ("TIDEMILL_LOG__SEGMENT_BYTES", "8MiB"),
        // As in deploy/tidemill.service.
        ("MALLOC_ARENA_MAX", "2"),
    ];
    let host = Host::start(dir.path(), &settings);
    host.topic("t", &json!({"partitions": 4}));
    let line = format!("{}\n", json!({"n": 1, "text": "x".repeat(180)}));
    let body = line.repeat(usize::try_from(LINES).unwrap());

    // They announce a body, send half of it and keep silent.
    let address = host.url("").trim_start_matches("http://").to_owned();
    let silent: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut stream = TcpStream::connect(&address).unwrap();
            let head = format!(
                "POST /v1/topics/t/events HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-ndjson\r\ncontent-length: {}\r\n\r\n",
                1_000_000
            );
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&body.as_bytes()[..500_000]).unwrap();
            stream
        })
        .collect();

    let accepted = AtomicU64::new(0);
    let answers: Mutex<BTreeMap<u16, u64>> = Mutex::default();
    std::thread::scope(|scope| {
        for sender in 0..SENDERS {
            let (host, body, accepted, answers) = (&host, &body, &accepted, &answers);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let (status, answer) = if sender % 3 == 0 {
                        host.get("/v1/topics/t/events?from=earliest&limit=10000&max_bytes=16777216")
                    } else {
                        host.send(
                            "POST",
                            "/v1/topics/t/events",
                            "application/x-ndjson",
                            body.clone(),
                        )
                    };
                    *answers.lock().unwrap().entry(status).or_default() += 1;
                    match status {
                        200 => {
                            let count = answer["count"].as_u64().unwrap_or(0);
                            accepted.fetch_add(count, Ordering::Relaxed);
                        }
                        503 => assert_eq!(
                            (&answer["code"], &answer["no_side_effects"]),
                            (&json!("busy"), &json!(true)),
                            "{answer}"
                        ),
                        _ => panic!("{status} {answer}"),
                    }
                }
            });
        }
    });
    let answers = answers.into_inner().unwrap();
    assert!(
        answers.get(&200).is_some_and(|many| *many > 0),
        "{answers:?}"
    );
    drop(silent);

    let ends: u64 = host.get("/v1/topics/t").1["ranges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|range| range["end"].as_u64().unwrap())
        .sum();
    assert_eq!(
        ends,
        accepted.load(Ordering::Relaxed),
        "what was refused left nothing: {answers:?}"
    );
    let most = most_resident(host.pid());
    assert!(
        most <= LIMIT,
        "{} MiB resident at most, {answers:?}",
        most >> 20
    );
}

/// The largest resident memory a process has had, in bytes.
fn most_resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.split_whitespace()
        .next()
        .unwrap()
        .parse::<u64>()
        .unwrap()
        << 10
}
