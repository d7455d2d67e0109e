//! Starts, kills, damage, and a store behind that fails.

use super::{over, scope, set, stored, value};
use crate::behind::{Behind, Fault, Map, Marker, Write};
use crate::engine::Step;
use crate::{Settings, Store, keys};
use futures::FutureExt;
use std::path::Path;
use tidemill_env::metrics::Metrics;
use tidemill_types::{ByteSize, CommitSeq, ErrorKind, FunctionId};

fn open(dir: &Path, metrics: &Metrics) -> tidemill_types::Result<Store> {
    Store::open(
        Settings {
            dir: dir.to_owned(),
            memory_bytes: ByteSize::mib(1),
            dirty_bytes: ByteSize::mib(1),
            store_bytes: ByteSize::mib(8),
            snapshot_memory: ByteSize::mib(8),
        },
        metrics,
    )
}

fn shown(metrics: &Metrics, line: &str) -> bool {
    metrics.render().lines().any(|other| other == line)
}

#[test]
fn a_clean_close_keeps_all_that_is_durable() {
    let dir = tempfile::tempdir().expect("folder");
    let store = open(dir.path(), &Metrics::default()).expect("opens");
    set(&store, 3, scope(1, 0), b"a", b"1");
    set(&store, 4, scope(1, 0), b"b", b"1");
    store.durable(CommitSeq(3));
    store.close();
    assert_eq!(
        store.get(scope(1, 0), 0, b"b"),
        Ok(Some("1".into())),
        "memory can still be read"
    );
    drop(store);
    let store = open(dir.path(), &Metrics::default()).expect("opens");
    assert_eq!(store.reflects(), CommitSeq(3));
    assert!(store.get(scope(1, 0), 0, b"a").is_err(), "only behind");
    assert_eq!(
        value(&store, scope(1, 0), 0, b"a").as_deref(),
        Some(&b"1"[..])
    );
    assert_eq!(
        store.get(scope(1, 0), 0, b"b"),
        Ok(None),
        "the whole scope was brought in"
    );
    assert_eq!(
        store.get(scope(2, 0), 0, b"b"),
        Ok(None),
        "nothing of this scope was ever stored"
    );
}

#[tokio::test]
async fn the_writer_thread_writes_back_by_itself() {
    let dir = tempfile::tempdir().expect("folder");
    let store = open(dir.path(), &Metrics::default()).expect("opens");
    // More than may be dirty: room comes only from the thread.
    for commit in 1..=20 {
        set(&store, commit, scope(1, 0), b"big", &vec![1; 100_000]);
    }
    assert!(store.room().now_or_never().is_none());
    store.durable(CommitSeq(20));
    store.room().await;
    assert!(store.reflects() > CommitSeq(0));
}

#[test]
fn a_folder_in_use_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().expect("folder");
    let store = open(dir.path(), &Metrics::default()).expect("opens");
    set(&store, 1, scope(1, 0), b"a", b"1");
    store.durable(CommitSeq(1));
    let refusal = open(dir.path(), &Metrics::default())
        .err()
        .expect("refused");
    assert_eq!(
        (refusal.kind, refusal.code),
        (ErrorKind::Conflict, "directory-in-use")
    );
    store.close();
    drop(store);
    assert_eq!(
        open(dir.path(), &Metrics::default())
            .expect("opens")
            .reflects(),
        CommitSeq(1)
    );
}

#[test]
fn a_damaged_store_is_wiped() {
    let dir = tempfile::tempdir().expect("folder");
    let store = open(dir.path(), &Metrics::default()).expect("opens");
    set(&store, 1, scope(1, 0), b"a", b"1");
    store.durable(CommitSeq(1));
    store.close();
    drop(store);
    let mut folders = vec![dir.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("folder") {
            let path = entry.expect("entry").path();
            if path.is_dir() {
                folders.push(path)
            } else {
                std::fs::write(path, b"nonsense").expect("written")
            }
        }
    }
    let metrics = Metrics::default();
    let store = open(dir.path(), &metrics).expect("opens");
    assert_eq!(
        (store.reflects(), store.get(scope(1, 0), 0, b"a")),
        (CommitSeq(0), Ok(None))
    );
    assert!(shown(&metrics, "tidemill_state_store_resets_total 1"));
    set(&store, 1, scope(1, 0), b"a", b"1");
    store.durable(CommitSeq(1));
    store.close();
    assert!(shown(&metrics, "tidemill_state_written_commit 1"));
    assert!(shown(&metrics, "tidemill_state_dirty 0"));
}

