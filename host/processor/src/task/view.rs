//! What can be seen of a task from outside while it works: what it tries again, what it waits for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemill_types::Timestamp;

/// Whoever waited for a thread for so long says so.
const LONG: Duration = Duration::from_secs(1);

/// What can be seen of a task.
#[derive(Default)]
pub(crate) struct View {
    retrying: Mutex<Option<String>>,
    parked: Mutex<Option<String>>,
    waiting: Mutex<Option<Waiting>>,
    /// Whether it waits: looked at in each step, so that nothing is locked where it doesn't.
    waits: AtomicBool,
    /// Since when it waits for a thread, in microseconds of the process, and one more; 0: it doesn't.
    queued: AtomicU64,
    /// One more than there are; 0: not known yet.
    timers: AtomicU64,
}

#[derive(Clone)]
struct Waiting {
    since: Timestamp,
    why: String,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl View {
    /// Timers that are set, once they are known.
    pub(crate) fn timers(&self) -> Option<u64> {
        self.timers.load(Ordering::Acquire).checked_sub(1)
    }

    pub(super) fn set_timers(&self, timers: usize) {
        self.timers.store(timers as u64 + 1, Ordering::Release);
    }

    /// Why the event at the front is being tried again, if it is.
    pub(crate) fn retrying(&self) -> Option<String> {
        lock(&self.retrying).clone()
    }

    /// Why an event was parked last, if one was.
    pub(crate) fn parked(&self) -> Option<String> {
        lock(&self.parked).clone()
    }

    /// What it waits for, and since when.
    pub(crate) fn waiting(&self, now: Duration) -> Option<String> {
        let waiting = lock(&self.waiting).clone();
        if let Some(Waiting { since, why }) = waiting {
            return Some(format!("waiting since {since}: {why}"));
        }
        let since = self.queued.load(Ordering::Acquire).checked_sub(1)?;
        let waited = now.saturating_sub(Duration::from_micros(since));
        (waited >= LONG).then(|| {
            format!(
                "waiting for its turn for {} s: other tasks have the threads (functions.threads), or those that its function may have ([limits] concurrency)",
                waited.as_secs()
            )
        })
    }

    /// Says that it waits, from now on unless it did already for the same.
    pub(super) fn waits(&self, now: Timestamp, why: String) {
        let mut waiting = lock(&self.waiting);
        if waiting.as_ref().is_none_or(|waiting| waiting.why != why) {
            *waiting = Some(Waiting { since: now, why });
        }
        self.waits.store(true, Ordering::Release);
    }

    /// It has what it waited for.
    pub(super) fn goes_on(&self) {
        if self.waits.swap(false, Ordering::AcqRel) {
            *lock(&self.waiting) = None;
        }
    }

    /// It waits for a thread from now on.
    pub(super) fn queue(&self, now: Duration) {
        let micros = u64::try_from(now.as_micros()).unwrap_or(u64::MAX - 1);
        self.queued.store(micros + 1, Ordering::Release);
    }

    /// It has a thread.
    pub(super) fn begin(&self) {
        self.queued.store(0, Ordering::Release);
    }

    pub(super) fn set_parked(&self, why: String) {
        *lock(&self.parked) = Some(why);
    }

    pub(super) fn set(&self, why: Option<String>) {
        *lock(&self.retrying) = why;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_since_when_it_waits_for_the_same() {
        let (view, at) = (View::default(), Timestamp::from_micros);
        let now = Duration::from_secs(5);
        assert_eq!(view.waiting(now), None);
        view.waits(at(0), "storage".into());
        view.waits(at(1_000_000), "storage".into());
        let waits = view.waiting(now).expect("it waits");
        assert_eq!(waits, format!("waiting since {}: storage", at(0)));
        view.waits(at(2_000_000), "room".into());
        let waits = view.waiting(now).expect("it waits");
        assert_eq!(waits, format!("waiting since {}: room", at(2_000_000)));
        view.goes_on();
        assert_eq!(view.waiting(now), None);
    }

    #[test]
    fn only_who_waits_long_for_a_thread_says_so() {
        let view = View::default();
        view.queue(Duration::from_secs(5));
        assert_eq!(view.waiting(Duration::from_millis(5900)), None);
        let waits = view.waiting(Duration::from_secs(8)).expect("it waits");
        assert!(waits.contains("its turn for 3 s"), "{waits}");
        view.begin();
        assert_eq!(view.waiting(Duration::from_secs(8)), None);
    }
}
