//! The threads that run functions: few, each job short, and each function with its share of their time.

use crate::fair::Fair;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemill_env::{Clock, Urgency};
use tidemill_types::{Error, FunctionId, Result};
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// After so many jobs the queue is tidied up.
const TIDY: u64 = 1024;

#[derive(Default)]
struct Queue {
    jobs: Fair<Job>,
    done: u64,
    closed: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    ready: Condvar,
    clock: Clock,
}

/// The threads; they end when it is dropped.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: usize,
}

impl Pool {
    /// Starts `threads` threads; 0 = as many as cores. Those that aren't urgent are a replay's.
    ///
    /// # Errors
    /// When the machine refuses a thread.
    pub(crate) fn start(threads: usize, urgency: Urgency, clock: Clock) -> Result<Self> {
        let name = match urgency {
            Urgency::Normal => "functions",
            Urgency::Low => "replay",
        };
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, Into::into),
            several => several,
        };
        let shared = Shared {
            queue: Mutex::default(),
            ready: Condvar::new(),
            clock,
        };
        let pool = Self {
            shared: Arc::new(shared),
            threads,
        };
        for number in 0..threads {
            let shared = Arc::clone(&pool.shared);
            std::thread::Builder::new()
                .name(format!("{name}-{number}"))
                .spawn(move || {
                    urgency.of_this_thread();
                    work(&shared);
                })
                .map_err(|wrong| {
                    Error::internal(format!("a thread for functions can't be started: {wrong}"))
                })?;
        }
        Ok(pool)
    }

    /// How many threads there are.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Runs a job of a function, of which `most` may run at a time, on one of the threads; `None` when it
    /// panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        function: FunctionId,
        most: usize,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, answer) = oneshot::channel();
        let job = Box::new(move || {
            // Whoever asked may be gone; then nobody needs the answer.
            let _ = done.send(job());
        });
        self.shared.lock().jobs.push(function, most, job);
        self.shared.ready.notify_one();
        answer.await.ok()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.ready.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn work(shared: &Shared) {
    let mut last = None;
    while let Some((function, job)) = next(shared, last.take()) {
        let begun = shared.clock.elapsed();
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            tracing::error!("a task panicked; its function is stopped");
        }
        last = Some((function, shared.clock.elapsed().saturating_sub(begun)));
    }
}

/// Says what the last job took, and gives the next one.
fn next(shared: &Shared, last: Option<(FunctionId, Duration)>) -> Option<(FunctionId, Job)> {
    let mut queue = shared.lock();
    if let Some((function, took)) = last {
        queue.jobs.done(function, took);
        queue.done += 1;
        if queue.done.is_multiple_of(TIDY) {
            queue.jobs.tidy();
        }
    }
    loop {
        if let Some(job) = queue.jobs.next() {
            return Some(job);
        }
        if queue.closed {
            return None;
        }
        queue = shared
            .ready
            .wait(queue)
            .unwrap_or_else(PoisonError::into_inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn jobs_run_and_a_panic_hurts_nobody_else() {
        let pool = Pool::start(1, Urgency::Normal, Clock::system()).expect("a thread");
        let of = FunctionId(1);
        assert_eq!(pool.run(of, 1, || 1 + 1).await, Some(2));
        let panics = || -> u32 { panic!("on purpose") };
        assert_eq!(pool.run(of, 1, panics).await, None);
        assert_eq!(pool.run(of, 1, || 3).await, Some(3), "its turn is over");
    }
}
