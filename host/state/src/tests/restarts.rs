//! What snapshots have after starts: what changed, and nothing is missing in the end.

use super::bucket::{Bucket, bucket, opened, random, started};
use super::model::{Own, fold, section};
use super::{InMemory, State, over, scope, stored};
use crate::behind::Map;
use crate::{Scope, Store};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidemill_env::objects::Objects;
use tidemill_types::CommitSeq;

/// A host's journal, bucket and last named snapshot, over as many starts as it takes.
struct Machine {
    bucket: Arc<Bucket>,
    objects: Objects,
    /// Behind the snapshot.
    journal: BTreeMap<u64, Vec<u8>>,
    /// All that ever was.
    state: State,
    commit: u64,
    snapshot: Option<(String, CommitSeq)>,
    nonces: u32,
}

impl Machine {
    fn new() -> Self {
        let (bucket, objects) = bucket();
        Self {
            bucket,
            objects,
            journal: BTreeMap::new(),
            state: State::new(),
            commit: 0,
            snapshot: None,
            nonces: 0,
        }
    }

    fn named(&self) -> Option<(&str, CommitSeq)> {
        let named = self.snapshot.as_ref();
        named.map(|(path, commit)| (path.as_str(), *commit))
    }

    async fn start(&self, store: &Store) {
        let upto = started(store, &self.objects, self.named(), &self.journal).await;
        let path = self.named().map(|(path, _)| path);
        let swept = store.sweep(&self.objects, path, upto).await;
        swept.expect("swept");
    }

    /// A durable transaction.
    fn commit(&mut self, store: &Store, scope: Scope, list: &[Own]) {
        self.commit += 1;
        let section = section(scope, list);
        store
            .apply(CommitSeq(self.commit), &section)
            .expect("applies");
        store.durable(CommitSeq(self.commit));
        fold(&mut self.state, &section);
        self.journal.insert(self.commit, section);
    }

    fn put(&mut self, store: &Store, keys: std::ops::Range<u64>) {
        for key in keys {
            let value = random(key ^ self.commit << 32);
            let set = Own::Set(0, key.to_be_bytes().to_vec(), value);
            self.commit(store, scope(1, 0), &[set]);
        }
    }

    /// A snapshot that the manifest names: then the journal is cut. Gives how many bytes it added.
    async fn snapshot(&mut self, store: &Store) -> usize {
        self.nonces += 1;
        let (nonce, before) = (format!("n{}", self.nonces), self.bucket.bytes());
        let taken = store.snapshot(&self.objects, &nonce).await.expect("taken");
        let added = self.bucket.bytes() - before;
        self.journal.retain(|commit, _| *commit > taken.1.0);
        if let Some((old, _)) = self.snapshot.replace(taken) {
            store.retire(&self.objects, &old).await.expect("retired");
        }
        added
    }

    /// What a machine without a disk makes of bucket and journal.
    async fn rebuilt(&self) -> State {
        let copy = over(&Map::default(), 1 << 20);
        started(&copy, &self.objects, self.named(), &self.journal).await;
        while copy.engine().step() == crate::engine::Step::Wrote {}
        stored(copy.engine())
    }
}

#[tokio::test]
async fn a_snapshot_after_a_restart_has_what_changed_since_the_last_one() {
    let mut machine = Machine::new();
    let mut disks = vec![tempfile::tempdir().expect("folder")];
    let store = opened(&disks[0]);
    machine.put(&store, 0..2000);
    let whole = machine.snapshot(&store).await;
    assert!(whole > 900_000);
    store.close();
    drop(store);
    // What the disk behind has of it is more than the snapshot, or nothing at all, or a part of it.
    for (start, keys, closes, is_lost) in [
        (0u64, 3, true, false),
        (1, 5, true, false),
        (2, 4, false, true),
        (3, 0, true, false),
        (4, 6, false, false),
        (5, 2, true, true),
    ] {
        if is_lost {
            disks.push(tempfile::tempdir().expect("folder"));
        }
        let disk = disks.last().expect("one");
        let store = opened(disk);
        machine.start(&store).await;
        machine.put(&store, start * 10..start * 10 + keys);
        if closes {
            store.close();
        }
        drop(store);
        let store = opened(disk);
        machine.start(&store).await;
        let (added, most) = (machine.snapshot(&store).await, 3000 + 600 * keys);
        assert!(
            added < usize::try_from(most).expect("small"),
            "start {start} added {added} bytes"
        );
        store.close();
        drop(store);
        assert!(machine.rebuilt().await == machine.state, "start {start}");
    }
}

