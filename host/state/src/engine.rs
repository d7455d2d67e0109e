//! Live values and the store behind together, one step at a time: write back, load, look at both,
//! mend. No thread of its own; every method that touches the store blocks.

use crate::behind::{Behind, Failure, Marker, View, Write};
use crate::live::{Live, Load, WRITE_BACK_BYTES};
use crate::{Missing, Scope, keys, write_back};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use tidemill_env::metrics::{Counter, Gauge, Metrics};
use tidemill_types::{CommitSeq, Error, ErrorKind, FunctionId, Result};

/// Keys one thread reads one after the other; more of them are read by several threads, since a cold
/// read waits for the disk.
const READ_ALONE: usize = 32;
/// Most threads that read for one load.
const READERS: usize = 8;
/// Reads that fail one after the other before the store is given up.
const FAILED_READS: u32 = 3;

/// Where the store behind lies.
pub(crate) trait Place: Send + Sync {
    /// Opens or creates it.
    fn open(&self) -> Result<Arc<dyn Behind>, Failure>;
    /// Removes all of it.
    fn wipe(&self) -> Result<(), Failure>;
}

/// The two levels.
pub(crate) struct Engine {
    pub(crate) live: Live,
    place: Box<dyn Place>,
    link: RwLock<Link>,
    writing: Mutex<Writing>,
    /// Functions whose state is still to be removed behind.
    forgotten: Mutex<Vec<FunctionId>>,
    failed_reads: AtomicU32,
    figures: Figures,
}

/// The way to the store behind.
enum Link {
    Open(Arc<dyn Behind>),
    /// It failed and is to be opened again.
    Shut,
    /// It was given up until the next start.
    Lost,
    /// We let go of it.
    Closed,
}

/// Only one at a time writes to the store behind.
#[derive(Default)]
struct Writing {
    /// The commit of a batch of which we don't know whether it was written.
    attempted: Option<CommitSeq>,
}