#[test]
fn a_store_left_half_way_is_wiped() {
    for marker in [Some(Marker::Torn), None] {
        let map = Map::default();
        let write = Write {
            key: keys::encode(scope(1, 0), 0, b"a"),
            value: Some(b"1".into()),
        };
        map.write(&[write], marker).expect("works");
        let store = over(&map, 1 << 20);
        assert_eq!(
            (store.reflects(), stored(store.engine()).len()),
            (CommitSeq(0), 0),
            "{marker:?}"
        );
    }
}

#[test]
fn a_refused_write_is_tried_again() {
    let map = Map::default();
    let store = over(&map, 1 << 20);
    set(&store, 1, scope(1, 0), b"a", b"1");
    store.durable(CommitSeq(1));
    for fault in [Fault::WriteRefused, Fault::WriteRefused] {
        map.set_fault(Some(fault));
        assert_eq!(
            (store.engine().step(), store.stats().dirty),
            (Step::Failed, 1)
        );
    }
    assert_eq!(store.engine().step(), Step::Wrote);
    set(&store, 2, scope(1, 0), b"a", b"2");
    store.durable(CommitSeq(2));
    map.set_fault(Some(Fault::WriteUnclear));
    assert_eq!(store.engine().step(), Step::Failed);
    assert_eq!(
        (store.reflects(), store.stats().dirty),
        (CommitSeq(2), 0),
        "the marker told that it was written"
    );
}

#[test]
fn a_lost_store_leaves_memory_serving() {
    let map = Map::default();
    let store = over(&map, 1 << 20);
    set(&store, 1, scope(1, 0), b"a", b"1");
    store.durable(CommitSeq(1));
    store.engine().step();
    let reopened = over(&map, 0);
    set(&reopened, 2, scope(2, 0), b"b", b"1");
    set(&reopened, 3, scope(1, 0), b"c", b"1");
    reopened.durable(CommitSeq(3));
    map.set_fault(Some(Fault::Read));
    let missing = reopened.get(scope(1, 0), 0, b"a").expect_err("behind");
    for _ in 0..3 {
        assert_eq!(
            reopened
                .load(scope(1, 0), std::slice::from_ref(&missing))
                .expect_err("unreadable")
                .kind,
            ErrorKind::Unavailable
        );
    }
    map.set_fault(None);
    assert_eq!(
        map.marker(),
        Ok(Marker::Empty),
        "wiped: a restart rebuilds it"
    );
    assert_eq!(reopened.engine().step(), Step::Idle);
    set(&reopened, 4, scope(2, 0), b"d", b"1");
    assert_eq!(reopened.get(scope(2, 0), 0, b"b"), Ok(Some("1".into())));
    assert_eq!(reopened.get(scope(2, 0), 0, b"d"), Ok(Some("1".into())));
    assert_eq!(reopened.get(scope(2, 0), 0, b"none"), Ok(None));
    assert!(reopened.load(scope(1, 0), &[missing]).is_err());
    assert_eq!(
        (reopened.reflects(), reopened.stats().dirty),
        (CommitSeq(0), 0)
    );
    assert!(reopened.room().now_or_never().is_some());
    assert!(reopened.engine().freeze().is_err());
}

#[test]
fn a_forgotten_function_is_gone_everywhere() {
    let map = Map::default();
    let store = over(&map, 1 << 20);
    set(&store, 1, scope(1, 0), b"a", b"1");
    set(&store, 2, scope(2, 5), b"a", b"1");
    store.durable(CommitSeq(2));
    store.engine().step();
    set(&store, 3, scope(2, 5), b"b", b"1");
    set(&store, 4, scope(2, 6), b"c", b"1");
    store.forget(FunctionId(2));
    assert_eq!(
        (
            store.get(scope(2, 5), 0, b"a"),
            store.stats().live,
            store.stats().dirty
        ),
        (Ok(None), 1, 0)
    );
    assert_eq!(
        store.list(scope(2, 5), 0, b"", None, 9).expect("readable"),
        []
    );
    store.durable(CommitSeq(4));
    assert_eq!(
        (store.engine().step(), store.engine().step()),
        (Step::Wrote, Step::Idle)
    );
    assert_eq!(
        stored(store.engine()).into_keys().collect::<Vec<_>>(),
        [(scope(1, 0), 0, b"a".to_vec())]
    );
    assert_eq!(over(&map, 0).reflects(), CommitSeq(4));
}