#[tokio::test]
async fn what_is_cleared_is_told_in_few_bytes_also_after_a_restart() {
    let mut machine = Machine::new();
    let disk = tempfile::tempdir().expect("folder");
    let store = opened(&disk);
    machine.put(&store, 0..1000);
    for function in [2, 3] {
        let set = Own::Set(7, b"k".to_vec(), random(1));
        machine.commit(&store, scope(function, 5), &[set]);
    }
    machine.snapshot(&store).await;
    // A function is forgotten, as if its deletion had told its partitions, too.
    machine.commit(&store, scope(3, 5), &[Own::Clear]);
    store.forget(scope(3, 5).function);
    assert!(machine.snapshot(&store).await < 3000);
    assert!(machine.rebuilt().await == machine.state);
    let again = Own::Set(0, b"again".to_vec(), b"1".to_vec());
    machine.commit(&store, scope(1, 0), &[Own::Clear, again]);
    store.close();
    drop(store);
    let store = opened(&disk);
    machine.start(&store).await;
    assert!(machine.snapshot(&store).await < 3000);
    assert_eq!(machine.state.len(), 2);
    assert!(machine.rebuilt().await == machine.state);
}

#[tokio::test]
async fn everything_is_written_again_once_changes_have_as_much() {
    let mut machine = Machine::new();
    let store = over(&Map::default(), 1 << 20);
    machine.put(&store, 0..100);
    let whole = machine.snapshot(&store).await;
    let mut objects = Vec::new();
    for _ in 0..5 {
        machine.put(&store, 0..40);
        machine.snapshot(&store).await;
        objects.push(machine.bucket.listed().len());
        assert!(machine.bucket.bytes() < 2 * whole + whole / 2);
    }
    // The index, the base and up to three times 40 of 100 values.
    assert_eq!(objects, [3, 4, 5, 2, 3]);
    assert!(machine.rebuilt().await == machine.state);
}

#[tokio::test]
async fn where_sections_are_missing_or_objects_are_gone_everything_is_written_again() {
    for is_told in [true, false] {
        let mut machine = Machine::new();
        let map = Map::default();
        let store = over(&map, 1 << 20);
        machine.put(&store, 0..200);
        let whole = machine.snapshot(&store).await;
        if is_told {
            // The journal behind the snapshot is gone, and with it what the store behind got of it.
            machine.put(&store, 0..5);
            while store.engine().step() == crate::engine::Step::Wrote {}
            machine.journal.clear();
        } else {
            let parts = machine.bucket.listed();
            let part = parts.keys().find(|path| path.ends_with("-00000"));
            let gone = machine.objects.delete(part.expect("an object")).await;
            gone.expect("deleted");
        }
        let store = over(&map, 1 << 20);
        machine.start(&store).await;
        if is_told {
            store.anything_changed();
        }
        assert!(machine.snapshot(&store).await > whole - whole / 10);
        assert!(machine.rebuilt().await == machine.state);
    }
}

/// Noting them would take a start longer than all else.
#[tokio::test]
async fn after_very_many_changes_that_a_start_reads_of_everything_is_written_again() {
    const KEYS: u64 = 110_000;
    let mut machine = Machine::new();
    let map = Map::default();
    let store = over(&map, 1 << 20);
    let put = |machine: &mut Machine, keys: u64, value: &[u8]| {
        let keys: Vec<u64> = (0..keys).collect();
        for some in keys.chunks(10_000) {
            let set = |key: &u64| Own::Set(0, key.to_be_bytes().to_vec(), value.to_vec());
            machine.commit(
                &store,
                scope(1, 0),
                &some.iter().map(set).collect::<Vec<_>>(),
            );
        }
        while store.engine().step() == crate::engine::Step::Wrote {}
    };
    put(&mut machine, KEYS, b"1");
    machine.snapshot(&store).await;
    for (changed, is_everything) in [(90_000, false), (KEYS, true)] {
        put(&mut machine, changed, b"2");
        let store = over(&map, 1 << 20);
        machine.start(&store).await;
        machine.snapshot(&store).await;
        // The index and one object, or those of two snapshots.
        let objects = if is_everything { 2 } else { 3 };
        assert_eq!(machine.bucket.listed().len(), objects, "{changed}");
        assert!(machine.rebuilt().await == machine.state);
    }
}

