//! Batches against golden bytes and against a reader that follows `wit/README.md`.

use super::*;
use crate::golden;
use proptest::prelude::*;
use tidemill_types::{CommitSeq, PackedRows, Timestamp};

fn event(rows: &PackedRows, row: usize, offset: u64, ingest_micros: i64) -> Event<'_> {
    Event {
        offset,
        ingest_time: Timestamp::from_micros(ingest_micros),
        commit: CommitSeq(1),
        row: rows.event(row),
    }
}

fn pack_golden(packer: &mut BatchPacker) {
    let rows = golden::rows();
    let start = rows.event(0).time.micros();
    packer.begin(1);
    packer.push(&event(&rows, 0, 12, start + 5_000_000), 0);
    packer.push(&event(&rows, 1, 13, start + 5_000_000), 0);
    packer.push(&event(&rows, 2, 15, start + 6_000_000), 1);
    packer.state(&[StateCell::Value(b"7")]);
    packer.state(&[StateCell::Absent]);
}

#[test]
fn batches_have_golden_bytes() {
    let mut packer = BatchPacker::default();
    pack_golden(&mut packer);
    assert_eq!(packer.bytes(), golden::bytes("batch.hex").len());
    assert_eq!(packer.finish(), golden::bytes("batch.hex"));
}

#[test]
fn batches_with_ends_clocks_and_timers_have_golden_bytes() {
    let time: Timestamp = "2013-01-01T10:15:00Z".parse().expect("a time");
    let start = time.micros();
    let key = Some(b"UA".as_slice());
    let mut rows = PackedRows::default();
    rows.push(time, key, Some(b"1"), []).expect("push");
    let second = Timestamp::from_micros(start + 1_000_000);
    rows.push(second, key, Some(b"2"), []).expect("push");
    let mut packer = BatchPacker::default();
    packer.begin(2);
    let ttl = SlotTtl {
        clock: Clock::Event,
        micros: 60_000_000,
    };
    packer.ttls(&[Some(ttl), None]);
    for (row, watermark) in [(0, i64::MIN), (1, start - 1)] {
        packer.push(&event(&rows, row, 12 + row as u64, start + 5_000_000), 0);
        packer.clock(watermark);
    }
    packer.state(&[
        StateCell::Until(start + 60_000_000, b"7"),
        StateCell::Absent,
    ]);
    assert_eq!(packer.bytes(), golden::bytes("batch-state.hex").len());
    assert_eq!(packer.finish(), golden::bytes("batch-state.hex"));

    let mut rows = PackedRows::default();
    rows.push(time, key, Some(b"[1]"), [("tag", b"late".as_slice())])
        .expect("push");
    packer.begin(0);
    packer.timer(&event(&rows, 0, 3, start + 7), Clock::Processing, 0);
    packer.clock(start - 1);
    assert_eq!(packer.finish(), golden::bytes("batch-timer.hex"));
}

#[test]
fn a_packer_forgets_the_batch_before() {
    let mut packer = BatchPacker::default();
    let rows = golden::rows();
    packer.begin(0);
    packer.push(&event(&rows, 0, 1, 2), 9);
    let without_slots = packer.finish().to_vec();
    pack_golden(&mut packer);
    assert_eq!(packer.finish(), golden::bytes("batch.hex"));
    packer.begin(0);
    packer.push(&event(&rows, 0, 1, 2), 9);
    assert_eq!(packer.finish(), without_slots);
    packer.begin(3);
    assert_eq!(packer.finish().len(), 48);
    assert_eq!(packer.bytes(), 48);
}

type Cells = Vec<Option<Vec<u8>>>;
type Row = (
    i64,
    Option<Vec<u8>>,
    Option<Vec<u8>>,
    Vec<(String, Vec<u8>)>,
    u64,
    i64,
);

/// What the reader below finds in a batch: its rows with their key numbers, and the cells per key.
struct Read {
    rows: Vec<Row>,
    key_index: Vec<u32>,
    state: Vec<Cells>,
}

