//! Settings: `tidemill.toml`, overridden by `TIDEMILL_…` variables, overridden by flags.
//!
//! Every setting is one row of a table ([`keys::KEYS`]): its name, its doc, how it is read and how it
//! is shown. The file, the variables, the flags and the reference configuration all go through it.

mod keys;
mod memory;
#[cfg(test)]
mod tests;

use crate::suggest::nearest;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidemill_env::metrics::Metrics;
use tidemill_env::objects::{Objects, Patience};
use tidemill_env::{Clock, Random};
use tidemill_processor::{HostGrants, LogRetention, Maxima};
use tidemill_types::{ByteSize, Error, Result, limits};

/// All settings of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The data directory.
    pub dir: PathBuf,
    /// Where to listen; loopback only.
    pub listen: SocketAddr,
    /// Memory the host plans with; 0: a quarter of the machine's.
    pub memory_limit: ByteSize,
    /// HTTP.
    pub http: Http,
    /// Object storage.
    pub storage: Storage,
    /// The log; its directory is `dir`.
    pub log: tidemill_log::Settings,
    /// State in memory.
    pub state: State,
    /// Functions.
    pub functions: Functions,
    /// What functions may be granted.
    pub grants: HostGrants,
    /// What the host says about itself.
    pub telemetry: Telemetry,
}

/// Settings of the HTTP side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Http {
    /// Largest body that is appended as a whole, before and after decompression.
    pub body_bytes: ByteSize,
    /// Largest event: key, value and headers together.
    pub event_bytes: ByteSize,
    /// How long an append waits for room before it is refused as busy.
    pub busy_wait: Duration,
    /// How long a request's head may take, and how long an idle connection is kept.
    pub header_timeout: Duration,
    /// How long a body may take; for a streamed body, how long each part of it may take.
    pub body_timeout: Duration,
    /// How long requests may go on after the host was asked to stop.
    pub stop_timeout: Duration,
    /// Most connections at a time; more wait to be accepted.
    pub connections: usize,
    /// Memory for the bodies of requests that arrive, and as much again for events that are read.
    pub memory_bytes: ByteSize,
}

/// Settings of object storage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Storage {
    /// A folder, `s3://…`, `gs://…` or `az://…`; empty: `objects` below the data directory.
    pub url: String,
    /// How long a request may take before it counts as failed.
    pub request_timeout: Duration,
    /// How often a request is made before its failure is told.
    pub attempts: u32,
    /// Local disk for what is read of segments from storage that isn't a folder; 0: none.
    pub cache_bytes: ByteSize,
    /// Options by name, as object_store names them (`aws_endpoint`).
    pub options: BTreeMap<String, String>,
}

impl Default for Storage {
    fn default() -> Self {
        let usual = Patience::default();
        Self {
            url: String::new(),
            request_timeout: usual.request,
            attempts: usual.attempts,
            cache_bytes: ByteSize::mib(1024),
            options: BTreeMap::new(),
        }
    }
}

/// Settings of function state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    /// Live values kept in memory.
    pub memory_bytes: ByteSize,
    /// Changed values that may wait to be written back.
    pub dirty_bytes: ByteSize,
    /// Memory of the store on disk.
    pub store_bytes: ByteSize,
    /// Memory of snapshots.
    pub snapshot_memory: ByteSize,
}

/// Settings of functions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Functions {
    /// Threads that run functions; 0: as many as cores.
    pub threads: usize,
    /// Most instances at a time in the pool.
    pub instances: u32,
    /// Linear memory of all instances.
    pub memory_bytes: ByteSize,
    /// How long an instance is kept that isn't used.
    pub idle: Duration,
    /// Disk for compiled components.
    pub cache_bytes: ByteSize,
    /// How long compiling a component may take.
    pub compile_time: Duration,
    /// What functions are allowed at most.
    pub maxima: Maxima,
    /// What is kept of each function's log.
    pub log_retention: LogRetention,
    /// Memory of all replays that run.
    pub replay_bytes: ByteSize,
    /// Of how many versions state and positions are kept as they were when they were left.
    pub restores: usize,
    /// How long they are.
    pub restore_age: Duration,
    /// Functions that have metrics of their own.
    pub metrics: usize,
}

/// Settings of the host's own log lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Telemetry {
    /// Least level, or a filter such as `info,tidemill_log=debug`.
    pub level: String,
    /// How lines look.
    pub format: LogFormat,
}

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// What flags say; they override everything else.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Overrides {
    /// `--dir`.
    pub dir: Option<PathBuf>,
    /// `--listen`.
    pub listen: Option<String>,
    /// Any other setting by name, as in `log.segment_bytes`.
    pub settings: Vec<(String, String)>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            dir: PathBuf::from("tidemill-data"),
            listen: SocketAddr::from(([127, 0, 0, 1], 7070)),
            memory_limit: ByteSize(0),
            http: Http {
                body_bytes: ByteSize::mib(32),
                event_bytes: ByteSize(limits::EVENT_BYTES as u64),
                busy_wait: Duration::from_secs(5),
                header_timeout: Duration::from_secs(30),
                body_timeout: Duration::from_secs(60),
                stop_timeout: Duration::from_secs(10),
                connections: 10_000,
                memory_bytes: ByteSize::mib(64),
            },
            storage: Storage::default(),
            log: tidemill_log::Settings::default(),
            state: State {
                memory_bytes: ByteSize::mib(128),
                dirty_bytes: ByteSize::mib(32),
                store_bytes: ByteSize::mib(128),
                snapshot_memory: ByteSize::mib(96),
            },
            functions: Functions {
                threads: 0,
                instances: 64,
                memory_bytes: ByteSize::mib(1024),
                idle: Duration::from_secs(30),
                cache_bytes: ByteSize::mib(1024),
                compile_time: Duration::from_secs(60),
                maxima: Maxima::default(),
                log_retention: LogRetention::default(),
                replay_bytes: ByteSize::mib(256),
                restores: 2,
                restore_age: Duration::from_secs(7 * 24 * 3600),
                metrics: 100,
            },
            grants: HostGrants::default(),
            telemetry: Telemetry {
                level: "info".into(),
                format: LogFormat::Text,
            },
        }
    }
}

