//! All live values, what of them waits to be written back, and up to where that may go. No I/O.
//!
//! The store behind must show exactly the state as of the commit it names. So what waits is kept as
//! the transactions' own sections, each with its commit, beside the newest values: a write-back takes
//! the sections up to a commit and never looks at the values, which may be further ahead.

mod front;
mod loads;
mod waiting;

pub(crate) use loads::{Ahead, Begun, Load};
pub(crate) use waiting::WriteBack;

use crate::cells::Cells;
use crate::{ChangesReader, Scope};
use bytes::Bytes;
use foldhash::fast::RandomState;
use front::Front;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use tidemill_types::{CommitSeq, Error, FunctionId, Result};
use tokio::sync::Notify;
use waiting::Waiting;

/// Places looked at in one scope before the next one gets its turn.
const SWEEP_STRIDE: usize = 256;
/// Places looked at in all before a change goes on although memory is still short.
const SWEEP_VISITS: usize = 8192;

/// Live values of all scopes.
pub(crate) struct Live {
    scopes: RwLock<Scopes>,
    /// Bound of live values in bytes.
    memory: u64,
    /// Bound of waiting sections in bytes.
    dirty: u64,
    front: Mutex<Front>,
    written: AtomicU64,
    /// The commit that the store behind showed at the start: what comes up to it comes again.
    base: AtomicU64,
    live_bytes: AtomicU64,
    values: AtomicU64,
    waiting_bytes: AtomicU64,
    waiting_changes: AtomicU64,
    /// Nothing could be evicted while this was the written commit.
    futile: AtomicU64,
    /// There is no store behind any more.
    alone: AtomicBool,
    room: Notify,
    /// How often something that was read ahead came.
    answers: Mutex<u64>,
    answered: Condvar,
}

#[derive(Default)]
struct Scopes {
    open: BTreeMap<Scope, Arc<Mutex<Part>>>,
    /// Scopes of which the store behind had something when it was opened.
    stored: BTreeSet<Scope>,
    cursor: Option<Scope>,
}

/// One scope.
pub(crate) struct Part {
    pub(crate) cells: Cells,
    waiting: VecDeque<Waiting>,
    /// The last commit applied.
    sequenced: CommitSeq,
    /// The commit it counts for: its own unless it came too late.
    last: CommitSeq,
    /// Whether it was tried to bring the whole scope in.
    warmed: bool,
    /// What is being read ahead, by slot and key.
    asked: HashSet<(u16, Bytes), RandomState>,
    /// Forgotten; who still works on it works for nothing.
    gone: bool,
}

/// Figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Figures {
    pub(crate) values: u64,
    pub(crate) live_bytes: u64,
    pub(crate) waiting_bytes: u64,
    pub(crate) waiting_changes: u64,
    pub(crate) written: CommitSeq,
}

impl Live {
    /// Nothing in memory yet; the store behind shows `written` and has values of the scopes `stored`.
    pub(crate) fn new(
        memory: u64,
        dirty: u64,
        written: CommitSeq,
        stored: BTreeSet<Scope>,
    ) -> Self {
        Self {
            scopes: RwLock::new(Scopes {
                stored,
                ..Scopes::default()
            }),
            memory,
            dirty,
            front: Mutex::new(Front::new(written)),
            base: AtomicU64::new(written.0),
            written: AtomicU64::new(written.0),
            live_bytes: AtomicU64::new(0),
            values: AtomicU64::new(0),
            waiting_bytes: AtomicU64::new(0),
            waiting_changes: AtomicU64::new(0),
            futile: AtomicU64::new(u64::MAX),
            alone: AtomicBool::new(false),
            room: Notify::new(),
            answers: Mutex::new(0),
            answered: Condvar::new(),
        }
    }

    /// Starts over: nothing in memory, a store behind that shows `written`.
    pub(crate) fn reset(&self, written: CommitSeq, stored: BTreeSet<Scope>) {
        let mut scopes = self.scopes.write().unwrap_or_else(PoisonError::into_inner);
        *scopes = Scopes {
            stored,
            ..Scopes::default()
        };
        self.front().restart(written);
        self.base.store(written.0, Ordering::Release);
        self.written.store(written.0, Ordering::Release);
        for figure in [
            &self.live_bytes,
            &self.values,
            &self.waiting_bytes,
            &self.waiting_changes,
        ] {
            figure.store(0, Ordering::Release);
        }
        self.futile.store(u64::MAX, Ordering::Release);
        self.alone.store(false, Ordering::Release);
        self.room.notify_waiters();
    }

