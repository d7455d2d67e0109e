//! Very many functions, each with a topic of its own and little to do: what they cost a host, and how soon
//! they answer, alone and beside one that has all it can take.

use super::functions::{act, guests};
use super::host::Host;
use super::ingest;
use super::reader::per_second;
use super::sparse::{self, COMPONENTS, INSTANCES, Sparse};
use crate::build::Built;
use crate::failure::Result;
use crate::functions::lag;
use crate::print;
use crate::progress::{Stopwatch, pause};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// The busy one.
const HOT: &str = "hot";
/// How long an instance is kept that isn't used: short, so that what is idle is seen soon.
const SETTINGS: [&str; 1] = ["functions.idle=1s"];
const SIZE: u32 = 200;
/// How long instances may take to go.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// Deploys, starts again, looks at the host while nothing happens, and at the functions' answers.
pub(super) async fn measure(dir: &Path, time: Duration, functions: u32) -> Result<Value> {
    let built = guests()?;
    let host = Host::start_with(dir, &SETTINGS)?;
    print::note(&format!("  deploying {functions} functions"));
    let watch = Stopwatch::start();
    sparse::deploy(&host.client, &built, functions).await?;
    let deploy_ms = watch.elapsed().as_secs_f64() * 1e3 / f64::from(functions);
    let sparse = Sparse::new(functions);
    let (sparse, _) = sparse.round(&host).await?;
    host.kill();

    let (host, sparse, mut row) = start(dir, sparse).await?;
    row["functions"] = functions.into();
    row["deploy_ms"] = deploy_ms.into();
    print::note("  the host by itself");
    idle(&host, time, &mut row).await?;

    print::note("  one event at a time");
    let (sparse, mut alone) = sparse.measure(&host, time).await?;
    alone["beside"] = "alone".into();
    let beside = beside_hot(&host, &built, sparse, time).await?;
    Ok(json!({"host": [row], "latency": [alone, beside]}))
}

/// Starts the host again, and asks every function for an answer.
async fn start(dir: &Path, sparse: Sparse) -> Result<(Host, Sparse, Value)> {
    let watch = Stopwatch::start();
    let host = Host::start_with(dir, &SETTINGS)?;
    let start_ms = watch.elapsed().as_secs_f64() * 1e3;
    let (sparse, first) = sparse.round(&host).await?;
    let all = watch.elapsed();
    let row = json!({
        "start_ms": start_ms, "first_output_ms": start_ms + f64::from(first) / 1e3,
        "all_outputs_ms": all.as_secs_f64() * 1e3,
    });
    Ok((host, sparse, row))
}

/// What a host takes in which nothing happens any more.
async fn idle(host: &Host, time: Duration, row: &mut Value) -> Result<()> {
    let watch = Stopwatch::start();
    while host.gauge(INSTANCES).await? > 0 && watch.elapsed() < PATIENCE {
        pause(POLL).await;
    }
    let (before, watch) = (host.usage(), Stopwatch::start());
    pause(time).await;
    let used = host.used_since(before).cpu_seconds;
    row["idle_cpu_percent"] = json!(used / watch.elapsed().as_secs_f64() * 100.0);
    row["idle_memory"] = host.memory()["now"].clone();
    row["threads"] = host.threads().into();
    row["idle_instances"] = host.gauge(INSTANCES).await?.into();
    let watch = Stopwatch::start();
    row["metrics_bytes"] = host.metrics().await?.len().into();
    row["metrics_ms"] = json!(watch.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

/// The same one event at a time while another function goes through as much as it can.
async fn beside_hot(host: &Host, built: &[Built], sparse: Sparse, time: Duration) -> Result<Value> {
    ingest::create_topic(&host.client).await?;
    sparse::package(built, COMPONENTS[0], HOT, ingest::TOPIC)?
        .deploy(&host.client, &[])
        .await?;
    act(&host.client, HOT, "pause").await?;
    print::note("  events for a hot function");
    let ready = ingest::fill(host, time, SIZE).await?;
    act(&host.client, HOT, "resume").await?;
    print::note("  one event at a time beside it");
    let watch = Stopwatch::start();
    let (_, mut row) = sparse.measure(host, time).await?;
    let seconds = watch.elapsed().as_secs_f64();
    let left = lag(&host.client.get(&["v1", "functions", HOT], &[]).await?);
    if left == 0 {
        print::warning("the hot function was through with its events before the time was up");
    }
    row["beside"] = "beside a hot function".into();
    row["hot_events_per_second"] = json!(per_second(ready.saturating_sub(left), seconds));
    row["hot_left"] = left.into();
    Ok(row)
}
