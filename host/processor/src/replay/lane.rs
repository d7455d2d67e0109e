//! One task of a replay: the very task that runs live, handed its events and never waiting.

use super::aside::{Aside, Frame};
use crate::broken::Faults;
use crate::deployment::Deployment;
use crate::function_log::FunctionLog;
use crate::manifest::Order;
use crate::measure::{FunctionMetrics, Named};
use crate::note::Note;
use crate::parts::Parts;
use crate::pool::Pool;
use crate::record::Role;
use crate::task::{Slice, Start, Task, View};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use tidemill_env::metrics::Metrics;
use tidemill_env::{Clock, Random, Shutdown};
use tidemill_log::{Log, Read, ReadLimit};
use tidemill_state::Store;
use tidemill_types::{ByteSize, Error, PartitionId, Result, Timestamp};

/// Events handed over at once.
const CHUNK: ReadLimit = ReadLimit {
    events: 16 << 10,
    bytes: 4 << 20,
};
/// Memory for the state of a replay; the rest lies on disk.
const MEMORY: ByteSize = ByteSize::mib(64);
/// Changed state that waits to be written there.
const DIRTY: ByteSize = ByteSize::mib(16);

/// What the tasks of one replayed version share: state of their own, a clock that stands still.
pub(crate) struct Run {
    pub(crate) parts: Arc<Parts>,
    folder: PathBuf,
}

impl Run {
    /// Begins one, with its state in a folder that goes with it.
    ///
    /// # Errors
    /// When the folder can't be made or the machine refuses threads.
    pub(crate) fn new(live: &Parts, folder: &Path, threads: usize) -> Result<Self> {
        let settings = tidemill_state::Settings {
            dir: folder.join("state"),
            memory_bytes: MEMORY,
            dirty_bytes: DIRTY,
        };
        let unseen = Metrics::default();
        let parts = Parts {
            log: live.log.clone(),
            state: Store::open(settings, &unseen)?,
            sandbox: live.sandbox.clone(),
            compiler: live.compiler.clone(),
            instances: Arc::clone(&live.instances),
            objects: live.objects.clone(),
            clock: Clock::manual(Timestamp::from_micros(0)),
            random: Random::seeded(0),
            pool: Pool::start(threads, live.clock.clone())?,
            faults: Faults::default(),
            metrics: FunctionMetrics::new(&unseen, Arc::new(Named::new(1))),
            keeper: Arc::clone(&live.keeper),
            aside: Some(Aside::default()),
            applying: RwLock::default(),
        };
        Ok(Self {
            parts: Arc::new(parts),
            folder: folder.to_owned(),
        })
    }

    /// Where transactions go.
    pub(crate) fn aside(&self) -> Result<&Aside> {
        let aside = self.parts.aside.as_ref();
        aside.ok_or_else(|| Error::internal("a replay that would commit"))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.parts.state.close();
        if let Err(wrong) = std::fs::remove_dir_all(&self.folder) {
            tracing::warn!(folder = %self.folder.display(), error = %wrong, "the folder of a replay can't be removed now; it goes at the next start");
        }
    }
}

/// One partition of a run.
pub(crate) struct Lane {
    run: Arc<Run>,
    task: Option<Box<Task>>,
    at: PartitionId,
    stop: Shutdown,
}

impl Lane {
    /// A task of a version that goes on from a position with a note. Nothing is parked in a replay: what
    /// fails is tried again in its place, and comes to the same in the end.
    pub(crate) fn new(
        run: &Arc<Run>,
        deployment: &Arc<Deployment>,
        partition: u32,
        (position, mut note): (u64, Note),
        stop: &Shutdown,
    ) -> Self {
        let mut deployment = Deployment::clone(deployment);
        deployment.manifest.retry.order = Order::Partition;
        (note.front, note.floor, note.counts.retrying) = (None, None, 0);
        let at = PartitionId {
            topic: deployment.main_input().id,
            partition,
        };
        let start = Start {
            deployment: Arc::new(deployment),
            role: Role::Main,
            at,
            position,
            note,
            lines: Arc::new(FunctionLog::nowhere()),
            view: Arc::new(View::default()),
            stop: stop.child_token(),
        };
        let task = Task::new(Arc::clone(&run.parts), start);
        Self {
            run: Arc::clone(run),
            task: Some(Box::new(task)),
            at,
            stop: stop.clone(),
        }
    }

    /// Next offset to read, and the totals so far.
    pub(crate) fn stands(&self) -> (u64, Note) {
        let task = self.task.as_ref();
        task.map_or_else(Default::default, |task| (task.position(), task.note()))
    }

    /// Runs the function on events; answers what it did, and why it stopped, if it did.
    ///
    /// # Errors
    /// `unavailable` when it was cancelled; what can't be read.
    pub(crate) async fn feed(&mut self, read: Read) -> Result<(Vec<Frame>, Option<String>)> {
        let mut next = self.task()?.fetched(read);
        let stopped = loop {
            let slice = match next.take() {
                Some(slice) => slice,
                None => self.work().await?,
            };
            if self.stop.is_cancelled() {
                return Err(cancelled());
            }
            match slice {
                Slice::Read | Slice::Idle => break None,
                Slice::Stop(why) => break Some(why),
                Slice::More | Slice::Room => {}
                // No time passes but what a pause takes.
                Slice::Pause(pause) => {
                    let micros = i64::try_from(pause.as_micros()).unwrap_or(i64::MAX);
                    self.run.parts.clock.advance(micros.max(1));
                }
                Slice::State(wanted) => {
                    let known = blocking(self.task()?.reading(wanted)).await?;
                    self.task()?.learned(known)?;
                }
                Slice::Instance(pages) => {
                    let room = self.run.parts.instances.room(pages).await?;
                    self.task()?.granted(room);
                }
                Slice::Storage(error) | Slice::Fault(error) => return Err(error),
            }
            self.run.parts.state.room().await;
        };
        Ok((self.run.aside()?.frames(self.at.partition), stopped))
    }

    async fn work(&mut self) -> Result<Slice> {
        let mut task = self.task.take().ok_or_else(gone)?;
        let function = task.scope().function;
        let ran = self.run.parts.pool.run(function, usize::MAX, move || {
            let slice = task.work();
            (task, slice)
        });
        let (task, slice) = ran.await.ok_or_else(gone)?;
        self.task = Some(task);
        Ok(slice)
    }

    fn task(&mut self) -> Result<&mut Task> {
        self.task.as_deref_mut().ok_or_else(gone)
    }
}

fn gone() -> Error {
    Error::internal("a task of a replay panicked")
}

/// A replay that was asked to stop.
pub(crate) fn cancelled() -> Error {
    Error::unavailable(
        "unavailable",
        "the replay was cancelled, or nobody takes what it emits",
    )
}

/// Does what waits for the disk beside everything else.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Error::internal("reading state panicked"))?
}

/// The next events of a partition before an offset; `None` when there are none.
///
/// # Errors
/// As [`Log::read`].
pub(crate) async fn next(log: &Log, at: PartitionId, from: u64, to: u64) -> Result<Option<Read>> {
    if from >= to {
        return Ok(None);
    }
    let mut read = log.read(at, from, CHUNK).await?;
    if read.next <= from {
        return Ok(None);
    }
    if read.next > to {
        read.next = to;
        for batch in &mut read.batches {
            *batch = batch.slice(0..batch.row_at(to));
        }
        read.batches.retain(|batch| !batch.is_empty());
    }
    Ok(Some(read))
}
