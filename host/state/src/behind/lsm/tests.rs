use super::*;
use crate::keys::PREFIX_BYTES;
use std::ops::ControlFlow;
use tidemill_types::CommitSeq;

const MEMORY: u64 = 8 << 20;
/// Keys that each batch writes.
const COMMON: u32 = 1000;

fn key(n: u32) -> Vec<u8> {
    [&[1; PREFIX_BYTES][..], &n.to_be_bytes()].concat()
}

/// Writes some keys with the commit's value, which is the marker, too.
fn write(store: &dyn Behind, keys: impl Iterator<Item = u32>, commit: u8) -> Result<(), Failure> {
    let write = |n| Write {
        key: key(n),
        value: Some(vec![commit; 100].into()),
    };
    let writes: Vec<_> = keys.map(write).collect();
    store.write(&writes, Some(Marker::Exact(CommitSeq(commit.into()))))
}

/// A batch of keys that all batches write, and one of its own.
fn write_batch(store: &dyn Behind, commit: u8) {
    let keys = (0..COMMON).chain([COMMON + u32::from(commit)]);
    write(store, keys, commit).expect("written");
}

/// All keys and their commits, as of a view.
fn all(view: &dyn View) -> Vec<(Vec<u8>, u8)> {
    let mut all = Vec::new();
    let from = [0; PREFIX_BYTES];
    let scanned = view.scan(Bound::Included(&from), None, &mut |key, value| {
        all.push((key.to_vec(), value[0]));
        ControlFlow::Continue(())
    });
    scanned.expect("read");
    all
}

fn now(store: &dyn Behind) -> Vec<(Vec<u8>, u8)> {
    all(&*store.view().expect("a view"))
}

/// What is there after so many batches.
fn after(commit: u8) -> Vec<(Vec<u8>, u8)> {
    let common = (0..COMMON).filter(|_| commit > 0);
    let common = common.map(|n| (key(n), commit));
    let own = (1..=commit).map(|commit| (key(COMMON + u32::from(commit)), commit));
    common.chain(own).collect()
}

/// The last commit that a store has; what it has is all of that.
fn check(store: &dyn Behind) -> u8 {
    let commit = match store.marker() {
        Ok(Marker::Empty) => 0,
        Ok(Marker::Exact(commit)) => u8::try_from(commit.0).expect("small"),
        other => unreachable!("{other:?}"),
    };
    assert!(now(store) == after(commit), "commit {commit} isn't whole");
    commit
}

#[test]
fn a_process_that_is_killed_leaves_whole_batches_and_at_least_what_was_persisted() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut persisted = 0;
    for (start, batches) in [30, 60, 3, 40].into_iter().enumerate() {
        let store = open(dir.path(), MEMORY).expect("opens");
        let mut commit = check(&*store);
        assert!(
            commit >= persisted,
            "{commit} of {persisted} in start {start}"
        );
        for _ in 0..batches {
            commit += 1;
            write_batch(&*store, commit);
        }
        if start != 1 {
            store.persist().expect("persisted");
            persisted = commit;
        }
        write_batch(&*store, commit + 1);
        assert_eq!(check(&*store), commit + 1);
    }
    let store = open(dir.path(), MEMORY).expect("opens");
    assert_eq!(
        check(&*store),
        persisted,
        "the last batch was in memory only"
    );
}

#[test]
fn what_was_filled_after_a_clearing_outlasts_starts() {
    const KEYS: u32 = 60_000;
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), MEMORY).expect("opens");
    (1..=90).for_each(|commit| write_batch(&*store, commit));
    store.clear().expect("cleared");
    assert_eq!(store.marker(), Ok(Marker::Empty));
    let mut fill = store.fill().expect("a fill");
    for n in 0..KEYS {
        fill.push(&key(n), Some(&[7; 100])).expect("taken");
    }
    fill.finish().expect("filled");
    assert_eq!(store.marker(), Ok(Marker::Torn), "it doesn't say of what");
    // A second run over the first.
    let mut fill = store.fill().expect("a fill");
    fill.push(&key(1), None).expect("taken");
    fill.push(&key(2), Some(&[8])).expect("taken");
    fill.finish().expect("filled");
    let marked = store.write(&[], Some(Marker::Exact(CommitSeq(9))));
    marked.expect("marked");
    store.persist().expect("persisted");
    drop(store);
    for _ in 0..2 {
        let store = open(dir.path(), MEMORY).expect("opens");
        assert_eq!(store.marker(), Ok(Marker::Exact(CommitSeq(9))));
        let expected = (0..KEYS).filter(|n| *n != 1);
        let expected = expected.map(|n| (key(n), if n == 2 { 8 } else { 7 }));
        assert!(now(&*store) == expected.collect::<Vec<_>>());
        let gone = key(COMMON + 90);
        let mut found = None;
        let read = store.get_many(&[key(2), key(1), gone], &mut |at, value| {
            found = found
                .take()
                .or_else(|| value.map(|value| (at, value.to_vec())));
        });
        read.expect("read");
        assert_eq!(found, Some((0, vec![8])));
    }
}

