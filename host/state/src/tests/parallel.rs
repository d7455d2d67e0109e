//! Tasks, a journal, the writer thread, evictions and snapshots at once.

use super::{State, scope, stored, value};
use crate::engine::Engine;
use crate::store::Folder;
use crate::{Change, Changes, ChangesReader, Scope, Settings, Store};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tidemill_env::Random;
use tidemill_env::metrics::Metrics;
use tidemill_types::{ByteSize, CommitSeq};

const TASKS: u32 = 3;
const TRANSACTIONS: u64 = 300;
const KEYS: u64 = 40;

fn open(dir: &Path) -> Store {
    let settings = Settings {
        dir: dir.to_owned(),
        memory_bytes: ByteSize(3000),
        dirty_bytes: ByteSize(20_000),
        store_bytes: ByteSize::mib(8),
        snapshot_memory: ByteSize::mib(8),
    };
    Store::open(settings, &Metrics::default()).expect("opens")
}

type Journal = Mutex<BTreeMap<u64, Vec<u8>>>;

/// Counts random keys of its scope, one transaction after the other.
fn task(store: &Store, journal: &Journal, scope: Scope) {
    let random = Random::seeded(scope.partition.into());
    for _ in 0..TRANSACTIONS {
        let mut section = Changes::new(scope);
        for _ in 0..3 {
            let key = random.below(KEYS).to_be_bytes();
            let count = value(store, scope, 0, &key).map_or(0, |value| {
                u64::from_be_bytes(value[..].try_into().expect("8 bytes"))
            });
            section.push(Change::Set {
                slot: 0,
                key: &key,
                value: &(count + 1).to_be_bytes(),
            });
        }
        let intent = store.intend();
        let commit = {
            let mut journal = journal.lock().expect("not poisoned");
            let commit = journal.len() as u64 + 1;
            journal.insert(commit, section.as_bytes().to_vec());
            commit
        };
        // Somebody else's sync may cover this commit before it is applied here.
        std::thread::yield_now();
        store
            .apply(CommitSeq(commit), section.as_bytes())
            .expect("applies");
        drop(intent);
        let durable = journal.lock().expect("not poisoned").len() as u64;
        store.durable(CommitSeq(durable));
    }
}

fn state_at(journal: &Journal, commit: CommitSeq) -> State {
    let mut state = State::new();
    for section in journal
        .lock()
        .expect("not poisoned")
        .range(..=commit.0)
        .map(|(_, section)| section)
    {
        let changes = ChangesReader::new(section).expect("own");
        let scope = changes.scope();
        for change in changes {
            if let Change::Set { slot, key, value } = change {
                state.insert((scope, slot, key.to_vec()), value.to_vec());
            }
        }
    }
    state
}

fn frozen(engine: &Engine) -> (State, CommitSeq) {
    let (view, commit) = engine.freeze().expect("works");
    let mut state = State::new();
    view.scan(
        Bound::Included(&[0; crate::keys::PREFIX_BYTES]),
        None,
        &mut |key, value| {
            let stored = crate::keys::decode(key, value).expect("as written");
            state.insert(
                (stored.scope, stored.slot, stored.key.to_vec()),
                stored.value.to_vec(),
            );
            ControlFlow::Continue(())
        },
    )
    .expect("readable");
    (state, commit)
}

#[test]
fn tasks_in_parallel_leave_exact_snapshots_and_an_exact_end() {
    let dir = tempfile::tempdir().expect("folder");
    let store = open(dir.path());
    let journal = Journal::default();
    let busy = AtomicBool::new(true);
    std::thread::scope(|threads| {
        let watcher = threads.spawn(|| {
            while busy.load(Ordering::Acquire) {
                let (state, commit) = frozen(store.engine());
                assert_eq!(state, state_at(&journal, commit));
            }
        });
        let tasks: Vec<_> = (0..TASKS)
            .map(|at| {
                threads.spawn({
                    let (store, journal) = (&store, &journal);
                    move || task(store, journal, scope(1, at))
                })
            })
            .collect();
        let ended: Vec<_> = tasks.into_iter().map(|task| task.join()).collect();
        busy.store(false, Ordering::Release);
        watcher.join().expect("exact");
        ended.into_iter().for_each(|ended| ended.expect("worked"));
    });
    let all = CommitSeq(u64::from(TASKS) * TRANSACTIONS);
    store.close();
    drop(store);
    let folder = Folder {
        dir: dir.path().to_owned(),
        memory: 1 << 20,
    };
    let store = Store::stepped(Box::new(folder), 0, 0).expect("opens");
    assert_eq!(
        (store.reflects(), stored(store.engine())),
        (all, state_at(&journal, all))
    );
}
