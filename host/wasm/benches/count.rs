//! What a keyed count costs in the sandbox alone: packing events and the states of their keys, the call
//! of `bench-count`, the check of its answer; no log and no state around them.
//!
//! `cargo run --release -- bench functions` builds the function (or `build tests/guests`), then
//! `cargo bench -p tidemill-wasm --bench count`.

#![expect(clippy::expect_used, reason = "a benchmark stops at what is wrong")]

#[path = "support/built.rs"]
mod built;
#[path = "support/calling.rs"]
mod calling;

use calling::{CALL, pack};
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use tidemill_types::{PackedRows, Timestamp};
use tidemill_wasm::{BatchPacker, Commands};

const BATCH: u32 = 256;
const BATCHES: u32 = 32;
const STATE: &[u8] = br#"{"events":71,"last":163840}"#;

fn main() {
    divan::main();
}

/// Events of about 200 bytes, each of a key of its own.
fn events(batch: u32) -> PackedRows {
    let mut rows = PackedRows::default();
    for n in batch * BATCH..(batch + 1) * BATCH {
        let key = format!("k{n:09}");
        let pad = "x".repeat(120);
        let value = format!(
            r#"{{"user":"{key}","time":"2026-01-01T00:00:00.000Z","n":{n},"text":"{pad}"}}"#
        );
        let time = Timestamp::from_micros(0);
        rows.push(time, Some(key.as_bytes()), Some(value.as_bytes()), [])
            .expect("small");
    }
    rows
}

/// Packing, call, check of the answer.
#[divan::bench]
fn count(bencher: Bencher<'_, '_>) {
    let mut instance = built::instance(
        "tests/guests",
        "bench_count",
        "`cargo run --release -- bench functions` first",
    );
    let mut packer = BatchPacker::default();
    let input: Vec<PackedRows> = (0..BATCHES).map(events).collect();
    bencher
        .counter(ItemsCount::new(BATCH * BATCHES))
        .bench_local(|| {
            for rows in &input {
                let packed = pack(&mut packer, rows, Some(STATE));
                let answer = instance.on_batch(CALL, packed).expect("an answer");
                let commands = Commands::parse(&answer, rows.len(), 1, 1).expect("sound");
                for command in commands.iter() {
                    black_box(command);
                }
            }
        });
}
