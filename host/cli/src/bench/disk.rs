//! The disk by itself: overwrite a file of zeros and fdatasync, as the journal does.

use super::load::Times;
use crate::failure::Result;
use crate::progress::Stopwatch;
use serde_json::{Value, json};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

const FILE: u64 = 64 << 20;

/// Single small writes for latency, large ones for throughput.
pub(super) fn measure(dir: &Path, time: Duration) -> Result<Value> {
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(dir.join("zeros"))?;
    let zeros = vec![0; 1 << 20];
    for at in (0..FILE).step_by(zeros.len()) {
        file.write_all_at(&zeros, at)?;
    }
    file.sync_all()?;
    let time = time.min(Duration::from_secs(5)) / 3;
    Ok(json!([
        once(&file, 4 << 10, time)?,
        once(&file, 256 << 10, time)?,
        once(&file, 1 << 20, time)?
    ]))
}

#[expect(clippy::cast_precision_loss, reason = "a measured rate")]
fn once(file: &File, size: usize, time: Duration) -> Result<Value> {
    let block = vec![0xa5; size];
    let mut times = Times::default();
    let watch = Stopwatch::start();
    let mut at = 0;
    while watch.elapsed() < time {
        let one = Stopwatch::start();
        file.write_all_at(&block, at)?;
        file.sync_data()?;
        times.add(one.elapsed());
        at = (at + size as u64) % FILE;
    }
    let seconds = watch.elapsed().as_secs_f64();
    let syncs = times.count();
    Ok(
        json!({"bytes": size, "syncs_per_second": syncs as f64 / seconds, "mb_per_second": (syncs * size as u64) as f64 / seconds / 1e6,
              "p50_us": times.percentile(50.0), "p99_us": times.percentile(99.0), "p999_us": times.percentile(99.9)}),
    )
}
