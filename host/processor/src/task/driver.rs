//! Drives one task: hands it to the pool slice by slice and waits for what it asks for in between.

use super::{Slice, Start, Task, View, Wanted};
use crate::parts::Parts;
use std::sync::Arc;
use std::time::Duration;
use tidemill_env::Shutdown;
use tidemill_env::outside::CallError;
use tidemill_log::Follower;
use tidemill_types::{Error, ErrorKind, FunctionId, PartitionId, Result};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Pause after a read that storage couldn't serve.
const STORAGE_PAUSE: Duration = Duration::from_secs(1);

/// A task came to a stand of its own accord.
#[derive(Debug)]
pub(crate) struct Stopped {
    /// Its function.
    pub(crate) function: FunctionId,
    /// Version it ran.
    pub(crate) version: u32,
    /// Why.
    pub(crate) why: String,
}

/// A running task, from outside.
pub(crate) struct Handle {
    /// What can be seen of it.
    pub(crate) view: Arc<View>,
    /// What it reads: of several inputs, the first.
    pub(crate) at: PartitionId,
    /// Whether it repartitions.
    pub(crate) repartitions: bool,
    stop: Shutdown,
    done: JoinHandle<()>,
}

impl Handle {
    /// Starts a task.
    ///
    /// # Errors
    /// When the partition it reads doesn't exist.
    pub(crate) fn start(
        parts: &Arc<Parts>,
        start: Start,
        stopped: mpsc::UnboundedSender<Stopped>,
    ) -> Result<Self> {
        let inputs = start.inputs.iter();
        let followers = inputs
            .map(|at| parts.log.follow(*at))
            .collect::<Result<Vec<_>>>()?;
        let (view, stop) = (Arc::clone(&start.view), start.stop.clone());
        let at = start.inputs[0];
        let repartitions = start.role == crate::record::Role::Repartition;
        let (function, version) = (start.deployment.function, start.deployment.version);
        let task = Box::new(Task::new(Arc::clone(parts), start));
        let done = tokio::spawn({
            let (parts, stop) = (Arc::clone(parts), stop.clone());
            async move {
                if let Err(why) = drive(&parts, task, followers, &stop).await {
                    // Without a receiver the processor is gone, and the task with it.
                    let _ = stopped.send(Stopped {
                        function,
                        version,
                        why,
                    });
                }
            }
        });
        Ok(Self {
            view,
            at,
            repartitions,
            stop,
            done,
        })
    }
}

/// Stops tasks at their next transaction border and waits until they stand.
pub(crate) async fn park(tasks: Vec<Handle>) {
    for task in &tasks {
        task.stop.cancel();
    }
    for task in tasks {
        // It panicked outside the pool; then it stands too.
        let _ = task.done.await;
    }
}

/// Works until told to stop; an error says why the task can't go on.
async fn drive(
    parts: &Parts,
    mut task: Box<Task>,
    mut followers: Vec<Follower>,
    stop: &Shutdown,
) -> Result<(), String> {
    if followers.len() > 1 {
        let whole = stop.run_until_cancelled(in_sight(parts)).await;
        if whole != Some(true) {
            return Ok(());
        }
    }
    loop {
        let (function, most) = (task.scope().function, task.concurrency());
        task.view.queue(parts.clock.elapsed());
        let ran = parts.pool.run(function, most, move || {
            task.view.begin();
            let slice = task.work();
            (task, slice)
        });
        let slice;
        (task, slice) = ran
            .await
            .ok_or("its task panicked; this is a fault of the host")?;
        let waited = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            waited = wait(parts, &mut task, slice, &mut followers) => waited,
        };
        match waited {
            Ok(()) => {}
            Err(End::Closed) => return Ok(()),
            Err(End::Stands(why)) => return Err(why),
        }
    }
}

/// Waits until all that was sequenced before its partitions were followed is durable: what is appended from
/// here on is seen at once, in all of them ([`tidemill_log::Log::appended`]). False when the log has failed.
async fn in_sight(parts: &Parts) -> bool {
    let before = parts.log.appended();
    let mut durable = parts.log.durable();
    let reached = durable.wait_for(|durable| *durable >= before).await;
    reached.is_ok()
}

/// Why a task ends.
enum End {
    /// Its topic or the log is gone.
    Closed,
    /// It can't go on.
    Stands(String),
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        match error.kind {
            // The log has failed or is closing; the function itself is fine.
            ErrorKind::Unavailable | ErrorKind::Fenced => Self::Closed,
            _ => Self::Stands(error.to_string()),
        }
    }
}

