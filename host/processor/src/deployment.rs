//! A deployment as its tasks need it: everything looked up and numbered.

use crate::Manifest;
use crate::stored::Slots;
use crate::usage::Usage;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use tidemill_log::Topic;
use tidemill_types::{FunctionId, FunctionName};
use tidemill_wasm::{CallLimits, Component};

/// One version of one function, ready to run.
#[derive(Clone)]
pub(crate) struct Deployment {
    /// Its function's number.
    pub(crate) function: FunctionId,
    /// Its function's name.
    pub(crate) name: FunctionName,
    /// The function beside which it runs, or itself.
    pub(crate) owner: FunctionName,
    /// Its number.
    pub(crate) version: u32,
    /// Its manifest.
    pub(crate) manifest: Manifest,
    /// Its component, compiled.
    pub(crate) component: Component,
    /// The topic it reads.
    pub(crate) input: Arc<Topic>,
    /// The internal topic between, when it is keyed by a pointer.
    pub(crate) by_key: Option<Arc<Topic>>,
    /// The topics it writes, in the guest's order.
    pub(crate) outputs: Vec<Arc<Topic>>,
    /// Where its dead letters go.
    pub(crate) dead_letters: Arc<Topic>,
    /// What it keeps by key.
    pub(crate) slots: Slots,
    /// How much that is.
    pub(crate) usage: Arc<Usage>,
    /// Most pages of linear memory that one of its instances was seen to have.
    pub(crate) pages: Arc<AtomicU32>,
}

impl Deployment {
    /// The topic its main tasks read.
    pub(crate) fn main_input(&self) -> &Arc<Topic> {
        self.by_key.as_ref().unwrap_or(&self.input)
    }

    /// Whether tasks of its own move its input's events to the internal topic; a shadow reads that of the
    /// function it runs beside.
    pub(crate) fn repartitions(&self) -> bool {
        self.by_key.is_some() && self.owner == self.name
    }

    /// What one call may use.
    pub(crate) fn limits(&self) -> CallLimits {
        limits(&self.manifest)
    }
}

/// The manifest as a component's tasks follow it: one event at a time where each has to be alone.
pub(crate) fn followed(component: &Component, manifest: Manifest) -> Manifest {
    match component.is_alone() {
        true => Manifest {
            batch_events: 1,
            ..manifest
        },
        false => manifest,
    }
}

/// What one call may use.
pub(crate) fn limits(manifest: &Manifest) -> CallLimits {
    CallLimits {
        memory: manifest.limits.memory,
        deadline: manifest.limits.deadline,
        output_bytes: manifest.limits.output_bytes,
    }
}

/// Name of a function's topic for dead letters.
pub(crate) fn dead_letter_topic(name: &FunctionName) -> String {
    format!("{name}.dead-letters")
}

/// Name of a function's internal topic for events by key.
pub(crate) fn by_key_topic(name: &FunctionName) -> String {
    format!("{name}.by-key")
}
