//! A real S3 server under a real host: the whole life of a topic, a storage that goes away in the middle
//! and comes back, a host that has lost its disk.

use serde_json::{Value, json};
use std::collections::HashMap;
use std::process::Command;
use tidemill_tests::{Host, S3, component, duckdb, program};

const QUICK: [(&str, &str); 7] = [
    ("TIDEMILL_LOG__SEGMENT_AGE", "200ms"),
    ("TIDEMILL_LOG__SEGMENT_BYTES", "64KiB"),
    ("TIDEMILL_LOG__TAIL_BYTES", "32KiB"),
    ("TIDEMILL_LOG__COMPACTION_INTERVAL", "100ms"),
    ("TIDEMILL_LOG__COMPACTION_PERCENT", "10"),
    ("TIDEMILL_LOG__JOURNAL_FILE_BYTES", "1MiB"),
    ("TIDEMILL_STORAGE__ATTEMPTS", "2"),
];

fn value(n: u64) -> Value {
    let key = format!("k{}", n % 11);
    json!({"n": n, "key": key, "text": "x".repeat(usize::try_from(n % 90).unwrap())})
}

fn append(host: &Host, topic: &str, from: u64, to: u64) {
    let lines: Vec<_> = (from..to).map(value).collect();
    host.append(topic, &lines);
}

fn numbers(host: &Host, topic: &str) -> Vec<u64> {
    let events = host.events(topic);
    let numbers = events.iter().map(|event| event["value"]["n"].as_u64());
    let mut numbers: Vec<u64> = numbers.map(|n| n.expect("a number")).collect();
    numbers.sort_unstable();
    numbers
}

fn sum(host: &Host, topic: &str, field: &str) -> u64 {
    let (status, shown) = host.get(&format!("/v1/topics/{topic}"));
    assert_eq!(status, 200, "{shown}");
    let ranges = shown["ranges"].as_array().unwrap();
    ranges.iter().map(|it| it[field].as_u64().unwrap()).sum()
}

fn until_archived(host: &Host, topic: &str) {
    host.until(&format!("{topic} is archived"), || {
        sum(host, topic, "archived_end") == sum(host, topic, "end")
    });
}

