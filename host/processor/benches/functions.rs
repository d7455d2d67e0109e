//! Whole functions over the real log, state and sandbox: how fast stored events go through.
//!
//! `cargo bench -p tidemill-processor`. One function thread, so the figures are events per second of
//! one core of engine; the journal's flusher runs beside it. The guest is `tests/processor/scripted.wat`:
//! it looks at one byte of each value, so what is measured is the host and the ABI, not a parser.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a benchmark fails by panicking"
)]

#[path = "../../../tests/guests/component.rs"]
mod component;

use divan::Bencher;
use divan::counter::ItemsCount;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tidemill_env::files::Disk;
use tidemill_env::metrics::Metrics;
use tidemill_env::objects::Objects;
use tidemill_env::{Clock, Random};
use tidemill_log::{Draft, Format, Log, TopicSettings};
use tidemill_processor::{Deploy, KeepState, Processor, Settings, StateRecovery};
use tidemill_state::Store;
use tidemill_types::{ByteSize, PackedRows, Timestamp};
use tidemill_wasm::Sandbox;

const EVENTS: usize = 400_000;
const BLOCK: usize = 4_000;
const VALUE_BYTES: usize = 200;
const KEYS: usize = 1_000;

fn main() {
    divan::main();
}

/// Events without effect: read, packed, called, committed as a position.
#[divan::bench(sample_count = 3, sample_size = 1)]
fn filter(bencher: Bencher<'_, '_>) {
    run(bencher, "f");
}

/// Every event comes back as an output.
#[divan::bench(sample_count = 3, sample_size = 1)]
fn emit(bencher: Bencher<'_, '_>) {
    run(bencher, "e");
}

/// A count per key in state and an output per event.
#[divan::bench(sample_count = 3, sample_size = 1)]
fn keyed_count(bencher: Bencher<'_, '_>) {
    run(bencher, "c");
}

fn run(bencher: Bencher<'_, '_>, op: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let dir = tempfile::tempdir().expect("a folder");
    let (log, processor) = runtime.block_on(open(dir.path()));
    runtime.block_on(fill(&log, op));
    runtime.block_on(deploy(&processor, "compiles-once", true));
    let mut version = 0;
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| {
        version += 1;
        let name = format!("f{version}");
        runtime.block_on(async {
            deploy(&processor, &name, false).await;
            through(&processor, &name).await;
        });
    });
    runtime.block_on(async {
        processor.stop().await;
        log.close().await.expect("the log closes");
    });
}

async fn open(dir: &std::path::Path) -> (Log, Processor) {
    let metrics = Metrics::default();
    let (clock, random) = (Clock::system(), Random::seeded(1));
    let objects = dir.join("objects");
    std::fs::create_dir_all(&objects).expect("a folder");
    let objects = Objects::open(objects.to_str().expect("UTF-8"), &[]).expect("objects");
    let state = tidemill_state::Settings {
        dir: dir.join("state"),
        memory_bytes: ByteSize::mib(256),
        dirty_bytes: ByteSize::mib(64),
        store_bytes: ByteSize::mib(64),
        snapshot_memory: ByteSize::mib(64),
    };
    let state = Store::open(state, &metrics).expect("the store opens");
    let settings = tidemill_log::Settings {
        dir: dir.to_owned(),
        tail_bytes: ByteSize::mib(1024),
        segment_bytes: ByteSize::mib(4096),
        reserve_bytes: ByteSize(0),
        ..tidemill_log::Settings::default()
    };
    let mut recovery = StateRecovery::new(state.clone(), objects.clone());
    let disk = Arc::new(Disk::default());
    let log = Log::open(
        settings,
        disk,
        objects.clone(),
        clock.clone(),
        random.clone(),
        &metrics,
        &mut recovery,
    )
    .await
    .expect("the log opens");
    let sandbox = tidemill_wasm::Settings {
        cache_dir: Some(dir.join("cache")),
        cache_bytes: ByteSize(0),
        instances: 16,
    };
    let sandbox = Sandbox::new(sandbox).expect("the engine starts");
    let settings = Settings {
        threads: 1,
        replay_dir: dir.join("replay"),
        ..Settings::default()
    };
    let processor = Processor::open(
        settings,
        log.clone(),
        state,
        sandbox,
        objects,
        clock,
        random,
        &metrics,
    )
    .await
    .expect("the processor opens");
    (log, processor)
}

async fn fill(log: &Log, op: &str) {
    let settings = TopicSettings {
        format: Format::Bytes,
        ..TopicSettings::default()
    };
    let name = "in".parse().expect("a name");
    let (topic, _) = log
        .create_topic(&name, settings)
        .await
        .expect("the topic is made");
    let value = format!("{op:x<VALUE_BYTES$}");
    for block in 0..EVENTS / BLOCK {
        let mut rows = PackedRows::default();
        for number in 0..BLOCK {
            let key = format!("key-{:012}", (block * BLOCK + number * 7) % KEYS);
            let time = Timestamp::from_micros(1);
            rows.push(time, Some(key.as_bytes()), Some(value.as_bytes()), [])
                .expect("it fits");
        }
        let mut draft = Draft::new();
        draft.append(topic.id, &rows, &[0; BLOCK]).expect("it fits");
        let ticket = log
            .commit(draft)
            .map_err(|(error, _)| error)
            .expect("it is taken");
        ticket.durable().await.expect("it is durable");
    }
}

/// Deploys; the compiled form comes from the cache, so this is a few milliseconds of a run.
async fn deploy(processor: &Processor, name: &str, dry_run: bool) {
    let manifest = json!({
        "input": [{"topic": "in", "start": "earliest"}],
        "output": {"out": {"topic": "out", "format": "bytes"}},
        "state": {"count": {"kind": "value"}},
    });
    let deploy = Deploy {
        name: name.parse().expect("a name"),
        component: component::guest("", include_str!("../tests/processor/scripted.wat")).into(),
        manifest: Some(manifest),
        start: None,
        state: KeepState::Keep,
        dry_run,
    };
    processor.deploy(deploy).await.expect("it deploys");
}

async fn through(processor: &Processor, name: &str) {
    let clock = Clock::system();
    while processor.describe(name).await.expect("it is there").tasks[0].lag > 0 {
        clock.sleep(Duration::from_millis(1)).await;
    }
}
