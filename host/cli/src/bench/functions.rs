//! Functions over events that lie ready: how fast a filter and counts over the events of the ingest
//! bench, and each of the demo's four, get through them, with transactions and syncs on.

use super::host::Host;
use super::ingest;
use crate::build::{self, Built};
use crate::client::Client;
use crate::demo::{self, FUNCTIONS, RAW};
use crate::failure::{Failure, Result};
use crate::functions::lag;
use crate::produce::{self, Order};
use crate::progress::{Stopwatch, pause};
use reqwest::Method;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const PARTITIONS: u32 = 4;
/// The functions of the bench itself, which read the topic that `ingest` fills: a filter, and a count per
/// key that only keeps it, that says each count, and that says it without parsing values.
const PLAIN: [&str; 4] = ["bench-filter", "bench-tally", "bench-count", "bench-keys"];
/// Each look is work of the host.
const POLL: Duration = Duration::from_millis(20);
/// How often January is written at most: as long as writing may take.
const ROUNDS: u32 = 100;
/// A function that takes this much longer than it was given is stuck.
const PATIENCE: u32 = 20;

/// Builds the functions of the bench itself, and what stands beside them.
pub(super) fn guests() -> Result<Vec<Built>> {
    build::build(&demo::functions_dir()?.join("../tests/guests"))
}

/// A host with the four functions, each paused.
pub(super) async fn deployed(dir: &Path, names: &[&str]) -> Result<Host> {
    let built = build::build(&demo::functions_dir()?)?;
    let host = Host::start(dir)?;
    demo::deploy(&host.client, &built, names, PARTITIONS).await?;
    Ok(host)
}

/// The bench's own functions and then the demo's, each alone.
pub(super) async fn measure(dir: &Path, time: Duration, size: u32) -> Result<Value> {
    let mut rows = plain(&dir.join("plain"), time, size).await?;
    rows.extend(flights(&dir.join("flights"), time).await?);
    Ok(rows.into())
}

/// A filter and counts over small events.
async fn plain(dir: &Path, time: Duration, size: u32) -> Result<Vec<Value>> {
    std::fs::create_dir(dir)?;
    let built = guests()?;
    let host = Host::start(dir)?;
    ingest::create_topic(&host.client).await?;
    demo::deploy_built(&host.client, &built, &PLAIN).await?;
    for name in PLAIN {
        act(&host.client, name, "pause").await?;
    }
    ingest::fill(&host, time, size).await?;
    let mut rows = Vec::new();
    for name in PLAIN {
        rows.push(one(&host, name, time * PATIENCE).await?);
    }
    Ok(rows)
}

/// The demo's functions, in the order of the stream.
async fn flights(dir: &Path, time: Duration) -> Result<Vec<Value>> {
    std::fs::create_dir(dir)?;
    let host = with_flights(dir, time, &FUNCTIONS).await?;
    let mut rows = Vec::new();
    for name in FUNCTIONS {
        rows.push(one(&host, name, time * PATIENCE).await?);
    }
    Ok(rows)
}

/// A host with some of the demo's functions, each paused, and raw flights that lie ready.
pub(super) async fn with_flights(dir: &Path, time: Duration, names: &[&str]) -> Result<Host> {
    let host = deployed(dir, names).await?;
    for name in names {
        act(&host.client, name, "pause").await?;
    }
    let january = demo::functions_dir()?.join("data/flights-2013-01.csv.gz");
    let order = Order {
        topic: RAW.into(),
        in_flight: 4,
        ..Order::default()
    };
    let watch = Stopwatch::start();
    let mut rounds = 0;
    while rounds == 0 || (watch.elapsed() < time && rounds < ROUNDS) {
        produce::file(&host.client, &january, &order).await?;
        rounds += 1;
    }
    Ok(host)
}

/// Resumes a function and waits until it is through with what lies ready.
#[expect(clippy::cast_precision_loss, reason = "measured rates")]
pub(super) async fn one(host: &Host, name: &str, patience: Duration) -> Result<Value> {
    let ready = lag(&host.client.get(&["v1", "functions", name], &[]).await?);
    let before = host.usage();
    let watch = Stopwatch::start();
    act(&host.client, name, "resume").await?;
    let report = loop {
        let report = host.client.get(&["v1", "functions", name], &[]).await?;
        if lag(&report) == 0 {
            break report;
        }
        if watch.elapsed() > patience {
            return Err(Failure::failed(
                "stalled",
                format!("{name} has {} events left after {patience:?}", lag(&report)),
            ));
        }
        pause(POLL).await;
    };
    let seconds = watch.elapsed().as_secs_f64();
    let used = host.used_since(before);
    Ok(json!({
        "function": name, "events": ready, "emitted": report["counts"]["emitted"], "seconds": seconds,
        "events_per_second": ready as f64 / seconds,
        "events_per_cpu_second": ready as f64 / used.cpu_seconds.max(0.01),
        "events_per_engine_second": ready as f64 / used.engine_seconds.max(0.01),
        "memory": host.memory(),
    }))
}

/// Pauses or resumes a function.
pub(super) async fn act(client: &Client, name: &str, verb: &str) -> Result<()> {
    client
        .send(client.request(Method::POST, &["v1", "functions", name, verb], &[]))
        .await
        .map(drop)
}
