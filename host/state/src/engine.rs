//! Live values and the store behind together, one step at a time: write back, load, look at both,
//! mend. No thread of its own; every method that touches the store blocks.

mod changed;
mod clean;
mod figures;
mod link;
mod readers;
mod reads;

pub(crate) use changed::{Changed, Keys, Sorted};
pub(crate) use link::Place;
pub(crate) use readers::Readers;

use crate::behind::{Behind, Failure, Fill, Marker, View, Write};
use crate::live::Live;
use crate::snapshot::Shown;
use crate::{ChangesReader, write_back};
use bytes::Bytes;
use figures::{Figures, signed};
use link::{Link, open_exact, stored_scopes};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use tidemill_env::metrics::Metrics;
use tidemill_types::{CommitSeq, Error, ErrorKind, FunctionId, Result};

/// Where few keys change often, a batch takes up to so many times the sections of any other.
const MOST_TIMES: u64 = 4;

/// How many bytes of sections the next batch should take, so that what is written of them is as much as `usual`: of the
/// last ones' bytes so many were written.
fn next_bytes(usual: u64, taken: u64, written: u64) -> u64 {
    let right = u128::from(usual) * u128::from(taken) / u128::from(written.max(1));
    let most = usual.saturating_mul(MOST_TIMES);
    u64::try_from(right).unwrap_or(most).clamp(usual, most)
}

/// Fewer changed keys than this part of all are looked up for a snapshot, one by one; else all is gone through.
const LOOKED_UP: u64 = 64;

/// Bytes of sections after which what was written of them is made to survive: so much more at most has to be taken
/// from the journal again after a process was killed.
const PERSIST_BYTES: u64 = 64 << 20;

/// Once more than this part of all keys changed since the last snapshot, a start that reads of it in the journal
/// doesn't go on noting them, which takes longer than all else: the next snapshot has everything.
const NOTED: u64 = 8;
/// So many keys are noted however few there are.
const ALWAYS_NOTED: u64 = 100_000;

/// Memory that each part may take, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Memory {
    /// Live values.
    pub(crate) live: u64,
    /// Changes that wait to be written back.
    pub(crate) dirty: u64,
    /// Keys that changed since the last snapshot.
    pub(crate) changed: usize,
}

/// The two levels.
pub(crate) struct Engine {
    pub(crate) live: Live,
    place: Box<dyn Place>,
    link: RwLock<Link>,
    writing: Mutex<Writing>,
    memory: Memory,
    /// Functions whose state is still to be removed behind.
    forgotten: Mutex<Vec<FunctionId>>,
    failed_reads: AtomicU32,
    figures: Figures,
}

/// Only one at a time writes to the store behind.
struct Writing {
    /// The commit of a batch of which we don't know whether it was written.
    attempted: Option<CommitSeq>,
    /// Bytes of sections written since all was last made to survive.
    unpersisted: u64,
    /// So many keys are noted at a start.
    most_noted: u64,
    /// Since the last snapshot.
    changed: Changed,
    /// How many bytes of sections the next batch takes, about.
    most: u64,
}

/// Bytes of keys and values from which on files are made of them at once; fewer are written like any other change.
const FILLED_BYTES: usize = 2 << 20;

/// The store behind while all of it is replaced.
pub(crate) struct Filling<'e> {
    engine: &'e Engine,
    behind: &'e dyn Behind,
    /// What isn't taken yet, in rising order, and its bytes.
    writes: Vec<Write<'static>>,
    bytes: usize,
    /// The last key.
    last: Vec<u8>,
    /// Takes what comes, as long as that rises.
    fill: Option<Box<dyn Fill + 'e>>,
}

impl<'e> Filling<'e> {
    fn new(engine: &'e Engine, behind: &'e dyn Behind) -> Self {
        Self {
            engine,
            behind,
            writes: Vec::new(),
            bytes: 0,
            last: Vec::new(),
            fill: None,
        }
    }

