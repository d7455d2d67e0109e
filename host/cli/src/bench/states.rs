//! A count per key over far more state than there is memory for: filled in the order of keys, then events for
//! keys drawn alike and by Zipf's law, with another function beside it whose answers are timed.

use super::functions::{act, guests};
use super::host::Host;
use super::ingest;
use super::keyed::{self, Keys, Zipf};
use super::reader::per_second;
use super::sparse::{self, Sparse};
use crate::deploy::Package;
use crate::failure::{Failure, Result};
use crate::functions::lag;
use crate::print;
use crate::progress::{Stopwatch, pause};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const FUNCTION: &str = "bench-hoard";
/// As much state as a host allows unless it is told otherwise.
const MANIFEST: &str = "[limits]\nstate_bytes = \"64GiB\"\n";
const PARTITIONS: u32 = 4;
/// Bytes of the text that each key keeps; what is kept beside it is small.
const TEXT: u64 = 1000;
/// Events for each second that a measurement may take: what is wanted of keys drawn alike and by Zipf's law.
const UNIFORM: u64 = 20_000;
const ZIPF: u64 = 50_000;
/// Keys whose counts are checked.
const CHECKED: u64 = 50;
const POLL: Duration = Duration::from_millis(20);
/// How long nothing may move before the bench gives up.
const STALL: Duration = Duration::from_secs(120);

/// How much state there is, and what the host plans with, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sizes {
    pub(super) state: u64,
    pub(super) limit: u64,
}

impl Sizes {
    fn keys(self) -> u64 {
        (self.state / TEXT).max(CHECKED)
    }
}

/// Fills, measures, checks some counts, starts again and checks them once more.
pub(super) async fn measure(dir: &Path, time: Duration, sizes: Sizes) -> Result<Value> {
    let built = guests()?;
    let limit = format!("memory.limit={}B", sizes.limit);
    let host = Host::start_with(dir, &[&limit])?;
    create(&host).await?;
    let component = std::fs::read(&sparse::one(&built, FUNCTION)?.path)?;
    Package::of(FUNCTION, component, MANIFEST.to_owned())
        .deploy(&host.client, &[("start", "earliest")])
        .await?;
    sparse::deploy(&host.client, &built, 1).await?;
    let keys = sizes.keys();
    print::note(&format!(
        "  filling {} of {keys} keys",
        print::bytes(sizes.state)
    ));
    let mut rows = vec![fill(&host, keys).await?];
    rows[0]["state_bytes"] = sizes.state.into();

    print::note("  another function alone");
    let (mut sparse, _) = Sparse::new(1).round(&host).await?;
    let (next, mut alone) = sparse.measure(&host, time).await?;
    sparse = next;
    alone["what"] = "another function alone".into();
    rows.push(alone);
    let mut counts = Counts::of(keys);
    let drawn = [
        ("uniform keys", Keys::Uniform(keys), UNIFORM),
        ("zipf 0.99 keys", Keys::Zipf(Zipf::of(keys)), ZIPF),
    ];
    for (what, drawn, rate) in drawn {
        print::note(&format!("  {what}"));
        let events = rate * time.as_secs().max(1);
        counts.add(&drawn, events);
        let (next, mut row) = run(&host, sparse, time, drawn, events).await?;
        sparse = next;
        row["what"] = what.into();
        rows.push(row);
    }
    counts.check(&host).await?;
    host.kill();

    print::note("  starting again");
    let watch = Stopwatch::start();
    let host = Host::start_with(dir, &[&limit])?;
    let start_ms = watch.elapsed().as_secs_f64() * 1e3;
    let (_, first) = sparse.round(&host).await?;
    counts.check(&host).await?;
    rows.push(json!({
        "what": "start after SIGKILL", "start_ms": start_ms,
        "first_output_ms": start_ms + f64::from(first) / 1e3, "memory": host.memory(),
    }));
    Ok(rows.into())
}

/// A topic that keeps little of what was read: the state is what is measured.
async fn create(host: &Host) -> Result<()> {
    let settings = json!({
        "partitions": PARTITIONS, "key": "/user",
        "retention": {"bytes": "64MiB", "hold_for": "1d"},
    });
    let path = ["v1", "topics", ingest::TOPIC];
    let request = host.client.request(Method::PUT, &path, &[]);
    host.client.json(request.json(&settings)).await.map(drop)
}

