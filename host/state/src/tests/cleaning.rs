//! Taking dead values away while work goes on.

use super::{over, scope, set, stored, value};
use crate::behind::Map;
use crate::engine::Step;
use tidemill_types::CommitSeq;

fn dead(value: &[u8]) -> bool {
    value == b"old"
}

#[test]
fn dead_values_go_from_memory_and_from_behind_and_nothing_else() {
    let map = Map::default();
    let store = over(&map, 1 << 20);
    for key in 0..10_000_u32 {
        let what: &[u8] = if key % 4 == 0 { b"new" } else { b"old" };
        set(&store, 1, scope(1, 0), &key.to_be_bytes(), what);
        set(&store, 1, scope(1, 1), &key.to_be_bytes(), b"old");
    }
    store.durable(CommitSeq(1));
    while store.engine().step() == Step::Wrote {}
    // Written again and not yet behind: what is behind is dead and goes, the newer value stays.
    set(&store, 2, scope(1, 0), &1_u32.to_be_bytes(), b"newer");
    let before = store.stats().live_bytes;
    assert_eq!(store.clean(scope(1, 0), 0, &dead).expect("cleans"), 7_500);
    assert!(store.stats().live_bytes < before * 3 / 4);
    let state = stored(store.engine());
    let left = |partition| {
        state
            .keys()
            .filter(|cell| cell.0 == scope(1, partition))
            .count()
    };
    assert_eq!((left(0), left(1)), (2_500, 10_000));
    let read = |key: u32| value(&store, scope(1, 0), 0, &key.to_be_bytes());
    assert_eq!(
        (read(1), read(2), read(4)),
        (Some("newer".into()), None, Some("new".into()))
    );
    store.durable(CommitSeq(2));
    while store.engine().step() == Step::Wrote {}
    assert_eq!(
        store.clean(scope(1, 0), 0, &dead).expect("cleans"),
        0,
        "only once"
    );
    assert_eq!(
        stored(store.engine())[&(scope(1, 0), 0, 1_u32.to_be_bytes().to_vec())],
        b"newer"
    );
}

#[test]
fn what_waits_to_be_written_is_cleaned_after_it_is() {
    let map = Map::default();
    let store = over(&map, 1 << 20);
    set(&store, 1, scope(1, 0), b"a", b"old");
    assert_eq!(store.clean(scope(1, 0), 0, &dead).expect("cleans"), 0);
    store.durable(CommitSeq(1));
    while store.engine().step() == Step::Wrote {}
    assert_eq!(store.clean(scope(1, 0), 0, &dead).expect("cleans"), 1);
    assert!(stored(store.engine()).is_empty());
    drop(store);
    assert_eq!(value(&over(&map, 1 << 20), scope(1, 0), 0, b"a"), None);
}
