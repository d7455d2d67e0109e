//! The thread that writes back: sleeps while there is nothing to do, gathers a little, steps.

use crate::engine::{Engine, Step};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tidemill_types::{Error, Result};

/// How long changes gather before they are written back together: what changes often is written once for all that.
const GATHER: Duration = Duration::from_millis(500);
/// Enough to be written back at once.
const GATHER_BYTES: u64 = 32 << 20;
/// The first pause after a failure.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest pause after failures; doubles from [`PAUSE`] on.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The thread and the way to wake it.
pub(crate) struct Writer {
    bell: Arc<Bell>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Bell {
    stop: Mutex<bool>,
    rung: Condvar,
    mood: AtomicU8,
    /// Waiting bytes that end gathering.
    enough: u64,
}

/// What the thread is doing, so that who has news knows whether to ring.
mod mood {
    pub(super) const BUSY: u8 = 0;
    /// Waits for enough.
    pub(super) const GATHERING: u8 = 1;
    /// Waits for anything.
    pub(super) const ASLEEP: u8 = 2;
}

impl Writer {
    /// Starts the thread. `dirty`: bound of what may wait.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(engine: Arc<Engine>, dirty: u64) -> Result<Self> {
        let enough = GATHER_BYTES.min(dirty / 2);
        let bell = Arc::new(Bell {
            stop: Mutex::new(false),
            rung: Condvar::new(),
            mood: AtomicU8::new(mood::BUSY),
            enough,
        });
        let thread = std::thread::Builder::new()
            .name("state-writer".into())
            .spawn({
                let bell = bell.clone();
                move || bell.run(&engine)
            });
        let thread = thread
            .map_err(|error| Error::internal(format!("no thread for the state writer: {error}")))?;
        Ok(Self {
            bell,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// There is news: something may be written now that could not before.
    pub(crate) fn wake(&self, engine: &Engine) {
        let ring = match self.bell.mood.load(Ordering::SeqCst) {
            mood::ASLEEP => self.bell.has_work(engine),
            mood::GATHERING => engine.live.figures().waiting_bytes >= self.bell.enough,
            _ => false,
        };
        if ring {
            drop(
                self.bell
                    .stop
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner),
            );
            self.bell.rung.notify_all();
        }
    }

    /// Ends the thread, without writing anything more, and waits for it.
    pub(crate) fn stop(&self) {
        *self
            .bell
            .stop
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.bell.rung.notify_all();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(
                "the state writer ended in a panic; what was not written back is in the journal"
            );
        }
    }
}

impl Bell {
    fn run(&self, engine: &Engine) {
        let mut failed = None;
        while self.sleep(engine) && self.wait(failed, engine) {
            failed = match (engine.step(), failed) {
                (Step::Failed, None) => Some(PAUSE),
                (Step::Failed, Some(pause)) => Some((pause * 2).min(LONGEST_PAUSE)),
                (Step::Wrote | Step::Idle, _) => None,
            };
        }
    }

    /// Waits for work; false when it is time to stop.
    fn sleep(&self, engine: &Engine) -> bool {
        let mut stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        self.mood.store(mood::ASLEEP, Ordering::SeqCst);
        while !*stop && !self.has_work(engine) {
            stop = self.rung.wait(stop).unwrap_or_else(PoisonError::into_inner);
        }
        self.mood.store(mood::BUSY, Ordering::SeqCst);
        !*stop
    }

    /// Lets changes gather, or waits out the pause after a failure; false when it is time to stop.
    fn wait(&self, failed: Option<Duration>, engine: &Engine) -> bool {
        let stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        self.mood.store(mood::GATHERING, Ordering::SeqCst);
        let go_on = |stop: &mut bool| {
            let enough = failed.is_none() && engine.live.figures().waiting_bytes >= self.enough;
            !*stop && !enough
        };
        let (stop, _) = self
            .rung
            .wait_timeout_while(stop, failed.unwrap_or(GATHER), go_on)
            .unwrap_or_else(PoisonError::into_inner);
        self.mood.store(mood::BUSY, Ordering::SeqCst);
        !*stop
    }

    fn has_work(&self, engine: &Engine) -> bool {
        let figures = engine.live.figures();
        engine.has_forgotten()
            || (figures.waiting_bytes > 0 && engine.live.writable() > figures.written)
    }
}
