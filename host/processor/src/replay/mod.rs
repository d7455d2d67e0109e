//! Replays: a version of a function over stored events once more, with state of its own. What it emits
//! is handed on, put into a side topic, compared with what another version emits, or with what was
//! committed. Nothing of the function itself changes.
//!
//! A replay runs the very tasks that run live (`task.rs`); only their transactions go elsewhere
//! (`aside.rs`), their events are handed to them, and no time passes for them.

mod aside;
mod beside;
mod cursor;
mod diff;
mod invoke;
mod job;
mod lane;
mod memory;
mod outputs;
mod same;
mod source;
mod verify;

pub(crate) use aside::Aside;
pub use diff::{Diff, EventDifference, Told};
pub use invoke::{Fate, Invoked, InvokedEvent};
pub(crate) use job::Jobs;
pub use job::{Outcome, ReplayReport, ReplayStatus};
pub use outputs::Replayed;
pub use same::{Emitted, StateDifference, StateSummary};
pub use source::Point;
pub use verify::Verified;

use crate::processor::{Inner, Processor};
use diff::{Begin, Sides};
use job::{Place, Progress};
pub(crate) use lane::{Run, blocking};
use memory::RunMemory;
use outputs::{Emitting, side_topic};
use source::{Found, Span, spans};
use std::sync::Arc;
use tidemill_env::Shutdown;
use tidemill_types::{Error, Result, limits};
use tokio::sync::mpsc;
pub(crate) use verify::held;
use verify::{Verifying, impossible};

/// Stretches of emitted events that wait for who takes them.
const AHEAD: usize = 4;

/// A request to replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replay {
    /// The version; the one in force if none is named.
    pub version: Option<u32>,
    /// From where on; state is empty there.
    pub from: Point,
    /// Up to where.
    pub to: Point,
    /// What for.
    pub mode: ReplayMode,
    /// Most examples of differences.
    pub examples: usize,
}

/// What a replay is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplayMode {
    /// What it emits goes into a topic.
    Into(String),
    /// What it emits is handed on as it comes ([`Processor::replay_stream`]).
    Stream,
    /// It is compared with another version: that is the left, this the right.
    Diff(u32),
    /// It is compared with what was committed, from the function's beginning on.
    Verify,
}

/// What a running replay needs.
struct Ready {
    found: Found,
    spans: Vec<Span>,
    progress: Arc<Progress>,
    stop: Shutdown,
    place: Place,
}

impl Processor {
    /// Begins a replay; [`Processor::replay_report`] says how far it is.
    ///
    /// # Errors
    /// `function-not-found`, `version-not-found`, `invalid-replay`, `replay-impossible`; `busy` when
    /// enough run.
    pub async fn replay(&self, name: &str, replay: Replay) -> Result<ReplayReport> {
        let inner = &self.inner;
        let ready = ready(inner, name, &replay).await?;
        let version = replay.version.unwrap_or(ready.found.record.version);
        let whose = (ready.found.name.clone(), version);
        let (progress, stop) = (Arc::clone(&ready.progress), ready.stop.clone());
        let work = prepare(inner, ready, &replay).await?;
        let id = inner.jobs.add(whose, progress, stop);
        let jobs = Arc::clone(&inner.jobs);
        tokio::spawn(async move {
            let status = match work.await {
                Ok(outcome) => ReplayStatus::Done(outcome),
                Err(error) => ReplayStatus::Failed(error),
            };
            jobs.end(id, status);
        });
        inner.jobs.report(name, id)
    }

    /// Begins a replay and gives what it emits as it comes; it ends when nobody takes it any more. An
    /// error is the last that comes.
    ///
    /// # Errors
    /// As [`Processor::replay`].
    pub async fn replay_stream(
        &self,
        name: &str,
        replay: Replay,
    ) -> Result<mpsc::Receiver<Result<Replayed>>> {
        let inner = Arc::clone(&self.inner);
        let ready = ready(&inner, name, &replay).await?;
        let run = run(&inner, 1).await?;
        let deployment = ready.found.deployment(&inner, replay.version).await?;
        let (out, coming) = mpsc::channel(AHEAD);
        let (pass, mut passed) = mpsc::channel(1);
        let emitting = Emitting {
            live: Arc::clone(&inner.parts),
            run,
            deployment,
            spans: ready.spans,
            progress: ready.progress,
            stop: ready.stop,
        };
        tokio::spawn(async move {
            let _place = ready.place;
            let forward = async {
                while let Some(some) = passed.recv().await {
                    if out.send(Ok(some)).await.is_err() {
                        return;
                    }
                }
            };
            let (done, ()) = futures::join!(emitting.stream(pass), forward);
            if let Err(error) = done {
                // Who doesn't listen any more needs no error.
                let _ = out.send(Err(error)).await;
            }
        });
        Ok(coming)
    }