    /// Takes a key and its value, or `None` where it was removed, in place of what it had. Quickest in key order.
    pub(crate) fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        if key <= self.last.as_slice() {
            self.end()?;
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        if let Some(fill) = &mut self.fill {
            let pushed = fill.push(key, value);
            return pushed.map_err(|failure| self.engine.failed(&failure));
        }
        self.bytes += key.len() + value.map_or(0, <[u8]>::len);
        self.writes.push(Write {
            key: key.to_vec(),
            value: value.map(|value| value.to_vec().into()),
        });
        match self.bytes < FILLED_BYTES {
            true => Ok(()),
            false => self.begin_fill(),
        }
    }

    fn begin_fill(&mut self) -> Result<()> {
        let writes = std::mem::take(&mut self.writes);
        let filled = self.behind.fill().and_then(|mut fill| {
            for Write { key, value } in &writes {
                fill.push(key, value.as_deref())?;
            }
            Ok(fill)
        });
        self.fill = Some(filled.map_err(|failure| self.engine.failed(&failure))?);
        Ok(())
    }

    /// Removes what begins with a prefix.
    pub(crate) fn remove(&mut self, prefix: &[u8]) -> Result<()> {
        self.end()?;
        let removed = write_back::remove(self.behind, prefix, Some(Marker::Torn));
        removed.map_err(|failure| self.engine.failed(&failure))
    }

    /// All that came is there.
    fn end(&mut self) -> Result<()> {
        (self.bytes, self.last) = (0, Vec::new());
        let writes = std::mem::take(&mut self.writes);
        let ended = match self.fill.take() {
            Some(fill) => fill.finish(),
            None => self.behind.write(&writes, Some(Marker::Torn)),
        };
        ended.map_err(|failure| self.engine.failed(&failure))
    }
}

/// What one step came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Something was written; perhaps there is more.
    Wrote,
    /// Nothing may be written now.
    Idle,
    /// The store behind refused; try again later.
    Failed,
}

impl Engine {
    /// Opens what is behind; wipes it when that can't be done or it isn't sure what it has.
    pub(crate) fn open(place: Box<dyn Place>, memory: Memory, metrics: &Metrics) -> Result<Self> {
        let figures = Figures::new(metrics);
        let (behind, written, stored) = match open_exact(&*place) {
            Ok(opened) => opened,
            Err(Failure::InUse) => {
                return Err(Error::conflict(
                    "directory-in-use",
                    "the state store is in use by another process: stop that one first",
                ));
            }
            Err(Failure::Broken(reason) | Failure::Unwritable(reason)) => {
                tracing::warn!(
                    reason,
                    "the state store can't be used as it is: it is wiped and rebuilt from the snapshot and the journal"
                );
                figures.resets.inc();
                place
                    .wipe()
                    .and_then(|()| open_exact(&*place))
                    .map_err(|failure| {
                        unavailable(format!("the state store can't be created: {failure}"))
                    })?
            }
        };
        let live = Live::new(memory.live, memory.dirty, written, stored);
        let link = RwLock::new(Link::Open(behind));
        let engine = Self {
            live,
            place,
            link,
            writing: Mutex::new(Writing {
                attempted: None,
                unpersisted: 0,
                most_noted: ALWAYS_NOTED,
                changed: Changed::unknown(memory.changed),
                most: 0,
            }),
            memory,
            forgotten: Mutex::default(),
            failed_reads: AtomicU32::new(0),
            figures,
        };
        engine.show();
        Ok(engine)
    }

    /// One write-back.
    pub(crate) fn step(&self) -> Step {
        let step = self.step_of(&mut self.writing());
        self.show();
        step
    }

