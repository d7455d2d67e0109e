//! `tidemill serve`: a host in this process.

use crate::failure::{Failure, Result};
use crate::print;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};

/// Run a host: everything in one process.
///
/// Prints the address it listens on as one line on standard output. Stops in order on SIGTERM and
/// Ctrl-C: requests under way are answered, what was acknowledged is on disk.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  tidemill serve --dir ./tidemill\n  tidemill serve --listen 127.0.0.1:0 --set log.segment_age=10s"
)]
pub(crate) struct Serve {
    #[command(flatten)]
    settings: Settings,
}

/// Where a host's settings come from; what is typed overrides variables, which override the file.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Data directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Address to listen on; port 0 takes any that is free.
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// Settings.
    #[arg(long, value_name = "FILE", env = "TIDEMILL_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// One setting by its name in the file.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = setting)]
    pub(crate) settings: Vec<(String, String)>,
}

fn setting(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().into(), value.trim().into()))
        }
        _ => Err("write it as KEY=VALUE".into()),
    }
}

pub(crate) async fn perform(args: Serve) -> Result<()> {
    let host = Running::start(&args.settings).await?;
    print::line(&host.address())?;
    host.until_asked().await
}

/// A host that runs in this process.
pub(crate) struct Running {
    address: SocketAddr,
}

impl Running {
    /// Opens the data directory and listens.
    pub(crate) async fn start(settings: &Settings) -> Result<Self> {
        let _ = (
            &settings.dir,
            &settings.listen,
            &settings.config,
            &settings.settings,
        );
        Err(Failure::failed(
            "not-there",
            "the host is not part of this build",
        ))
    }

    /// Where it listens, as a URL.
    pub(crate) fn address(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops in order.
    pub(crate) async fn stop(self) -> Result<()> {
        Ok(())
    }

    /// Runs until SIGTERM or Ctrl-C, then stops in order; ends earlier if the host does.
    pub(crate) async fn until_asked(self) -> Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            _ = terminate.recv() => {}
            interrupted = tokio::signal::ctrl_c() => interrupted?,
        }
        self.stop().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_pairs() {
        assert_eq!(
            setting("log.segment_age = 1s"),
            Ok(("log.segment_age".into(), "1s".into()))
        );
        assert_eq!(
            setting("storage.options.x=a=b"),
            Ok(("storage.options.x".into(), "a=b".into()))
        );
        assert!(setting("log").is_err() && setting("=1").is_err());
    }
}
