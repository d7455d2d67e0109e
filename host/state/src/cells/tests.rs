//! What memory knows, and what leaves it.

use super::*;

fn set(cells: &mut Cells, commit: u64, key: &[u8], value: &[u8]) {
    cells.apply(
        CommitSeq(commit),
        Change::Set {
            slot: 0,
            key,
            value,
        },
    );
}

fn delete(cells: &mut Cells, commit: u64, key: &[u8]) {
    cells.apply(CommitSeq(commit), Change::Delete { slot: 0, key });
}

/// Sweeps until nothing more goes: the first round only takes away the second chance.
fn squeeze(cells: &mut Cells, written: u64) -> usize {
    (0..3)
        .map(|_| {
            cells
                .sweep(CommitSeq(written), usize::MAX, u64::MAX)
                .removed
        })
        .sum()
}

#[test]
fn knows_values_and_absence() {
    let mut cells = Cells::new(true);
    set(&mut cells, 1, b"a", b"1");
    assert_eq!(cells.get(0, b"a"), Known::Value(b"1"));
    assert_eq!(cells.get(1, b"a"), Known::Absent, "another slot");
    set(&mut cells, 2, b"a", b"");
    assert_eq!(cells.get(0, b"a"), Known::Value(b""), "empty is not absent");
    delete(&mut cells, 3, b"a");
    assert_eq!((cells.get(0, b"a"), cells.values()), (Known::Absent, 0));
    let mut part = Cells::new(false);
    assert_eq!(part.get(0, b"a"), Known::Unknown);
    delete(&mut part, 1, b"a");
    assert_eq!(
        part.get(0, b"a"),
        Known::Absent,
        "a delete is remembered although the store may have it"
    );
    part.apply(CommitSeq(2), Change::Clear);
    assert_eq!(
        (part.get(0, b"x"), part.bytes()),
        (Known::Absent, 0),
        "after a clear nothing is anywhere"
    );
}

#[test]
fn drops_only_what_is_written_back() {
    let mut cells = Cells::new(true);
    for key in 0..10u8 {
        set(&mut cells, u64::from(key), &[key], b"value");
    }
    assert_eq!(squeeze(&mut cells, 4), 5);
    assert_eq!(cells.get(0, &[4]), Known::Unknown);
    assert_eq!(cells.get(0, &[5]), Known::Value(b"value"));
    assert_eq!(squeeze(&mut cells, 100), 5);
    assert_eq!(
        (cells.bytes(), cells.values(), cells.complete()),
        (0, 0, false)
    );
}

#[test]
fn what_was_used_gets_a_second_chance() {
    let mut cells = Cells::new(true);
    set(&mut cells, 1, b"hot", b"1");
    set(&mut cells, 1, b"cold", b"1");
    assert_eq!(cells.sweep(CommitSeq(1), usize::MAX, u64::MAX).removed, 0);
    cells.get(0, b"hot");
    assert_eq!(cells.sweep(CommitSeq(1), usize::MAX, u64::MAX).removed, 1);
    assert_eq!(cells.get(0, b"hot"), Known::Value(b"1"));
}

#[test]
fn loaded_values_stay_for_who_loaded_them_and_never_hide_newer_ones() {
    let mut cells = Cells::new(false);
    set(&mut cells, 5, b"a", b"newer");
    cells.begin_load();
    cells.take_in(0, b"a", Some(b"old"));
    cells.take_in(0, b"b", Some(b"stored"));
    cells.take_in(0, b"c", None);
    assert_eq!(squeeze(&mut cells, 9), 0);
    assert_eq!(cells.get(0, b"a"), Known::Value(b"newer"));
    assert_eq!(cells.get(0, b"b"), Known::Value(b"stored"));
    assert_eq!(cells.get(0, b"c"), Known::Absent);
    cells.begin_load();
    cells.begin_load();
    assert_eq!(squeeze(&mut cells, 9), 3);
    assert_eq!(cells.losses(), (3, CommitSeq(5), 0));
}

#[test]
fn places_are_used_again_and_given_back() {
    let mut cells = Cells::new(true);
    for key in 0..50_000u64 {
        set(&mut cells, key, &key.to_be_bytes(), b"value");
    }
    let most = cells.table.num_buckets();
    squeeze(&mut cells, 49_900);
    assert!(cells.table.num_buckets() < most / 8);
    assert_eq!(
        (0..50_000u64)
            .filter(|key| cells.get(0, &key.to_be_bytes()) != Known::Unknown)
            .count(),
        99
    );
}

#[test]
fn an_ordered_slot_keeps_its_order_through_everything() {
    let slot = ORDERED_SLOTS + 1;
    let mut cells = Cells::new(true);
    let put = |cells: &mut Cells, commit: u64, slot: u16, key: &[u8]| {
        let change = Change::Set {
            slot,
            key,
            value: b"v",
        };
        cells.apply(CommitSeq(commit), change);
    };
    for (commit, key) in [(1, b"b"), (2, b"a"), (3, b"d"), (4, b"c")] {
        put(&mut cells, commit, slot, key);
        put(&mut cells, commit, slot + 1, key);
    }
    let keys = |cells: &Cells, from: &[u8]| -> Vec<(Vec<u8>, bool)> {
        let held = cells.ordered(slot, from);
        held.map(|(key, value)| (key.to_vec(), value.is_some()))
            .collect()
    };
    let of = |text: &[u8]| text.to_vec();
    assert_eq!(
        keys(&cells, b"b"),
        [(of(b"b"), true), (of(b"c"), true), (of(b"d"), true)]
    );
    cells.apply(CommitSeq(5), Change::Delete { slot, key: b"c" });
    assert_eq!(keys(&cells, b"c"), [(of(b"c"), false), (of(b"d"), true)]);
    cells.drop_absence(slot, b"c", CommitSeq(5));
    assert_eq!(keys(&cells, b"c"), [(of(b"d"), true)]);
    assert_eq!(squeeze(&mut cells, 2), 4, "a and b of both slots");
    assert_eq!(keys(&cells, b""), [(of(b"d"), true)]);
    cells.apply(CommitSeq(6), Change::Clear);
    assert_eq!((keys(&cells, b"").len(), cells.bytes()), (0, 0));
}

#[test]
fn dead_values_leave_memory_once_they_are_written_back() {
    let mut cells = Cells::new(true);
    for (commit, key) in [(1, b"a"), (2, b"b"), (3, b"c")] {
        set(
            &mut cells,
            commit,
            key,
            if key == b"b" { b"new" } else { b"old" },
        );
    }
    let dead = |value: &[u8]| value == b"old";
    let mut next = Some(0);
    while let Some(from) = next {
        next = cells.drop_dead(0, CommitSeq(2), from, 2, &dead);
    }
    assert_eq!(cells.get(0, b"a"), Known::Absent);
    assert_eq!(cells.get(0, b"b"), Known::Value(b"new"));
    assert_eq!(cells.get(0, b"c"), Known::Value(b"old"), "not written yet");
    assert_eq!((cells.values(), cells.losses()), (2, (1, CommitSeq(1), 0)));
}

#[test]
fn absences_go_when_written_in_a_complete_scope() {
    let mut cells = Cells::new(true);
    set(&mut cells, 1, b"a", b"1");
    delete(&mut cells, 2, b"a");
    cells.drop_absence(0, b"a", CommitSeq(1));
    assert!(cells.bytes() > 0, "not written yet");
    cells.drop_absence(0, b"a", CommitSeq(2));
    assert_eq!((cells.bytes(), cells.get(0, b"a")), (0, Known::Absent));
}