    fn step_of(&self, writing: &mut Writing) -> Step {
        self.mend(writing);
        let Ok(behind) = self.behind() else {
            return if self.live.is_alone() {
                Step::Idle
            } else {
                Step::Failed
            };
        };
        let usual = self.live.write_back_bytes();
        let batch = self.live.take_batch(writing.most.max(usual));
        let forgotten = self.forgotten().clone();
        if batch.sections.is_empty() && forgotten.is_empty() {
            return Step::Idle;
        }
        writing.attempted = Some(batch.upto);
        for function in &forgotten {
            writing.changed.clear(&function.0.to_be_bytes());
        }
        let removed = forgotten
            .iter()
            .try_for_each(|function| write_back::forget(&*behind, *function));
        let changed = &mut writing.changed;
        let written = removed.and_then(|()| write_back::write(&*behind, &batch, changed));
        drop(behind);
        match written {
            Ok(bytes) => {
                writing.attempted = None;
                writing.most = next_bytes(usual, batch.bytes(), bytes);
                self.forgotten()
                    .retain(|function| !forgotten.contains(function));
                self.live.set_written(batch.upto);
                self.persist_now_and_then(writing, batch.bytes());
                Step::Wrote
            }
            Err(failure) => {
                self.shut(&failure);
                self.mend(writing);
                Step::Failed
            }
        }
    }

    /// A few keys that change all the time would be in the store's memory only for very long, and so would the marker.
    fn persist_now_and_then(&self, writing: &mut Writing, bytes: u64) {
        writing.unpersisted += bytes;
        if writing.unpersisted < PERSIST_BYTES {
            return;
        }
        writing.unpersisted = 0;
        let persisted = self.behind().map(|behind| behind.persist());
        if let Ok(Err(failure)) = persisted {
            self.shut(&failure);
        }
    }

