//! Threads that read from the store behind: a cold read waits for the disk, so that several at a time come to more
//! than one after the other.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tidemill_types::{Error, Result};

/// How many; more than a disk has lanes bring nothing.
const THREADS: usize = 8;

type Job = Box<dyn FnOnce() + Send>;

/// The threads.
pub(crate) struct Readers {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    ready: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Somebody waits for these.
    urgent: VecDeque<Job>,
    ahead: VecDeque<Job>,
    stop: bool,
}

impl Readers {
    /// Starts them.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start() -> Result<Self> {
        let shared = Arc::<Shared>::default();
        let readers = Self {
            shared: shared.clone(),
            threads: Mutex::default(),
        };
        for number in 0..THREADS {
            let shared = shared.clone();
            let thread = std::thread::Builder::new()
                .name(format!("state-reader-{number}"))
                .spawn(move || shared.work());
            let thread = thread.map_err(|error| {
                Error::internal(format!("no thread for reading state: {error}"))
            })?;
            readers.threads().push(thread);
        }
        Ok(readers)
    }

    /// Does something that somebody waits for; here and now once they have been stopped.
    pub(crate) fn urgently(&self, job: impl FnOnce() + Send + 'static) {
        self.push(Box::new(job), |queue| &mut queue.urgent);
    }

    /// Does something that somebody is going to need.
    pub(crate) fn ahead(&self, job: impl FnOnce() + Send + 'static) {
        self.push(Box::new(job), |queue| &mut queue.ahead);
    }

    fn push(&self, job: Job, to: impl FnOnce(&mut Queue) -> &mut VecDeque<Job>) {
        let mut queue = self.shared.lock();
        if queue.stop {
            drop(queue);
            job();
            return;
        }
        to(&mut queue).push_back(job);
        drop(queue);
        self.shared.ready.notify_one();
    }

    /// Ends the threads once all is done that was asked for, and waits for them.
    pub(crate) fn stop(&self) {
        self.shared.lock().stop = true;
        self.shared.ready.notify_all();
        for thread in std::mem::take(&mut *self.threads()) {
            if thread.join().is_err() {
                tracing::error!("a thread that reads state ended in a panic");
            }
        }
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!("reading state ended in a panic");
            }
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            let next = queue.urgent.pop_front();
            if let Some(job) = next.or_else(|| queue.ahead.pop_front()) {
                return Some(job);
            }
            if queue.stop {
                return None;
            }
            queue = self
                .ready
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn all_that_was_asked_for_is_done_also_after_a_panic() {
        let readers = Readers::start().expect("threads");
        let (done, seen) = mpsc::channel();
        for nth in 0..100 {
            let done = done.clone();
            let job = move || {
                assert!(nth != 50, "on purpose");
                done.send(nth).expect("heard");
            };
            match nth % 2 {
                0 => readers.urgently(job),
                _ => readers.ahead(job),
            }
        }
        readers.stop();
        drop(done);
        assert_eq!(seen.iter().count(), 99);
        let (done, seen) = mpsc::channel();
        readers.ahead(move || done.send(1).expect("heard"));
        assert_eq!(seen.iter().count(), 1, "nobody else does it any more");
    }
}
