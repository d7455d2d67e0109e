//! Segments: what sealing costs, and how fast history is read from them.

use super::events::Form;
use super::host::Host;
use super::ingest::{self, Load};
use super::reader::{Reader, apart, ends, figure, per_second, sealed};
use crate::failure::Result;
use crate::progress::Stopwatch;
use futures::future::try_join_all;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Nothing is sealed with these.
pub(super) const NEVER: [&str; 2] = ["log.segment_age=365d", "log.segment_bytes=1TiB"];
/// Everything is sealed soon with this.
const SOON: [&str; 1] = ["log.segment_age=1s"];
/// Ingest has so many times to lose to sealing; the better of each counts, for machines have moods.
const ROUNDS: usize = 2;

/// How history is read, and by how many side by side.
const READERS: [(Form, usize); 4] = [
    (Form::Ndjson, 1),
    (Form::Ndjson, 4),
    (Form::Packed, 1),
    (Form::Packed, 4),
];

/// One reader, and several side by side, from the first event to the last, on a host that was just started.
pub(super) async fn catch_up(dir: &Path, time: Duration, sizes: &[u32]) -> Result<Value> {
    let mut rows = Vec::new();
    for size in sizes {
        let dir = dir.join(size.to_string());
        std::fs::create_dir(&dir)?;
        let host = Host::start_with(&dir, &SOON)?;
        ingest::create_topic(&host.client).await?;
        ingest::fill(&host, time, *size).await?;
        sealed(&host, ingest::TOPIC).await?;
        host.kill();
        for (form, readers) in READERS {
            let host = Host::start(&dir)?;
            rows.push(read(&host, form, readers, *size).await?);
        }
        std::fs::remove_dir_all(dir)?;
    }
    Ok(rows.into())
}

async fn read(host: &Host, form: Form, readers: usize, size: u32) -> Result<Value> {
    let (end, archived) = ends(host, ingest::TOPIC).await?;
    let address = host.address.clone();
    let before = host.usage();
    let watch = Stopwatch::start();
    apart(move || async move {
        let each = (0..readers).map(|_| read_all(&address, form, end));
        try_join_all(each).await
    })
    .await?;
    let seconds = watch.elapsed().as_secs_f64();
    let cpu_seconds = host.used_since(before).cpu_seconds;
    let events = end * readers as u64;
    Ok(json!({
        "form": form.name(), "readers": readers, "size": size, "events": events, "in_segments": archived,
        "events_per_second": per_second(events, seconds),
        "mb_per_second": per_second(events * u64::from(size), seconds) / 1e6,
        "events_per_cpu_second": per_second(events, cpu_seconds),
        "mb_per_cpu_second": per_second(events * u64::from(size), cpu_seconds) / 1e6,
        "memory": host.memory(),
    }))
}

async fn read_all(address: &str, form: Form, end: u64) -> Result<()> {
    let reader = Reader::open(address, ingest::TOPIC, "earliest").await?;
    let mut reader = reader.of(form);
    while reader.passed < end {
        reader.page(Duration::ZERO).await?;
    }
    Ok(())
}

/// Ingest without and with sealing beside it, in turn; and sealing by itself, of what came without.
pub(super) async fn sealing(dir: &Path, time: Duration, size: u32) -> Result<Value> {
    let load = Load {
        form: Form::Ndjson,
        batch: 500,
        size,
        connections: 8,
    };
    let (mut without, mut with, mut alone) = (0.0_f64, 0.0_f64, Value::Null);
    for round in 0..ROUNDS {
        for (name, settings) in [("without", &NEVER[..]), ("with", &SOON[..])] {
            let dir = dir.join(format!("{name}-{round}"));
            std::fs::create_dir(&dir)?;
            let host = Host::start_with(&dir, settings)?;
            ingest::create_topic(&host.client).await?;
            let row = ingest::once(&host, ingest::TOPIC, time, load).await?;
            host.kill();
            let best = if name == "with" {
                &mut with
            } else {
                &mut without
            };
            *best = best.max(figure(&row, "events_per_second"));
            if name == "without" && round == 0 {
                alone = seal(&dir, size).await?;
            }
            std::fs::remove_dir_all(dir)?;
        }
    }
    Ok(json!([
        {"what": "ingest, nothing is sealed", "events_per_second": without},
        {"what": "ingest, sealing beside it", "events_per_second": with, "lost_percent": (1.0 - with / without.max(1.0)) * 100.0},
        alone,
    ]))
}

/// Seals all that a killed host had in its journal.
async fn seal(dir: &Path, size: u32) -> Result<Value> {
    let host = Host::start_with(dir, &SOON)?;
    let (before, watch) = (host.usage(), Stopwatch::start());
    let (end, already) = ends(&host, ingest::TOPIC).await?;
    sealed(&host, ingest::TOPIC).await?;
    let seconds = watch.elapsed().as_secs_f64();
    let cpu_seconds = host.used_since(before).cpu_seconds;
    let events = end - already;
    Ok(json!({
        "what": "sealing by itself", "events": events,
        "events_per_second": per_second(events, seconds),
        "mb_per_second": per_second(events * u64::from(size), seconds) / 1e6,
        "events_per_cpu_second": per_second(events, cpu_seconds),
    }))
}
