//! What the host holds for one instance and what the guest may ask of it.

use super::engine::TABLE_ELEMENTS;
use super::outside::{self, HttpError, HttpErrorKind, HttpOutcome, HttpRequest};
use super::wasi::Surroundings;
use std::str::FromStr;
use std::sync::Arc;
use tidemill_types::ByteSize;
use wasmtime::component::{ComponentType, Lift, Linker, WasmList, WasmStr};
use wasmtime::{Engine, ResourceLimiter, StoreContextMut};

type Result<T, E = wasmtime::Error> = std::result::Result<T, E>;

/// Longest line a function can log; the rest of it is cut off.
const LINE_BYTES: usize = 8 << 10;
/// Most bytes of log between two times it is taken.
const LOG_BYTES: usize = 64 << 10;
/// Most lines of log between two times it is taken.
const LOG_LINES: usize = 256;
/// Most core modules of one component; language runtimes have about three.
const CORE_INSTANCES: usize = 64;

/// Severity of a log line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
pub enum LogLevel {
    /// Finest.
    #[component(name = "trace")]
    Trace,
    /// For authors.
    #[component(name = "debug")]
    Debug,
    /// Normal.
    #[component(name = "info")]
    Info,
    /// Odd.
    #[component(name = "warn")]
    Warn,
    /// Wrong.
    #[component(name = "error")]
    Error,
}

impl LogLevel {
    /// All, the finest first.
    pub const ALL: [Self; 5] = [
        Self::Trace,
        Self::Debug,
        Self::Info,
        Self::Warn,
        Self::Error,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

impl FromStr for LogLevel {
    type Err = NoLevel;

    fn from_str(text: &str) -> Result<Self, NoLevel> {
        let found = Self::ALL.into_iter().find(|level| level.as_str() == text);
        found.ok_or(NoLevel)
    }
}

/// A text is none of the levels' names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoLevel;

/// A line a function logged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogLine {
    /// Severity.
    pub level: LogLevel,
    /// Index of the event in the batch.
    pub event: u32,
    /// The text, cut at 8 KiB.
    pub message: String,
}

/// What an instance may ask for during a call. State that can't be read fails the call, with these words.
pub trait HostServices: Send + Sync {
    /// Committed value of a slot for a key.
    ///
    /// # Errors
    /// When state can't be read.
    fn state_get(&self, slot: u32, key: &[u8]) -> Result<Option<Vec<u8>>, String>;
    /// Committed entry of a map, packed as `wit/README.md` says; empty: none.
    ///
    /// # Errors
    /// When state can't be read.
    fn map_get(&self, slot: u32, key: &[u8], entry: &[u8]) -> Result<Vec<u8>, String>;
    /// Committed entries of a map, packed; empty: none left.
    ///
    /// # Errors
    /// When state can't be read.
    fn map_scan(&self, slot: u32, key: &[u8], wanted: &MapScan<'_>) -> Result<Vec<u8>, String>;
    /// Configuration as JSON text.
    fn config(&self) -> &str;
    /// Topic of an input.
    fn input_topic(&self, input: u32) -> Option<&str>;
    /// Value of a secret; the guest is told in words why there is none.
    fn secret(&self, _name: &str) -> Result<Vec<u8>, String> {
        Err("this function was granted no secrets".into())
    }
    /// What is on record of a call to the outside that an event makes.
    ///
    /// # Errors
    /// In words, when nothing is on record yet, or something else: the call of the guest fails then.
    fn http(&self, _event: u32, _request: HttpRequest) -> Result<HttpOutcome, String> {
        Ok(Err(HttpError {
            kind: HttpErrorKind::Denied,
            message: "this function was granted no calls to the outside".into(),
        }))
    }
}

/// Services of a function that keeps nothing and isn't configured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stateless {
    /// Topic of its one input, if it is known.
    pub input: Option<&'static str>,
}

impl HostServices for Stateless {
    fn state_get(&self, _: u32, _: &[u8]) -> Result<Option<Vec<u8>>, String> {
        Ok(None)
    }
    fn map_get(&self, _: u32, _: &[u8], _: &[u8]) -> Result<Vec<u8>, String> {
        Ok(Vec::new())
    }
    fn map_scan(&self, _: u32, _: &[u8], _: &MapScan<'_>) -> Result<Vec<u8>, String> {
        Ok(Vec::new())
    }
    fn config(&self) -> &'static str {
        "{}"
    }
    fn input_topic(&self, input: u32) -> Option<&str> {
        self.input.filter(|_| input == 0)
    }
}

/// Which entries of a map are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapScan<'a> {
    /// What their keys begin with.
    pub prefix: &'a [u8],
    /// Where to start.
    pub from: &'a [u8],
    /// Whether to start behind that.
    pub behind: bool,
    /// Most entries.
    pub limit: u32,
}

/// The host's side of one instance.
pub(super) struct Guest {
    pub(super) services: Arc<dyn HostServices>,
    pub(super) log: Log,
    pub(super) memory: MemoryLimit,
    pub(super) outer: Surroundings,
}

