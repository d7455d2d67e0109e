//! A deployment as its tasks need it: everything looked up and numbered.

use crate::Manifest;
use crate::stored::Slots;
use crate::usage::Usage;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use tidemill_log::Topic;
use tidemill_types::{FunctionId, FunctionName, PartitionId, TopicName};
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
    /// The topics it reads, in the manifest's order; at least one.
    pub(crate) inputs: Vec<Input>,
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

/// A topic that a function reads.
#[derive(Clone)]
pub(crate) struct Input {
    /// The topic.
    pub(crate) topic: Arc<Topic>,
    /// The internal topic between, when it is keyed by a pointer.
    pub(crate) by_key: Option<Arc<Topic>>,
}

impl Input {
    /// The topic that the main tasks read.
    pub(crate) fn read(&self) -> &Arc<Topic> {
        self.by_key.as_ref().unwrap_or(&self.topic)
    }
}

impl Deployment {
    /// How many main tasks there are: the partitions of each topic they read.
    pub(crate) fn partitions(&self) -> u32 {
        self.inputs[0].read().settings.partitions
    }

    /// What the main task of a partition reads, input by input.
    pub(crate) fn reads(&self, partition: u32) -> impl Iterator<Item = PartitionId> {
        self.inputs.iter().map(move |input| PartitionId {
            topic: input.read().id,
            partition,
        })
    }

    /// Which inputs are keyed by a pointer: a bit for each, the first lowest.
    pub(crate) fn by_key(&self) -> u32 {
        let keyed = self.inputs.iter().enumerate();
        keyed
            .filter(|(_, input)| input.by_key.is_some())
            .fold(0, |mask, (at, _)| mask | 1 << at)
    }

    /// The inputs whose events tasks of its own move to internal topics; a shadow reads those of the
    /// function it runs beside.
    pub(crate) fn repartitioned(&self) -> impl Iterator<Item = (usize, &Input)> {
        let own = self.owner == self.name;
        let inputs = self.inputs.iter().enumerate();
        inputs.filter(move |(_, input)| own && input.by_key.is_some())
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

/// Name of a function's internal topic for events by key: of its first input, or of a further one.
pub(crate) fn by_key_topic(name: &FunctionName, further: Option<&TopicName>) -> String {
    match further {
        None => format!("{name}.by-key"),
        Some(topic) => format!("{name}.by-key.{topic}"),
    }
}

/// Names of the topics that main tasks read, input by input.
pub(crate) fn read_topics(manifest: &Manifest, owner: &FunctionName) -> Vec<String> {
    let read = manifest.inputs.iter().zip(by_key_topics(manifest, owner));
    read.map(|(input, by_key)| by_key.unwrap_or_else(|| input.topic.to_string()))
        .collect()
}

/// Names of the internal topics that a manifest's inputs need, input by input.
pub(crate) fn by_key_topics(manifest: &Manifest, owner: &FunctionName) -> Vec<Option<String>> {
    let inputs = manifest.inputs.iter().enumerate();
    inputs
        .map(|(at, input)| {
            input.key.as_ref()?;
            Some(by_key_topic(owner, (at > 0).then_some(&input.topic)))
        })
        .collect()
}
