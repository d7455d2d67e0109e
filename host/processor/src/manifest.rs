//! What a function says of itself (API: `function.toml`, or JSON of the same shape embedded in the component).

mod fields;
#[cfg(test)]
mod fuzz;
mod grants;
mod merge;
mod resolve;
#[cfg(test)]
mod tests;

pub use grants::{Grants, HttpGrant};
use std::collections::BTreeMap;
use std::time::Duration;
use tidemill_log::Format;
use tidemill_types::{ByteSize, FunctionName, Result, Timestamp, TopicName};
use tidemill_wasm::{Clock, SlotTtl};

/// A checked manifest with every default filled in.
#[derive(Clone, PartialEq, Debug)]
pub struct Manifest {
    /// Name of the function.
    pub name: FunctionName,
    /// What it is for.
    pub description: String,
    /// Inputs, in order; one for now.
    pub inputs: Vec<InputSpec>,
    /// Outputs by parameter name, in order of the guest's output numbers.
    pub outputs: Vec<OutputSpec>,
    /// State slots by parameter name, in order of the guest's slot numbers.
    pub slots: Vec<SlotSpec>,
    /// Whether it has a handler of timers.
    pub timers: bool,
    /// Event time settings.
    pub time: Time,
    /// Most events of a batch.
    pub batch_events: usize,
    /// Most bytes of a batch.
    pub batch_bytes: ByteSize,
    /// Extra time to fill a batch.
    pub batch_wait: Duration,
    /// What it may use.
    pub limits: Limits,
    /// What happens on failure.
    pub retry: Retry,
    /// What it asks for beyond its events.
    pub grants: Grants,
    /// The function's own configuration, as JSON text of an object.
    pub config: String,
    /// The whole manifest as given (JSON), for `describe` and to tell whether it changed.
    pub source: serde_json::Value,
}

/// One input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InputSpec {
    /// The topic.
    pub topic: TopicName,
    /// Where a first deployment starts.
    pub start: Start,
    /// JSON pointer to key by instead of the event's key: repartitions.
    pub key: Option<String>,
}

/// Where to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// At the first event there is.
    Earliest,
    /// With the first event after the request.
    Latest,
    /// With the first event of at least this event time.
    At(Timestamp),
    /// Where the version before stands; only of a request.
    Keep,
}

/// One output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutputSpec {
    /// Parameter name.
    pub name: String,
    /// The topic; created if missing.
    pub topic: TopicName,
    /// Partitions if it is created; the input's number by default.
    pub partitions: Option<u32>,
    /// Format if it is created; JSON by default.
    pub format: Format,
}

/// One state slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotSpec {
    /// Parameter name.
    pub name: String,
    /// Kind.
    pub kind: SlotKind,
    /// How long its values last since their last write.
    pub ttl: Option<Duration>,
    /// In which time.
    pub ttl_time: Clock,
}

/// Kinds of state slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotKind {
    /// One value.
    Value,
    /// A list, kept as one value.
    List,
    /// Entries in order of their keys.
    Map,
    /// A number that is added to.
    Counter,
}

impl SlotKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Value, Self::List, Self::Map, Self::Counter];

    /// As the manifest says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::List => "list",
            Self::Map => "map",
            Self::Counter => "counter",
        }
    }
}

impl SlotSpec {
    /// How long its values last, as the guest is told.
    pub(crate) fn slot_ttl(&self) -> Option<SlotTtl> {
        let micros = i64::try_from(self.ttl?.as_micros()).unwrap_or(i64::MAX);
        Some(SlotTtl {
            clock: self.ttl_time,
            micros,
        })
    }
}

/// Event time settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Time {
    /// How far behind the newest event an event may be.
    pub disorder: Duration,
    /// A silent partition stops holding time back after this.
    pub idle: Duration,
    /// Beyond it an event does not move the watermark.
    pub max_future: Duration,
}

/// What a function may use; whatever passes one of them is refused by its name and value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Linear memory of an instance.
    pub memory: ByteSize,
    /// Time of a call.
    pub deadline: Duration,
    /// Bytes of a call's answer.
    pub output_bytes: ByteSize,
    /// Events that a call emits.
    pub output_events: u32,
    /// A value of a slot, or an entry of a map.
    pub state_value_bytes: ByteSize,
    /// Keys and values of all state, over all partitions.
    pub state_bytes: ByteSize,
    /// Log lines a second.
    pub log_lines: u32,
    /// Bytes of log lines a second.
    pub log_bytes: ByteSize,
    /// Calls at a time, over all partitions; as many as there are threads if not said.
    pub concurrency: Option<u32>,
}

impl Limits {
    /// Linear memory of an instance where the manifest doesn't say, as far as the host allows it.
    pub(crate) const MEMORY: ByteSize = ByteSize::mib(64);
}

/// What happens on failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Retry {
    /// Attempts in all, the first included.
    pub attempts: u32,
    /// First pause.
    pub backoff_least: Duration,
    /// Longest pause.
    pub backoff_most: Duration,
    /// What follows the last attempt.
    pub exhausted: Exhausted,
    /// What waits while an event is tried again.
    pub order: Order,
}

/// What waits while an event is tried again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Its partition.
    Partition,
    /// The later events of its key: it is parked, and the partition goes on.
    Key,
}

/// What follows the last attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exhausted {
    /// To the dead letter topic.
    DeadLetter,
    /// Passed over, counted.
    Skip,
    /// The function stops.
    Stop,
}

impl Manifest {
    /// Checks a manifest: embedded JSON, overridden key by key by `beside` (the JSON form of a
    /// `function.toml`), and by `name` (from the address it is deployed to).
    ///
    /// # Errors
    /// `invalid-manifest` with the key, what is wrong and what would be right; unknown keys are refused
    /// with the nearest known one.
    pub fn resolve(
        embedded: Option<&str>,
        beside: Option<&serde_json::Value>,
        name: &FunctionName,
    ) -> Result<Self> {
        resolve::resolve(merge::merged(embedded, beside)?, name)
    }

    /// State slots as name → kind, for reports.
    pub fn slot_kinds(&self) -> BTreeMap<&str, &str> {
        self.slots
            .iter()
            .map(|slot| (slot.name.as_str(), slot.kind.as_str()))
            .collect()
    }
}