/// The imports of the contract's world.
pub(super) fn linker(engine: &Engine) -> Result<Linker<Guest>> {
    let mut linker = Linker::new(engine);
    linker.instance("tidemill:function/types@0.1.0")?;
    let mut host = linker.instance("tidemill:function/host@0.1.0")?;
    host.func_wrap("log", log)?;
    host.func_wrap("config", |store: StoreContextMut<'_, Guest>, ()| {
        Ok((store.data().services.config().to_owned(),))
    })?;
    host.func_wrap(
        "input-topic",
        |store: StoreContextMut<'_, Guest>, (input,): (u32,)| {
            let topic = store.data().services.input_topic(input);
            let topic = topic.ok_or_else(|| {
                wasmtime::Error::msg(format!("the function has no input {input}"))
            })?;
            Ok((topic.to_owned(),))
        },
    )?;
    host.func_wrap(
        "state-get",
        |store: StoreContextMut<'_, Guest>, (slot, key): (u32, WasmList<u8>)| {
            let key = key.as_le_slice(&store);
            let value = store.data().services.state_get(slot, key);
            Ok((value.map_err(wasmtime::Error::msg)?,))
        },
    )?;
    host.func_wrap("map-get", map_get)?;
    host.func_wrap("map-scan", map_scan)?;
    outside::link(&mut linker)?;
    Ok(linker)
}

fn map_get(
    store: StoreContextMut<'_, Guest>,
    (slot, key, entry): (u32, WasmList<u8>, WasmList<u8>),
) -> Result<(Vec<u8>,)> {
    let (key, entry) = (key.as_le_slice(&store), entry.as_le_slice(&store));
    let found = store.data().services.map_get(slot, key, entry);
    Ok((found.map_err(wasmtime::Error::msg)?,))
}

type Scan = (u32, WasmList<u8>, WasmList<u8>, WasmList<u8>, bool, u32);

fn map_scan(
    store: StoreContextMut<'_, Guest>,
    (slot, key, prefix, from, behind, limit): Scan,
) -> Result<(Vec<u8>,)> {
    let wanted = MapScan {
        prefix: prefix.as_le_slice(&store),
        from: from.as_le_slice(&store),
        behind,
        limit,
    };
    let services = &store.data().services;
    let found = services.map_scan(slot, key.as_le_slice(&store), &wanted);
    Ok((found.map_err(wasmtime::Error::msg)?,))
}

fn log(
    mut store: StoreContextMut<'_, Guest>,
    (level, event, message): (LogLevel, u32, WasmStr),
) -> Result<()> {
    if store.data().log.is_full() {
        store.data_mut().log.dropped += 1;
        return Ok(());
    }
    let message = message.to_str(&store)?;
    let message = message[..message.floor_char_boundary(LINE_BYTES)].to_owned();
    store.data_mut().log.push(LogLine {
        level,
        event,
        message,
    });
    Ok(())
}

/// Lines that nobody has taken yet, bounded.
#[derive(Default)]
pub(super) struct Log {
    lines: Vec<LogLine>,
    bytes: usize,
    dropped: u64,
}

impl Log {
    fn is_full(&self) -> bool {
        self.lines.len() >= LOG_LINES || self.bytes >= LOG_BYTES
    }

    /// Adds a line, or counts it as dropped.
    pub(super) fn add(&mut self, line: LogLine) {
        match self.is_full() {
            true => self.dropped += 1,
            false => self.push(line),
        }
    }

    fn push(&mut self, line: LogLine) {
        self.bytes += line.message.len();
        self.lines.push(line);
    }

    /// The lines; if some didn't fit, a last one says how many.
    pub(super) fn take(&mut self) -> Vec<LogLine> {
        let Self {
            mut lines, dropped, ..
        } = std::mem::take(self);
        if dropped > 0 {
            lines.push(LogLine {
                level: LogLevel::Warn,
                event: lines.last().map_or(0, |line| line.event),
                message: format!(
                    "{dropped} more lines were dropped: a call may log {LOG_LINES} lines and {}",
                    ByteSize(LOG_BYTES as u64)
                ),
            });
        }
        lines
    }
}

/// Holds all linear memories of an instance together to one limit.
pub(super) struct MemoryLimit {
    limit: usize,
    /// What it may use for now; at most the limit.
    granted: usize,
    used: usize,
    /// Whether the guest wanted more than it was granted, and not more than its limit.
    pub(super) short: bool,
    /// Whether the guest wanted more than it may have since this was last set to false.
    pub(super) refused: bool,
}

impl MemoryLimit {
    pub(super) fn new(limit: ByteSize, granted: ByteSize) -> Self {
        Self {
            limit: limit.as_usize(),
            granted: granted.min(limit).as_usize(),
            used: 0,
            short: false,
            refused: false,
        }
    }

    /// What it may use from now on.
    pub(super) fn grant(&mut self, granted: ByteSize) {
        self.granted = granted.as_usize().min(self.limit);
    }

    /// Bytes of all memories.
    pub(super) fn used(&self) -> usize {
        self.used
    }
}

impl ResourceLimiter for MemoryLimit {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> Result<bool> {
        let used = self.used.saturating_sub(current).saturating_add(desired);
        if used > self.limit {
            self.refused = true;
            return Ok(false);
        }
        if used > self.granted {
            self.short = true;
            return Ok(false);
        }
        self.used = used;
        Ok(true)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> Result<bool> {
        Ok(desired <= TABLE_ELEMENTS)
    }

    fn instances(&self) -> usize {
        CORE_INSTANCES
    }
}
