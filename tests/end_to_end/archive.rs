//! Segments and tail are one log, and DuckDB sees the same history by a plain glob.

use serde_json::{Value, json};
use tidemill_tests::{Host, duckdb};

/// Small segments, sealed quickly.
const QUICK: [(&str, &str); 3] = [
    ("TIDEMILL_LOG__SEGMENT_AGE", "200ms"),
    ("TIDEMILL_LOG__SEGMENT_BYTES", "64KiB"),
    ("TIDEMILL_LOG__TAIL_BYTES", "256KiB"),
];

fn value(n: u64) -> Value {
    json!({"n": n, "user": format!("u{}", n % 17), "text": "x".repeat(usize::try_from(n % 90).unwrap())})
}

fn archived(host: &Host, topic: &str) -> (u64, u64) {
    let (_, topic) = host.get(&format!("/v1/topics/{topic}"));
    let sum = |field: &str| {
        topic["ranges"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r[field].as_u64().unwrap())
            .sum()
    };
    (sum("archived_end"), sum("end"))
}

#[test]
fn every_offset_is_read_once_over_segments_and_tail() {
    let dir = tempfile::tempdir().unwrap();
    let mut host = Host::start(dir.path(), &QUICK);
    host.topic("orders", &json!({"partitions": 3, "key": "/user"}));
    let mut sent = 0;
    for round in 0..6 {
        let lines: Vec<_> = (sent..sent + 500).map(value).collect();
        host.append("orders", &lines);
        sent += 500;
        if round % 2 == 0 {
            host.until("some of it is archived", || {
                archived(&host, "orders").0 >= sent - 500
            });
        }
        if round == 3 {
            host.kill();
            host = Host::start(dir.path(), &QUICK);
        }
        check_whole(&host.events("orders"), sent);
    }

    host.until("all of it is archived", || {
        archived(&host, "orders") == (sent, sent)
    });
    check_whole(&host.events("orders"), sent);
    let files = format!(
        "{}/objects/topics/orders/**/*.parquet",
        dir.path().display()
    );
    let rows = duckdb(&format!(
        "select count(*), sum(cast(value->>'n' as bigint)), count(distinct (partition, \"offset\")), count(distinct key)
         from read_parquet('{files}', hive_partitioning = false)"
    ));
    assert_eq!(
        rows,
        [[
            json!(sent),
            json!(sent * (sent - 1) / 2).to_string().into(),
            json!(sent),
            json!(17)
        ]]
        .map(loosely)
    );
    let gaps = duckdb(&format!(
        "select count(*) from (select \"offset\" - lag(\"offset\") over (partition by partition order by \"offset\") as step
         from read_parquet('{files}', hive_partitioning = false)) where step <> 1"
    ));
    assert_eq!(gaps, [[json!(0)]]);
}

#[test]
fn a_packed_page_says_what_lines_say_and_is_appended_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::start(dir.path(), &QUICK);
    let settings = json!({"partitions": 3, "key": "/user", "time": {"from": "value", "pointer": "/at", "unit": "us"}});
    host.topic("t", &settings);
    host.topic("copy", &json!({"partitions": 3}));
    for round in 0..20 {
        let lines: Vec<Value> = (round * 100..(round + 1) * 100)
            .map(|n| json!({"n": n, "user": format!("user-{}", n % 17), "at": n * 7, "text": "x".repeat(60)}))
            .collect();
        host.append("t", &lines);
    }
    host.until("everything is in segments", || {
        let (archived, end) = archived(&host, "t");
        archived == end
    });
    // One more is still in memory.
    host.append("t", &[json!({"n": 2000, "user": "user-0", "at": 1})]);
    let lines = host.events("t");
    assert_eq!(lines.len(), 2001);

    let (mut next, mut seen) = ("0:0,1:0,2:0".to_owned(), Vec::new());
    while seen.len() < lines.len() {
        let path = format!("/v1/topics/t/events?cursor={next}&limit=700");
        let answer = host.client().get(host.url(&path));
        let answer = answer.header("accept", "application/vnd.tidemill.batch");
        let answer = answer.send().unwrap();
        assert_eq!(
            answer.headers()["content-type"],
            "application/vnd.tidemill.batch"
        );
        next = answer.headers()["tidemill-next"]
            .to_str()
            .unwrap()
            .to_owned();
        let page = answer.bytes().unwrap();
        let (events, batch) = unpack(&page);
        assert!(!events.is_empty(), "a page of nothing before the end");
        seen.extend(events);
        let kind = "application/vnd.tidemill.batch";
        let (status, answer) = host.send("POST", "/v1/topics/copy/events", kind, batch);
        assert_eq!(status, 200, "{answer}");
    }
    let place = |event: &Value| (event["partition"].as_u64(), event["offset"].as_u64());
    seen.sort_by_key(place);
    let mut lines = lines;
    lines.sort_by_key(place);
    for line in &mut lines {
        for name in ["headers", "time", "ingest_time"] {
            line.as_object_mut().unwrap().remove(name);
        }
    }
    assert_eq!(seen, lines);
    let mut copied: Vec<Value> = host
        .events("copy")
        .iter()
        .map(|e| e["value"].clone())
        .collect();
    copied.sort_by_key(|value| value["n"].as_u64());
    assert!(
        copied
            .iter()
            .map(|value| value["n"].as_u64().unwrap())
            .eq(0..2001)
    );
}