async fn wait(
    parts: &Parts,
    task: &mut Task,
    slice: Slice,
    followers: &mut [Follower],
) -> Result<(), End> {
    let mut next = Some(slice);
    while let Some(slice) = next.take() {
        match slice {
            Slice::More => {}
            Slice::Idle => idle(parts, task, followers).await?,
            Slice::Read => next = read(parts, task).await?,
            Slice::State(wanted) => {
                let counts = matches!(wanted, Wanted::Kept { .. });
                let reading = task.reading(wanted);
                if let Some(known) = apart(parts, task, reading).await? {
                    task.learned(known)?;
                    task.goes_on();
                    if counts {
                        // The limit is one of all partitions together.
                        task.usage().known().await;
                    }
                }
            }
            Slice::Instance(pages) => {
                task.waits(
                    "there is no memory for an instance; others have all of it (functions.memory_bytes)",
                );
                let room = parts.instances.room(pages).await?;
                task.granted(room);
            }
            Slice::Storage(error) => pause(parts, task, error).await?,
            Slice::Call(wanted) => {
                parts.settled().await?;
                let outcome = match &parts.caller {
                    Some(caller) => caller.make(task.function(), &wanted).await,
                    None => Err(CallError::denied("a replay calls nobody")),
                };
                next = task.heard(&wanted, &outcome);
            }
            Slice::Room => {
                task.waits(
                    "too much is on its way to the disk (log.in_flight_bytes): the disk is slower than what comes in",
                );
                parts.log.room().await;
            }
            Slice::Pause(pause) => parts.clock.sleep(pause).await,
            Slice::Stop(why) => return Err(End::Stands(why)),
            Slice::Fault(error) => return Err(error.into()),
        }
    }
    let mut room = std::pin::pin!(parts.state.room());
    if futures::poll!(room.as_mut()).is_pending() {
        task.waits("changed state waits to be written back (state.dirty_bytes)");
        room.await;
        task.goes_on();
    }
    Ok(())
}

/// Reads state beside the tasks, for it may wait for the disk. `None`: it can't be read now, and that was
/// waited for.
async fn apart<T: Send + 'static>(
    parts: &Parts,
    task: &Task,
    read: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<Option<T>, End> {
    match tokio::task::spawn_blocking(read).await {
        Ok(Ok(found)) => Ok(Some(found)),
        Ok(Err(error)) => pause(parts, task, error).await.map(|()| None),
        Err(_) => Err(End::Closed),
    }
}

/// Waits for events, for a timer in processing time or for a parked event's next try.
async fn idle(parts: &Parts, task: &mut Task, followers: &mut [Follower]) -> Result<(), End> {
    task.goes_on();
    let moved = match task.until_due() {
        None => moved(task, followers).await,
        Some(due) => tokio::select! {
            moved = moved(task, followers) => moved,
            () = parts.clock.sleep(due) => return Ok(()),
        },
    };
    let new = moved.map_err(|_| End::Closed)?;
    let (fill, full) = task.fill();
    if !fill.is_zero() && new < full {
        parts.clock.sleep(fill).await;
    }
    Ok(())
}

/// Waits until one of its inputs has events; how many.
async fn moved(task: &Task, followers: &mut [Follower]) -> Result<u64, Error> {
    if let [follower] = followers {
        let position = task.position().first();
        return Ok(follower.moved(position).await? - position);
    }
    let any = followers.iter_mut().zip(task.position().iter());
    let any = any.map(|(follower, position)| {
        Box::pin(async move { Ok(follower.moved(position).await? - position) })
    });
    futures::future::select_all(any).await.0
}

/// Reads what isn't in memory; gives what there is to wait for then.
async fn read(parts: &Parts, task: &mut Task) -> Result<Option<Slice>, End> {
    let (_, at, from) = task.wanted();
    match parts.log.read_in_step(at, from, task.fetch_limit()).await {
        Ok(read) => {
            task.goes_on();
            Ok(task.fetched(read))
        }
        Err(error) if error.kind == ErrorKind::OutOfRange => {
            let start = parts.log.range(at)?.start;
            match start > from {
                true => task.cut_off(start),
                false => return Err(error.into()),
            }
            Ok(None)
        }
        Err(error) => pause(parts, task, error).await.map(|()| None),
    }
}

/// Storage can't serve now: says so and tries again later. Anything else ends the task.
async fn pause(parts: &Parts, task: &Task, error: Error) -> Result<(), End> {
    if error.kind != ErrorKind::Unavailable {
        return Err(error.into());
    }
    task.waits(error.detail);
    parts.clock.sleep(STORAGE_PAUSE).await;
    Ok(())
}
