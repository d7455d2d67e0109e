//! One live copy of a component, and what can go wrong with it.

use super::check::ON_BATCH;
use super::engine::Ticks;
use super::guest::{Guest, HostServices, Log, LogLine, MemoryLimit};
use super::wasi::{self, Surroundings};
use crate::batch;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tidemill_types::{ByteSize, format_duration};
use wasmtime::component::{ComponentType, Func, InstancePre, Lower};
use wasmtime::{PoolConcurrencyLimitError, Store, Trap, WasmBacktrace};

/// Bytes a guest may hand over in one call of the host or in its answer, even if its answer is limited
/// to less: enough for a log line or a key.
const LEAST_TRANSFER_BYTES: usize = 64 << 10;
/// Longest words of a guest that are kept.
const WORDS_BYTES: usize = 8 << 10;

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

/// What is the same for all events of a call (`call` in the WIT).
#[derive(Clone, Copy, PartialEq, Eq, Debug, ComponentType, Lower)]
#[component(record)]
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
    /// It wanted more memory than it was granted for now, and not more than its limit: no fault of its own.
    Short,
}

/// One live copy of a component. Used by one thread at a time.
pub struct Instance {
    store: Store<Guest>,
    on_batch: Func,
    limits: CallLimits,
    failed: bool,
    /// Its deadlines need them.
    _ticks: Arc<Ticks>,
}

/// Why there is no instance.
pub(super) enum StartError {
    /// All slots of the pool are taken.
    PoolIsFull,
    /// Its start failed.
    Failed(Failure),
}

impl Instance {
    /// Instantiates and runs the component's start, within the limits of a call.
    pub(super) fn start(
        component: &InstancePre<Guest>,
        (limits, granted): (CallLimits, ByteSize),
        services: Arc<dyn HostServices>,
        ticks: Arc<Ticks>,
    ) -> Result<Self, StartError> {
        let guest = Guest {
            services,
            log: Log::default(),
            memory: MemoryLimit::new(limits.memory, granted),
            outer: Surroundings::default(),
        };
        let mut store = Store::new(component.engine(), guest);
        store.limiter(|guest| &mut guest.memory);
        store.set_hostcall_fuel(limits.output_bytes.as_usize().max(LEAST_TRANSFER_BYTES));
        store.set_epoch_deadline(Ticks::in_deadline(limits.deadline));
        let started = component.instantiate(&mut store).and_then(|instance| {
            instance
                .get_func(&mut store, ON_BATCH)
                .ok_or_else(|| wasmtime::Error::msg("the export is gone"))
        });
        match started {
            Ok(on_batch) => Ok(Self {
                store,
                on_batch,
                limits,
                failed: false,
                _ticks: ticks,
            }),
            Err(error) if error.is::<PoolConcurrencyLimitError>() => Err(StartError::PoolIsFull),
            Err(error) => Err(StartError::Failed(failure(&error, store.data(), limits))),
        }
    }

    /// Calls `on-batch`. After an error the instance must be dropped.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn on_batch(&mut self, call: Call, events: &[u8]) -> Result<Vec<u8>, Failure> {
        if self.failed {
            return Err(Failure {
                kind: FailureKind::Trap,
                message: "this instance failed before and takes no more calls".into(),
            });
        }
        let answer = self.call(call, events);
        self.failed = answer.is_err();
        answer
    }

    fn call(&mut self, call: Call, events: &[u8]) -> Result<Vec<u8>, Failure> {
        self.store
            .set_epoch_deadline(Ticks::in_deadline(self.limits.deadline));
        if let Some(first) = batch::first(events) {
            self.store.data_mut().outer.begin(call.seed, first);
        }
        let memory = &mut self.store.data_mut().memory;
        (memory.refused, memory.short) = (false, false);
        let answer = self
            .on_batch
            .typed::<(Call, &[u8]), (Result<Vec<u8>, String>,)>(&self.store)
            .and_then(|on_batch| on_batch.call(&mut self.store, (call, events)));
        match answer {
            // What it did instead would depend on what others use.
            Ok(_) if self.store.data().memory.short => Err(short()),
            Ok((Ok(answer),)) if answer.len() > self.limits.output_bytes.as_usize() => {
                Err(output_limit(self.limits))
            }
            Ok((Ok(answer),)) => Ok(answer),
            Ok((Err(mut words),)) => {
                words.truncate(words.floor_char_boundary(WORDS_BYTES));
                Err(Failure {
                    kind: FailureKind::Trap,
                    message: words,
                })
            }
            Err(error) => Err(failure(&error, self.store.data(), self.limits)),
        }
    }

    /// Lets it use so much linear memory from now on, but not more than its limit.
    pub fn grant(&mut self, memory: ByteSize) {
        self.store.data_mut().memory.grant(memory);
    }

    /// Linear memory it holds.
    pub fn memory(&self) -> ByteSize {
        ByteSize(self.store.data().memory.used() as u64)
    }

    /// Lines logged since the last time this was asked.
    pub fn take_log(&mut self) -> Vec<LogLine> {
        wasi::print(self.store.data_mut(), true);
        self.store.data_mut().log.take()
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance")
            .field("limits", &self.limits)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

/// What the engine's error means.
fn failure(error: &wasmtime::Error, guest: &Guest, limits: CallLimits) -> Failure {
    if error.downcast_ref::<Trap>() == Some(&Trap::Interrupt) {
        return Failure {
            kind: FailureKind::Deadline,
            message: format!("deadline of {} passed", format_duration(limits.deadline)),
        };
    }
    let cause = error.root_cause().to_string();
    if guest.memory.short {
        return short();
    }
    if guest.memory.refused {
        return Failure {
            kind: FailureKind::Memory,
            message: format!("memory limit of {}", limits.memory),
        };
    }
    // The engine keeps the type of this error to itself.
    if cause.contains("fuel allocated for hostcalls has been exhausted") {
        return output_limit(limits);
    }
    Failure {
        kind: FailureKind::Trap,
        message: format!("{cause}{}", frames(error)),
    }
}

fn short() -> Failure {
    Failure {
        kind: FailureKind::Short,
        message: "it needs more memory than it was granted".into(),
    }
}

fn output_limit(limits: CallLimits) -> Failure {
    Failure {
        kind: FailureKind::OutputLimit,
        message: format!("output_bytes limit of {}", limits.output_bytes),
    }
}

/// The guest's functions from the innermost outwards: ` (in c < b < a)`.
fn frames(error: &wasmtime::Error) -> String {
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else {
        return String::new();
    };
    let mut names: Vec<(String, usize)> = Vec::new();
    for frame in backtrace.frames() {
        let name = match frame.func_name() {
            // Without the hash that Rust appends.
            Some(name) => format!("{:#}", rustc_demangle::demangle(name)),
            None => format!("function {}", frame.func_index()),
        };
        match names.last_mut() {
            Some((last, times)) if *last == name => *times += 1,
            _ => names.push((name, 1)),
        }
    }
    if names.is_empty() {
        return String::new();
    }
    let names: Vec<_> = names
        .into_iter()
        .map(|(name, times)| {
            if times == 1 {
                name
            } else {
                format!("{name} ({times} times)")
            }
        })
        .collect();
    format!(" (in {})", names.join(" < "))
}