    /// How far a replay is, and what it came to.
    ///
    /// # Errors
    /// `function-not-found`, `replay-not-found`.
    pub fn replay_report(&self, name: &str, id: u64) -> Result<ReplayReport> {
        self.inner.existing(name)?;
        self.inner.jobs.report(name, id)
    }

    /// The replays of a function.
    ///
    /// # Errors
    /// `function-not-found`.
    pub fn replays(&self, name: &str) -> Result<Vec<ReplayReport>> {
        self.inner.existing(name)?;
        Ok(self.inner.jobs.of(name))
    }

    /// Asks a replay to stop.
    ///
    /// # Errors
    /// `function-not-found`, `replay-not-found`.
    pub fn cancel_replay(&self, name: &str, id: u64) -> Result<()> {
        self.inner.existing(name)?;
        self.inner.jobs.cancel(name, id)
    }
}

async fn ready(inner: &Arc<Inner>, name: &str, replay: &Replay) -> Result<Ready> {
    let found = Found::of(inner, name)?;
    let place = inner.jobs.place()?;
    let progress = Arc::new(Progress::default());
    let mut all = Vec::new();
    if replay.mode != ReplayMode::Verify {
        let deployment = found.deployment(inner, replay.version).await?;
        all = spans(&inner.parts.log, &deployment, replay.from, replay.to).await?;
        progress.expect(all.iter().map(Span::len).sum());
    }
    Ok(Ready {
        found,
        spans: all,
        progress,
        stop: inner.shutdown.child_token(),
        place,
    })
}

type Work = futures::future::BoxFuture<'static, Result<Outcome>>;

async fn prepare(inner: &Arc<Inner>, ready: Ready, replay: &Replay) -> Result<Work> {
    let Ready {
        found,
        spans,
        progress,
        stop,
        place,
    } = ready;
    let inner = Arc::clone(inner);
    let live = Arc::clone(&inner.parts);
    let examples = replay.examples.min(limits::LISTED_ERRORS);
    match &replay.mode {
        ReplayMode::Into(topic) => {
            let deployment = found.deployment(&inner, replay.version).await?;
            let topic = side_topic(&live, &deployment, topic).await?;
            let emitting = Emitting {
                run: run(&inner, 1).await?,
                live,
                deployment,
                spans,
                progress,
                stop,
            };
            Ok(Box::pin(async move {
                let _place = place;
                emitting.into_topic(topic).await
            }))
        }
        ReplayMode::Stream => Err(Error::internal("a stream that nobody takes")),
        ReplayMode::Diff(other) => {
            let left = found.deployment(&inner, Some(*other)).await?;
            let right = found.deployment(&inner, replay.version).await?;
            if !left.reads(0).eq(right.reads(0)) {
                return Err(Error::invalid(
                    "invalid-replay",
                    "the two versions don't read the same topics in the same order, so that there is nothing to hand to both",
                ));
            }
            let sides = Arc::new(Sides {
                left: (run(&inner, 2).await?, left),
                right: (run(&inner, 2).await?, right),
                record: found.record,
                examples,
                begin: Begin::Empty,
            });
            Ok(Box::pin(async move {
                let _place = place;
                let diff = sides.compare(&live, spans, (&progress, &stop)).await?;
                Ok(Outcome::Diff(Box::new(diff)))
            }))
        }
        ReplayMode::Verify => {
            let run = run(&inner, 1).await?;
            let verifying = Verifying::prepare(&inner, found, run, examples).await?;
            let verifying = Arc::new(verifying);
            Ok(Box::pin(async move {
                let _place = place;
                let verified = verifying.verify(&inner, (&progress, &stop)).await?;
                Ok(Outcome::Verified(Box::new(verified)))
            }))
        }
    }
}

/// A run with a folder of its own, one of so many of its replay.
async fn run(inner: &Arc<Inner>, of: u64) -> Result<Arc<Run>> {
    let folder = inner.settings.replay_dir.join(inner.parts.random.nonce());
    let memory = RunMemory::of(inner.settings.replay_bytes, of);
    let live = Arc::clone(&inner.parts);
    let run = blocking(move || Run::new(&live, &folder, memory)).await?;
    Ok(Arc::new(run))
}
