//! Appends through the log beside a raw write and sync loop on the same disk, in the same run.
//!
//! `cargo bench -p tidemill-log --bench journal`; `TIDEMILL_BENCH_DIR` says on which disk (the folder
//! for temporary files otherwise).

#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a benchmark shows its figures and stops on errors"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tidemill_env::files::{Disk, Files};
use tidemill_env::metrics::Metrics;
use tidemill_env::objects::Objects;
use tidemill_env::{Clock, Random};
use tidemill_log::{Draft, Log, Recovery, Settings, SnapshotRef, TopicSettings};
use tidemill_types::{CommitSeq, PackedRows, Result, RowHead, Timestamp, TopicId};

const TIME: Duration = Duration::from_secs(3);
const PARTITIONS: u32 = 8;

struct Nothing;

#[async_trait::async_trait]
impl Recovery for Nothing {
    async fn begin(&mut self, snapshot: Option<&SnapshotRef>) -> Result<CommitSeq> {
        Ok(snapshot.map_or(CommitSeq(0), |snapshot| snapshot.commit))
    }
    fn state(&mut self, _: CommitSeq, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

fn main() {
    let folder =
        std::env::var_os("TIDEMILL_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = tempfile::tempdir_in(folder).expect("folder");
    let clock = Clock::system();
    println!("raw write and sync of a file written once with zeros");
    for bytes in [4 << 10, 64 << 10, 1 << 20] {
        raw(&clock, dir.path(), bytes);
    }
    println!("appends of 200 B events through the log, {PARTITIONS} partitions");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = runtime.expect("runtime");
    for (writers, events) in [(1, 1), (64, 1), (512, 1), (1, 500), (8, 500), (64, 500)] {
        let dir = tempfile::tempdir_in(dir.path()).expect("folder");
        runtime.block_on(appends(&clock, dir.path(), writers, events));
    }
}

fn raw(clock: &Clock, dir: &Path, bytes: usize) {
    let (path, size) = (dir.join("raw"), 64 << 20);
    let file = Disk::default().create_zeroed(&path, size).expect("created");
    let block: Vec<u8> = (0..bytes)
        .map(|n| u8::try_from(n * 31 % 251).unwrap_or_default())
        .collect();
    let (start, mut at, mut times) = (clock.elapsed(), 0, Vec::new());
    while clock.elapsed() - start < TIME {
        let before = clock.elapsed();
        file.write_at(at, &[&block]).expect("written");
        file.sync_data().expect("synced");
        times.push(clock.elapsed() - before);
        at = (at + bytes as u64) % (size - bytes as u64);
    }
    let seconds = (clock.elapsed() - start).as_secs_f64();
    let syncs = times.len() as f64 / seconds;
    println!(
        "  {bytes:>8} B: {syncs:8.0} syncs/s {:8.0} MB/s  {}",
        syncs * bytes as f64 / 1e6,
        percentiles(times)
    );
    Disk::default().remove(&path).expect("removed");
}

async fn appends(clock: &Clock, dir: &Path, writers: usize, events: usize) {
    let settings = Settings {
        dir: dir.to_owned(),
        ..Settings::default()
    };
    let objects = Objects::open(&dir.join("objects").display().to_string(), &[]).expect("storage");
    let metrics = Metrics::default();
    let opened = Log::open(
        settings,
        Arc::new(Disk::default()),
        objects,
        clock.clone(),
        Random::system(),
        &metrics,
        &mut Nothing,
    )
    .await;
    let log = opened.expect("opens");
    let topic_settings = TopicSettings {
        partitions: PARTITIONS,
        ..TopicSettings::default()
    };
    let name = "bench".parse().expect("name");
    let (topic, _) = log
        .create_topic(&name, topic_settings)
        .await
        .expect("created");
    let start = clock.elapsed();
    let tasks: Vec<_> = (0..writers)
        .map(|_| {
            tokio::spawn(write(
                log.clone(),
                clock.clone(),
                topic.id,
                events,
                start + TIME,
            ))
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.expect("ran"));
    }
    let seconds = (clock.elapsed() - start).as_secs_f64();
    let rate = (times.len() * events) as f64 / seconds;
    let text = metrics.render();
    let syncs = text
        .lines()
        .find_map(|line| line.strip_prefix("tidemill_journal_syncs_total "));
    let syncs = syncs
        .and_then(|n| n.trim().parse::<f64>().ok())
        .unwrap_or_default()
        / seconds;
    println!(
        "  {writers:>4} writers x {events:>3}: {rate:9.0} events/s {:6.0} MB/s {syncs:6.0} syncs/s  {}",
        rate * 200.0 / 1e6,
        percentiles(times)
    );
    log.close().await.expect("closed");
}

async fn write(
    log: Log,
    clock: Clock,
    topic: TopicId,
    events: usize,
    until: Duration,
) -> Vec<Duration> {
    let mut rows = PackedRows::default();
    for _ in 0..events {
        rows.push(Timestamp::from_micros(1), None, Some(&[b'x'; 200]), [])
            .expect("fits");
    }
    let heads: Vec<RowHead> = rows.heads.clone();
    let partitions: Vec<u32> = (0..PARTITIONS).cycle().take(events).collect();
    let mut times = Vec::new();
    while clock.elapsed() < until {
        let before = clock.elapsed();
        let mut draft = Draft::new();
        draft
            .payload(rows.payload.len())
            .extend_from_slice(&rows.payload);
        draft
            .append_in_place(topic, &heads, &partitions)
            .expect("fits");
        let ticket = loop {
            match log.commit(draft) {
                Ok(ticket) => break ticket,
                Err((_, back)) => draft = back,
            }
            log.room().await;
        };
        ticket.durable().await.expect("durable");
        times.push(clock.elapsed() - before);
    }
    times
}

fn percentiles(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |part: usize| {
        times
            .get(times.len() * part / 100)
            .copied()
            .unwrap_or_default()
            .as_micros()
    };
    format!("p50 {} µs, p99 {} µs", at(50), at(99))
}
