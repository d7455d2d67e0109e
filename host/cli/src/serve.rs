//! `tidemill serve`: a host in this process.

use crate::client::Client;
use crate::failure::{Failure, Result};
use crate::print;
use crate::progress::pause;
use clap::Args;
use reqwest::Method;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tidemill_server::{Config, ErrorKind, Overrides, Shutdown};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinError, JoinHandle};

/// Between attempts to get a first answer, should one fail.
const PAUSE: Duration = Duration::from_millis(20);

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

pub(crate) fn setting(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().into(), value.trim().into()))
        }
        _ => Err("write it as KEY=VALUE".into()),
    }
}

impl Settings {
    fn load(&self) -> Result<Config> {
        let text = |variable: OsString| variable.into_string().ok();
        let variables =
            std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?)));
        let overrides = Overrides {
            dir: self.dir.clone(),
            listen: self.listen.clone(),
            settings: self.settings.clone(),
        };
        Ok(Config::load(self.config.as_deref(), variables, &overrides)?)
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
    shutdown: Shutdown,
    host: JoinHandle<tidemill_server::Result<()>>,
}

impl Running {
    /// Opens the data directory and listens; the host answers when this returns.
    pub(crate) async fn start(settings: &Settings) -> Result<Self> {
        let config = settings.load()?;
        let listener =
            TcpListener::bind(config.listen)
                .await
                .map_err(|error| {
                    match error.kind() {
                std::io::ErrorKind::AddrInUse => Failure::conflict(
                    "address-in-use",
                    format!("something else listens on {}", config.listen),
                )
                .hint(
                    "stop it, or choose another address by --listen; port 0 takes any that is free",
                ),
                _ => Failure::failed("io", format!("cannot listen on {}: {error}", config.listen)),
            }
                })?;
        let address = listener.local_addr()?;
        let shutdown = Shutdown::new();
        let host = tokio::spawn(tidemill_server::run(config, listener, shutdown.clone()));
        let mut running = Self {
            address,
            shutdown,
            host,
        };
        running.until_it_answers().await?;
        Ok(running)
    }

    /// Waits for the first answer; connections queue up while the host opens what it has.
    async fn until_it_answers(&mut self) -> Result<()> {
        let client = Client::new(&self.address())?;
        loop {
            let asked = client.send(client.request(Method::GET, &["livez"], &[]));
            tokio::select! {
                biased;
                ended = &mut self.host => return finished(ended).and_then(|()| Err(Failure::failed("stopped", "the host stopped at once"))),
                answer = asked => match answer {
                    Ok(_) => return Ok(()),
                    Err(_) => pause(PAUSE).await,
                },
            }
        }
    }

    /// Where it listens, as a URL.
    pub(crate) fn address(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops in order.
    pub(crate) async fn stop(self) -> Result<()> {
        self.shutdown.cancel();
        finished(self.host.await)
    }

    /// Runs until SIGTERM or Ctrl-C, then stops in order; fails if the host stops by itself.
    pub(crate) async fn until_asked(mut self) -> Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            ended = &mut self.host => return finished(ended),
        }
        self.stop().await
    }
}

fn finished(host: std::result::Result<tidemill_server::Result<()>, JoinError>) -> Result<()> {
    Ok(host.map_err(|error| Failure::failed("internal", format!("the host broke: {error}")))??)
}

impl From<tidemill_server::Error> for Failure {
    fn from(error: tidemill_server::Error) -> Self {
        match error.kind {
            ErrorKind::Invalid => Self::usage(error.code, error.detail),
            ErrorKind::NotFound => Self::not_found(error.code, error.detail),
            ErrorKind::Conflict | ErrorKind::Fenced => Self::conflict(error.code, error.detail),
            _ => Self::failed(error.code, error.detail),
        }
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
