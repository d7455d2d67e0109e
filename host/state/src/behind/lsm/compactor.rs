//! The thread that makes fewer and larger files of what was written.

use super::{Failure, Shared, guarded};
use lsm_tree::AbstractTree;
use lsm_tree::compaction::Leveled;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// So many files written one after the other may lie above each other, each of which a look has to ask; then
/// who writes waits.
const RUNS: usize = 20;
/// Levels of a tree.
const LEVELS: usize = 7;

/// The thread, and the way to wake it.
pub(super) struct Compactor {
    bell: Arc<Bell>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Bell {
    wanted: Mutex<Wanted>,
    rung: Condvar,
    /// Something is done, or can't be.
    done: Condvar,
}

#[derive(Default)]
struct Wanted {
    work: bool,
    busy: bool,
    end: bool,
    /// Why the last compaction came to nothing.
    failed: Option<Failure>,
}

impl Compactor {
    pub(super) fn start(shared: Arc<Shared>) -> Result<Self, Failure> {
        let bell = Arc::new(Bell::default());
        let thread = std::thread::Builder::new().name("state-compact".into());
        let thread = thread.spawn({
            let (bell, shared) = (bell.clone(), shared.clone());
            move || bell.run(&shared)
        });
        // What the process before left waits for the next file: a start has other things to do.
        Ok(Self {
            bell,
            shared,
            thread: Some(thread?),
        })
    }

    /// There is something new.
    pub(super) fn wake(&self) {
        self.bell.wanted().work = true;
        self.bell.rung.notify_one();
    }

    /// Waits while there are too many files for another.
    ///
    /// # Errors
    /// Why they don't become fewer.
    pub(super) fn keep_up(&self) -> Result<(), Failure> {
        if self.shared.tree.l0_run_count() < RUNS {
            return Ok(());
        }
        self.wake();
        let too_many = |wanted: &mut Wanted| {
            (wanted.work || wanted.busy) && self.shared.tree.l0_run_count() >= RUNS
        };
        let wanted = self.bell.done.wait_while(self.bell.wanted(), too_many);
        let wanted = wanted.unwrap_or_else(PoisonError::into_inner);
        match &wanted.failed {
            Some(failure) if self.shared.tree.l0_run_count() >= RUNS => Err(failure.clone()),
            _ => Ok(()),
        }
    }
}

impl Drop for Compactor {
    fn drop(&mut self) {
        self.bell.wanted().end = true;
        self.bell.rung.notify_one();
        // What panicked was told.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Bell {
    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, shared: &Shared) {
        while self.next() {
            let compacted = self.compact(shared);
            if let Err(failure) = &compacted {
                tracing::warn!(reason = %failure, "the state store's files can't be compacted");
            }
            let mut wanted = self.wanted();
            wanted.failed = compacted.err();
            wanted.busy = false;
            drop(wanted);
            self.done.notify_all();
        }
    }

    /// Waits for work; false when it is time to end.
    fn next(&self) -> bool {
        let idle = |wanted: &mut Wanted| !wanted.work && !wanted.end;
        let wanted = self.rung.wait_while(self.wanted(), idle);
        let mut wanted = wanted.unwrap_or_else(PoisonError::into_inner);
        wanted.work = false;
        wanted.busy = !wanted.end;
        !wanted.end
    }

    /// Compacts until there is nothing left to do, which shows in that nothing has changed.
    fn compact(&self, shared: &Shared) -> Result<(), Failure> {
        let strategy = Arc::new(Leveled::default());
        let mut before = shape(shared);
        while !self.wanted().end {
            guarded(|| {
                let compacted = shared.tree.compact(strategy.clone(), shared.of_no_use());
                compacted.map_err(|error| Failure::Unwritable(error.to_string()))
            })?;
            let after = shape(shared);
            if after == before {
                break;
            }
            before = after;
            // Taken, so that nobody looks between and waits.
            drop(self.wanted());
            self.done.notify_all();
        }
        Ok(())
    }
}

/// How many files each level has, and how many there ever were.
fn shape(shared: &Shared) -> ([Option<usize>; LEVELS], u64) {
    let levels = std::array::from_fn(|level| shared.tree.level_table_count(level));
    (levels, shared.tree.next_table_id())
}
