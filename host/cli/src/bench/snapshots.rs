//! What snapshots of state cost: a count over a million keys without any and with one every 128 MiB of
//! journal, which is four times as often as by default.

use super::functions::{act, one};
use super::host::Host;
use super::ingest;
use super::keyed::{self, Keys};
use super::reader::figure;
use crate::build::Built;
use crate::demo;
use crate::failure::Result;
use crate::print;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

const FUNCTION: &str = "bench-count";
const NEVER: &str = "log.snapshot_bytes=1TiB";
const OFTEN: &str = "log.snapshot_bytes=128MiB";
/// Each has so many times; the better one counts, for machines have moods.
const ROUNDS: usize = 2;
const KEYS: u64 = 1_000_000;
/// Events for each second that a measurement may take.
const EVENTS: u64 = 200_000;
/// With the text, events of about 200 bytes.
const TEXT: usize = 170;
const PATIENCE: u32 = 40;

/// In turn, without and with.
pub(super) async fn measure(dir: &Path, time: Duration, built: &[Built]) -> Result<Vec<Value>> {
    std::fs::create_dir(dir)?;
    let (mut without, mut with, mut taken) = (0.0_f64, 0.0_f64, false);
    for round in 0..ROUNDS {
        for setting in [NEVER, OFTEN] {
            print::note(&format!("  snapshots, {}/{ROUNDS}: {setting}", round + 1));
            let dir = dir.join("host-of-it");
            std::fs::create_dir(&dir)?;
            let (rate, seen) = run(&dir, time, built, setting).await?;
            let best = if setting == OFTEN {
                &mut with
            } else {
                &mut without
            };
            *best = best.max(rate);
            taken |= seen && setting == OFTEN;
            std::fs::remove_dir_all(dir)?;
        }
    }
    if !taken {
        print::warning("no snapshot was taken: the time was too short for one");
    }
    let lost = taken.then_some((1.0 - with / without.max(1.0)) * 100.0);
    Ok(vec![
        json!({"what": "count, no snapshots", "events_per_second": without}),
        json!({"what": "count, snapshots beside it", "events_per_second": with, "taken": taken, "lost_percent": lost}),
    ])
}

/// Events per second, and whether a snapshot was taken meanwhile.
async fn run(dir: &Path, time: Duration, built: &[Built], setting: &str) -> Result<(f64, bool)> {
    let host = Host::start_with(dir, &[setting])?;
    ingest::create_topic(&host.client).await?;
    demo::deploy_built(&host.client, built, &[FUNCTION]).await?;
    act(&host.client, FUNCTION, "pause").await?;
    let events = EVENTS * time.as_secs().max(1);
    keyed::send(
        &host.address,
        ingest::TOPIC,
        Keys::Uniform(KEYS),
        events,
        TEXT,
    )
    .await?;
    let before = snapshots(dir);
    let row = one(&host, FUNCTION, time * PATIENCE).await?;
    // Only the newest is there.
    let taken = snapshots(dir) != before;
    Ok((figure(&row, "events_per_second"), taken))
}

/// Which snapshots lie in the folder that stands for a bucket.
pub(super) fn snapshots(dir: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(dir.join("host/objects/snapshots"));
    let names = entries.into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter_map(|name| index(&name)).collect()
}

/// A snapshot's name, if an object is its index and not a part (`<commit>-<nonce>-00000`).
fn index(object: &str) -> Option<String> {
    (object.matches('-').count() == 1).then(|| object.to_owned())
}

#[cfg(test)]
mod tests {
    use super::index;

    #[test]
    fn a_snapshot_is_told_from_its_parts() {
        assert_eq!(index("00012-ab").as_deref(), Some("00012-ab"));
        assert_eq!(index("00012-ab-00000"), None);
    }
}
