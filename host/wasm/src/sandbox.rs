//! Components and their instances.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tidemill_types::{ByteSize, Result};

/// Settings of the sandbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Where precompiled components are kept, by digest and engine version; `None`: nowhere.
    pub cache_dir: Option<PathBuf>,
    /// Most live instances in the pool; beyond it instances come from an allocator on demand.
    pub instances: u32,
}

/// What one call may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallLimits {
    /// Linear memory.
    pub memory: ByteSize,
    /// Time of one call.
    pub deadline: Duration,
    /// Bytes of the answer.
    pub output_bytes: ByteSize,
}

/// The engine: one per process. Cheap to clone.
#[derive(Clone)]
pub struct Sandbox {
    _engine: Arc<()>,
}

/// A checked and compiled component. Cheap to clone.
#[derive(Clone)]
pub struct Component {
    _inner: Arc<()>,
}

/// Severity of a log line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// Finest.
    Trace,
    /// For authors.
    Debug,
    /// Normal.
    Info,
    /// Odd.
    Warn,
    /// Wrong.
    Error,
}

/// A line a function logged.
#[derive(Clone, Debug)]
pub struct LogLine {
    /// Severity.
    pub level: LogLevel,
    /// Index of the event in the batch.
    pub event: u32,
    /// The text, cut at 8 KiB.
    pub message: String,
}

/// What an instance may ask for during a call.
pub trait HostServices: Send + Sync {
    /// Committed value of a slot for a key.
    fn state_get(&self, slot: u32, key: &[u8]) -> Option<Vec<u8>>;
    /// Configuration as JSON text.
    fn config(&self) -> &str;
    /// Topic of an input.
    fn input_topic(&self, input: u32) -> Option<&str>;
}

/// What is the same for all events of a call (`call` in the WIT).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// Index of the input.
    pub input: u32,
    /// Partition of the input.
    pub partition: u32,
    /// Earlier attempts.
    pub attempt: u32,
    /// Watermark, µs since 1970; `i64::MIN` while there is none.
    pub watermark: i64,
    /// Seed of random numbers.
    pub seed: u64,
}

/// Why a call failed. The instance is gone; nothing of the call took effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The kind.
    pub kind: FailureKind,
    /// The trap's message with the guest's frames, the limit by name and value, or the guest's words.
    pub message: String,
}

/// Kinds of failure; their names are those of the dead letter's `tidemill-reason`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureKind {
    /// The guest trapped (also stack overflow) or answered nonsense.
    Trap,
    /// The deadline passed.
    Deadline,
    /// Linear memory limit.
    Memory,
    /// Too many bytes or commands in the answer.
    OutputLimit,
}

impl Sandbox {
    /// Starts the engine and its deadline ticks.
    ///
    /// # Errors
    /// When the engine can't be configured on this machine.
    pub fn new(settings: Settings) -> Result<Self> {
        let _ = settings;
        unimplemented!("helper")
    }

    /// Checks a component (is one, exports the world's functions with the right types, imports nothing
    /// but `tidemill:function`) and compiles it, or takes the compiled form from the cache. Blocks for
    /// as long as compilation takes; call it off the request path.
    ///
    /// # Errors
    /// `invalid-component` with the check that failed and what to do.
    pub fn compile(&self, bytes: &[u8]) -> Result<Component> {
        let _ = bytes;
        unimplemented!("helper")
    }

    /// An instance with its own memory.
    ///
    /// # Errors
    /// When the component's start traps or limits forbid it.
    pub fn instantiate(
        &self,
        component: &Component,
        limits: CallLimits,
        services: Arc<dyn HostServices>,
    ) -> Result<Instance, Failure> {
        let _ = (component, limits, services);
        unimplemented!("helper")
    }
}

impl Component {
    /// `sha256:` and 64 hexadecimal digits, of the component's bytes.
    pub fn digest(&self) -> &str {
        unimplemented!("helper")
    }
    /// The manifest (JSON text) from the custom section `tidemill-manifest` of the component or of a
    /// module in it.
    pub fn manifest(&self) -> Option<&str> {
        unimplemented!("helper")
    }
    /// Interfaces it imports, with versions.
    pub fn imports(&self) -> &[String] {
        unimplemented!("helper")
    }
}

/// One live copy of a component. Used by one thread at a time.
pub struct Instance {
    _store: (),
}

impl Instance {
    /// Calls `on-batch`. After an error the instance must be dropped.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn on_batch(&mut self, call: Call, events: &[u8]) -> Result<Vec<u8>, Failure> {
        let _ = (call, events);
        unimplemented!("helper")
    }

    /// Lines logged since the last time this was asked.
    pub fn take_log(&mut self) -> Vec<LogLine> {
        unimplemented!("helper")
    }
}
