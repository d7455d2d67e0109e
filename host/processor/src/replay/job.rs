//! Replays under way: each has a number, says how far it is, and keeps what it came to for a while.

use super::diff::Diff;
use super::memory::running;
use super::verify::Verified;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidemill_env::Shutdown;
use tidemill_types::{ByteSize, Error, ErrorKind, FunctionName, Result};

/// Replays of which is kept what they came to.
const KEPT: usize = 64;

/// How far a replay is.
#[derive(Default, Debug)]
pub(crate) struct Progress {
    events: AtomicU64,
    of: AtomicU64,
}

impl Progress {
    /// So many more events are done.
    pub(crate) fn done(&self, events: u64) {
        self.events.fetch_add(events, Ordering::AcqRel);
    }

    /// So many more are to be done.
    pub(crate) fn expect(&self, events: u64) {
        self.of.fetch_add(events, Ordering::AcqRel);
    }
}

/// What a replay came to.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It emitted so many events into a topic.
    Into {
        /// The topic.
        topic: String,
        /// Events emitted.
        emitted: u64,
        /// Why it stopped before the end, by partition.
        stopped: Vec<(u32, String)>,
    },
    /// Two versions were compared.
    Diff(Box<Diff>),
    /// What was committed was compared.
    Verified(Box<Verified>),
}

/// What a replay is at.
#[derive(Clone, Debug)]
pub enum ReplayStatus {
    /// At work.
    Running,
    /// Done.
    Done(Outcome),
    /// Something went wrong, or somebody cancelled it.
    Failed(Error),
}

/// A replay.
#[derive(Clone, Debug)]
pub struct ReplayReport {
    /// Its number.
    pub id: u64,
    /// Whose.
    pub function: FunctionName,
    /// The version.
    pub version: u32,
    /// Events done.
    pub events: u64,
    /// Events there are.
    pub of: u64,
    /// What it is at.
    pub status: ReplayStatus,
}

struct Job {
    function: FunctionName,
    version: u32,
    progress: Arc<Progress>,
    stop: Shutdown,
    status: ReplayStatus,
}

/// All of them.
pub(crate) struct Jobs {
    jobs: Mutex<(u64, BTreeMap<u64, Job>)>,
    running: Arc<()>,
    /// How many may run at once.
    most: usize,
}

/// A place among those that run; the next may begin when it is dropped.
pub(crate) struct Place(#[expect(dead_code, reason = "held, to be counted")] Arc<()>);

impl Jobs {
    /// None yet; they have so much memory.
    pub(crate) fn new(memory: ByteSize) -> Self {
        Self {
            jobs: Mutex::default(),
            running: Arc::default(),
            most: running(memory),
        }
    }

    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Job>)> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place to run in.
    ///
    /// # Errors
    /// `busy` when enough run.
    pub(crate) fn place(&self) -> Result<Place> {
        let most = self.most;
        let _one_at_a_time = self.lock();
        if Arc::strong_count(&self.running) > most {
            return Err(Error::new(
                ErrorKind::Busy,
                "busy",
                format!(
                    "{most} replays are running, as many as there is memory for (functions.replay_bytes) or more would bring nothing; wait for one or cancel it"
                ),
            ));
        }
        Ok(Place(Arc::clone(&self.running)))
    }

    /// Adds one; gives its number.
    pub(crate) fn add(
        &self,
        (function, version): (FunctionName, u32),
        progress: Arc<Progress>,
        stop: Shutdown,
    ) -> u64 {
        let mut jobs = self.lock();
        jobs.0 += 1;
        let id = jobs.0;
        let status = ReplayStatus::Running;
        let job = Job {
            function,
            version,
            progress,
            stop,
            status,
        };
        jobs.1.insert(id, job);
        let ended = |job: &Job| !matches!(job.status, ReplayStatus::Running);
        while jobs.1.len() > KEPT {
            let oldest = jobs.1.iter().find(|(_, job)| ended(job)).map(|(id, _)| *id);
            let Some(oldest) = oldest else { break };
            jobs.1.remove(&oldest);
        }
        id
    }

    /// It has come to an end.
    pub(crate) fn end(&self, id: u64, status: ReplayStatus) {
        if let Some(job) = self.lock().1.get_mut(&id) {
            job.status = status;
        }
    }

    /// Asks one to stop.
    ///
    /// # Errors
    /// `replay-not-found`.
    pub(crate) fn cancel(&self, function: &str, id: u64) -> Result<()> {
        let jobs = self.lock();
        let job = jobs
            .1
            .get(&id)
            .filter(|job| job.function.as_str() == function);
        job.ok_or_else(|| unknown(function, id))?.stop.cancel();
        Ok(())
    }

    /// Those of a function.
    pub(crate) fn of(&self, function: &str) -> Vec<ReplayReport> {
        let jobs = self.lock();
        let own = jobs
            .1
            .iter()
            .filter(|(_, job)| job.function.as_str() == function);
        own.map(|(id, job)| report(*id, job)).collect()
    }

    /// One of them.
    ///
    /// # Errors
    /// `replay-not-found`.
    pub(crate) fn report(&self, function: &str, id: u64) -> Result<ReplayReport> {
        let jobs = self.lock();
        let job = jobs
            .1
            .get(&id)
            .filter(|job| job.function.as_str() == function);
        job.map(|job| report(id, job))
            .ok_or_else(|| unknown(function, id))
    }
}

fn report(id: u64, job: &Job) -> ReplayReport {
    ReplayReport {
        id,
        function: job.function.clone(),
        version: job.version,
        events: job.progress.events.load(Ordering::Acquire),
        of: job.progress.of.load(Ordering::Acquire),
        status: job.status.clone(),
    }
}

fn unknown(function: &str, id: u64) -> Error {
    Error::not_found(
        "replay-not-found",
        format!(
            "function {function:?} has no replay {id}; what one came to is kept until the host stops, of the last {KEPT}"
        ),
    )
}
