//! The façade: deploy, list, describe, pause, resume, delete, look inside, stop.

use crate::{FunctionLogLine, FunctionReport, Manifest, Start, StateEntry};
use bytes::Bytes;
use std::sync::Arc;
use tidemill_env::metrics::Metrics;
use tidemill_env::objects::Objects;
use tidemill_env::{Clock, Random};
use tidemill_log::Log;
use tidemill_state::Store;
use tidemill_types::{FunctionName, Result};
use tidemill_wasm::Sandbox;
use tokio::sync::broadcast;

/// Settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Threads that run functions; 0 = as many as cores.
    pub threads: usize,
    /// Log lines kept per function.
    pub log_lines: usize,
}

/// A request to deploy.
#[derive(Clone, Debug)]
pub struct Deploy {
    /// Under which name.
    pub name: FunctionName,
    /// The component.
    pub component: Bytes,
    /// The manifest beside it, in JSON form.
    pub manifest: Option<serde_json::Value>,
    /// Overrides the manifest's start.
    pub start: Option<Start>,
    /// What happens to the state of an earlier version.
    pub state: KeepState,
    /// Only check and report.
    pub dry_run: bool,
}

/// What happens to state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeepState {
    /// It stays.
    Keep,
    /// It goes.
    Reset,
}

/// What a deployment came to.
#[derive(Clone, Debug)]
pub struct Deployed {
    /// Version number, from 1.
    pub version: u32,
    /// `sha256:…`.
    pub digest: String,
    /// Bytes of the component.
    pub bytes: usize,
    /// The manifest in force.
    pub manifest: Manifest,
    /// Interfaces it imports.
    pub imports: Vec<String>,
    /// Time to check and compile.
    pub compile_ms: u64,
    /// Whether anything changed; the same digest and manifest again change nothing.
    pub changed: bool,
}

/// All functions of a host. Cheap to clone.
#[derive(Clone)]
pub struct Processor {
    _inner: Arc<()>,
}

impl Processor {
    /// Takes up the deployments of the log's registry and starts their tasks.
    ///
    /// # Errors
    /// When the registry can't be read or a component of it can't be loaded.
    #[expect(
        clippy::too_many_arguments,
        reason = "the composition root wires the parts one by one"
    )]
    pub async fn open(
        settings: Settings,
        log: Log,
        state: Store,
        sandbox: Sandbox,
        objects: Objects,
        clock: Clock,
        random: Random,
        metrics: &Metrics,
    ) -> Result<Self> {
        let _ = (
            settings, log, state, sandbox, objects, clock, random, metrics,
        );
        unimplemented!("helper")
    }

    /// Deploys. Everything is checked before anything changes; durable when it returns.
    ///
    /// # Errors
    /// `invalid-component`, `invalid-manifest`, `topic-not-found` (an input), `cycle`.
    pub async fn deploy(&self, deploy: Deploy) -> Result<Deployed> {
        let _ = deploy;
        unimplemented!("helper")
    }

    /// All functions by name.
    pub fn list(&self) -> Vec<FunctionReport> {
        unimplemented!("helper")
    }

    /// One function.
    ///
    /// # Errors
    /// `function-not-found`.
    pub fn describe(&self, name: &str) -> Result<FunctionReport> {
        let _ = name;
        unimplemented!("helper")
    }

    /// Stops its tasks at a transaction border; survives restarts. Durable when it returns.
    ///
    /// # Errors
    /// `function-not-found`.
    pub async fn pause(&self, name: &str) -> Result<FunctionReport> {
        let _ = name;
        unimplemented!("helper")
    }

    /// Lets a paused or stopped function go on.
    ///
    /// # Errors
    /// `function-not-found`.
    pub async fn resume(&self, name: &str) -> Result<FunctionReport> {
        let _ = name;
        unimplemented!("helper")
    }

    /// Deletes a function; with `Keep` a later deployment of the same name finds its positions and state.
    ///
    /// # Errors
    /// `function-not-found`.
    pub async fn delete(&self, name: &str, state: KeepState) -> Result<()> {
        let _ = (name, state);
        unimplemented!("helper")
    }

    /// The last log lines of a function, and those to come.
    ///
    /// # Errors
    /// `function-not-found`.
    pub fn logs(
        &self,
        name: &str,
    ) -> Result<(Vec<FunctionLogLine>, broadcast::Receiver<FunctionLogLine>)> {
        let _ = name;
        unimplemented!("helper")
    }

    /// The value of a slot for a key, committed.
    ///
    /// # Errors
    /// `function-not-found`, `slot-not-found`, `key-not-found`.
    pub async fn state_get(&self, name: &str, slot: &str, key: &[u8]) -> Result<StateEntry> {
        let _ = (name, slot, key);
        unimplemented!("helper")
    }

    /// Entries of a slot by partition and key, from `after` (partition, key; exclusive) on.
    ///
    /// # Errors
    /// `function-not-found`, `slot-not-found`.
    pub async fn state_list(
        &self,
        name: &str,
        slot: &str,
        prefix: &[u8],
        after: Option<(u32, Bytes)>,
        limit: usize,
    ) -> Result<Vec<StateEntry>> {
        let _ = (name, slot, prefix, after, limit);
        unimplemented!("helper")
    }

    /// Functions that read a topic or write it, by name (a topic in use isn't deleted).
    pub fn users_of(&self, topic: &str) -> Vec<FunctionName> {
        let _ = topic;
        unimplemented!("helper")
    }

    /// Stops all tasks at a transaction border.
    pub async fn stop(&self) {
        unimplemented!("helper")
    }
}
