//! Random steps against a journal and maps: values, lists, what the store behind shows, crashes.

use super::{Cell, InMemory, State, over, packed, restored, scope, stored, value};
use crate::behind::{Fault, Map};
use crate::engine::{Place, Step as Stepped};
use crate::live::{Begun, Load};
use crate::store::Folder;
use crate::{Change, Changes, ChangesReader, Intent, Missing, ORDERED_SLOTS, Scope, Store, keys};
use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::BTreeMap;
use tidemill_types::CommitSeq;

#[derive(Clone, Debug)]
pub(super) enum Own {
    Set(u16, Vec<u8>, Vec<u8>),
    Delete(u16, Vec<u8>),
    Clear,
}

#[derive(Clone, Debug)]
enum Step {
    /// A transaction is sequenced and its intent taken; it is applied later.
    Sequence(usize, Vec<Own>),
    /// The scope's transaction on its way is applied.
    Apply(usize),
    /// The journal becomes durable up to somewhere.
    Durable(Index),
    WriteBack,
    /// A load begins and what it needs is read.
    LoadBegins(usize, Vec<(u16, Vec<u8>)>),
    /// The oldest load on its way ends.
    LoadEnds,
    List(usize, u16, Vec<u8>, Option<Vec<u8>>, usize),
    /// The store behind fails at its next write.
    Fault(bool),
    /// Killed; what was not durable is lost, what is behind stays.
    Crash,
    /// A snapshot, restored in another place, is exact.
    Snapshot,
}

fn scopes() -> [Scope; 3] {
    [scope(1, 0), scope(1, 1), scope(2, 0)]
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(0xff)], 0..3)
}

fn slot() -> impl Strategy<Value = u16> {
    prop_oneof![Just(0), Just(ORDERED_SLOTS)]
}

fn own() -> impl Strategy<Value = Own> {
    prop_oneof![
        8 => (slot(), key(), proptest::collection::vec(any::<u8>(), 0..20)).prop_map(|(slot, key, value)| Own::Set(slot, key, value)),
        4 => (slot(), key()).prop_map(|(slot, key)| Own::Delete(slot, key)),
        1 => Just(Own::Clear),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let at = 0..3usize;
    prop_oneof![
        8 => (at.clone(), proptest::collection::vec(own(), 1..6)).prop_map(|(at, list)| Step::Sequence(at, list)),
        8 => at.clone().prop_map(Step::Apply),
        4 => any::<Index>().prop_map(Step::Durable),
        4 => Just(Step::WriteBack),
        2 => (at.clone(), proptest::collection::vec((slot(), key()), 1..4)).prop_map(|(at, keys)| Step::LoadBegins(at, keys)),
        2 => Just(Step::LoadEnds),
        2 => (at, slot(), key(), proptest::option::of(key()), 1..5usize).prop_map(|(at, slot, prefix, after, limit)| Step::List(at, slot, prefix, after, limit)),
        1 => any::<bool>().prop_map(Step::Fault),
        1 => Just(Step::Crash),
        1 => Just(Step::Snapshot),
    ]
}

type Reopen<'a> = Box<dyn Fn() -> Box<dyn Place> + 'a>;

struct Run<'a> {
    reopen: Reopen<'a>,
    faults: Option<Map>,
    memory: u64,
    store: Option<Store>,
    /// All sequenced sections by commit.
    journal: BTreeMap<u64, Vec<u8>>,
    durable: u64,
    /// State as applied.
    applied: State,
    on_their_way: BTreeMap<Scope, (u64, Vec<u8>, Intent)>,
    loads: Vec<(Scope, Load, Vec<Option<Bytes>>)>,
}

pub(super) fn fold(state: &mut State, section: &[u8]) {
    let changes = ChangesReader::new(section).expect("own");
    let scope = changes.scope();
    for change in changes {
        match change {
            Change::Set { slot, key, value } => {
                drop(state.insert((scope, slot, key.to_vec()), value.to_vec()))
            }
            Change::Delete { slot, key } => drop(state.remove(&(scope, slot, key.to_vec()))),
            Change::Clear => state.retain(|cell, _| cell.0 != scope),
        }
    }
}

pub(super) fn section(scope: Scope, list: &[Own]) -> Vec<u8> {
    let mut changes = Changes::new(scope);
    for own in list {
        changes.push(match own {
            Own::Set(slot, key, value) => Change::Set {
                slot: *slot,
                key,
                value,
            },
            Own::Delete(slot, key) => Change::Delete { slot: *slot, key },
            Own::Clear => Change::Clear,
        });
    }
    changes.as_bytes().to_vec()
}

