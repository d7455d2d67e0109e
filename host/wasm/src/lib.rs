//! The sandbox: checks, compiles, pools and calls one component on one batch, and gives its effects
//! back as data. Knows nothing of offsets' meaning or transactions.
//!
//! The packed layouts are those of `wit/README.md`.
//!
//! ```
//! use tidemill_wasm::{Sandbox, Settings};
//! use tidemill_types::ByteSize;
//!
//! let sandbox = Sandbox::new(Settings { cache_dir: None, cache_bytes: ByteSize(0), instances: 4 }).unwrap();
//! let refused = sandbox.compile(b"\0asm\x01\0\0\0").unwrap_err();
//! assert!(refused.detail.starts_with("core module: "));
//! ```

mod batch;
mod commands;
mod sandbox;

#[cfg(test)]
mod golden;

pub use batch::{BatchPacker, Clock, SlotTtl, StateCell};
pub use commands::{Command, Commands, Emit, Outcome, Stop, Volume};
pub use sandbox::{
    Call, CallLimits, Component, Failure, FailureKind, HTTP, HostServices, HttpAnswer, HttpError,
    HttpErrorKind, HttpOutcome, HttpRequest, Instance, LogLevel, LogLine, MapScan, NoLevel,
    SECRETS, Sandbox, Settings, Stateless,
};