/// Reads a packed page as `host/server/src/read/packed.rs` describes it; its events as lines show them, and
/// the batch that it is without its runs.
fn unpack(page: &[u8]) -> (Vec<Value>, Vec<u8>) {
    let field = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
    let wide = |at: usize| i64::from_le_bytes(page[at..at + 8].try_into().unwrap());
    let (count, length, runs) = (field(4) as usize, field(8) as usize, field(12) as usize);
    let payload = &page[16 + count * 32..][..length];
    let part = |at: u32, length: u32| &payload[at as usize..][..length as usize];
    let runs_at = 16 + count * 32 + length;
    assert_eq!((field(0), page.len()), (1, runs_at + runs * 24));
    let (mut events, mut row) = (Vec::new(), 0);
    for run in (runs_at..page.len()).step_by(24) {
        for nth in 0..u64::from(field(run + 4)) {
            let head = 16 + row * 32;
            let key = part(field(head + 8), field(head + 12));
            let value = part(field(head + 16), field(head + 20));
            assert_eq!(
                (field(head + 24), field(head + 28)),
                (0, 1),
                "a key, no headers"
            );
            let value: Value = serde_json::from_slice(value).unwrap();
            assert_eq!(value["at"], wide(head), "event time");
            assert!(wide(run + 16) > 1_700_000_000_000_000, "ingest time");
            events.push(json!({
                "partition": field(run),
                "offset": wide(run + 8).unsigned_abs() + nth,
                "key": std::str::from_utf8(key).unwrap(),
                "value": value,
            }));
            row += 1;
        }
    }
    assert_eq!(row, count);
    let mut batch = page[..runs_at].to_vec();
    batch[12..16].fill(0);
    (events, batch)
}

/// DuckDB gives large sums as text or number; compare as text where it is text.
fn loosely(row: [Value; 4]) -> Vec<Value> {
    row.into_iter()
        .map(|v| {
            v.as_str()
                .and_then(|s| s.parse::<u64>().ok())
                .map_or(v, Value::from)
        })
        .collect()
}

fn check_whole(events: &[Value], sent: u64) {
    let mut seen: Vec<u64> = events
        .iter()
        .map(|e| e["value"]["n"].as_u64().unwrap())
        .collect();
    seen.sort_unstable();
    assert!(
        seen.iter().copied().eq(0..sent),
        "{} events instead of {sent}, or some twice",
        seen.len()
    );
    let mut next = [0; 3];
    let mut last_of_user = std::collections::HashMap::new();
    for event in events {
        let partition = usize::try_from(event["partition"].as_u64().unwrap()).unwrap();
        assert_eq!(
            event["offset"], next[partition],
            "dense offsets in partition {partition}"
        );
        next[partition] += 1;
        let n = event["value"]["n"].as_u64().unwrap();
        let before = last_of_user.insert(event["key"].as_str().unwrap().to_owned(), (partition, n));
        assert!(
            before.is_none_or(|(p, b)| p == partition && b < n),
            "a key stays in its partition, in order"
        );
    }
}
