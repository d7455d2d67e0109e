//! The sandbox: checks, compiles, pools and calls one component on one batch, and gives its effects
//! back as data. Knows nothing of offsets' meaning or transactions.
//!
//! The packed layouts are those of `wit/README.md`.

mod batch;
mod commands;
mod sandbox;

#[cfg(test)]
mod golden;

pub use batch::{BatchPacker, StateCell};
pub use commands::{Command, Commands, Emit, Outcome, Stop};
pub use sandbox::{
    Call, CallLimits, Component, Failure, FailureKind, HostServices, Instance, LogLevel, LogLine,
    Sandbox, Settings,
};