#[test]
fn what_was_filled_and_not_finished_is_not_there() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), MEMORY).expect("opens");
    write_batch(&*store, 1);
    store.persist().expect("persisted");
    let mut fill = store.fill().expect("a fill");
    (0..50_000).for_each(|n| fill.push(&key(n), Some(b"x")).expect("taken"));
    drop(fill);
    assert_eq!(check(&*store), 1);
    drop(store);
    assert_eq!(check(&*open(dir.path(), MEMORY).expect("opens")), 1);
}

#[test]
fn a_view_shows_its_moment_whatever_is_written_and_compacted_meanwhile() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), MEMORY).expect("opens");
    (1..=50).for_each(|commit| write_batch(&*store, commit));
    let (view, pass) = (store.view().expect("a view"), store.pass().expect("a pass"));
    (51..=250).for_each(|commit| write_batch(&*store, commit));
    store.persist().expect("persisted");
    assert!(all(&*view) == after(50));
    assert_eq!(view.value(&key(0)), Ok(Some(vec![50; 100])));
    assert_eq!(view.value(&key(COMMON + 51)), Ok(None));
    let mut passed = Vec::new();
    let done = pass(&mut |key, value| {
        passed.push((key.to_vec(), value[0]));
        ControlFlow::Continue(())
    });
    done.expect("passed");
    assert!(passed == after(50));
    assert_eq!(check(&*store), 250);
}

#[test]
fn what_other_layouts_left_goes_and_one_process_has_the_folder() {
    let dir = tempfile::tempdir().expect("a folder");
    let keyspace = dir.path().join("keyspaces/1");
    std::fs::create_dir_all(&keyspace).expect("made");
    for file in [keyspace.join("v3"), dir.path().join("0.jnl")] {
        std::fs::write(file, "of old").expect("written");
    }
    let store = open(dir.path(), MEMORY).expect("opens");
    assert!(matches!(open(dir.path(), MEMORY), Err(Failure::InUse)));
    assert_eq!(store.marker(), Ok(Marker::Empty));
    write_batch(&*store, 1);
    store.persist().expect("persisted");
    let mut left: Vec<_> = std::fs::read_dir(dir.path())
        .expect("read")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    left.sort();
    assert_eq!(left, [LOCK, TREE]);
    // Who still reads has it, too.
    let view = store.view().expect("a view");
    drop(store);
    assert!(matches!(open(dir.path(), MEMORY), Err(Failure::InUse)));
    drop(view);
    assert_eq!(check(&*open(dir.path(), MEMORY).expect("opens")), 1);
}

#[test]
fn while_files_cannot_be_written_all_stays_readable_and_nothing_more_is_taken() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), MEMORY).expect("opens");
    let tables = dir.path().join(TREE).join("tables");
    let aside = dir.path().join("aside");
    std::fs::rename(&tables, &aside).expect("moved");
    let mut commit = 0;
    let refused = loop {
        let next = commit + 1;
        let keys = (0..COMMON).chain([COMMON + u32::from(next)]);
        match write(&*store, keys, next) {
            Ok(()) => commit = next,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, Failure::Unwritable(_)), "{refused:?}");
    assert!(commit > 0 && check(&*store) == commit);
    assert!(matches!(store.persist(), Err(Failure::Unwritable(_))));
    std::fs::rename(&aside, &tables).expect("moved back");
    write_batch(&*store, commit + 1);
    store.persist().expect("persisted");
    drop(store);
    assert_eq!(
        check(&*open(dir.path(), MEMORY).expect("opens")),
        commit + 1
    );
}