struct Figures {
    live_bytes: Gauge,
    dirty: Gauge,
    written: Gauge,
    resets: Counter,
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
    pub(crate) fn open(
        place: Box<dyn Place>,
        memory: u64,
        dirty: u64,
        metrics: &Metrics,
    ) -> Result<Self> {
        let figures = Figures::new(metrics);
        let (behind, written, stored) = match open_exact(&*place) {
            Ok(opened) => opened,
            Err(Failure::InUse) => {
                return Err(Error::conflict(
                    "directory-in-use",
                    "the state store is in use by another process: stop that one first",
                ));
            }
            Err(Failure::Broken(reason)) => {
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
        let live = Live::new(memory, dirty, written, stored);
        let link = RwLock::new(Link::Open(behind));
        let engine = Self {
            live,
            place,
            link,
            writing: Mutex::default(),
            forgotten: Mutex::default(),
            failed_reads: AtomicU32::new(0),
            figures,
        };
        engine.show();
        Ok(engine)
    }

    /// The commit the store behind shows; 0 when there is none any more.
    pub(crate) fn reflects(&self) -> CommitSeq {
        let lost = matches!(
            *self.link.read().unwrap_or_else(PoisonError::into_inner),
            Link::Lost
        );
        if lost {
            CommitSeq(0)
        } else {
            self.live.written()
        }
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
        let batch = self.live.take_batch(WRITE_BACK_BYTES);
        let forgotten = self.forgotten().clone();
        if batch.sections.is_empty() && forgotten.is_empty() {
            return Step::Idle;
        }
        writing.attempted = Some(batch.upto);
        let removed = forgotten
            .iter()
            .try_for_each(|function| write_back::forget(&*behind, *function));
        let written = removed.and_then(|()| write_back::write(&*behind, &batch));
        drop(behind);
        match written {
            Ok(()) => {
                *writing = Writing::default();
                self.forgotten()
                    .retain(|function| !forgotten.contains(function));
                self.live.set_written(batch.upto);
                Step::Wrote
            }
            Err(failure) => {
                self.shut(&failure);
                self.mend(writing);
                Step::Failed
            }
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
        let writing = &mut self.writing();
        self.settle(writing)?;
        self.show();
        let behind = self.behind()?;
        let view = behind
            .persist()
            .and_then(|()| behind.view())
            .map_err(|failure| self.failed(&failure))?;
        Ok((view, self.live.written()))
    }

    /// Throws everything away and takes what `fill` brings, in key order, as the state as of `commit`.
    ///
    /// # Errors
    /// `Unavailable` when the store behind can't be written; whatever `fill` says.
    pub(crate) fn replace(
        &self,
        commit: CommitSeq,
        fill: impl FnOnce(&mut dyn FnMut(&[Write<'_>]) -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        let mut writing = self.writing();
        *writing = Writing::default();
        self.forgotten().clear();
        let behind = self.behind()?;
        let failed = |failure: Failure| self.failed(&failure);
        let filled = behind.clear().map_err(failed).and_then(|()| {
            fill(&mut |batch| behind.write(batch, Some(Marker::Torn)).map_err(failed))
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
        self.show();
        Ok(())
    }

    /// Brings missing values or their absence into memory.
    ///
    /// # Errors
    /// `Unavailable` when the store behind can't be read.
    pub(crate) fn load(&self, scope: Scope, missing: &[Missing]) -> Result<()> {
        while let Some(load) = self.live.begin_load(scope, missing) {
            let behind = self.behind()?;
            if let Some(most) = load.whole
                && self
                    .load_whole(&*behind, scope, &load, most)
                    .map_err(|failure| self.failed_read(&failure))?
            {
                break;
            }
            let values = read_keys(&*behind, scope, &load.keys)
                .map_err(|failure| self.failed_read(&failure))?;
            if self.live.finish_load(scope, &load, &values) {
                break;
            }
        }
        self.failed_reads.store(0, Ordering::Release);
        self.show();
        Ok(())
    }

    fn load_whole(
        &self,
        behind: &dyn Behind,
        scope: Scope,
        load: &Load,
        most: u64,
    ) -> Result<bool, Failure> {
        let mut values = Vec::new();
        let mut bytes = 0;
        let prefix = keys::scope_prefix(scope);
        behind.view()?.scan(
            Bound::Included(&prefix),
            keys::behind(&prefix).as_deref(),
            &mut |key, value| {
                bytes += (key.len() + value.len()) as u64;
                if let Some(stored) = keys::decode(key, value) {
                    values.push((
                        stored.slot,
                        Bytes::copy_from_slice(stored.key),
                        Bytes::copy_from_slice(stored.value),
                    ));
                }
                if bytes <= most {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            },
        )?;
        Ok(bytes <= most && self.live.finish_whole(scope, load, &values))
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

    /// Takes note that the store behind can't be read: opens it again, and gives it up when that doesn't help.
    pub(crate) fn failed_read(&self, failure: &Failure) -> Error {
        self.shut(failure);
        let writing = &mut self.writing();
        if self.failed_reads.fetch_add(1, Ordering::AcqRel) + 1 < FAILED_READS {
            self.mend(writing);
        } else {
            self.lose();
        }
        unavailable(format!("the state store can't be read: {failure}"))
    }

    fn failed(&self, failure: &Failure) -> Error {
        self.shut(failure);
        unavailable(format!("the state store can't be used: {failure}"))
    }

    fn shut(&self, failure: &Failure) {
        tracing::warn!(reason = %failure, "the state store failed; it is opened again, values in memory go on");
        let mut link = self.link.write().unwrap_or_else(PoisonError::into_inner);
        if let Link::Open(_) = *link {
            *link = Link::Shut;
        }
    }

    /// Opens the store behind again. Goes on with it only if it has exactly what it should.
    fn mend(&self, writing: &mut Writing) {
        let is_shut = matches!(
            *self.link.read().unwrap_or_else(PoisonError::into_inner),
            Link::Shut
        );
        if !is_shut {
            return;
        }
        let found = self
            .place
            .open()
            .and_then(|behind| behind.marker().map(|marker| (behind, marker)));
        let written = self.live.written();
        match found {
            Err(Failure::InUse) => {}
            Err(Failure::Broken(reason)) => {
                tracing::warn!(reason, "the state store can't be opened again");
                self.lose();
            }
            Ok((behind, marker)) => {
                let exact = match marker {
                    Marker::Exact(commit) => {
                        (commit == written || Some(commit) == writing.attempted).then_some(commit)
                    }
                    Marker::Empty => (written == CommitSeq(0)).then_some(written),
                    Marker::Torn => None,
                };
                let Some(commit) = exact else {
                    drop(behind);
                    return self.lose();
                };
                *self.link.write().unwrap_or_else(PoisonError::into_inner) = Link::Open(behind);
                self.live.set_written(commit);
            }
        }
    }

    /// Gives the store up. What is in memory stays; a restart rebuilds the rest.
    fn lose(&self) {
        *self.link.write().unwrap_or_else(PoisonError::into_inner) = Link::Lost;
        self.live.stand_alone();
        self.figures.resets.inc();
        if let Err(failure) = self.place.wipe() {
            tracing::warn!(reason = %failure, "the state store can't be removed");
        }
        tracing::error!(
            "the state store is lost: values in memory go on, others and snapshots are unavailable until a restart rebuilds it from the snapshot and the journal"
        );
    }

    pub(crate) fn behind(&self) -> Result<Arc<dyn Behind>> {
        match &*self.link.read().unwrap_or_else(PoisonError::into_inner) {
            Link::Open(behind) => Ok(behind.clone()),
            Link::Shut => Err(unavailable("the state store is being opened again; try again".into())),
            Link::Closed => Err(unavailable("the state store is closed".into())),
            Link::Lost => Err(unavailable("the state store is lost: restart the host, then it is rebuilt from the snapshot and the journal".into())),
        }
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

impl Figures {
    fn new(metrics: &Metrics) -> Self {
        Self {
            live_bytes: metrics.add(
                "state_live_bytes",
                "Memory taken by live values of state.",
                Gauge::default(),
            ),
            dirty: metrics.add(
                "state_dirty",
                "Changes of state that wait to be written back.",
                Gauge::default(),
            ),
            written: metrics.add(
                "state_written_commit",
                "Commit that the state store reflects.",
                Gauge::default(),
            ),
            resets: metrics.add(
                "state_store_resets",
                "Times the state store was wiped because it could not be trusted.",
                Counter::default(),
            ),
        }
    }
}

fn signed(figure: u64) -> i64 {
    i64::try_from(figure).unwrap_or(i64::MAX)
}

fn unavailable(detail: String) -> Error {
    Error::new(ErrorKind::Unavailable, "state-unavailable", detail)
}

type Opened = (Arc<dyn Behind>, CommitSeq, BTreeSet<Scope>);

/// Opens a store that knows what it has.
fn open_exact(place: &dyn Place) -> Result<Opened, Failure> {
    let behind = place.open()?;
    let written = match behind.marker()? {
        Marker::Empty => CommitSeq(0),
        Marker::Exact(commit) => commit,
        Marker::Torn => {
            return Err(Failure::Broken(
                "it was left in the middle of a change".into(),
            ));
        }
    };
    let stored = stored_scopes(&*behind)?;
    Ok((behind, written, stored))
}

/// Scopes of which the store has something: one look per scope.
fn stored_scopes(behind: &dyn Behind) -> Result<BTreeSet<Scope>, Failure> {
    let mut scopes = BTreeSet::new();
    let mut from = Some(vec![0; keys::PREFIX_BYTES]);
    let view = behind.view()?;
    while let Some(start) = from.take() {
        view.scan(Bound::Included(&start), None, &mut |key, value| {
            match keys::decode(key, value) {
                Some(stored) => {
                    scopes.insert(stored.scope);
                    from = keys::behind(&keys::scope_prefix(stored.scope));
                }
                None => from = Some([key, &[0]].concat()),
            }
            ControlFlow::Break(())
        })?;
    }
    Ok(scopes)
}

/// Reads keys in order, many of them with several threads.
fn read_keys(
    behind: &dyn Behind,
    scope: Scope,
    wanted: &[(u16, Bytes)],
) -> Result<Vec<Option<Bytes>>, Failure> {
    let chunk = wanted.len().div_ceil(READERS).max(READ_ALONE);
    if wanted.len() <= chunk {
        return read_some(behind, scope, wanted);
    }
    std::thread::scope(|threads| {
        let readers: Vec<_> = wanted
            .chunks(chunk)
            .map(|part| threads.spawn(move || read_some(behind, scope, part)))
            .collect();
        let mut values = Vec::with_capacity(wanted.len());
        for reader in readers {
            values.extend(
                reader
                    .join()
                    .map_err(|_| Failure::Broken("a read ended in a panic".into()))??,
            );
        }
        Ok(values)
    })
}

fn read_some(
    behind: &dyn Behind,
    scope: Scope,
    wanted: &[(u16, Bytes)],
) -> Result<Vec<Option<Bytes>>, Failure> {
    let stored: Vec<_> = wanted
        .iter()
        .map(|(slot, key)| keys::encode(scope, *slot, key))
        .collect();
    let mut values = vec![None; wanted.len()];
    behind.get_many(&stored, &mut |at, value| {
        values[at] = value
            .and_then(|value| keys::decode_value(&wanted[at].1, value))
            .map(Bytes::copy_from_slice);
    })?;
    Ok(values)
}
