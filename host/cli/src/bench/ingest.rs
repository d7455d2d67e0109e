//! Durable ingest over HTTP.

use super::connection::get;
use super::disk::Disk;
use super::events::{Form, fitting, requests};
use super::host::Host;
use super::load::{self, Outcome};
use super::reader::per_second;
use crate::client::Client;
use crate::failure::Result;
use crate::print;
use reqwest::Method;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

const PARTITIONS: u32 = 8;
/// The topic of most measurements; the bench's own functions read it.
pub(super) const TOPIC: &str = "bench";

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) form: Form,
    /// Events of a request.
    pub(super) batch: u32,
    /// Bytes of a value.
    pub(super) size: u32,
    pub(super) connections: u16,
}

impl Load {
    /// As whoever waits for it is told.
    pub(super) fn describe(self) -> String {
        let batch = fitting(self.batch, self.size);
        let (form, connections) = (form(self), self.connections);
        format!(
            "{form}, {} B, {batch} per request, {connections} connections",
            self.size
        )
    }
}

/// Every load on a fresh host of its own.
pub(super) async fn measure(dir: &Path, time: Duration, loads: &[Load]) -> Result<Value> {
    let mut rows = Vec::new();
    for (nth, load) in loads.iter().enumerate() {
        let (host, dir) = fresh(dir, nth, loads).await?;
        rows.push(once(&host, TOPIC, time, *load).await?);
        host.kill();
        std::fs::remove_dir_all(dir)?;
    }
    Ok(rows.into())
}

/// The same, each beside requests that do nothing over as many connections, and between two looks at the disk by
/// itself, which is quicker in one minute than in another.
pub(super) async fn single(dir: &Path, time: Duration, loads: &[Load]) -> Result<Value> {
    let disk = Disk::new(dir)?;
    let mut rows = Vec::new();
    for (nth, load) in loads.iter().enumerate() {
        let (host, dir) = fresh(dir, nth, loads).await?;
        let nothing = vec![get("/livez")];
        let bare = load::run(&host.address, nothing, load.connections.into(), time / 5).await?;
        let before = disk.p99(time / 5)?;
        let mut row = once(&host, TOPIC, time, *load).await?;
        let after = disk.p99(time / 5)?;
        row["disk_p99_us"] = before.midpoint(after).into();
        row["bare_p50_us"] = bare.times.percentile(50.0).into();
        row["bare_p99_us"] = bare.times.percentile(99.0).into();
        row["bare_requests_per_second"] = json!(per_second(bare.times.count(), bare.seconds));
        rows.push(row);
        host.kill();
        std::fs::remove_dir_all(dir)?;
    }
    Ok(rows.into())
}

/// A host for one of the loads, after a word on which it is.
async fn fresh(dir: &Path, nth: usize, loads: &[Load]) -> Result<(Host, PathBuf)> {
    let (number, all, what) = (nth + 1, loads.len(), loads[nth].describe());
    print::note(&format!("  {number}/{all}: {what}"));
    let dir = dir.join(nth.to_string());
    std::fs::create_dir(&dir)?;
    let host = Host::start(&dir)?;
    create_topic(&host.client).await?;
    Ok((host, dir))
}

/// Sends for a while, after a fifth of it to warm up.
pub(super) async fn once(host: &Host, topic: &str, time: Duration, load: Load) -> Result<Value> {
    let batch = fitting(load.batch, load.size);
    let requests = requests(topic, load.form, batch, load.size);
    let connections = usize::from(load.connections);
    load::run(&host.address, requests.clone(), connections, time / 5).await?;
    let before = host.usage();
    let outcome = load::run(&host.address, requests, connections, time).await?;
    let cpu_seconds = host.used_since(before).cpu_seconds;
    Ok(row(host, Load { batch, ..load }, &outcome, cpu_seconds))
}

#[expect(clippy::cast_precision_loss, reason = "measured rates")]
fn row(host: &Host, load: Load, outcome: &Outcome, cpu_seconds: f64) -> Value {
    let (size, times) = (f64::from(load.size), &outcome.times);
    let events = (times.count() * u64::from(load.batch)) as f64;
    json!({
        "form": form(load), "connections": load.connections, "batch": load.batch, "size": load.size,
        "events_per_second": events / outcome.seconds,
        "mb_per_second": events * size / outcome.seconds / 1e6,
        "requests_per_second": times.count() as f64 / outcome.seconds,
        "p50_us": times.percentile(50.0), "p99_us": times.percentile(99.0), "p999_us": times.percentile(99.9),
        "refused": outcome.refused,
        "cpu_seconds_per_million": cpu_seconds * 1e6 / events.max(1.0),
        "events_per_cpu_second": events / cpu_seconds.max(0.01),
        "memory": host.memory(),
    })
}

/// A single event is JSON, whatever the form.
fn form(load: Load) -> &'static str {
    if load.batch == 1 {
        "json"
    } else {
        load.form.name()
    }
}

/// The topic most events go to.
pub(super) async fn create_topic(client: &Client) -> Result<()> {
    create(client, TOPIC, PARTITIONS).await
}

/// A topic of events of the bench.
pub(super) async fn create(client: &Client, name: &str, partitions: u32) -> Result<()> {
    let settings = json!({"partitions": partitions, "key": "/user", "time": {"from": "value", "pointer": "/time", "unit": "rfc3339"}});
    let request = client.request(Method::PUT, &["v1", "topics", name], &[]);
    client.json(request.json(&settings)).await.map(drop)
}

/// Fills the topic for a while; how many events it took.
pub(super) async fn fill(host: &Host, time: Duration, size: u32) -> Result<u64> {
    let batch = fitting(500, size);
    let requests = requests(TOPIC, Form::Ndjson, batch, size);
    let outcome = load::run(&host.address, requests, 8, time).await?;
    Ok(outcome.times.count() * u64::from(batch))
}