    /// Looks at a scope under its lock; `None` when there is certainly nothing of it.
    pub(crate) fn read<R>(&self, scope: Scope, look: impl FnOnce(Option<&Part>) -> R) -> R {
        let open = {
            let scopes = self.scopes.read().unwrap_or_else(PoisonError::into_inner);
            match scopes.open.get(&scope) {
                Some(part) => Some(part.clone()),
                None if scopes.stored.contains(&scope) => None,
                None => return look(None),
            }
        };
        let part = open.unwrap_or_else(|| self.part(scope));
        let part = lock(&part);
        look(Some(&part))
    }

    /// Works on a scope under its lock and keeps the totals true.
    pub(crate) fn change<R>(&self, scope: Scope, work: impl FnOnce(&mut Part) -> R) -> R {
        self.change_part(&self.part(scope), work)
    }

    fn change_part<R>(&self, part: &Mutex<Part>, work: impl FnOnce(&mut Part) -> R) -> R {
        let mut part = lock(part);
        let (bytes, values) = (part.cells.bytes(), part.cells.values());
        let result = work(&mut part);
        if part.gone {
            return result;
        }
        // Wrapping: a difference may be negative, the sum never is.
        self.live_bytes
            .fetch_add(part.cells.bytes().wrapping_sub(bytes), Ordering::AcqRel);
        self.values
            .fetch_add(part.cells.values().wrapping_sub(values), Ordering::AcqRel);
        result
    }

    fn part(&self, scope: Scope) -> Arc<Mutex<Part>> {
        if let Some(part) = self
            .scopes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .open
            .get(&scope)
        {
            return part.clone();
        }
        let mut scopes = self.scopes.write().unwrap_or_else(PoisonError::into_inner);
        let complete = !scopes.stored.contains(&scope);
        let fresh = || Part {
            cells: Cells::new(complete),
            waiting: VecDeque::new(),
            sequenced: CommitSeq(0),
            last: CommitSeq(0),
            warmed: complete,
            asked: HashSet::default(),
            gone: false,
        };
        scopes
            .open
            .entry(scope)
            .or_insert_with(|| Arc::new(Mutex::new(fresh())))
            .clone()
    }

    /// Applies a section: to the values at once, to what waits for the store behind, for which `kept` gives its bytes.
    pub(crate) fn apply(
        &self,
        commit: CommitSeq,
        section: &[u8],
        kept: impl FnOnce() -> Bytes,
    ) -> Result<()> {
        let changes = ChangesReader::new(section)?;
        let scope = changes.scope();
        if commit <= self.base() {
            return Ok(());
        }
        self.change(scope, |part| {
            if commit < part.sequenced {
                let place = format!(
                    "function {}, partition {}",
                    scope.function.0, scope.partition
                );
                return Err(Error::corrupt(format!(
                    "state of {place}: commit {commit} comes after {}",
                    part.sequenced
                )));
            }
            if part.gone {
                return Ok(());
            }
            let late = commit <= self.written();
            if late {
                tracing::error!(%commit, written = %self.written(), "state was applied after the store behind had passed its commit: an intent is missing");
            }
            // What comes too late is written back all the same, with the next batch.
            part.sequenced = commit;
            part.last = part.last.max(if late { CommitSeq(self.written().0 + 1) } else { commit });
            let (commit, count) = (part.last, changes.remaining());
            for change in changes {
                part.cells.apply(commit, change);
            }
            if !self.alone.load(Ordering::Acquire) {
                self.let_wait(part, commit, kept(), count);
            }
            Ok(())
        })?;
        self.relieve();
        Ok(())
    }

