//! All live values, what of them waits to be written back, and up to where that may go. No I/O.
//!
//! The store behind must show exactly the state as of the commit it names. So what waits is kept as
//! the transactions' own sections, each with its commit, beside the newest values: a write-back takes
//! the sections up to a commit and never looks at the values, which may be further ahead.

use crate::cells::{Cells, Known};
use crate::{Change, ChangesReader, Missing, Scope};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use tidemill_types::{CommitSeq, Error, FunctionId, Result};
use tokio::sync::Notify;

/// Places looked at in one scope before the next one gets its turn.
const SWEEP_STRIDE: usize = 256;
/// Places looked at in all before a change goes on although memory is still short.
const SWEEP_VISITS: usize = 8192;
/// Most bytes of sections in one write-back, so that it ends soon and is small beside the store's own log.
pub(crate) const WRITE_BACK_BYTES: u64 = 8 << 20;

/// A scope up to this size (and a quarter of the memory) is brought in as a whole at its first miss
/// after a start: from then on the store behind isn't asked for it any more.
const WHOLE_BYTES: u64 = 32 << 20;

/// Live values of all scopes.
pub(crate) struct Live {
    scopes: RwLock<Scopes>,
    /// Bound of live values in bytes.
    memory: u64,
    /// Bound of waiting sections in bytes.
    dirty: u64,
    front: Mutex<Front>,
    written: AtomicU64,
    live_bytes: AtomicU64,
    values: AtomicU64,
    waiting_bytes: AtomicU64,
    waiting_changes: AtomicU64,
    /// Nothing could be evicted while this was the written commit.
    futile: AtomicU64,
    /// There is no store behind any more.
    alone: AtomicBool,
    room: Notify,
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
    last: CommitSeq,
    /// Whether it was tried to bring the whole scope in.
    warmed: bool,
    /// Forgotten; who still works on it works for nothing.
    gone: bool,
}

/// What a load has to read, and what tells afterwards whether it may be taken in.
pub(crate) struct Load {
    /// Slot and key.
    pub(crate) keys: Vec<(u16, Bytes)>,
    /// The whole scope may be read instead if it isn't larger than this: it was not tried before.
    pub(crate) whole: Option<u64>,
    last: CommitSeq,
    losses: (u64, CommitSeq, u64),
}

struct Waiting {
    commit: CommitSeq,
    section: Bytes,
    changes: u32,
}

/// How far the journal is durable, and which transactions are between being sequenced and applied.
#[derive(Default)]
struct Front {
    durable: CommitSeq,
    intents: BTreeMap<CommitSeq, usize>,
}

