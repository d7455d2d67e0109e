//! The host's own log lines, on standard error.

use crate::config::{LogFormat, Telemetry};
use std::io::IsTerminal;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Starts writing log lines to standard error. Does nothing where somebody else receives them already
/// (another host in this process, a test).
pub fn start_telemetry(settings: &Telemetry) {
    let level: Targets = settings
        .level
        .parse()
        .unwrap_or_else(|_| Targets::new().with_default(tracing::Level::INFO));
    let coloured = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(coloured);
    let registry = tracing_subscriber::registry().with(level);
    let started = match settings.format {
        LogFormat::Text => registry.with(lines.compact()).try_init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    };
    if started.is_err() {
        tracing::debug!("log lines are received already");
    }
}
