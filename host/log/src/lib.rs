//! The truth: one journal of frames, an in-memory tail, Parquet segments in object storage, and the
//! manifest that says which of them count.
//!
//! A *frame* is one transaction: events appended to topics, positions of readers advanced, changes of
//! state (opaque here), entries of the registry. All of it happens or none of it. This crate knows
//! nothing of WebAssembly, HTTP or SQL.
//!
//! The façade is [`Log`]: open, commit, read, watch, seal, close.

mod draft;
mod log;
#[allow(dead_code)]
mod manifest;
#[allow(dead_code)]
mod paths;
#[allow(dead_code)]
mod sealer;
#[allow(dead_code)]
mod segment;
mod topic;

pub use draft::{Advance, Draft};
pub use log::{
    Log, Position, Read, ReadLimit, Recovery, Settings, SnapshotRef, Stats, Ticket, Written,
};
pub use topic::{
    AckMode, Cleanup, Format, Range, Retention, TimeFrom, TimeUnit, Topic, TopicSettings,
};
