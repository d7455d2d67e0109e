//! What real functions cost in the sandbox alone: `delayed-flights` over flights as they lie in the
//! topic, and `parse-flights` over raw rows; packing, call and check of the answer, no log around them.
//!
//! `cargo run --release -- build functions` first, then `cargo bench -p tidemill-wasm --bench flights`.

#![expect(clippy::expect_used, reason = "a benchmark stops at what is wrong")]

#[path = "support/built.rs"]
mod built;
#[path = "support/calling.rs"]
mod calling;

use calling::{CALL, pack};
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use flate2::read::GzDecoder;
use std::io::{BufRead, BufReader};
use tidemill_types::{PackedRows, Timestamp};
use tidemill_wasm::{BatchPacker, Command, Commands, Instance};

const BATCH: usize = 256;
const BATCHES: usize = 32;

fn main() {
    divan::main();
}

fn instance(name: &str) -> Instance {
    built::instance(
        "functions",
        name,
        "`cargo run --release -- build functions` first",
    )
}

/// Rows of January as JSON objects of texts, as `tidemill produce` sends them.
fn raw() -> Vec<PackedRows> {
    let file = std::fs::File::open(built::project().join("functions/data/flights-2013-01.csv.gz"))
        .expect("the month");
    let mut lines = BufReader::new(GzDecoder::new(file))
        .lines()
        .map(|line| line.expect("text"));
    let names = lines.next().expect("a header");
    let names: Vec<&str> = names.split(',').collect();
    let values: Vec<String> = lines
        .take(BATCH * BATCHES)
        .map(|line| {
            let fields: Vec<String> = names
                .iter()
                .zip(line.split(','))
                .map(|(name, field)| format!("\"{name}\":\"{field}\""))
                .collect();
            format!("{{{}}}", fields.join(","))
        })
        .collect();
    values
        .chunks(BATCH)
        .map(|some| packed(some.iter().map(|value| (b"".as_slice(), value.as_bytes()))))
        .collect()
}

fn packed<'v>(events: impl Iterator<Item = (&'v [u8], &'v [u8])>) -> PackedRows {
    let mut rows = PackedRows::default();
    for (key, value) in events {
        rows.push(Timestamp::from_micros(0), Some(key), Some(value), [])
            .expect("small");
    }
    rows
}

fn call(instance: &mut Instance, packer: &mut BatchPacker, rows: &PackedRows) -> Vec<u8> {
    instance
        .on_batch(CALL, pack(packer, rows, None))
        .expect("an answer")
}

fn measure(bencher: Bencher<'_, '_>, name: &str, input: &[PackedRows]) {
    let mut instance = instance(name);
    let mut packer = BatchPacker::default();
    let events: usize = input.iter().map(PackedRows::len).sum();
    bencher.counter(ItemsCount::new(events)).bench_local(|| {
        for rows in input {
            let answer = call(&mut instance, &mut packer, rows);
            let commands = Commands::parse(&answer, rows.len(), 0, 1).expect("sound");
            for command in commands.iter() {
                black_box(command);
            }
        }
    });
}

#[divan::bench]
fn parse_flights(bencher: Bencher<'_, '_>) {
    measure(bencher, "parse_flights", &raw());
}

#[divan::bench]
fn delayed_flights(bencher: Bencher<'_, '_>) {
    let mut parser = instance("parse_flights");
    let mut packer = BatchPacker::default();
    let flights: Vec<PackedRows> = raw()
        .iter()
        .map(|rows| {
            let answer = call(&mut parser, &mut packer, rows);
            let commands = Commands::parse(&answer, rows.len(), 0, 1).expect("sound");
            packed(commands.iter().filter_map(|(_, command)| match command {
                Command::Emit(emit) => {
                    Some((emit.key.unwrap_or_default(), emit.value.unwrap_or_default()))
                }
                _ => None,
            }))
        })
        .collect();
    measure(bencher, "delayed_flights", &flights);
}
