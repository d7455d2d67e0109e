//! Functions at work: deployments, one task per function and input partition (read, invoke, commit,
//! repeat), retries, dead letters. Knows nothing of HTTP.

mod processor;
mod report;

mod manifest;
mod maxima;
mod record;
mod replay;
mod shadow;
mod topology;
mod version;

mod compiling;
mod deploying;
mod deployment;
mod fair;
mod function;
mod parts;
mod pool;
mod task;

mod attempts;
mod backoff;
mod broken;
mod calls;
mod cleaning;
mod dead_letter;
mod effects;
mod grants;
mod keys;
mod letters;
mod mask;
mod merge;
mod note;
mod origin;
mod parked;
mod pending;
mod pointer;

#[cfg(test)]
mod fuzz;

mod function_log;
mod housekeeping;
mod inspect;
mod instances;
mod leaving;
mod measure;
mod nearest;
mod recovery;
mod renewing;
mod restore;
mod services;
mod slot;
mod sources;
mod stored;
mod timers;
mod usage;

#[cfg(feature = "broken")]
pub use broken::Fault;
pub use deploying::{Plan, PlanAgain, PlanChange, PlanStart};
pub use function_log::{FunctionLogLine, LogQuery, LogReader, LogRetention};
pub use grants::HostGrants;
pub use letters::{Chosen, DeadLetter, Dealt, Done, LetterPage, LetterPlace, LetterQuery};
pub use manifest::{
    Exhausted, Grants, HttpGrant, InputSpec, Limits, Manifest, Order, OutputSpec, Retry, SlotKind,
    SlotSpec, Start, Time,
};
pub use maxima::Maxima;
pub use processor::{Deploy, Deployed, KeepState, Processor, Rollback, Settings};
pub use recovery::StateRecovery;
pub use replay::{
    Diff, Emitted, EventDifference, Fate, Invoked, InvokedEvent, Outcome, Point, Replay,
    ReplayMode, ReplayReport, ReplayStatus, Replayed, StateDifference, StateSummary, Told,
    Verified,
};
pub use report::{
    Counts, FunctionReport, FunctionStatus, KeptReport, ShadowOf, StateEntry, StatePage,
    TaskReport, VersionReport,
};
pub use tidemill_wasm::{Clock as TimeKind, LogLevel};
