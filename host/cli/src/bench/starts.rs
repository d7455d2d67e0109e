//! A host that is killed and started again: with many partitions, and with a long journal.

use super::archive::NEVER;
use super::connection::Connection;
use super::events::{Form, requests};
use super::host::Host;
use super::ingest::{self, Load};
use super::reader::figure;
use super::{load, restarts};
use crate::failure::{Failure, Result};
use crate::progress::Stopwatch;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Partitions of the large topic.
const MANY: u32 = 10_000;
/// Journal after which the host is killed, in bytes.
const JOURNAL: u64 = 1 << 30;
const SIZE: u32 = 200;

/// Ingest into one partition and spread over very many; then the start with them.
pub(super) async fn partitions(dir: &Path, time: Duration) -> Result<Value> {
    let mut rows = Vec::new();
    let mut rates = Vec::new();
    for partitions in [1, MANY] {
        let dir = dir.join(partitions.to_string());
        std::fs::create_dir(&dir)?;
        let host = Host::start(&dir)?;
        ingest::create(&host.client, ingest::TOPIC, partitions).await?;
        let load = Load {
            form: Form::Packed,
            batch: 500,
            size: SIZE,
            connections: 8,
        };
        let mut row = ingest::once(&host, ingest::TOPIC, time, load).await?;
        host.kill();
        let (host, started) = start(&dir, &[]).await?;
        rates.push(figure(&row, "events_per_second"));
        row["partitions"] = partitions.into();
        row["rate_percent"] = json!(rates.last().map(|rate| rate / rates[0].max(1.0) * 100.0));
        row["start_ms"] = started["answer_ms"].clone();
        row["first_ack_ms"] = started["first_ack_ms"].clone();
        row["idle_memory"] = host.memory()["now"].clone();
        rows.push(row);
    }
    Ok(rows.into())
}

/// With a long journal, and with much state.
pub(super) async fn restart(dir: &Path, keys: u64) -> Result<Value> {
    let long = dir.join("journal");
    std::fs::create_dir(&long)?;
    let mut rows = vec![long_journal(&long).await?];
    std::fs::remove_dir_all(long)?;
    rows.extend(restarts::measure(&dir.join("keys"), keys).await?);
    Ok(rows.into())
}

/// A journal of 1 GiB of which nothing is sealed, SIGKILL, and the time to the first new acknowledgement.
async fn long_journal(dir: &Path) -> Result<Value> {
    let host = Host::start_with(dir, &NEVER)?;
    ingest::create_topic(&host.client).await?;
    let requests = requests(ingest::TOPIC, Form::Packed, 500, SIZE);
    while journal_bytes(dir)? < JOURNAL {
        let time = Duration::from_millis(200);
        load::run(&host.address, requests.clone(), 8, time).await?;
    }
    host.kill();
    let journal = journal_bytes(dir)?;
    let (host, mut row) = start(dir, &NEVER).await?;
    row["what"] = "journal that isn't sealed".into();
    row["journal_bytes"] = journal.into();
    row["memory"] = host.memory();
    Ok(row)
}

/// Starts a host; how long until it answers, until a new event is acknowledged, and what it took.
async fn start(dir: &Path, settings: &[&str]) -> Result<(Host, Value)> {
    let event = requests(ingest::TOPIC, Form::Ndjson, 1, SIZE).swap_remove(0);
    let watch = Stopwatch::start();
    let host = Host::start_with(dir, settings)?;
    let answer = watch.elapsed();
    let status = Connection::open(&host.address).await?.call(&event).await?;
    let acknowledged = watch.elapsed();
    if status != 200 {
        let detail = format!("the host that was started again answers {status} to an event");
        return Err(Failure::failed("refused", detail));
    }
    let row = json!({
        "answer_ms": answer.as_secs_f64() * 1e3, "first_ack_ms": acknowledged.as_secs_f64() * 1e3,
        "cpu_seconds": host.usage().cpu_seconds,
    });
    Ok((host, row))
}

/// Bytes of journal files, without those that wait to be used.
fn journal_bytes(dir: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(dir.join("host/journal"))? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|it| it == "journal") {
            sum += entry.metadata()?.len();
        }
    }
    Ok(sum)
}
