//! The host under measurement: this very program, in another process.

use super::process::Process;
use crate::client::Client;
use crate::failure::{Failure, Result};
use reqwest::Method;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use tidemill_server::{Config, Overrides};

/// A host in another process; killed if dropped.
pub(super) struct Host {
    process: Process,
    /// `127.0.0.1:PORT`.
    pub(super) address: String,
    pub(super) client: Client,
    /// What its memory is limited to, in bytes.
    limit: Option<u64>,
}

/// Processor time that a host has used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    /// All of it.
    pub(super) cpu_seconds: f64,
    /// That of the threads that run functions.
    pub(super) engine_seconds: f64,
}

/// How the threads that run functions are called.
const ENGINE: &str = "functions-";

impl Host {
    /// Starts one on a directory, which may have been used before.
    pub(super) fn start(dir: &Path) -> Result<Self> {
        Self::start_with(dir, &[])
    }

    /// Starts one with settings of its own (`log.segment_age=1s`).
    pub(super) fn start_with(dir: &Path, settings: &[&str]) -> Result<Self> {
        let limit = limit(settings)?;
        let settings = settings.iter().chain(&["telemetry.level=warn"]);
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(settings.flat_map(|setting| ["--set", setting]))
            .arg("--dir")
            .arg(dir.join("host"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut process = Process::spawn(&mut command)?;
        // Blocks: nothing else happens while a host starts.
        let mut line = String::new();
        if let Some(out) = process.0.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let address = line.trim().strip_prefix("http://").map(String::from);
        let address = address
            .ok_or_else(|| Failure::failed("no-host", "the host to be measured did not start"))?;
        let client = Client::new(&address)?;
        Ok(Self {
            process,
            address,
            client,
            limit,
        })
    }

    /// Kills it without a word, as a crash would.
    pub(super) fn kill(self) {}

    /// Processor time used so far.
    pub(super) fn usage(&self) -> Usage {
        Usage {
            cpu_seconds: self.process.cpu_seconds(),
            engine_seconds: self.process.cpu_seconds_of(ENGINE),
        }
    }

    /// Processor time used since.
    pub(super) fn used_since(&self, since: Usage) -> Usage {
        let now = self.usage();
        Usage {
            cpu_seconds: now.cpu_seconds - since.cpu_seconds,
            engine_seconds: now.engine_seconds - since.engine_seconds,
        }
    }

    /// What it says of itself at `/metrics`.
    pub(super) async fn metrics(&self) -> Result<String> {
        let request = self.client.request(Method::GET, &["metrics"], &[]);
        let body = self.client.body(self.client.send(request).await?).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// A figure of `/metrics` that has no labels.
    pub(super) async fn gauge(&self, name: &str) -> Result<u64> {
        gauge(&self.metrics().await?, name)
            .ok_or_else(|| Failure::failed("no-figure", format!("/metrics has no {name}")))
    }

    /// Threads it has now.
    pub(super) fn threads(&self) -> usize {
        self.process.threads()
    }

    /// Resident memory now and at most so far, and what it is limited to, in bytes.
    pub(super) fn memory(&self) -> Value {
        let mut memory = self.process.memory();
        memory["limit"] = self.limit.into();
        memory
    }
}

/// What a host keeps its memory to that is started here with these settings.
fn limit(settings: &[&str]) -> Result<Option<u64>> {
    let pairs = settings.iter().filter_map(|pair| pair.split_once('='));
    let overrides = Overrides {
        settings: pairs
            .map(|(key, value)| (key.into(), value.into()))
            .collect(),
        ..Overrides::default()
    };
    let config = Config::load(None, std::env::vars(), &overrides)?;
    Ok(config.planned_memory().map(|limit| limit.0))
}

/// The value of a figure without labels in a text of metrics.
fn gauge(metrics: &str, name: &str) -> Option<u64> {
    let values = metrics.lines().filter_map(|line| line.split_once(' '));
    let (_, value) = values.into_iter().find(|(of, _)| *of == name)?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::gauge;

    #[test]
    fn a_figure_is_found_by_its_whole_name() {
        let text = "# HELP a b\na_more 1\na{b=\"c\"} 2\na 3\nlast x\n";
        assert_eq!(gauge(text, "a"), Some(3));
        assert_eq!((gauge(text, "last"), gauge(text, "b")), (None, None));
    }
}