/// Nobody waits for room while a journal is read.
#[test]
fn what_a_start_reads_is_written_back_while_it_reads_on() {
    const ROOM: u64 = 64 << 10;
    let map = Map::default();
    let store = Store::stepped(Box::new(InMemory(map.clone())), 1 << 20, ROOM).expect("opens");
    let value = random(1);
    let mut most = 0;
    for commit in 1..2000_u64 {
        // The last frames of a journal may not be durable.
        store.durable(CommitSeq(commit.saturating_sub(10)));
        let key = commit.to_be_bytes().to_vec();
        let section = section(scope(1, 0), &[Own::Set(0, key, value.clone())]);
        store.replay(CommitSeq(commit), &section).expect("applies");
        most = most.max(store.engine().live.figures().waiting_bytes);
        assert!(store.reflects() <= CommitSeq(commit.saturating_sub(10)));
    }
    assert!(most < 2 * ROOM, "{most} bytes waited");
    assert!(store.reflects() > CommitSeq(1500));
}

#[tokio::test]
async fn a_storage_that_refuses_costs_neither_the_store_nor_what_changed() {
    let mut machine = Machine::new();
    let store = over(&Map::default(), 1 << 20);
    machine.put(&store, 0..200);
    machine.snapshot(&store).await;
    machine.put(&store, 0..3);
    for (attempt, object) in (0..).zip([1, 2, 1, 2, 1, 2]) {
        machine.bucket.refuses.store(object, Ordering::SeqCst);
        let nonce = format!("refused{attempt}");
        let refused = store.snapshot(&machine.objects, &nonce).await;
        assert_eq!(refused.expect_err("refused").code, "told-to-refuse");
    }
    machine.put(&store, 7..9);
    assert!(machine.snapshot(&store).await < 6000);
    assert!(machine.rebuilt().await == machine.state);
}

#[derive(Clone, Debug)]
enum Step {
    Commit(u32, Vec<Own>),
    WriteBack,
    Forget(u32),
    /// Storage refuses that object; 0: none. What is taken is named, or the host ends before.
    Snapshot {
        refuses: u32,
        is_named: bool,
    },
    /// Killed, and perhaps the disk is lost.
    Kill {
        is_lost: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let key = || proptest::collection::vec(0u8..3, 0..3);
    let own = prop_oneof![
        8 => (key(), proptest::collection::vec(any::<u8>(), 0..50)).prop_map(|(key, value)| Own::Set(0, key, value)),
        4 => key().prop_map(|key| Own::Delete(0, key)),
        1 => Just(Own::Clear),
    ];
    prop_oneof![
        12 => (0..4u32, proptest::collection::vec(own, 1..5)).prop_map(|(at, list)| Step::Commit(at, list)),
        4 => Just(Step::WriteBack),
        1 => (0..4u32).prop_map(Step::Forget),
        4 => (0..4u32, any::<bool>()).prop_map(|(refuses, is_named)| Step::Snapshot { refuses, is_named }),
        4 => prop::bool::weighted(0.2).prop_map(|is_lost| Step::Kill { is_lost }),
    ]
}

async fn run(steps: Vec<Step>) {
    let (mut machine, mut map) = (Machine::new(), Map::default());
    let reopen = |map: &Map| {
        Store::stepped(Box::new(InMemory(map.clone())), 1 << 20, 1 << 20).expect("opens")
    };
    let mut store = reopen(&map);
    machine.start(&store).await;
    for step in steps {
        match step {
            Step::Commit(at, list) => machine.commit(&store, scope(at, at % 2), &list),
            Step::WriteBack => {
                store.engine().step();
            }
            Step::Forget(at) => {
                machine.commit(&store, scope(at, at % 2), &[Own::Clear]);
                store.forget(scope(at, 0).function);
            }
            Step::Snapshot { refuses, is_named } => {
                machine.bucket.refuses.store(refuses, Ordering::SeqCst);
                machine.nonces += 1;
                let nonce = format!("r{}", machine.nonces);
                let taken = store.snapshot(&machine.objects, &nonce).await;
                machine.bucket.refuses.store(0, Ordering::SeqCst);
                if is_named && taken.is_ok() {
                    machine.snapshot(&store).await;
                }
            }
            Step::Kill { is_lost } => {
                if is_lost {
                    map = Map::default();
                }
                store = reopen(&map);
                machine.start(&store).await;
            }
        }
        assert_eq!(machine.rebuilt().await, machine.state);
    }
    while store.engine().step() == crate::engine::Step::Wrote {}
    assert_eq!(stored(store.engine()), machine.state);
    machine.snapshot(&store).await;
    let parts = machine.bucket.listed();
    assert!(machine.rebuilt().await == machine.state);
    drop(store);
    // What nobody names goes with the next start.
    let store = reopen(&map);
    machine.start(&store).await;
    assert!(machine.bucket.listed().len() <= parts.len());
    machine.snapshot(&store).await;
    assert_eq!(machine.rebuilt().await, machine.state);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn kills_and_lost_disks_leave_state_as_it_was(steps in proptest::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(run(steps));
    }
}
