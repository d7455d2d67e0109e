//! Sealing and reading back: 400,000 JSON events of 200 bytes with keys of 1,000 kinds, one partition,
//! one thread, a local folder as storage.
//!
//! Run with `cargo bench -p tidemill-log --bench segment`.

#![expect(clippy::expect_used, reason = "a benchmark that cannot go on ends")]

use async_trait::async_trait;
use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use std::path::Path;
use std::sync::Arc;
use tidemill_env::files::Disk;
use tidemill_env::metrics::Metrics;
use tidemill_env::objects::Objects;
use tidemill_env::{Clock, Random};
use tidemill_log::{Draft, Log, ReadLimit, Recovery, Settings, SnapshotRef, TopicSettings};
use tidemill_types::{ByteSize, CommitSeq, PackedRows, PartitionId, Result, Timestamp};
use tokio::runtime::Runtime;

const EVENTS: u64 = 400_000;
const EVENT_BYTES: u64 = 200;
const BATCH: u64 = 1000;

fn main() {
    divan::main();
}

struct NoState;

#[async_trait]
impl Recovery for NoState {
    async fn begin(&mut self, _: Option<&SnapshotRef>) -> Result<CommitSeq> {
        Ok(CommitSeq(0))
    }
    fn state(&mut self, _: CommitSeq, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

fn rows(first: u64, random: &Random) -> PackedRows {
    let mut rows = PackedRows::default();
    for n in first..first + BATCH {
        let key = format!("user-{:04}", random.below(1000));
        let mut value = format!(
            "{{\"user\":\"{key}\",\"time\":{n},\"session\":\"{}\",\"page\":\"/catalogue/{}\",\"text\":\"",
            random.nonce(),
            random.below(100)
        );
        let rest = usize::try_from(EVENT_BYTES).expect("small") - key.len() - value.len() - 2;
        value.extend(
            std::iter::repeat_n("lorem ipsum ", 20)
                .collect::<String>()
                .chars()
                .take(rest),
        );
        value.push_str("\"}");
        let time = Timestamp::from_micros(n.cast_signed() * 1000);
        rows.push(time, Some(key.as_bytes()), Some(value.as_bytes()), [])
            .expect("fits");
    }
    rows
}

async fn open(dir: &Path) -> Log {
    let settings = Settings {
        dir: dir.to_owned(),
        reserve_bytes: ByteSize(0),
        segment_bytes: ByteSize::mib(1024),
        ..Settings::default()
    };
    let storage = dir.join("objects");
    let objects = Objects::open(storage.to_str().expect("utf-8"), &[]).expect("storage");
    let metrics = Metrics::default();
    let (clock, random) = (Clock::system(), Random::system());
    Log::open(
        settings,
        Arc::new(Disk::default()),
        objects,
        clock,
        random,
        &metrics,
        &mut NoState,
    )
    .await
    .expect("opens")
}

/// A log with all events in its journal and tail.
async fn filled(dir: &Path) -> (Log, PartitionId) {
    filled_by(dir, 1).await
}

/// The same with all but the last of so many parts sealed already, each as a segment.
async fn filled_by(dir: &Path, parts: u64) -> (Log, PartitionId) {
    let log = open(dir).await;
    let name = "events".parse().expect("name");
    let (topic, _) = log
        .create_topic(&name, TopicSettings::default())
        .await
        .expect("created");
    let random = Random::seeded(1);
    for first in (0..EVENTS).step_by(usize::try_from(BATCH).expect("small")) {
        let rows = rows(first, &random);
        let mut draft = Draft::new();
        draft
            .append(topic.id, &rows, &vec![0; rows.len()])
            .expect("fits");
        let ticket = log
            .commit(draft)
            .map_err(|(error, _)| error)
            .expect("committed");
        ticket.durable().await.expect("durable");
        let end = first + BATCH;
        if end < EVENTS && end.is_multiple_of(EVENTS / parts) {
            log.seal().await.expect("sealed");
        }
    }
    (
        log,
        PartitionId {
            topic: topic.id,
            partition: 0,
        },
    )
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn seal(bencher: Bencher) {
    let runtime = Runtime::new().expect("runtime");
    bencher
        .counter(ItemsCount::new(EVENTS))
        .counter(BytesCount::new(EVENTS * EVENT_BYTES))
        .with_inputs(|| {
            let dir = tempfile::tempdir().expect("folder");
            let (log, _) = runtime.block_on(filled(dir.path()));
            (dir, log)
        })
        .bench_local_refs(|(_, log)| runtime.block_on(log.seal()).expect("sealed"));
}

/// All of it from segments, in steps of so many KiB, by a log that was just opened.
#[divan::bench(args = [256, 1024, 4096], sample_count = 5, sample_size = 1)]
fn read(bencher: Bencher, step_kib: usize) {
    let runtime = Runtime::new().expect("runtime");
    let dir = tempfile::tempdir().expect("folder");
    let at = runtime.block_on(async {
        let (log, at) = filled(dir.path()).await;
        log.seal().await.expect("sealed");
        log.close().await.expect("closed");
        at
    });
    let limit = ReadLimit {
        events: usize::MAX,
        bytes: step_kib << 10,
    };
    bencher
        .counter(ItemsCount::new(EVENTS))
        .counter(BytesCount::new(EVENTS * EVENT_BYTES))
        .with_inputs(|| runtime.block_on(open(dir.path())))
        .bench_local_values(|log| {
            runtime.block_on(async {
                let mut from = 0;
                while from < EVENTS {
                    let read = log.read(at, from, limit).await.expect("read");
                    from = read.next;
                    black_box(read);
                }
                log.close().await.expect("closed");
            });
        });
}

/// Small segments into one.
#[divan::bench(sample_count = 3, sample_size = 1)]
fn merge(bencher: Bencher) {
    let runtime = Runtime::new().expect("runtime");
    bencher
        .counter(ItemsCount::new(EVENTS))
        .counter(BytesCount::new(EVENTS * EVENT_BYTES))
        .with_inputs(|| {
            let dir = tempfile::tempdir().expect("folder");
            let log = runtime.block_on(async {
                let (log, _) = filled_by(dir.path(), 10).await;
                log.seal().await.expect("sealed");
                log
            });
            (dir, log)
        })
        .bench_local_refs(|(_, log)| runtime.block_on(log.merge()).expect("merged"));
}
