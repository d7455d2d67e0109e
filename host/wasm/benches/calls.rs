//! What a call costs: packing a batch, running it through a guest that lets nothing or everything
//! through, reading the answer; and what an instance costs.
//!
//! `cargo bench -p tidemill-wasm`. Values of 100 bytes, keys of 16, one header in four events.
//!
//! Medians on two shared cores of an AMD EPYC, in ns per event (the machine was busy with other work;
//! read them to within a third):
//!
//! | events in a batch | 1 | 10 | 100 | 256 |
//! |---|---|---|---|---|
//! | packing alone | 76 | 42 | 38 | 39 |
//! | checking the answer of passthrough alone | 41 | 18 | 16 | 16 |
//! | filter, whole way | 732 | 170 | 64 | 55 |
//! | passthrough, whole way | 812 | 165 | 101 | 99 |
//!
//! An instance out of the pool: 3.8 µs; with its first call: 8 µs.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a benchmark stops at what is wrong"
)]

#[path = "support/calling.rs"]
mod calling;
#[path = "../../../tests/guests/component.rs"]
mod component;

use calling::{CALL, instance, pack};
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use tidemill_types::{ByteSize, PackedRows, Timestamp};
use tidemill_wasm::{BatchPacker, Commands, Component, Sandbox, Settings};

const FILTER: &str = include_str!("../../../tests/guests/wat/filter.wat");
const PASSTHROUGH: &str = include_str!("../../../tests/guests/wat/passthrough.wat");
const BATCHES: [usize; 4] = [1, 10, 100, 256];

fn main() {
    divan::main();
}

fn compiled(fields: &str) -> (Sandbox, Component) {
    let settings = Settings {
        cache_dir: None,
        cache_bytes: ByteSize(0),
        instances: 16,
    };
    let sandbox = Sandbox::new(settings).expect("a sandbox");
    let component = sandbox
        .compile(&component::guest("", fields))
        .expect("sound");
    (sandbox, component)
}

fn rows(events: usize) -> PackedRows {
    let mut rows = PackedRows::default();
    for n in 0..events {
        let key = format!("key {n:012}");
        let headers: &[(&str, &[u8])] = if n % 4 == 0 {
            &[("source", b"gate-3")]
        } else {
            &[]
        };
        let time = Timestamp::from_micros(1_357_035_300_000_000);
        rows.push(
            time,
            Some(key.as_bytes()),
            Some(&[b'v'; 100]),
            headers.iter().copied(),
        )
        .expect("small");
    }
    rows
}

fn whole_way(bencher: Bencher<'_, '_>, events: usize, fields: &str) {
    let (sandbox, component) = compiled(fields);
    let mut instance = instance(&sandbox, &component);
    let rows = rows(events);
    let mut packer = BatchPacker::default();
    bencher.counter(ItemsCount::new(events)).bench_local(|| {
        let answer = instance
            .on_batch(CALL, pack(&mut packer, &rows, None))
            .expect("an answer");
        let commands = Commands::parse(&answer, events, 0, 1).expect("sound");
        for command in commands.iter() {
            black_box(command);
        }
    });
}

#[divan::bench(args = BATCHES)]
fn filter(bencher: Bencher<'_, '_>, events: usize) {
    whole_way(bencher, events, FILTER);
}

#[divan::bench(args = BATCHES)]
fn passthrough(bencher: Bencher<'_, '_>, events: usize) {
    whole_way(bencher, events, PASSTHROUGH);
}

#[divan::bench(args = BATCHES)]
fn pack_only(bencher: Bencher<'_, '_>, events: usize) {
    let rows = rows(events);
    let mut packer = BatchPacker::default();
    bencher.counter(ItemsCount::new(events)).bench_local(|| {
        black_box(pack(&mut packer, &rows, None));
    });
}

#[divan::bench(args = BATCHES)]
fn parse_only(bencher: Bencher<'_, '_>, events: usize) {
    let (sandbox, component) = compiled(PASSTHROUGH);
    let rows = rows(events);
    let answer = instance(&sandbox, &component)
        .on_batch(CALL, pack(&mut BatchPacker::default(), &rows, None))
        .expect("an answer");
    bencher.counter(ItemsCount::new(events)).bench_local(|| {
        black_box(Commands::parse(black_box(&answer), events, 0, 1).expect("sound"));
    });
}

#[divan::bench]
fn instantiate(bencher: Bencher<'_, '_>) {
    let (sandbox, component) = compiled(FILTER);
    bencher.bench_local(|| instance(&sandbox, &component));
}

/// As a start does it: the artefact is read from the cache, checked and mapped, and an instance made.
#[divan::bench]
fn load_and_instantiate(bencher: Bencher<'_, '_>) {
    let dir = tempfile::tempdir().expect("a folder");
    let sandbox = || {
        let settings = Settings {
            cache_dir: Some(dir.path().to_path_buf()),
            cache_bytes: ByteSize::mib(64),
            instances: 2,
        };
        Sandbox::new(settings).expect("a sandbox")
    };
    let bytes = component::guest("", FILTER);
    sandbox().compile(&bytes).expect("sound");
    bencher.with_inputs(sandbox).bench_local_values(|sandbox| {
        let component = sandbox.compile(&bytes).expect("sound");
        (instance(&sandbox, &component), sandbox)
    });
}

#[divan::bench]
fn instantiate_and_call_once(bencher: Bencher<'_, '_>) {
    let (sandbox, component) = compiled(FILTER);
    let rows = rows(1);
    let mut packer = BatchPacker::default();
    let packed = pack(&mut packer, &rows, None).to_vec();
    bencher.bench_local(|| instance(&sandbox, &component).on_batch(CALL, &packed));
}
