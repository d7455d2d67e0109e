//! A host with millions of keys of state that is killed and started again: with its disk, and with nothing
//! left but the bucket (its folder of objects).

use super::functions::guests;
use super::host::Host;
use super::ingest;
use super::keyed::{self, Keys};
use super::reader::sealed;
use super::snapshots::snapshots;
use super::states::caught_up;
use crate::demo;
use crate::failure::{Exit, Failure, Result};
use crate::print;
use crate::progress::{Stopwatch, pause};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Counts events of each key.
const FUNCTION: &str = "bench-keys";
/// Everything is in the bucket soon.
const SOON: [&str; 2] = ["log.segment_age=1s", "log.snapshot_bytes=16MiB"];
/// What fills the journal, so that a snapshot is due.
const FILLER: &str = "filler";
const FILLER_EVENTS: u64 = 20_000;
const TEXT: usize = 1000;
/// A snapshot that was under way may lack the last keys; the one after it doesn't.
const SNAPSHOTS: usize = 2;
const POLL: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(180);

/// Two rows; what a key was counted to is checked in both.
pub(super) async fn measure(dir: &Path, keys: u64) -> Result<Vec<Value>> {
    std::fs::create_dir(dir)?;
    let host = Host::start_with(dir, &SOON)?;
    ingest::create_topic(&host.client).await?;
    ingest::create(&host.client, FILLER, 1).await?;
    demo::deploy_built(&host.client, &guests()?, &[FUNCTION]).await?;
    print::note(&format!("  filling {keys} keys"));
    keyed::send(&host.address, ingest::TOPIC, Keys::Each, keys, 0).await?;
    caught_up(&host, FUNCTION).await?;
    host.kill();

    print::note("  starting with the disk kept");
    let (host, mut kept) = start(dir, keys / 2, 2).await?;
    kept["what"] = "keys, disk kept".into();
    print::note("  waiting for everything to be in the bucket");
    everything_in_bucket(&host, dir, keys).await?;
    host.kill();

    print::note("  starting from the bucket alone");
    leave_only_objects(dir)?;
    let (_, mut alone) = start(dir, keys / 2, 3).await?;
    alone["what"] = "keys, from the bucket alone".into();
    for row in [&mut kept, &mut alone] {
        row["keys"] = keys.into();
    }
    Ok(vec![kept, alone])
}

/// Starts, sends an event for a key, and waits until the key has been counted to what it has to be.
async fn start(dir: &Path, key: u64, expected: u64) -> Result<(Host, Value)> {
    let watch = Stopwatch::start();
    let host = Host::start_with(dir, &SOON)?;
    let answer = watch.elapsed();
    keyed::send(&host.address, ingest::TOPIC, Keys::Only(key), 1, 0).await?;
    let acknowledged = watch.elapsed();
    let name = keyed::name(key);
    let path = ["v1", "functions", FUNCTION, "state"];
    let query = [("slot", "count"), ("key", name.as_str())];
    let mut seen = Value::Null;
    while seen != expected {
        if watch.elapsed() > PATIENCE {
            let detail = format!("{name} has {seen} after {PATIENCE:?}, and not {expected}");
            return Err(Failure::failed("wrong-count", detail));
        }
        pause(POLL).await;
        seen = match host.client.get(&path, &query).await {
            Ok(answer) => answer["value"].clone(),
            // A key that isn't there, or a host that isn't as far yet.
            Err(failure) if failure.exit == Exit::NotFound => Value::Null,
            Err(failure) => return Err(failure),
        };
    }
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let row = json!({
        "answer_ms": ms(answer), "first_ack_ms": ms(acknowledged), "first_output_ms": ms(watch.elapsed()),
        "cpu_seconds": host.usage().cpu_seconds, "memory": host.memory(),
    });
    Ok((host, row))
}

/// Sends what no function reads until a snapshot has everything that was counted, and seals it all. None is taken
/// as long as no state changes, so that of a key of its own does.
async fn everything_in_bucket(host: &Host, dir: &Path, spare: u64) -> Result<()> {
    let watch = Stopwatch::start();
    let (mut before, mut changes) = (snapshots(dir), 0);
    while changes < SNAPSHOTS {
        if watch.elapsed() > PATIENCE {
            let detail = format!("no snapshot of the state for {PATIENCE:?}");
            return Err(Failure::failed("stalled", detail));
        }
        keyed::send(&host.address, ingest::TOPIC, Keys::Only(spare), 1, 0).await?;
        keyed::send(&host.address, FILLER, Keys::Each, FILLER_EVENTS, TEXT).await?;
        let now = snapshots(dir);
        if now != before && !now.is_empty() {
            (before, changes) = (now, changes + 1);
        }
    }
    for topic in [ingest::TOPIC, FILLER, FUNCTION] {
        sealed(host, topic).await?;
    }
    Ok(())
}

/// As if the machine were another one.
fn leave_only_objects(dir: &Path) -> Result<()> {
    for entry in std::fs::read_dir(dir.join("host"))? {
        let entry = entry?;
        if entry.file_name() == "objects" {
            continue;
        }
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_but_objects() {
        let dir = tempfile::tempdir().expect("a folder");
        let host = dir.path().join("host");
        for folder in ["objects/topics", "journal", "state"] {
            std::fs::create_dir_all(host.join(folder)).expect("made");
        }
        std::fs::write(host.join("lock"), "").expect("written");
        leave_only_objects(dir.path()).expect("removed");
        let left: Vec<_> = std::fs::read_dir(&host)
            .expect("read")
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        assert_eq!(left, ["objects"]);
        assert!(host.join("objects/topics").is_dir());
    }
}
