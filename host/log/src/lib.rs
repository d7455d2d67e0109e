//! The truth: one journal of frames, an in-memory tail, Parquet segments in object storage, and the
//! manifest that says which of them count.
//!
//! A *frame* is one transaction: events appended to topics, positions of readers advanced, changes of
//! state (opaque here), entries of the registry. All of it happens or none of it. This crate knows
//! nothing of WebAssembly, HTTP or SQL.
//!
//! The façade is [`Log`]: open, commit, read, watch, seal, close.

mod ahead;
mod compaction;
mod contract;
mod draft;
pub mod examine;
mod flow;
mod frame;
#[cfg(test)]
mod fuzz;
mod journal;
mod keeper;
mod log;
mod manifest;
mod marks;
mod merging;
mod meters;
mod open;
mod paths;
mod read;
mod retention;
mod schema;
mod sealer;
mod segment;
mod sequencer;
mod shard;
#[cfg(test)]
mod simulation;
mod stats;
mod tail;
mod threads;
mod topic;
mod wire;

pub use ahead::Follower;
pub use contract::{
    Position, Read, ReadLimit, Recovery, Settings, SnapshotRef, Stats, Ticket, TimeOf, Written,
};
pub use draft::{Advance, Draft};
pub use flow::Rate;
pub use log::Log;
pub use marks::Once;
pub use schema::{Mismatch, OnMismatch, Schema};
pub use stats::{Compression, PartitionStats};
pub use topic::{
    AckMode, Cleanup, Format, Range, Retention, TimeFrom, TimeUnit, Topic, TopicSettings,
};