/// Reads a batch by the tables of the contract and nothing else.
fn read(bytes: &[u8]) -> Read {
    let u16_at = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().expect("2"));
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4")) as usize;
    let i64_at = |at: usize| i64::from_le_bytes(bytes[at..at + 8].try_into().expect("8"));
    assert_eq!((bytes[0], bytes[1]), (1, 0));
    let (slots, count, keys) = (usize::from(u16_at(2)), u32_at(4), u32_at(8));
    let blocks = [12, 16, 20, 24, 28, 32].map(u32_at);
    assert!(blocks.iter().all(|at| at % 8 == 0), "{blocks:?}");
    let [heads, offsets, ingest, key_index, state, payload] = blocks;
    assert_eq!(heads, 48);
    assert_eq!(payload + u32_at(36), bytes.len());
    let slice = |at: usize, len: usize| bytes[payload + at..payload + at + len].to_vec();
    let rows = (0..count).map(|i| {
        let head = heads + 32 * i;
        let flags = u32_at(head + 28);
        let value_at = u32_at(head + 16);
        let value_len = u32_at(head + 20);
        let mut left = slice(value_at + value_len, u32_at(head + 24));
        let mut headers = Vec::new();
        while !left.is_empty() {
            let name = usize::from(u16::from_le_bytes([left[0], left[1]]));
            let value = u32::from_le_bytes(left[2..6].try_into().expect("4")) as usize;
            let rest = left.split_off(6);
            let text = String::from_utf8(rest[..name].to_vec()).expect("UTF-8");
            headers.push((text, rest[name..name + value].to_vec()));
            left = rest[name + value..].to_vec();
        }
        (
            i64_at(head),
            (flags & 1 != 0).then(|| slice(u32_at(head + 8), u32_at(head + 12))),
            (flags & 2 == 0).then(|| slice(value_at, value_len)),
            headers,
            i64_at(offsets + 8 * i).cast_unsigned(),
            i64_at(ingest + 8 * i),
        )
    });
    let indices = if slots > 0 { count } else { 0 };
    Read {
        rows: rows.collect(),
        key_index: (0..indices)
            .map(|i| u32::try_from(u32_at(key_index + 4 * i)).expect("u32"))
            .collect(),
        state: (0..keys)
            .map(|k| {
                let cell = |s: usize| state + 8 * (k * slots + s);
                (0..slots)
                    .map(|s| (u32_at(cell(s)), u32_at(cell(s) + 4)))
                    .map(|(at, len)| (len != 0xFFFF_FFFF).then(|| slice(at, len)))
                    .collect()
            })
            .collect(),
    }
}

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..max)
}

fn row() -> impl Strategy<Value = Row> {
    let header = ("\\PC{0,6}", bytes(6));
    (
        any::<i64>(),
        proptest::option::of(bytes(9)),
        proptest::option::of(bytes(40)),
        proptest::collection::vec(header, 0..3),
        any::<u64>(),
        any::<i64>(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_reader_finds_what_was_packed(
        events in proptest::collection::vec((row(), 0u32..4), 0..20),
        state in (0usize..4).prop_flat_map(|slots| proptest::collection::vec(
            proptest::collection::vec(proptest::option::of(bytes(12)), slots), 0..5)),
        expected in proptest::option::of((0usize..20, 0usize..5, any::<bool>())),
        exactly in any::<bool>(),
    ) {
        let slots = state.first().map_or(0, Vec::len);
        let state: Vec<Cells> = if slots == 0 { Vec::new() } else { state };
        let mut rows = PackedRows::default();
        for ((time, key, value, headers, _, _), _) in &events {
            let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
            rows.push(Timestamp::from_micros(*time), key.as_deref(), value.as_deref(), headers).expect("push");
        }
        let mut packer = BatchPacker::default();
        packer.begin(slots);
        match expected {
            Some(_) if exactly => packer.expect(events.len(), state.len(), false),
            Some((events, keys, clocked)) => packer.expect(events, keys, clocked),
            None => {}
        }
        for (i, ((_, _, _, _, offset, ingest), key)) in events.iter().enumerate() {
            packer.push(&event(&rows, i, *offset, *ingest), *key);
        }
        for cells in &state {
            let cells: Vec<_> = cells.iter().map(|c| c.as_deref().map_or(StateCell::Absent, StateCell::Value)).collect();
            packer.state(&cells);
        }
        let expected_bytes = packer.bytes();
        let packed = packer.finish();
        prop_assert_eq!(packed.len(), expected_bytes);
        let found = read(packed);
        prop_assert_eq!(found.rows, events.iter().map(|(row, _)| row.clone()).collect::<Vec<_>>());
        let keys: Vec<u32> = if slots > 0 { events.iter().map(|(_, key)| *key).collect() } else { Vec::new() };
        prop_assert_eq!(found.key_index, keys);
        prop_assert_eq!(found.state, state);
    }
}
