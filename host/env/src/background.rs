//! Work beside the way of events.

use tidemill_types::{Error, Result};
use tokio::sync::oneshot;

/// How much nicer than the rest of the process: about a tenth of a core's time when all are busy.
const NICER: i32 = 10;

/// How soon background work has to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// When nothing else wants the processor.
    Low,
    /// Like everything else.
    Normal,
}

impl Urgency {
    /// How urgent is from now on what the calling thread does. One that isn't urgent stays so.
    pub fn of_this_thread(self) {
        if self == Self::Low {
            // Of this thread alone; where the system refuses it, the work is as urgent as any.
            let _ = rustix::process::nice(NICER);
        }
    }
}

/// Runs what blocks on a thread of its own, so that it neither takes a worker from events nor, if it
/// isn't urgent, the processor. Work that has begun goes on when nobody waits for it any more.
///
/// # Errors
/// What the work says; `Unavailable` when the system has no thread for it; `Internal` when it panicked.
pub async fn in_background<T: Send + 'static>(
    name: &str,
    urgency: Urgency,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (done, outcome) = oneshot::channel();
    let run = move || {
        urgency.of_this_thread();
        let _ = done.send(work());
    };
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(|error| Error::unavailable("unavailable", format!("no thread: {error}")))?;
    let stopped = |_| Error::internal(format!("the thread {name} panicked"));
    outcome.await.map_err(stopped)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_done_elsewhere_and_panics_are_told() {
        let own = std::thread::current().id();
        for urgency in [Urgency::Low, Urgency::Normal] {
            let other = in_background("test", urgency, || Ok(std::thread::current().id())).await;
            assert_ne!(other.expect("done"), own);
        }
        let panicked: Result<()> =
            in_background("test", Urgency::Low, || panic!("on purpose")).await;
        assert!(panicked.expect_err("panicked").detail.contains("test"));
        let failed: Result<()> =
            in_background("test", Urgency::Low, || Err(Error::not_found("x", "y"))).await;
        assert_eq!(failed.expect_err("failed").code, "x");
    }
}
