//! Time of day and time that passes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};
use tidemill_types::Timestamp;
use tokio::sync::Notify;

/// Tells the time and waits. Cheap to clone.
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    System { start: Instant },
    Manual(Arc<Manual>),
}

struct Manual {
    micros: AtomicI64,
    moved: Notify,
}

impl Clock {
    /// The machine's clock.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the machine's clock"
    )]
    pub fn system() -> Self {
        Self(Source::System {
            start: Instant::now(),
        })
    }

    /// A clock that stands still until [`Clock::advance`] is called.
    pub fn manual(start: Timestamp) -> Self {
        Self(Source::Manual(Arc::new(Manual {
            micros: AtomicI64::new(start.micros()),
            moved: Notify::new(),
        })))
    }

    /// The time of day. It may step back; only for stamps shown to people, never for safety.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the machine's clock"
    )]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System { .. } => {
                let since = std::time::SystemTime::now()
                    .duration_since(std::time::UNIX_EPOCH)
                    .unwrap_or_default();
                Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
            }
            Source::Manual(manual) => Timestamp::from_micros(manual.micros.load(Ordering::Acquire)),
        }
    }

    /// Time passed since the clock was made; never steps back.
    pub fn elapsed(&self) -> Duration {
        match &self.0 {
            Source::System { start } => start.elapsed(),
            Source::Manual(manual) => {
                Duration::from_micros(manual.micros.load(Ordering::Acquire).max(0).cast_unsigned())
            }
        }
    }

    /// Waits.
    #[expect(clippy::disallowed_methods, reason = "the one place that sleeps")]
    pub async fn sleep(&self, duration: Duration) {
        match &self.0 {
            Source::System { .. } => tokio::time::sleep(duration).await,
            Source::Manual(manual) => {
                let due = self.elapsed() + duration;
                loop {
                    let moved = manual.moved.notified();
                    tokio::pin!(moved);
                    moved.as_mut().enable();
                    if self.elapsed() >= due {
                        return;
                    }
                    moved.await;
                }
            }
        }
    }

    /// Moves a manual clock; negative steps are allowed, as with real clocks. No effect on the machine's clock.
    pub fn advance(&self, micros: i64) {
        if let Source::Manual(manual) = &self.0 {
            manual.micros.fetch_add(micros, Ordering::AcqRel);
            manual.moved.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn manual_time_moves_only_by_hand() {
        let clock = Clock::manual(Timestamp::from_micros(10));
        assert_eq!(clock.now().micros(), 10);
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep(Duration::from_micros(5)).await }
        });
        tokio::task::yield_now().await;
        assert!(!sleeper.is_finished());
        clock.advance(5);
        sleeper.await.expect("woken");
        clock.advance(-3);
        assert_eq!(clock.now().micros(), 12);
    }
}
