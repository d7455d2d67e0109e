//! What is read before anybody has to wait for it.

use super::{over, scope, set, value};
use crate::behind::{Behind, Map, Marker, Write};
use crate::{Missing, Settings, Store, keys};
use bytes::Bytes;
use tidemill_env::metrics::Metrics;
use tidemill_types::{ByteSize, CommitSeq};

const KEYS: u64 = 500;

/// A store behind with values of some keys, as of commit 1.
fn filled(keys: &[&[u8]]) -> Map {
    let map = Map::default();
    let write = |key: &&[u8]| Write {
        key: keys::encode(scope(1, 0), 0, key),
        value: Some(b"old".into()),
    };
    let writes: Vec<_> = keys.iter().map(write).collect();
    let written = map.write(&writes, Some(Marker::Exact(CommitSeq(1))));
    written.expect("works");
    map
}

fn missing(key: &[u8]) -> Missing {
    Missing {
        slot: 0,
        key: Bytes::copy_from_slice(key),
    }
}

#[test]
fn what_was_asked_for_is_there_and_isnt_read_twice() {
    let dir = tempfile::tempdir().expect("folder");
    let open = || {
        let settings = Settings {
            dir: dir.path().to_owned(),
            memory_bytes: ByteSize::mib(1),
            dirty_bytes: ByteSize::mib(1),
            store_bytes: ByteSize::mib(8),
            snapshot_memory: ByteSize::mib(8),
        };
        Store::open(settings, &Metrics::default()).expect("opens")
    };
    let (scope, all) = (scope(1, 0), || (0..KEYS).map(u64::to_be_bytes));
    let store = open();
    for (commit, key) in (1..).zip(all()) {
        set(&store, commit, scope, &key, &[7; 1000]);
    }
    store.durable(CommitSeq(KEYS));
    store.close();
    drop(store);

    let store = open();
    let keys: Vec<_> = all().take(200).collect();
    assert!(store.window() > 0);
    let ask = || store.ahead(scope, &[0], keys.iter().map(|key| key.as_slice()));
    assert_eq!((ask(), ask()), (200, 0));
    let wanted: Vec<_> = keys.iter().map(|key| missing(key)).collect();
    store.load(scope, &wanted).expect("readable");
    for key in &keys {
        assert_eq!(store.get(scope, 0, key), Ok(Some(vec![7; 1000].into())));
    }
    assert!(store.get(scope, 0, &300_u64.to_be_bytes()).is_err());
    assert_eq!(ask(), 0, "all is known");
    store.close();
}

#[test]
fn what_changed_since_is_not_overwritten() {
    let map = filled(&[b"a", b"b", b"c"]);
    let (store, scope) = (over(&map, 1 << 20), scope(1, 0));
    let live = &store.engine().live;
    let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
    let asked = live.ask(scope, &[0], keys.into_iter());
    let asked = asked.expect("all of them");
    set(&store, 2, scope, b"b", b"new");
    let read = vec![Some(Bytes::from_static(b"old")); 3];
    live.answer(&asked, 0..3, Some(&read));
    let values = keys.map(|key| store.get(scope, 0, key).expect("known"));
    assert_eq!(values.map(Option::unwrap), ["old", "new", "old"]);
}

#[test]
fn what_changed_and_left_memory_since_is_read_again() {
    let map = filled(&[b"a", b"b"]);
    let (store, scope) = (over(&map, 0), scope(1, 0));
    let live = &store.engine().live;
    let keys: [&[u8]; 2] = [b"a", b"b"];
    let asked = live.ask(scope, &[0], keys.into_iter()).expect("both");
    set(&store, 2, scope, b"b", b"new");
    store.durable(CommitSeq(2));
    store.engine().step();
    // The first look takes its second chance away.
    (0..3).for_each(|_| live.relieve());
    assert!(store.get(scope, 0, b"b").is_err(), "it left memory");
    let read = vec![Some(Bytes::from_static(b"old")); 2];
    live.answer(&asked, 0..2, Some(&read));
    assert_eq!(value(&store, scope, 0, b"b"), Some("new".into()));
}

#[test]
fn who_waits_goes_on_when_what_was_asked_for_cant_be_read() {
    let map = filled(&[b"a"]);
    let (store, scope) = (over(&map, 1 << 20), scope(1, 0));
    let live = &store.engine().live;
    let asked = live.ask(scope, &[0], [&b"a"[..]].into_iter()).expect("it");
    std::thread::scope(|threads| {
        let waits = threads.spawn(|| store.load(scope, &[missing(b"a")]));
        live.answer(&asked, 0..1, None);
        waits.join().expect("it ends").expect("readable");
    });
    assert_eq!(store.get(scope, 0, b"a"), Ok(Some("old".into())));
}
