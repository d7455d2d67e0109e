//! One task of a replay: the very task that runs live, handed its events and never waiting.

use super::aside::{Aside, Frame};
use super::memory::RunMemory;
use super::source::Span;
use crate::broken::Faults;
use crate::deployment::Deployment;
use crate::function_log::FunctionLog;
use crate::manifest::Order;
use crate::measure::{FunctionMetrics, Named};
use crate::merge::{Gathered, Merge, Next, Positions};
use crate::note::Note;
use crate::origin;
use crate::parts::Parts;
use crate::pool::Pool;
use crate::record::Role;
use crate::task::{Slice, Start, Task, View};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use tidemill_env::metrics::Metrics;
use tidemill_env::{Clock, Random, Shutdown, Urgency};
use tidemill_log::{Log, Read, ReadLimit};
use tidemill_state::Store;
use tidemill_types::{ByteSize, Error, Event, PartitionId, Result, Timestamp};

/// What the tasks of one replayed version share: state of their own, a clock that stands still.
pub(crate) struct Run {
    pub(crate) parts: Arc<Parts>,
    pub(crate) memory: RunMemory,
    folder: PathBuf,
}

impl Run {
    /// Begins one, with its state in a folder that goes with it.
    ///
    /// # Errors
    /// When the folder can't be made or the machine refuses threads.
    pub(crate) fn new(live: &Parts, folder: &Path, memory: RunMemory) -> Result<Self> {
        let settings = tidemill_state::Settings {
            dir: folder.join("state"),
            memory_bytes: memory.live,
            dirty_bytes: memory.dirty,
            store_bytes: memory.store,
            // No snapshot is taken.
            snapshot_memory: ByteSize(0),
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
            pool: Pool::start(0, Urgency::Low, live.clock.clone())?,
            faults: Faults::default(),
            metrics: FunctionMetrics::new(&unseen, Arc::new(Named::new(1))),
            keeper: Arc::clone(&live.keeper),
            caller: None,
            aside: Some(Aside::default()),
            applying: RwLock::default(),
        };
        Ok(Self {
            parts: Arc::new(parts),
            memory,
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
    partition: u32,
    stop: Shutdown,
}

impl Lane {
    /// A task of a version that goes on from a position with a note. Nothing is parked in a replay: what
    /// fails is tried again in its place, and comes to the same in the end.
    pub(crate) fn new(
        run: &Arc<Run>,
        deployment: &Arc<Deployment>,
        partition: u32,
        (position, mut note): (Positions, Note),
        stop: &Shutdown,
    ) -> Self {
        let mut deployment = Deployment::clone(deployment);
        deployment.manifest.retry.order = Order::Partition;
        (note.front, note.floor, note.counts.retrying) = (None, None, 0);
        let start = Start {
            inputs: deployment.reads(partition).collect(),
            deployment: Arc::new(deployment),
            role: Role::Main,
            position,
            note,
            noted: 0,
            sources: None,
            lines: Arc::new(FunctionLog::nowhere()),
            view: Arc::new(View::default()),
            stop: stop.child_token(),
        };
        let task = Task::new(Arc::clone(&run.parts), start);
        Self {
            run: Arc::clone(run),
            task: Some(Box::new(task)),
            partition,
            stop: stop.clone(),
        }
    }

    /// The totals so far.
    pub(crate) fn note(&self) -> Note {
        let task = self.task.as_ref();
        task.map_or_else(Default::default, |task| task.note())
    }

    /// Runs the function on events; answers what it did, and why it stopped, if it did.
    ///
    /// # Errors
    /// `unavailable` when it was cancelled; what can't be read.
    pub(crate) async fn feed(&mut self, read: Gathered) -> Result<(Vec<Frame>, Option<String>)> {
        let next = self.task()?.handed(read);
        self.through(next).await
    }

    /// Works until there is nothing left to do; answers as [`Lane::feed`].
    async fn through(&mut self, mut next: Option<Slice>) -> Result<(Vec<Frame>, Option<String>)> {
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
                Slice::Call(_) => return Err(Error::internal("a replay was to call the outside")),
                Slice::Storage(error) | Slice::Fault(error) => return Err(error),
            }
            self.run.parts.state.room().await;
        };
        Ok((self.run.aside()?.frames(self.partition), stopped))
    }

    /// Runs what the clock made due with nothing to read, as far as a live task with another note got.
    ///
    /// # Errors
    /// As [`Lane::feed`].
    pub(crate) async fn settle(&mut self, note: &Note) -> Result<(Vec<Frame>, Option<String>)> {
        let (mut all, mut quiet) = (Vec::new(), 0);
        // The first look may only find out which timers there are.
        while quiet < 2 {
            let next = self.task()?.went_on(note);
            let (frames, stopped) = self.through(next).await?;
            quiet = if frames.is_empty() { quiet + 1 } else { 0 };
            all.extend(frames);
            if stopped.is_some() {
                return Ok((all, stopped));
            }
        }
        Ok((all, None))
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

/// What a panic of a replay comes to.
pub(crate) fn gone() -> Error {
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

/// The events of a span of what a version reads, in the order in which its task was given them.
pub(crate) struct Events {
    inputs: Vec<PartitionId>,
    /// Behind what was given.
    at: Positions,
    to: Positions,
    merge: Merge,
    limit: ReadLimit,
    /// Read at once, of all inputs.
    chunk: ReadLimit,
    /// Which inputs are keyed by a pointer.
    by_key: u32,
}

impl Events {
    pub(crate) fn new(deployment: &Deployment, span: &Span, chunk: ReadLimit) -> Self {
        let inputs: Vec<PartitionId> = deployment.reads(span.partition).collect();
        let manifest = &deployment.manifest;
        Self {
            merge: Merge::new(inputs.iter().copied().zip(span.from.iter())),
            inputs,
            at: span.from.clone(),
            to: span.to.clone(),
            by_key: deployment.by_key(),
            chunk,
            // What is gathered of several inputs is handed over as one batch.
            limit: ReadLimit {
                events: manifest.batch_events,
                bytes: manifest.batch_bytes.as_usize(),
            },
        }
    }

    /// How many of what was given are events, and no marks of time.
    pub(crate) fn count(&self, gathered: &Gathered) -> u64 {
        let is_event = |(input, event): (usize, Event<'_>)| {
            self.by_key & 1 << input == 0 || !origin::is_mark(&event)
        };
        let all = gathered.batches.iter().enumerate().flat_map(|(at, batch)| {
            let input = gathered.inputs.get(at).copied().unwrap_or_default();
            batch.iter().map(move |event| (input, event))
        });
        match self.by_key {
            0 => gathered.len() as u64,
            _ => all.filter(|at| is_event(*at)).count() as u64,
        }
    }

    /// The next ones; `None` when there are none any more.
    ///
    /// # Errors
    /// As [`Log::read`].
    pub(crate) async fn next(&mut self, log: &Log) -> Result<Option<Gathered>> {
        let gathered = match self.inputs.as_slice() {
            [at] => {
                let read = next(log, *at, self.at.first(), self.to.first(), self.chunk).await?;
                read.map(Gathered::from)
            }
            _ => self.gather(log).await?,
        };
        if let Some(gathered) = &gathered {
            self.at = gathered.next.clone();
        }
        Ok(gathered)
    }

    async fn gather(&mut self, log: &Log) -> Result<Option<Gathered>> {
        loop {
            match self.merge.gather(self.limit, &mut |_, _| None) {
                Next::Events(gathered) => return Ok(Some(gathered)),
                Next::Nothing(next) if next == self.at => return Ok(None),
                Next::Nothing(next) => {
                    let none = Gathered::default();
                    return Ok(Some(Gathered { next, ..none }));
                }
                Next::Fetch => {
                    let (input, at, from) = self.merge.wanted();
                    let share = ReadLimit {
                        events: self.chunk.events / self.inputs.len(),
                        bytes: self.chunk.bytes / self.inputs.len(),
                    };
                    match next(log, at, from, self.to.get(input), share).await? {
                        Some(read) => self.merge.fetched(read),
                        None => self.merge.end(),
                    }
                }
            }
        }
    }
}

/// The next events of a partition before an offset; `None` when there are none.
async fn next(
    log: &Log,
    at: PartitionId,
    from: u64,
    to: u64,
    limit: ReadLimit,
) -> Result<Option<Read>> {
    if from >= to {
        return Ok(None);
    }
    let mut read = log.read_in_step(at, from, limit).await?;
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
