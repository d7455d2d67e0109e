//! Functions at work: deployments, one task per function and input partition (read, invoke, commit,
//! repeat), retries, dead letters. Knows nothing of HTTP.

mod manifest;
mod nearest;
mod processor;
mod report;

pub use manifest::{Exhausted, InputSpec, Manifest, OutputSpec, Retry, SlotSpec, Start, Time};
pub use processor::{Deploy, Deployed, KeepState, Processor, Settings};
pub use report::{Counts, FunctionLogLine, FunctionReport, FunctionStatus, StateEntry, TaskReport};
