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

/// What the journal writes for a lonely event.
const SMALL: usize = 4 << 10;

/// A file of zeros, written over and over.
pub(super) struct Disk(File);

impl Disk {
    /// Makes the file.
    pub(super) fn new(dir: &Path) -> Result<Self> {
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
        Ok(Self(file))
    }

    /// How long 99 of 100 small writes take at most, each with its sync, in µs.
    pub(super) fn p99(&self, time: Duration) -> Result<u32> {
        Ok(self.write(SMALL, time)?.percentile(99.0))
    }

    fn write(&self, size: usize, time: Duration) -> Result<Times> {
        let block = vec![0xa5; size];
        let mut times = Times::default();
        let watch = Stopwatch::start();
        let mut at = 0;
        while watch.elapsed() < time {
            let one = Stopwatch::start();
            self.0.write_all_at(&block, at)?;
            self.0.sync_data()?;
            times.add(one.elapsed());
            at = (at + size as u64) % FILE;
        }
        Ok(times)
    }

    #[expect(clippy::cast_precision_loss, reason = "a measured rate")]
    fn row(&self, size: usize, time: Duration) -> Result<Value> {
        let watch = Stopwatch::start();
        let times = self.write(size, time)?;
        let seconds = watch.elapsed().as_secs_f64();
        let syncs = times.count();
        Ok(
            json!({"bytes": size, "syncs_per_second": syncs as f64 / seconds, "mb_per_second": (syncs * size as u64) as f64 / seconds / 1e6,
                  "p50_us": times.percentile(50.0), "p99_us": times.percentile(99.0), "p999_us": times.percentile(99.9)}),
        )
    }
}

/// Single small writes for latency, large ones for throughput.
pub(super) fn measure(dir: &Path, time: Duration) -> Result<Value> {
    let disk = Disk::new(dir)?;
    let time = time.min(Duration::from_secs(5)) / 3;
    Ok(json!([
        disk.row(SMALL, time)?,
        disk.row(256 << 10, time)?,
        disk.row(1 << 20, time)?
    ]))
}