/// Sections to be written back as one batch, and the commit the store shows afterwards.
pub(crate) struct WriteBack {
    pub(crate) upto: CommitSeq,
    /// By scope, in commit order.
    pub(crate) sections: Vec<(Scope, Vec<Bytes>)>,
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
            front: Mutex::new(Front {
                durable: written,
                ..Front::default()
            }),
            written: AtomicU64::new(written.0),
            live_bytes: AtomicU64::new(0),
            values: AtomicU64::new(0),
            waiting_bytes: AtomicU64::new(0),
            waiting_changes: AtomicU64::new(0),
            futile: AtomicU64::new(u64::MAX),
            alone: AtomicBool::new(false),
            room: Notify::new(),
        }
    }

    /// Starts over: nothing in memory, a store behind that shows `written`.
    pub(crate) fn reset(&self, written: CommitSeq, stored: BTreeSet<Scope>) {
        let mut scopes = self.scopes.write().unwrap_or_else(PoisonError::into_inner);
        *scopes = Scopes {
            stored,
            ..Scopes::default()
        };
        self.front().durable = written;
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
        let part = self.part(scope);
        let mut part = lock(&part);
        let (bytes, values) = (part.cells.bytes(), part.cells.values());
        let result = work(&mut part);
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
            last: CommitSeq(0),
            warmed: complete,
            gone: false,
        };
        scopes
            .open
            .entry(scope)
            .or_insert_with(|| Arc::new(Mutex::new(fresh())))
            .clone()
    }

    /// Applies a section: to the values at once, to what waits for the store behind.
    pub(crate) fn apply(&self, commit: CommitSeq, section: &[u8]) -> Result<()> {
        let changes = ChangesReader::new(section)?;
        let scope = changes.scope();
        if commit <= self.written() {
            return Ok(());
        }
        self.change(scope, |part| {
            if commit < part.last {
                let place = format!(
                    "function {}, partition {}",
                    scope.function.0, scope.partition
                );
                return Err(Error::corrupt(format!(
                    "state of {place}: commit {commit} comes after {}",
                    part.last
                )));
            }
            if part.gone {
                return Ok(());
            }
            part.last = commit;
            let count = changes.remaining();
            for change in changes {
                part.cells.apply(commit, change);
            }
            if !self.alone.load(Ordering::Acquire) {
                self.waiting_bytes
                    .fetch_add(section.len() as u64, Ordering::AcqRel);
                self.waiting_changes
                    .fetch_add(count.into(), Ordering::AcqRel);
                part.waiting.push_back(Waiting {
                    commit,
                    section: Bytes::copy_from_slice(section),
                    changes: count,
                });
            }
            Ok(())
        })?;
        self.relieve();
        Ok(())
    }

    /// Begins to bring missing values in: says what to read, `None` when all is known already. What is
    /// in memory or was written back before now is as the store behind has it from now on, unless it
    /// changes; [`Live::finish_load`] notices that.
    pub(crate) fn begin_load(&self, scope: Scope, missing: &[Missing]) -> Option<Load> {
        let whole = WHOLE_BYTES.min(self.memory / 4);
        let fits = whole > 0 && self.live_bytes.load(Ordering::Acquire) + whole <= self.memory / 2;
        self.change(scope, |part| {
            part.cells.begin_load();
            let unknown =
                |missing: &&Missing| part.cells.get(missing.slot, &missing.key) == Known::Unknown;
            let mut keys: Vec<_> = missing
                .iter()
                .filter(unknown)
                .map(|missing| (missing.slot, missing.key.clone()))
                .collect();
            if keys.is_empty() {
                return None;
            }
            keys.sort_unstable();
            keys.dedup();
            let whole = (fits && !std::mem::replace(&mut part.warmed, true)).then_some(whole);
            Some(Load {
                keys,
                whole,
                last: part.last,
                losses: part.cells.losses(),
            })
        })
    }

    /// Takes in what a load has read of single keys. False: something newer came and went meanwhile,
    /// read again.
    pub(crate) fn finish_load(&self, scope: Scope, load: &Load, values: &[Option<Bytes>]) -> bool {
        let taken = self.change(scope, |part| {
            let (_, lost, clears) = part.cells.losses();
            if lost > load.last || clears != load.losses.2 {
                return false;
            }
            for ((slot, key), value) in load.keys.iter().zip(values) {
                part.cells.take_in(*slot, key, value.as_deref());
            }
            true
        });
        self.relieve();
        taken
    }

    /// Takes in a whole scope as the store behind has it; from now on what isn't in memory is absent.
    /// False: something left memory meanwhile, read the single keys.
    pub(crate) fn finish_whole(
        &self,
        scope: Scope,
        load: &Load,
        values: &[(u16, Bytes, Bytes)],
    ) -> bool {
        self.change(scope, |part| {
            if part.cells.losses() != load.losses {
                return false;
            }
            for (slot, key, value) in values {
                part.cells.take_in(*slot, key, Some(value));
            }
            part.cells.set_complete();
            true
        })
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

    /// Says that a transaction is about to be sequenced: its commit comes after everything durable now.
    pub(crate) fn intend(&self) -> CommitSeq {
        let mut front = self.front();
        let bound = front.durable;
        *front.intents.entry(bound).or_default() += 1;
        bound
    }

    /// The transaction has been applied or was refused.
    pub(crate) fn settle(&self, bound: CommitSeq) {
        let mut front = self.front();
        if let Some(count) = front.intents.get_mut(&bound) {
            *count -= 1;
            if *count == 0 {
                front.intents.remove(&bound);
            }
        }
    }

    /// The journal is durable up to this commit.
    pub(crate) fn durable(&self, commit: CommitSeq) {
        let mut front = self.front();
        front.durable = front.durable.max(commit);
    }

    /// Up to where the store behind may be brought: durable, and nothing missing that is still on its way.
    pub(crate) fn writable(&self) -> CommitSeq {
        let front = self.front();
        front
            .intents
            .keys()
            .next()
            .map_or(front.durable, |bound| front.durable.min(*bound))
    }

    /// What to write back next, about `most` bytes of it; without sections when nothing waits that may
    /// be written: then everything up to its commit is in the store behind already.
    pub(crate) fn take_batch(&self, most: u64) -> WriteBack {
        // In this order: whatever becomes writable later may come from a scope not listed here.
        let writable = self.writable();
        let parts = self.parts();
        let mut sizes = Vec::new();
        for (_, part) in &parts {
            sizes.extend(
                lock(part)
                    .upto(writable)
                    .map(|waiting| (waiting.commit, waiting.section.len() as u64)),
            );
        }
        let upto = cut(&mut sizes, most, writable);
        let sections = parts.iter().filter_map(|(scope, part)| {
            let sections: Vec<_> = lock(part)
                .upto(upto)
                .map(|waiting| waiting.section.clone())
                .collect();
            (!sections.is_empty()).then_some((*scope, sections))
        });
        WriteBack {
            upto,
            sections: sections.collect(),
        }
    }

    /// The store behind shows this commit now.
    pub(crate) fn written(&self) -> CommitSeq {
        CommitSeq(self.written.load(Ordering::Acquire))
    }

    /// Takes note that the store behind shows a commit: what waited for it is done.
    pub(crate) fn set_written(&self, commit: CommitSeq) {
        self.written.fetch_max(commit.0, Ordering::AcqRel);
        for (scope, _) in self.parts() {
            self.change(scope, |part| {
                while let Some(done) = part
                    .waiting
                    .pop_front_if(|waiting| waiting.commit <= commit)
                {
                    self.waiting_bytes
                        .fetch_sub(done.section.len() as u64, Ordering::AcqRel);
                    self.waiting_changes
                        .fetch_sub(done.changes.into(), Ordering::AcqRel);
                    for change in ChangesReader::unchecked(&done.section)
                        .into_iter()
                        .flatten()
                    {
                        if let Change::Delete { slot, key } = change {
                            part.cells.drop_absence(slot, key, commit);
                        }
                    }
                }
            });
        }
        self.relieve();
        self.room.notify_waiters();
    }

    /// There is no store behind any more: values stay in memory and nothing waits.
    pub(crate) fn stand_alone(&self) {
        self.alone.store(true, Ordering::Release);
        for (_, part) in self.parts() {
            let waiting = std::mem::take(&mut lock(&part).waiting);
            for dropped in waiting {
                self.waiting_bytes
                    .fetch_sub(dropped.section.len() as u64, Ordering::AcqRel);
                self.waiting_changes
                    .fetch_sub(dropped.changes.into(), Ordering::AcqRel);
            }
        }
        self.room.notify_waiters();
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
                self.waiting_bytes
                    .fetch_sub(dropped.section.len() as u64, Ordering::AcqRel);
                self.waiting_changes
                    .fetch_sub(dropped.changes.into(), Ordering::AcqRel);
            }
        }
        self.room.notify_waiters();
    }

    /// Waits while more waits to be written back than allowed.
    pub(crate) async fn room(&self) {
        loop {
            let moved = self.room.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if self.waiting_bytes.load(Ordering::Acquire) <= self.dirty {
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

impl Part {
    fn upto(&self, commit: CommitSeq) -> impl Iterator<Item = &Waiting> {
        self.waiting
            .iter()
            .take_while(move |waiting| waiting.commit <= commit)
    }
}

/// The last commit of a batch of about `most` bytes: whole commits, at least one.
fn cut(sizes: &mut [(CommitSeq, u64)], most: u64, writable: CommitSeq) -> CommitSeq {
    sizes.sort_unstable();
    let mut bytes = 0;
    let mut upto = None;
    for (commit, size) in sizes {
        bytes += *size;
        if bytes > most && upto.is_some_and(|upto| upto < *commit) {
            return upto.unwrap_or(writable);
        }
        upto = Some(*commit);
    }
    writable
}

fn lock(part: &Mutex<Part>) -> MutexGuard<'_, Part> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}