    /// Writes back all that is durable at the time of the call, and the marker with it.
    ///
    /// # Errors
    /// When the store behind refuses.
    fn settle(&self, writing: &mut Writing) -> Result<()> {
        let goal = self.live.writable();
        while self.live.written() < goal || !self.forgotten().is_empty() {
            match self.step_of(writing) {
                Step::Wrote => {}
                Step::Failed => {
                    return Err(unavailable(
                        "the state store can't be written at the moment".into(),
                    ));
                }
                Step::Idle => {
                    // Nothing waits up to there, so the marker may go there too.
                    let batch = self.live.take_batch(0);
                    if batch.sections.is_empty() {
                        self.behind()?
                            .write(&[], Some(Marker::Exact(batch.upto)))
                            .map_err(|failure| self.failed(&failure))?;
                        self.live.set_written(batch.upto);
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes back all that is durable, makes it survive a power cut, and looks at the store as it is then.
    ///
    /// # Errors
    /// `Unavailable` when the store behind can't be used.
    pub(crate) fn freeze(&self) -> Result<(Box<dyn View>, CommitSeq)> {
        // Nothing may be written between what is said of it and the view.
        let writing = &mut self.writing();
        let (behind, commit) = self.settled(writing)?;
        let view = behind.view().map_err(|failure| self.failed(&failure))?;
        Ok((view, commit))
    }

    /// The same, with what changed since this was last called.
    ///
    /// # Errors
    /// As [`Engine::freeze`].
    pub(crate) fn freeze_since(&self) -> Result<(Shown, CommitSeq, Changed)> {
        let writing = &mut self.writing();
        let (behind, commit) = self.settled(writing)?;
        let changed = writing.changed.count();
        let is_few = changed.is_some_and(|changed| changed < behind.count() / LOOKED_UP);
        let shown = match is_few {
            true => behind.view().map(Shown::View),
            false => behind.pass().map(Shown::Pass),
        };
        let shown = shown.map_err(|failure| self.failed(&failure))?;
        let changed = std::mem::replace(&mut writing.changed, self.nothing());
        Ok((shown, commit, changed))
    }

    fn settled(&self, writing: &mut Writing) -> Result<(Arc<dyn Behind>, CommitSeq)> {
        self.settle(writing)?;
        self.show();
        let behind = self.behind()?;
        let persisted = behind.persist();
        persisted.map_err(|failure| self.failed(&failure))?;
        writing.unpersisted = 0;
        Ok((behind, self.live.written()))
    }

    /// Throws everything away and takes what `fill` brings, in key order, as the state as of `commit`.
    ///
    /// # Errors
    /// `Unavailable` when the store behind can't be written; whatever `fill` says.
    pub(crate) fn replace(
        &self,
        commit: CommitSeq,
        fill: impl FnOnce(&mut Filling<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut writing = self.writing();
        *writing = Writing {
            attempted: None,
            unpersisted: 0,
            most_noted: ALWAYS_NOTED,
            changed: Changed::unknown(self.memory.changed),
            most: 0,
        };
        self.forgotten().clear();
        let behind = self.behind()?;
        let failed = |failure: Failure| self.failed(&failure);
        let torn = || behind.write(&[], Some(Marker::Torn));
        let filled = behind.clear().and_then(|()| torn()).map_err(failed);
        let filled = filled.and_then(|()| {
            let mut filling = Filling::new(self, &*behind);
            fill(&mut filling)?;
            filling.end()
        });
        if filled.is_err() {
            // What is there is marked as torn; better nothing than a part of it.
            let cleared = behind.clear();
            self.live.reset(CommitSeq(0), BTreeSet::new());
            cleared.map_err(failed)?;
            return filled;
        }
        behind
            .write(&[], Some(Marker::Exact(commit)))
            .map_err(failed)?;
        self.live
            .reset(commit, stored_scopes(&*behind).map_err(failed)?);
        writing.changed = self.nothing();
        self.show();
        Ok(())
    }

    /// At a start: what changed since the last snapshot is from now on what is noted and written.
    pub(crate) fn nothing_changed(&self) {
        let count = self.behind().map_or(0, |behind| behind.count());
        let writing = &mut *self.writing();
        writing.most_noted = (count / NOTED).max(ALWAYS_NOTED);
        writing.changed = self.nothing();
    }

    fn nothing(&self) -> Changed {
        Changed::none(self.memory.changed)
    }

    /// What changed since the last snapshot isn't known.
    pub(crate) fn anything_changed(&self) {
        self.writing().changed = Changed::unknown(self.memory.changed);
    }

    /// Takes back what [`Engine::freeze_since`] gave, for the next snapshot.
    pub(crate) fn changed_too(&self, before: Changed) {
        self.writing().changed.and_before(before);
    }

    /// See [`crate::Store::replay`].
    pub(crate) fn replay(&self, commit: CommitSeq, section: &[u8]) -> Result<()> {
        if commit > self.live.base() {
            let kept = || Bytes::copy_from_slice(section);
            self.live.apply(commit, section, kept)?;
            // Nobody waits for room yet, and what comes may be far more than there is memory.
            while self.live.is_full() && self.step() == Step::Wrote {}
            return Ok(());
        }
        let changes = ChangesReader::new(section)?;
        let writing = &mut *self.writing();
        writing.changed.note(changes);
        if writing.changed.count() > Some(writing.most_noted) {
            writing.changed = Changed::unknown(self.memory.changed);
        }
        Ok(())
    }

    /// Forgets a function; its space comes back with the next step.
    pub(crate) fn forget(&self, function: FunctionId) {
        self.live.forget(function);
        self.forgotten().push(function);
        self.show();
    }

    /// Writes back what is durable and lets go of the store behind.
    pub(crate) fn close(&self) {
        let writing = &mut self.writing();
        let closed = if self.live.is_alone() {
            Ok(())
        } else {
            self.settle(writing).and_then(|()| {
                self.behind()?
                    .persist()
                    .map_err(|failure| self.failed(&failure))
            })
        };
        if let Err(error) = closed {
            tracing::warn!(%error, "not all state was written back; the journal has it");
        }
        self.show();
        *self.link.write().unwrap_or_else(PoisonError::into_inner) = Link::Closed;
        self.live.stand_alone();
    }

    /// Whether functions wait to be removed behind.
    pub(crate) fn has_forgotten(&self) -> bool {
        !self.forgotten().is_empty()
    }

    fn forgotten(&self) -> MutexGuard<'_, Vec<FunctionId>> {
        self.forgotten
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self) -> MutexGuard<'_, Writing> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self) {
        let figures = self.live.figures();
        self.figures.live_bytes.set(signed(figures.live_bytes));
        self.figures.dirty.set(signed(figures.waiting_changes));
        self.figures.written.set(signed(self.reflects().0));
    }
}

fn unavailable(detail: String) -> Error {
    Error::new(ErrorKind::Unavailable, "state-unavailable", detail)
}
