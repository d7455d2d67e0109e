//! Durable ingest over HTTP: key and time are taken from each value.

use super::connection::post;
use super::host::Host;
use super::load;
use crate::client::Client;
use crate::failure::Result;
use reqwest::Method;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

const PARTITIONS: u32 = 8;
/// Different requests that are sent in turn.
const REQUESTS: u32 = 16;
const PATH: &str = "/v1/topics/bench/events";

/// Batches over different numbers of connections.
pub(super) async fn batches(
    dir: &Path,
    time: Duration,
    batch: u32,
    size: u32,
    connections: &[u16],
) -> Result<Value> {
    let mut rows = Vec::new();
    for &connections in connections {
        rows.push(
            once(
                &dir.join(connections.to_string()),
                time,
                batch,
                size,
                connections,
            )
            .await?,
        );
    }
    Ok(rows.into())
}

/// One event a request.
pub(super) async fn single(dir: &Path, time: Duration, size: u32) -> Result<Value> {
    Ok(json!([
        once(&dir.join("1"), time, 1, size, 1).await?,
        once(&dir.join("64"), time, 1, size, 64).await?
    ]))
}

#[expect(clippy::cast_precision_loss, reason = "measured rates")]
async fn once(
    dir: &Path,
    time: Duration,
    batch: u32,
    size: u32,
    connections: u16,
) -> Result<Value> {
    std::fs::create_dir(dir)?;
    let host = Host::start(dir)?;
    create_topic(&host.client).await?;
    let kind = if batch == 1 {
        "application/json"
    } else {
        "application/x-ndjson"
    };
    let requests = requests(kind, batch, size);
    load::run(
        &host.address,
        requests.clone(),
        connections.into(),
        time / 5,
    )
    .await?;
    let before = host.usage();
    let outcome = load::run(&host.address, requests, connections.into(), time).await?;
    let cpu = host.used_since(before).cpu_seconds;
    let acknowledged = outcome.times.count();
    let events = (acknowledged * u64::from(batch)) as f64;
    Ok(json!({
        "connections": connections, "batch": batch, "size": size,
        "events_per_second": events / outcome.seconds,
        "mb_per_second": events * f64::from(size) / outcome.seconds / 1e6,
        "requests_per_second": acknowledged as f64 / outcome.seconds,
        "p50_us": outcome.times.percentile(50.0), "p99_us": outcome.times.percentile(99.0), "p999_us": outcome.times.percentile(99.9),
        "refused": outcome.refused,
        "cpu_seconds_per_million": cpu * 1e6 / events.max(1.0),
        "memory": host.memory(),
    }))
}

/// The topic the events go to.
pub(super) async fn create_topic(client: &Client) -> Result<()> {
    let settings = json!({"partitions": PARTITIONS, "key": "/user", "time": {"from": "value", "pointer": "/time", "unit": "rfc3339"}});
    client
        .json(
            client
                .request(Method::PUT, &["v1", "topics", "bench"], &[])
                .json(&settings),
        )
        .await
        .map(drop)
}

/// Fills the topic for a while.
pub(super) async fn fill(host: &Host, time: Duration, size: u32) -> Result<()> {
    let requests = requests("application/x-ndjson", 500, size);
    load::run(&host.address, requests, 8, time).await.map(drop)
}

fn requests(kind: &str, batch: u32, size: u32) -> Vec<Vec<u8>> {
    (0..REQUESTS)
        .map(|nth| post(PATH, kind, &body(nth * batch, batch, size)))
        .collect()
}

/// Lines of `size` bytes each, with a key out of 16,384 and a time that advances.
fn body(first: u32, batch: u32, size: u32) -> Vec<u8> {
    let mut body = String::new();
    for nth in first..first + batch {
        let mixed = nth.wrapping_mul(2_654_435_761);
        let start = body.len();
        let _ = write!(
            body,
            r#"{{"user":"user-{:05}","time":"2026-01-01T{:02}:{:02}:{:02}.{:03}Z","n":{nth},"text":""#,
            mixed % 16_384,
            nth / 3_600_000 % 24,
            nth / 60_000 % 60,
            nth / 1000 % 60,
            nth % 1000
        );
        // Not the same text everywhere: what comes later would compress it away.
        let end = start + usize::try_from(size).unwrap_or(200) - 2;
        let mut filler = mixed;
        while body.len() < end {
            filler = filler.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            let _ = write!(body, "{:04x}", filler >> 16);
        }
        body.truncate(end);
        body.push_str("\"}\n");
    }
    if batch == 1 {
        body.pop();
    }
    body.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_of_the_size_that_was_asked_for() {
        for size in [100, 200, 1024] {
            let body = body(7, 3, size);
            let lines: Vec<&[u8]> = body
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
                .collect();
            assert_eq!(lines.len(), 3);
            for line in lines {
                assert_eq!(line.len(), size as usize);
                let value: Value = serde_json::from_slice(line).expect("JSON");
                assert!(
                    value["user"].is_string()
                        && value["time"].as_str().expect("time").ends_with('Z')
                );
            }
        }
        assert!(!body(0, 1, 200).ends_with(b"\n"));
    }
}
