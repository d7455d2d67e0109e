//! The threads that run functions: few, each job short, first come first served.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use tidemill_types::{Error, Result};
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    ready: Condvar,
}

/// The threads; they end when it is dropped.
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

impl Pool {
    /// Starts `threads` threads; 0 = as many as cores.
    ///
    /// # Errors
    /// When the machine refuses a thread.
    pub(crate) fn start(threads: usize) -> Result<Self> {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, Into::into),
            several => several,
        };
        let pool = Self {
            shared: Arc::default(),
        };
        for number in 0..threads {
            let shared = Arc::clone(&pool.shared);
            std::thread::Builder::new()
                .name(format!("functions-{number}"))
                .spawn(move || work(&shared))
                .map_err(|wrong| {
                    Error::internal(format!("a thread for functions can't be started: {wrong}"))
                })?;
        }
        Ok(pool)
    }

    /// Runs a job on one of the threads; `None` when it panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, answer) = oneshot::channel();
        let job = Box::new(move || {
            // Whoever asked may be gone; then nobody needs the answer.
            let _ = done.send(job());
        });
        self.shared
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .jobs
            .push_back(job);
        self.shared.ready.notify_one();
        answer.await.ok()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .closed = true;
        self.shared.ready.notify_all();
    }
}

fn work(shared: &Shared) {
    while let Some(job) = next(shared) {
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            tracing::error!("a task panicked; its function is stopped");
        }
    }
}

fn next(shared: &Shared) -> Option<Job> {
    let mut queue = shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(job) = queue.jobs.pop_front() {
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
        let pool = Pool::start(1).expect("a thread");
        assert_eq!(pool.run(|| 1 + 1).await, Some(2));
        assert_eq!(pool.run(|| -> u32 { panic!("on purpose") }).await, None);
        assert_eq!(pool.run(|| 3).await, Some(3));
    }
}