#[test]
fn a_topic_lives_on_s3_through_an_outage_and_the_loss_of_the_disk() {
    let mut s3 = S3::start();
    let mut settings = s3.settings("some/prefix");
    settings.extend(QUICK.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let borrowed: Vec<(&str, &str)> = settings
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let host = Host::start(dir.path(), &borrowed);
    host.topic("unread", &json!({}));
    append(&host, "unread", 0, 500);
    until_archived(&host, "unread");
    host.topic("orders", &json!({"partitions": 2, "key": "/key"}));
    append(&host, "orders", 0, 500);
    until_archived(&host, "orders");
    append(&host, "orders", 500, 700);
    assert_eq!(numbers(&host, "orders"), (0..700).collect::<Vec<_>>());

    a_function_runs(&host);
    what_goes_goes(&host);
    sealing_catches_up_after_an_outage(&host, &mut s3);
    another_reader_sees_the_same(&s3);

    until_archived(&host, "orders");
    let counted = host.events("carrier-delays").len();
    host.kill();
    verified(dir.path(), &settings);
    std::fs::remove_dir_all(dir.path().join("journal")).unwrap();
    let host = Host::start(dir.path(), &borrowed);
    assert_eq!(numbers(&host, "orders"), (0..1500).collect::<Vec<_>>());
    assert_eq!(host.events("carrier-delays").len(), counted);
    append(&host, "orders", 1500, 1600);
    until_archived(&host, "orders");
    assert_eq!(numbers(&host, "orders"), (0..1600).collect::<Vec<_>>());
    assert!(host.terminate().success(), "a graceful stop");
}

fn a_function_runs(host: &Host) {
    host.topic("flights", &json!({"partitions": 2, "key": "/carrier"}));
    let carrier_delays = component("functions/carrier-delays");
    let (status, answer) = host.deploy("carrier-delays", &carrier_delays, "?start=earliest");
    assert_eq!(status, 201, "{answer}");
    let carriers = ["UA", "B6"];
    let carrier = |n: u64| carriers[usize::try_from(n % 2).unwrap()];
    let flight = |n: u64| json!({"carrier": carrier(n), "dep_delay": n});
    let flights: Vec<_> = (0..100).map(flight).collect();
    host.append("flights", &flights);
    host.caught_up("carrier-delays");
    until_archived(host, "carrier-delays");
    let path = "/v1/functions/carrier-delays/state?slot=total&key=UA";
    assert_eq!(host.get(path).1["value"]["flights"], 50);
}

fn what_goes_goes(host: &Host) {
    host.topic("latest", &json!({"key": "/key", "cleanup": "compact"}));
    host.topic(
        "recent",
        &json!({"key": "/key", "retention": {"bytes": "1KiB"}}),
    );
    for round in 0..4 {
        append(host, "latest", round * 200, (round + 1) * 200);
        append(host, "recent", round * 200, (round + 1) * 200);
        until_archived(host, "latest");
        until_archived(host, "recent");
    }
    host.until("keys are compacted", || numbers(host, "latest").len() < 100);
    let mut last = HashMap::new();
    for event in host.events("latest") {
        last.insert(
            event["key"].to_string(),
            event["value"]["n"].as_u64().unwrap(),
        );
    }
    let mut last: Vec<u64> = last.into_values().collect();
    last.sort_unstable();
    assert_eq!(last, (789..800).collect::<Vec<_>>());
    host.until("old events are gone", || sum(host, "recent", "start") > 0);
}

fn sealing_catches_up_after_an_outage(host: &Host, s3: &mut S3) {
    s3.stop();
    append(host, "orders", 700, 1500);
    host.until("the host says so", || {
        let (status, answer) = host.get("/readyz");
        assert_eq!(status, 200, "it is ready all the same: {answer}");
        answer["degraded"]
            .as_array()
            .is_some_and(|it| !it.is_empty())
    });
    let (_, metrics) = host.get("/metrics");
    let metrics = metrics.as_str().unwrap();
    assert!(metrics.contains("tidemill_object_storage_reachable 0"));
    // What was read lately is on the local disk; what wasn't can't be had.
    let (status, known) = host.get("/v1/topics/orders/events?partition=0&offset=0&limit=1");
    assert_eq!(
        (status, &known["events"][0]["offset"]),
        (200, &json!(0)),
        "{known}"
    );
    let (status, problem) = host.get("/v1/topics/unread/events?partition=0&offset=0");
    assert_eq!(
        (
            status,
            problem["code"].as_str(),
            problem["retryable"].as_bool()
        ),
        (503, Some("storage-failed"), Some(true)),
        "{problem}"
    );
    let (status, stats) = host.get("/v1/topics/unread/stats");
    assert_eq!(
        (status, &stats["compression"]),
        (200, &Value::Null),
        "{stats}"
    );
    s3.go();
    until_archived(host, "orders");
    assert_eq!(numbers(host, "orders"), (0..1500).collect::<Vec<_>>());
    assert_eq!(host.get("/readyz").1["degraded"], json!([]));
    let (_, stats) = host.get("/v1/topics/orders/stats");
    assert!(
        stats["compression"]["ratio"]
            .as_f64()
            .is_some_and(|it| it > 1.0),
        "{stats}"
    );
}

fn another_reader_sees_the_same(s3: &S3) {
    let files = tempfile::tempdir().unwrap();
    s3.copy("some/prefix/topics/orders", files.path());
    let rows = duckdb(&format!(
        "select count(*), count(distinct cast(value->>'n' as bigint)), max(cast(value->>'n' as bigint))
         from read_parquet('{}/**/*.parquet', hive_partitioning = false)",
        files.path().display()
    ));
    assert_eq!(rows, [[json!(1500), json!(1500), json!(1499)]]);
}

fn verified(dir: &std::path::Path, settings: &[(String, String)]) {
    let output = Command::new(program())
        .args(["log", "verify", "--deep", "-o", "json"])
        .arg(dir)
        .envs(settings.iter().cloned())
        .output()
        .unwrap();
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    assert!(
        output.status.success(),
        "{shown} {}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        shown["events"].as_u64().is_some_and(|events| events > 1600),
        "{shown}"
    );
}