impl<'a> Run<'a> {
    fn new(reopen: Reopen<'a>, faults: Option<Map>, memory: u64) -> Self {
        let store = Some(Store::stepped(reopen(), memory, 1 << 20).expect("opens"));
        Self {
            reopen,
            faults,
            memory,
            store,
            journal: BTreeMap::new(),
            durable: 0,
            applied: State::new(),
            on_their_way: BTreeMap::new(),
            loads: Vec::new(),
        }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("open")
    }

    fn state_at(&self, commit: CommitSeq) -> State {
        let mut state = State::new();
        self.journal
            .range(..=commit.0)
            .for_each(|(_, section)| fold(&mut state, section));
        state
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Sequence(at, list) => self.sequence(scopes()[*at], list),
            Step::Apply(at) => self.apply(scopes()[*at]),
            Step::Durable(at) => {
                let last = self.journal.keys().next_back().map_or(0, |last| *last);
                let steps = usize::try_from(last - self.durable).expect("few");
                self.durable += at.index(steps + 1) as u64;
                self.store().durable(CommitSeq(self.durable));
            }
            Step::WriteBack => {
                self.store().engine().step();
            }
            Step::LoadBegins(at, wanted) => self.begin_load(scopes()[*at], wanted),
            Step::LoadEnds if self.loads.is_empty() => {}
            Step::LoadEnds => {
                let (scope, load, values) = self.loads.remove(0);
                self.store()
                    .engine()
                    .live
                    .finish_load(scope, &load, &values);
            }
            Step::List(at, slot, prefix, after, limit) => {
                self.list(scopes()[*at], *slot, prefix, after.as_deref(), *limit)
            }
            Step::Fault(unclear) => {
                if let Some(map) = &self.faults {
                    map.set_fault(Some(if *unclear {
                        Fault::WriteUnclear
                    } else {
                        Fault::WriteRefused
                    }));
                }
            }
            Step::Crash => self.crash(),
            Step::Snapshot => self.snapshot(),
        }
    }

    fn sequence(&mut self, scope: Scope, list: &[Own]) {
        if self.on_their_way.contains_key(&scope) {
            return;
        }
        let intent = self.store().intend();
        let commit = self.journal.keys().next_back().map_or(1, |last| last + 1);
        let section = section(scope, list);
        self.journal.insert(commit, section.clone());
        self.on_their_way.insert(scope, (commit, section, intent));
    }

    fn apply(&mut self, scope: Scope) {
        let Some((commit, section, intent)) = self.on_their_way.remove(&scope) else {
            return;
        };
        self.store()
            .apply(CommitSeq(commit), &section)
            .expect("applies");
        drop(intent);
        fold(&mut self.applied, &section);
    }

    fn begin_load(&mut self, scope: Scope, wanted: &[(u16, Vec<u8>)]) {
        let missing: Vec<_> = wanted
            .iter()
            .map(|(slot, key)| Missing {
                slot: *slot,
                key: key.clone().into(),
            })
            .collect();
        let engine = self.store().engine();
        let Begun::Load(load) = engine.live.begin_load(scope, &missing) else {
            return;
        };
        let behind = stored(engine);
        let read = |(slot, key): &(u16, Bytes)| {
            behind
                .get(&(scope, *slot, key.to_vec()))
                .map(|value| Bytes::copy_from_slice(value))
        };
        let values = load.keys.iter().map(read).collect();
        self.loads.push((scope, load, values));
    }

    fn list(&self, scope: Scope, slot: u16, prefix: &[u8], after: Option<&[u8]>, limit: usize) {
        let listed = self
            .store()
            .list(scope, slot, prefix, after, limit)
            .expect("readable");
        let wanted = |cell: &Cell| {
            cell.0 == scope
                && cell.1 == slot
                && cell.2.starts_with(prefix)
                && after.is_none_or(|after| cell.2.as_slice() > after)
        };
        let expected = self
            .applied
            .iter()
            .filter(|(cell, _)| wanted(cell))
            .take(limit);
        let expected: Vec<_> = expected
            .map(|(cell, value)| {
                (
                    Bytes::copy_from_slice(&cell.2),
                    Bytes::copy_from_slice(value),
                )
            })
            .collect();
        assert_eq!(listed, expected);
    }

    fn crash(&mut self) {
        self.loads.clear();
        self.on_their_way.clear();
        self.store = None;
        if let Some(map) = &self.faults {
            map.set_fault(None);
        }
        self.journal.retain(|commit, _| *commit <= self.durable);
        let store = Store::stepped((self.reopen)(), self.memory, 1 << 20).expect("opens");
        let reflects = store.reflects();
        assert!(reflects.0 <= self.durable);
        assert_eq!(
            stored(store.engine()),
            self.state_at(reflects),
            "what a kill leaves is exact"
        );
        for (commit, section) in &self.journal {
            store.apply(CommitSeq(*commit), section).expect("applies");
            store.durable(CommitSeq(*commit));
        }
        self.store = Some(store);
        self.applied = self.state_at(CommitSeq(self.durable));
        self.check_values();
    }

    fn snapshot(&self) {
        let Ok((view, commit)) = self.store().engine().freeze() else {
            return assert!(self.faults.is_some(), "only a fault prevents it");
        };
        assert_eq!(commit, self.store().engine().live.writable());
        let objects = packed(view, commit, "nonce");
        let copy = over(&Map::default(), 1 << 20);
        super::set(&copy, 1, scope(9, 9), b"old", b"old");
        let restored = restored(&copy, Some(commit), objects);
        assert_eq!(restored.expect("restores"), commit);
        assert_eq!(
            (stored(copy.engine()), copy.reflects()),
            (self.state_at(commit), commit)
        );
        assert_eq!(value(&copy, scope(9, 9), 0, b"old"), None);
    }

    /// What must be true at any time.
    fn check(&self) {
        if let Ok(behind) = self.store().engine().behind() {
            let crate::behind::Marker::Exact(commit) = behind.marker().expect("readable") else {
                return assert_eq!(self.store().stats().written, CommitSeq(0));
            };
            assert!(commit.0 <= self.durable, "never ahead of the journal");
            assert_eq!(
                stored(self.store().engine()),
                self.state_at(commit),
                "exactly as of its marker"
            );
        }
    }

    fn check_values(&self) {
        for scope in scopes() {
            for (slot, key) in [
                (0, &b"a"[..]),
                (0, b"b"),
                (0, b""),
                (ORDERED_SLOTS, b"ab"),
                (ORDERED_SLOTS, b"\xff"),
                (0, b"\xff\xff"),
            ] {
                let expected = self
                    .applied
                    .get(&(scope, slot, key.to_vec()))
                    .map(Vec::as_slice);
                assert_eq!(
                    value(self.store(), scope, slot, key).as_deref(),
                    expected,
                    "{scope:?} {slot} {key:?}"
                );
            }
        }
    }

    /// Everything is applied, written back and read.
    fn end(mut self) {
        if let Some(map) = &self.faults {
            map.set_fault(None);
        }
        scopes().into_iter().for_each(|scope| self.apply(scope));
        self.durable = self.journal.keys().next_back().map_or(0, |last| *last);
        self.store().durable(CommitSeq(self.durable));
        while self.store().engine().step() != Stepped::Idle {}
        assert_eq!(stored(self.store().engine()), self.applied);
        self.check_values();
        let stats = self.store().stats();
        assert_eq!(
            (
                stats.dirty,
                self.store().engine().live.figures().waiting_bytes
            ),
            (0, 0)
        );
        self.crash();
    }
}

