//! Time for people who watch: progress on a terminal, stopwatches, pauses.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Measures real time. The program reports and paces by it; nothing is decided by it that could be
/// lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(
        clippy::disallowed_methods,
        reason = "people's time: rates, pacing, reports"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// Something per second since the start.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub(crate) fn rate(self, number: u64) -> f64 {
        number as f64 / self.elapsed().as_secs_f64().max(1e-9)
    }
}

/// Waits before asking a host again.
#[expect(
    clippy::disallowed_methods,
    reason = "a client has to wait before it asks again"
)]
pub(crate) async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// A bar for something of known length (bytes of a file), or a spinner; invisible off a terminal.
pub(crate) fn bar(length: Option<u64>) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match length {
        Some(length) => (
            ProgressBar::new(length),
            "{bar:30} {percent:>3} %  {msg}  {eta} left",
        ),
        None => (ProgressBar::no_length(), "{spinner} {msg}  {elapsed}"),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}
