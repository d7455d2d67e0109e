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