fn run(reopen: Reopen<'_>, faults: Option<Map>, memory: u64, steps: &[Step], reads: bool) {
    let mut run = Run::new(reopen, faults, memory);
    for step in steps {
        run.take(step);
        run.check();
        if reads {
            run.check_values();
        }
    }
    run.end();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// `memory` from "nothing fits" over "a few values" to "whole scopes are brought in".
    #[test]
    fn agrees_with_the_model(steps in proptest::collection::vec(step(), 1..60), memory in prop_oneof![Just(0), Just(400), Just(200 << 20)], reads: bool) {
        let map = Map::default();
        run(Box::new(|| Box::new(InMemory(map.clone()))), Some(map.clone()), memory, &steps, reads);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn agrees_with_the_model_on_disk(steps in proptest::collection::vec(step(), 1..60), memory in prop_oneof![Just(400), Just(200 << 20)]) {
        let dir = tempfile::tempdir().expect("temporary folder");
        let folder = || Folder {
            dir: dir.path().join("state"),
            memory: 8 << 20,
        };
        run(Box::new(move || Box::new(folder())), None, memory, &steps, true);
    }
}

/// The central trap, step by step: written with marker 7 is the value of commit 5, not of 9.
#[test]
fn a_marker_never_covers_newer_values() {
    let map = Map::default();
    let store = over(&map, 1 << 20);
    let at = scope(1, 0);
    super::set(&store, 5, at, b"A", b"five");
    super::set(&store, 9, at, b"A", b"nine");
    store.durable(CommitSeq(7));
    store.engine().step();
    assert_eq!(
        (stored(store.engine()), store.reflects()),
        (
            State::from([((at, 0, b"A".to_vec()), b"five".to_vec())]),
            CommitSeq(7)
        )
    );
    assert_eq!(value(&store, at, 0, b"A").as_deref(), Some(&b"nine"[..]));
    assert_eq!(store.stats().dirty, 1);
}

/// A transaction is sequenced before a neighbour's, but applied after the neighbour's became durable.
#[test]
fn an_intent_holds_the_marker_back() {
    let store = over(&Map::default(), 1 << 20);
    let intent = store.intend();
    set_in(&store, 6, 1);
    store.durable(CommitSeq(6));
    assert_eq!(store.engine().step(), Stepped::Idle);
    assert_eq!(store.reflects(), CommitSeq(0));
    set_in(&store, 5, 0);
    drop(intent);
    assert_eq!(store.engine().step(), Stepped::Wrote);
    assert_eq!(
        (store.reflects(), stored(store.engine()).len()),
        (CommitSeq(6), 2)
    );
}

fn set_in(store: &Store, commit: u64, partition: u32) {
    super::set(store, commit, scope(1, partition), b"k", b"v");
}

#[test]
fn commits_of_a_scope_must_rise_and_replays_are_passed_over() {
    let map = Map::default();
    let store = over(&map, 1 << 20);
    super::set(&store, 5, scope(1, 0), b"k", b"five");
    let mut section = Changes::new(scope(1, 0));
    section.push(Change::Delete { slot: 0, key: b"k" });
    let refusal = store
        .apply(CommitSeq(4), section.as_bytes())
        .expect_err("goes back");
    assert!(
        refusal.detail.contains("commit 4 comes after 5"),
        "{refusal}"
    );
    assert!(store.apply(CommitSeq(6), b"nonsense").is_err());
    store.durable(CommitSeq(5));
    store.engine().step();
    let store = over(&map, 1 << 20);
    store
        .apply(CommitSeq(4), section.as_bytes())
        .expect("known already");
    assert_eq!(
        value(&store, scope(1, 0), 0, b"k").as_deref(),
        Some(&b"five"[..])
    );
}

#[test]
fn very_long_keys_are_kept_and_listed_in_order() {
    let store = over(&Map::default(), 0);
    let long = |last: u8| [vec![b'x'; 70_000], vec![last]].concat();
    for last in 0..20 {
        super::set(
            &store,
            u64::from(last) + 1,
            scope(1, 0),
            &long(last),
            &[last],
        );
    }
    store.durable(CommitSeq(20));
    while store.engine().step() != Stepped::Idle {}
    while store.stats().live > 0 {
        store.engine().live.relieve();
    }
    let listed = store
        .list(scope(1, 0), 0, b"xx", Some(&long(4)), 3)
        .expect("readable");
    assert_eq!(
        listed.iter().map(|(_, value)| value[0]).collect::<Vec<_>>(),
        [5, 6, 7]
    );
    assert_eq!(
        value(&store, scope(1, 0), 0, &long(9)).as_deref(),
        Some(&[9][..])
    );
    assert!(keys::encode(scope(1, 0), 0, &long(9)).len() < 65_536);
}

/// Misuse: no intent was taken. Nothing is lost but for a kill in the meantime.
#[test]
fn what_is_applied_too_late_is_written_back_all_the_same() {
    let map = Map::default();
    let store = over(&map, 0);
    set_in(&store, 6, 1);
    store.durable(CommitSeq(6));
    store.engine().step();
    set_in(&store, 5, 0);
    assert_eq!(
        value(&store, scope(1, 0), 0, b"k").as_deref(),
        Some(&b"v"[..])
    );
    set_in(&store, 6, 0);
    store.durable(CommitSeq(7));
    assert_eq!(store.engine().step(), Stepped::Wrote);
    assert_eq!(
        (store.reflects(), stored(store.engine()).len()),
        (CommitSeq(7), 2)
    );
}