/// Variables that begin like settings and aren't: the program's own and those of its tests.
const NO_SETTINGS: [&str; 3] = ["TIDEMILL_HOST", "TIDEMILL_CONFIG", "TIDEMILL_TEST_"];

impl Config {
    /// Settings from a file (none: the defaults), the environment's `TIDEMILL_…` variables
    /// (`TIDEMILL_LOG__SEGMENT_BYTES`) and flags, each overriding those before.
    ///
    /// # Errors
    /// `invalid-config` when the file can't be read, or a setting is unknown (the nearest known one is
    /// named) or can't be; `not-loopback` for an address that would be open to others.
    pub fn load(
        file: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
        overrides: &Overrides,
    ) -> Result<Self> {
        let mut config = Self::default();
        let mut given = BTreeSet::new();
        if let Some(path) = file {
            config.read_file(path, &mut given)?;
        }
        for (variable, value) in env {
            let Some(rest) = variable.strip_prefix("TIDEMILL_") else {
                continue;
            };
            if NO_SETTINGS.iter().any(|name| variable.starts_with(name)) {
                continue;
            }
            let key = rest.to_ascii_lowercase().replace("__", ".");
            config.set(&key, &value).map_err(|e| e.at(&variable))?;
            given.insert(key);
        }
        let flags = [
            (
                "dir",
                overrides.dir.as_ref().map(|dir| dir.display().to_string()),
            ),
            ("listen", overrides.listen.clone()),
        ];
        for (key, value) in flags {
            if let Some(value) = value {
                config
                    .set(key, &value)
                    .map_err(|e| e.at(format!("--{key}")))?;
            }
        }
        for (key, value) in &overrides.settings {
            config
                .set(key, value)
                .map_err(|e| e.at(format!("--set {key}")))?;
            given.insert(key.clone());
        }
        config.plan_memory(tidemill_env::machine_memory(), &given)?;
        crate::host::refuse_open_address(config.listen)?;
        Ok(config)
    }

    fn read_file(&mut self, path: &Path, given: &mut BTreeSet<String>) -> Result<()> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|e| refused(format!("{shown} can't be read: {e}")))?;
        let table: toml::Table = text
            .parse()
            .map_err(|e| refused(format!("{shown} is not TOML: {e}")))?;
        let mut flat = Vec::new();
        flatten("", table, &mut flat);
        for (key, value) in flat {
            self.set(&key, &value).map_err(|e| e.at(&shown))?;
            given.insert(key);
        }
        Ok(())
    }

    /// Sets one setting by its name.
    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        if let Some(option) = key.strip_prefix("storage.options.") {
            self.storage
                .options
                .insert(option.to_owned(), value.to_owned());
            return Ok(());
        }
        let Some(row) = keys::KEYS.iter().find(|row| row.name == key) else {
            let near = nearest(key, keys::KEYS.iter().map(|row| row.name));
            return Err(refused(match near {
                Some(near) => format!("there is no setting {key:?}; did you mean {near:?}?"),
                None => format!("there is no setting {key:?}; deploy/tidemill.toml lists them all"),
            }));
        };
        (row.read)(self, value).map_err(|why| refused(format!("{key} = {value:?}: {why}")))
    }

    /// The configuration with every setting, its doc and its value, as a file that reads back as itself.
    pub fn to_toml(&self) -> String {
        keys::write(self)
    }

    /// Opens where objects are kept.
    pub(crate) fn open_storage(
        &self,
        clock: &Clock,
        random: &Random,
        metrics: &Metrics,
    ) -> Result<Objects> {
        let options: Vec<_> = self.storage.options.clone().into_iter().collect();
        let patience = Patience {
            request: self.storage.request_timeout,
            attempts: self.storage.attempts,
            ..Patience::default()
        };
        let url = self.storage_url();
        Objects::open_patiently(&url, &options, patience, clock, random, metrics)
    }

    /// Where objects are kept.
    pub(crate) fn storage_url(&self) -> String {
        if self.storage.url.is_empty() {
            self.dir.join("objects").display().to_string()
        } else {
            self.storage.url.clone()
        }
    }
}

impl Storage {
    /// Whether it is reached over a network.
    pub(crate) fn is_remote(&self) -> bool {
        self.url.contains("://") && !self.url.starts_with("file://")
    }
}

fn refused(detail: String) -> Error {
    Error::invalid("invalid-config", detail)
}

/// Turns nested tables into `section.key` and text.
fn flatten(prefix: &str, table: toml::Table, out: &mut Vec<(String, String)>) {
    for (name, value) in table {
        let key = if prefix.is_empty() {
            name
        } else {
            format!("{prefix}.{name}")
        };
        match value {
            toml::Value::Table(table) => flatten(&key, table, out),
            toml::Value::String(text) => out.push((key, text)),
            other => out.push((key, other.to_string())),
        }
    }
}