    /// Evicts until the values fit in memory, as far as they are written back.
    pub(crate) fn relieve(&self) {
        let written = self.written();
        let over = |bound: u64| {
            self.live_bytes
                .load(Ordering::Acquire)
                .saturating_sub(bound)
        };
        if over(self.memory) == 0
            || self.is_alone()
            || self.futile.load(Ordering::Acquire) == written.0
        {
            return;
        }
        // A little more than needed, so that the next change doesn't come here again.
        let bound = self.memory - self.memory / 64;
        let (mut visited, mut moved) = (0, 0);
        while visited < SWEEP_VISITS && over(bound) > 0 {
            let Some(scope) = self.next_scope() else {
                break;
            };
            let swept = self.change(scope, |part| {
                part.cells.sweep(written, SWEEP_STRIDE, over(bound))
            });
            visited += swept.visited.max(1);
            moved += swept.removed + swept.spared;
        }
        if moved == 0 {
            self.futile.store(written.0, Ordering::Release);
        }
    }

    fn next_scope(&self) -> Option<Scope> {
        let mut scopes = self.scopes.write().unwrap_or_else(PoisonError::into_inner);
        let after = scopes.cursor.map_or(Bound::Unbounded, Bound::Excluded);
        let next = scopes
            .open
            .range((after, Bound::Unbounded))
            .next()
            .or_else(|| scopes.open.iter().next());
        let next = next.map(|(scope, _)| *scope);
        scopes.cursor = next;
        next
    }

    /// See [`Front::intend`].
    pub(crate) fn intend(&self) -> CommitSeq {
        self.front().intend()
    }

    /// See [`Front::settle`].
    pub(crate) fn settle(&self, bound: CommitSeq) {
        self.front().settle(bound);
    }

    /// See [`Front::durable`].
    pub(crate) fn durable(&self, commit: CommitSeq) {
        self.front().durable(commit);
    }

    /// See [`Front::writable`].
    pub(crate) fn writable(&self) -> CommitSeq {
        self.front().writable()
    }

    /// The store behind shows this commit now.
    pub(crate) fn written(&self) -> CommitSeq {
        CommitSeq(self.written.load(Ordering::Acquire))
    }

    /// What the store behind showed at the start.
    pub(crate) fn base(&self) -> CommitSeq {
        CommitSeq(self.base.load(Ordering::Acquire))
    }

    /// Whether the store behind is gone.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Acquire)
    }

    /// Drops everything of a function, in memory and what waits.
    pub(crate) fn forget(&self, function: FunctionId) {
        let of = |partition| Scope {
            function,
            partition,
        };
        let mut scopes = self.scopes.write().unwrap_or_else(PoisonError::into_inner);
        scopes.stored.retain(|scope| scope.function != function);
        let gone: Vec<_> = scopes
            .open
            .range(of(0)..=of(u32::MAX))
            .map(|(scope, _)| *scope)
            .collect();
        for scope in gone {
            let Some(part) = scopes.open.remove(&scope) else {
                continue;
            };
            let mut part = lock(&part);
            self.live_bytes
                .fetch_sub(part.cells.bytes(), Ordering::AcqRel);
            self.values.fetch_sub(part.cells.values(), Ordering::AcqRel);
            part.cells = Cells::new(true);
            part.gone = true;
            for dropped in part.waiting.drain(..) {
                self.done_waiting(&dropped);
            }
        }
        self.room.notify_waiters();
    }

    /// Whether more waits to be written back than allowed.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting_bytes.load(Ordering::Acquire) > self.dirty
    }

    /// Waits while more waits to be written back than allowed.
    pub(crate) async fn room(&self) {
        loop {
            let moved = self.room.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if !self.is_full() {
                return;
            }
            moved.await;
        }
    }

    pub(crate) fn figures(&self) -> Figures {
        Figures {
            values: self.values.load(Ordering::Acquire),
            live_bytes: self.live_bytes.load(Ordering::Acquire),
            waiting_bytes: self.waiting_bytes.load(Ordering::Acquire),
            waiting_changes: self.waiting_changes.load(Ordering::Acquire),
            written: self.written(),
        }
    }

    fn parts(&self) -> Vec<(Scope, Arc<Mutex<Part>>)> {
        let scopes = self.scopes.read().unwrap_or_else(PoisonError::into_inner);
        scopes
            .open
            .iter()
            .map(|(scope, part)| (*scope, part.clone()))
            .collect()
    }

    fn front(&self) -> MutexGuard<'_, Front> {
        self.front.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock(part: &Mutex<Part>) -> MutexGuard<'_, Part> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}
