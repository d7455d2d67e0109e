//! The whole crate against a plain model.

mod ahead;
mod bucket;
mod cleaning;
mod durability;
mod model;
mod objects;
mod parallel;
mod restarts;

use crate::behind::{Behind, Failure, Map, View};
use crate::engine::{Engine, Place};
use crate::snapshot::Shown;
use crate::store::{Piece, fill};
use crate::{Change, Changes, Scope, Store, keys, snapshot};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use tidemill_types::{CommitSeq, FunctionId, Result};

/// What a model knows of a value's place.
type Cell = (Scope, u16, Vec<u8>);
/// All state at a moment.
type State = BTreeMap<Cell, Vec<u8>>;

fn scope(function: u32, partition: u32) -> Scope {
    Scope {
        function: FunctionId(function),
        partition,
    }
}

/// A map that survives the engine.
struct InMemory(Map);

impl Place for InMemory {
    fn open(&self) -> Result<Arc<dyn Behind>, Failure> {
        Ok(Arc::new(self.0.clone()))
    }

    fn wipe(&self) -> Result<(), Failure> {
        self.0.clear()
    }
}

fn over(map: &Map, memory: u64) -> Store {
    Store::stepped(Box::new(InMemory(map.clone())), memory, 1 << 20).expect("opens")
}

/// The objects of a snapshot with everything that a view shows.
fn packed(view: Box<dyn View>, commit: CommitSeq, nonce: &str) -> Vec<Bytes> {
    let mut objects = Vec::new();
    let mut sink = |object| {
        objects.push(object);
        Ok(())
    };
    snapshot::write(Shown::View(view), None, (commit, nonce), 1 << 20, &mut sink).expect("packs");
    objects
}

/// Makes a store what a snapshot's objects say.
fn restored(store: &Store, commit: Option<CommitSeq>, objects: Vec<Bytes>) -> Result<CommitSeq> {
    let count = objects.len();
    let (to, from) = tokio::sync::mpsc::channel(count.max(1));
    for object in objects {
        let sent = to.try_send(Piece::Object(object));
        sent.unwrap_or_else(|_| unreachable!("there is room"));
    }
    drop(to);
    fill(store.engine(), commit, count, from)
}

/// Everything the store behind has.
fn stored(engine: &Engine) -> State {
    let view = engine.behind().expect("open").view().expect("readable");
    let mut state = State::new();
    view.scan(
        Bound::Included(&[0; keys::PREFIX_BYTES]),
        None,
        &mut |key, value| {
            let stored = keys::decode(key, value).expect("as written");
            state.insert(
                (stored.scope, stored.slot, stored.key.to_vec()),
                stored.value.to_vec(),
            );
            ControlFlow::Continue(())
        },
    )
    .expect("readable");
    state
}

/// A value as a function would get it.
fn value(store: &Store, scope: Scope, slot: u16, key: &[u8]) -> Option<Bytes> {
    loop {
        match store.get(scope, slot, key) {
            Ok(value) => return value,
            Err(missing) => store.load(scope, &[missing]).expect("readable"),
        }
    }
}

fn set(store: &Store, commit: u64, scope: Scope, key: &[u8], value: &[u8]) {
    let mut section = Changes::new(scope);
    section.push(Change::Set {
        slot: 0,
        key,
        value,
    });
    store
        .apply(CommitSeq(commit), section.as_bytes())
        .expect("applies");
}
