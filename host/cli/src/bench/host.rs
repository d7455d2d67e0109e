//! The host under measurement: this very program, in another process.

use crate::client::Client;
use crate::failure::{Failure, Result};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Clock ticks of a CPU second in `/proc`, on every Linux.
const TICKS: f64 = 100.0;

/// A host in another process; killed if dropped.
pub(super) struct Host {
    process: Child,
    /// `127.0.0.1:PORT`.
    pub(super) address: String,
    pub(super) client: Client,
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
    /// Starts one on a directory.
    pub(super) fn start(dir: &Path) -> Result<Self> {
        let program = std::env::current_exe()?;
        let mut process = Command::new(program)
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--set",
                "telemetry.level=warn",
                "--dir",
            ])
            .arg(dir.join("host"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        // Blocks: nothing else happens while a host starts.
        let mut line = String::new();
        if let Some(out) = process.stdout.take() {
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
        })
    }

    /// Processor time used so far.
    pub(super) fn usage(&self) -> Usage {
        let tasks = format!("/proc/{}/task", self.process.id());
        let engine = std::fs::read_dir(tasks).into_iter().flatten().flatten();
        let engine = engine
            .filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok())
            .filter(|stat| {
                stat.split('(')
                    .nth(1)
                    .is_some_and(|name| name.starts_with(ENGINE))
            });
        Usage {
            cpu_seconds: seconds(&self.proc("stat")),
            engine_seconds: engine.map(|stat| seconds(&stat)).sum(),
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

    /// Resident memory now and at most so far, in bytes.
    pub(super) fn memory(&self) -> Value {
        let status = self.proc("status");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace()
                .next()?
                .parse::<u64>()
                .ok()
                .map(|kib| kib << 10)
        };
        json!({"now": field("VmRSS:"), "most": field("VmHWM:")})
    }

    fn proc(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.process.id())).unwrap_or_default()
    }
}

/// User and system time in a `stat` of `/proc`.
fn seconds(stat: &str) -> f64 {
    // Fields are counted behind the name, which may hold anything, in brackets.
    let behind = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = behind.split_whitespace().skip(11).take(2);
    let ticks: f64 = ticks.filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / TICKS
}

impl Drop for Host {
    fn drop(&mut self) {
        // It may have ended by itself; and its directory is thrown away, so it need not end in order.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
