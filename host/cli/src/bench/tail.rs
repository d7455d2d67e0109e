//! Ten readers at the tail of one topic: how fast they follow a load, and how soon they see an event.

use super::connection::Connection;
use super::events::{Form, requests};
use super::host::Host;
use super::load::Times;
use super::reader::{Reader, apart, ends, per_second};
use super::{ingest, load};
use crate::failure::{Failure, Result};
use crate::progress::Stopwatch;
use futures::future::try_join_all;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use tokio::sync::watch;

const READERS: usize = 10;
const WAIT: Duration = Duration::from_secs(1);
/// How long a single event may take until everybody has seen it.
const LONG: Duration = Duration::from_secs(20);

/// Under load from eight connections, and one event at a time.
pub(super) async fn measure(dir: &Path, time: Duration, size: u32) -> Result<Value> {
    let host = Host::start(dir)?;
    ingest::create_topic(&host.client).await?;
    Ok(json!([
        under_load(&host, time, size).await?,
        one_by_one(&host, time, size).await?
    ]))
}

async fn under_load(host: &Host, time: Duration, size: u32) -> Result<Value> {
    let before = host.usage();
    let watch = Stopwatch::start();
    let (done, end) = watch::channel(u64::MAX);
    let address = host.address.clone();
    let readers = apart(move || async move {
        let each = (0..READERS).map(|_| follow(&address, end.clone()));
        try_join_all(each).await
    });
    let write = async {
        let requests = requests(ingest::TOPIC, Form::Ndjson, 500, size);
        let outcome = load::run(&host.address, requests, 8, time).await?;
        let (end, _) = ends(host, ingest::TOPIC).await?;
        let _ = done.send(end);
        Ok((outcome, end))
    };
    let (_, (outcome, end)) = tokio::try_join!(readers, write)?;
    let seconds = watch.elapsed().as_secs_f64();
    let delivered = end * READERS as u64;
    let used = host.used_since(before).cpu_seconds;
    Ok(json!({
        "load": "500 per request, 8 connections", "readers": READERS, "size": size,
        "events_per_second": per_second(end, outcome.seconds),
        "delivered_per_second": per_second(delivered, seconds),
        "delivered_per_cpu_second": per_second(delivered, used),
        "behind_ms": (seconds - outcome.seconds) * 1e3,
        "memory": host.memory(),
    }))
}

/// Reads on until it has passed the end, once that is known.
async fn follow(address: &str, end: watch::Receiver<u64>) -> Result<()> {
    let mut reader = Reader::open(address, ingest::TOPIC, "earliest").await?;
    while reader.passed < *end.borrow() {
        // Not longer than the end may take to become known.
        reader.page(WAIT / 10).await?;
    }
    Ok(())
}

async fn one_by_one(host: &Host, time: Duration, size: u32) -> Result<Value> {
    let address = host.address.clone();
    let (acknowledged, first, last) = apart(move || async move {
        let request = requests(ingest::TOPIC, Form::Ndjson, 1, size);
        let mut writer = Connection::open(&address).await?;
        let each = (0..READERS).map(|_| at_the_end(&address));
        let mut readers = try_join_all(each).await?;
        let (mut acknowledged, mut first, mut last) =
            (Times::default(), Times::default(), Times::default());
        let watch = Stopwatch::start();
        for request in request.iter().cycle() {
            if watch.elapsed() > time {
                break;
            }
            let one = Stopwatch::start();
            let seen = try_join_all(readers.iter_mut().map(async |reader| {
                let before = reader.passed;
                while reader.passed == before {
                    reader.page(LONG).await?;
                }
                Ok::<_, Failure>(one.elapsed())
            }));
            let write = async {
                let status = writer.call(request).await?;
                Ok((status, one.elapsed()))
            };
            let (seen, (status, acked)) = tokio::try_join!(seen, write)?;
            if status != 200 {
                let detail = format!("the host answers {status} to a single event");
                return Err(Failure::failed("refused", detail));
            }
            acknowledged.add(acked);
            first.add(seen.iter().min().copied().unwrap_or_default());
            last.add(seen.iter().max().copied().unwrap_or_default());
        }
        Ok((acknowledged, first, last))
    })
    .await?;
    Ok(json!({
        "load": "one event at a time", "readers": READERS, "size": size, "events": last.count(),
        "ack_p50_us": acknowledged.percentile(50.0), "ack_p99_us": acknowledged.percentile(99.0),
        "first_p50_us": first.percentile(50.0), "first_p99_us": first.percentile(99.0),
        "all_p50_us": last.percentile(50.0), "all_p99_us": last.percentile(99.0), "all_p999_us": last.percentile(99.9),
        "memory": host.memory(),
    }))
}

async fn at_the_end(address: &str) -> Result<Reader> {
    let mut reader = Reader::open(address, ingest::TOPIC, "latest").await?;
    reader.page(Duration::ZERO).await?;
    Ok(reader)
}