/// Every key once, in order, which is quickest for what state lies in.
async fn fill(host: &Host, keys: u64) -> Result<Value> {
    let watch = Stopwatch::start();
    let text = usize::try_from(TEXT).unwrap_or(0);
    let send = keyed::send(&host.address, ingest::TOPIC, Keys::Each, keys, text);
    send.await?;
    caught_up(host, FUNCTION).await?;
    let seconds = watch.elapsed().as_secs_f64();
    Ok(json!({
        "what": "filling", "events": keys, "events_per_second": per_second(keys, seconds),
        "seconds": seconds, "memory": host.memory(),
    }))
}

/// Events that lie ready, and the other function's answers while they are counted.
async fn run(
    host: &Host,
    sparse: Sparse,
    time: Duration,
    keys: Keys,
    events: u64,
) -> Result<(Sparse, Value)> {
    act(&host.client, FUNCTION, "pause").await?;
    keyed::send(&host.address, ingest::TOPIC, keys, events, 0).await?;
    let before = host.usage();
    let watch = Stopwatch::start();
    act(&host.client, FUNCTION, "resume").await?;
    let counted = async {
        caught_up(host, FUNCTION).await?;
        Ok::<_, Failure>(watch.elapsed().as_secs_f64())
    };
    let ((sparse, mut row), seconds) = tokio::try_join!(sparse.measure(host, time), counted)?;
    row["answers"] = row["events"].clone();
    row["events"] = events.into();
    row["seconds"] = seconds.into();
    row["events_per_second"] = per_second(events, seconds).into();
    row["events_per_engine_second"] =
        per_second(events, host.used_since(before).engine_seconds.max(0.01)).into();
    Ok((sparse, row))
}

/// Waits until a function is through with everything.
pub(super) async fn caught_up(host: &Host, function: &str) -> Result<()> {
    let path = ["v1", "functions", function];
    let (mut before, mut watch) = (u64::MAX, Stopwatch::start());
    loop {
        let report = host.client.get(&path, &[]).await?;
        let left = lag(&report);
        if left == 0 {
            return Ok(());
        }
        if left != before {
            (before, watch) = (left, Stopwatch::start());
        }
        if watch.elapsed() > STALL {
            let why = print::cell(&report["status_reason"]);
            let detail = format!("{function} has {left} events left and doesn't move: {why}");
            return Err(Failure::failed("stalled", detail));
        }
        pause(POLL).await;
    }
}

/// What some keys have to have been counted to.
struct Counts(BTreeMap<u64, u64>);

impl Counts {
    /// Keys over the whole range, each of which has had one event.
    fn of(keys: u64) -> Self {
        let some = (0..CHECKED).map(|nth| (nth * (keys / CHECKED), 1));
        Self(some.collect())
    }

    /// So many more events.
    fn add(&mut self, keys: &Keys, events: u64) {
        for nth in 0..events {
            if let Some(count) = self.0.get_mut(&keys.key(nth)) {
                *count += 1;
            }
        }
    }

    async fn check(&self, host: &Host) -> Result<()> {
        let path = ["v1", "functions", FUNCTION, "state"];
        for (key, count) in &self.0 {
            let name = keyed::name(*key);
            let query = [("slot", "kept"), ("key", name.as_str())];
            let kept = host.client.get(&path, &query).await?;
            if kept["value"]["events"] != *count {
                let detail = format!("{name} was sent {count} events, and has {}", kept["value"]);
                return Err(Failure::failed("wrong-count", detail));
            }
        }
        Ok(())
    }
}

/// A size such as `512MiB`.
pub(super) fn size(text: &str) -> std::result::Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let units = [
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
    ];
    let unit = units
        .iter()
        .find(|(name, _)| *name == text[digits.len()..].trim());
    let number = digits.parse::<u64>().ok().filter(|number| *number > 0);
    let bytes = number
        .zip(unit)
        .and_then(|(number, (_, unit))| number.checked_mul(*unit));
    bytes.ok_or_else(|| "a size with its unit is wanted, as in 512MiB or 10GiB".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("512MiB"), Ok(512 << 20));
        assert_eq!(
            (size("10 GiB"), size("2GB")),
            (Ok(10 << 30), Ok(2_000_000_000))
        );
        for wrong in ["", "10", "GiB", "0GiB", "1.5GiB", "99999999999999GiB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_checked_is_counted_as_it_is_sent() {
        let mut counts = Counts::of(100);
        assert_eq!(counts.0.len(), 50);
        counts.add(&Keys::Each, 3);
        assert_eq!((counts.0[&0], counts.0[&2], counts.0[&4]), (2, 2, 1));
    }
}
