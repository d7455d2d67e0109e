//! What can be seen of functions from outside.

use crate::Manifest;
use bytes::Bytes;
use tidemill_types::{FunctionName, Timestamp};

/// Conserved at every moment: `in = filtered + skipped + dead_lettered + late + effective + retrying`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Events taken up; one that was a dead letter counts again when it is put back.
    pub events_in: u64,
    /// Events emitted.
    pub emitted: u64,
    /// Events without effect.
    pub filtered: u64,
    /// Events passed over.
    pub skipped: u64,
    /// Events that became dead letters.
    pub dead_lettered: u64,
    /// Events that came too late (always 0 until windows exist).
    pub late: u64,
    /// Events that led to at least one effect.
    pub effective: u64,
    /// Offsets that were taken away, by retention or by somebody, before they were read; not part of `in`.
    pub cut_off: u64,
    /// Events that wait at this moment to be tried again, or behind one of their key that does.
    pub retrying: u64,
    /// Of those taken up, the ones that had been dead letters and were put back.
    pub redriven: u64,
    /// Timers that had their turn; not part of `in`.
    pub timers: u64,
    /// Those of them that became dead letters; not part of `dead_lettered`.
    pub timers_dead_lettered: u64,
}

impl Counts {
    /// The sum of two tasks' counts.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            events_in: self.events_in + other.events_in,
            emitted: self.emitted + other.emitted,
            filtered: self.filtered + other.filtered,
            skipped: self.skipped + other.skipped,
            dead_lettered: self.dead_lettered + other.dead_lettered,
            late: self.late + other.late,
            effective: self.effective + other.effective,
            cut_off: self.cut_off + other.cut_off,
            retrying: self.retrying + other.retrying,
            redriven: self.redriven + other.redriven,
            timers: self.timers + other.timers,
            timers_dead_lettered: self.timers_dead_lettered + other.timers_dead_lettered,
        }
    }

    /// What was done since the counts were `base`: events that waited then count as taken up.
    pub(crate) fn since(self, base: Self) -> Self {
        Self {
            events_in: self.events_in - base.events_in + base.retrying,
            emitted: self.emitted - base.emitted,
            filtered: self.filtered - base.filtered,
            skipped: self.skipped - base.skipped,
            dead_lettered: self.dead_lettered - base.dead_lettered,
            late: self.late - base.late,
            effective: self.effective - base.effective,
            cut_off: self.cut_off - base.cut_off,
            retrying: self.retrying,
            redriven: self.redriven - base.redriven,
            timers: self.timers - base.timers,
            timers_dead_lettered: self.timers_dead_lettered - base.timers_dead_lettered,
        }
    }

    /// Whether every event taken up has exactly one fate, or waits for it.
    pub(crate) fn conserved(&self) -> bool {
        let fates = self.filtered + self.skipped + self.dead_lettered + self.late + self.effective;
        self.events_in == fates + self.retrying
    }
}

/// State of a function or task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FunctionStatus {
    /// At work or waiting for events.
    Running,
    /// Paused by somebody.
    Paused,
    /// At least one task waits to try an event again.
    Retrying,
    /// Stopped by `fatal` or exhausted retries.
    Stopped,
}

/// One function.
#[derive(Clone, Debug)]
pub struct FunctionReport {
    /// Name.
    pub name: FunctionName,
    /// Version in force.
    pub version: u32,
    /// Digest of its component.
    pub digest: String,
    /// Bytes of its component.
    pub bytes: usize,
    /// Interfaces it imports.
    pub imports: Vec<String>,
    /// Its manifest.
    pub manifest: Manifest,
    /// Status: the worst of its tasks.
    pub status: FunctionStatus,
    /// Why, in words.
    pub status_reason: Option<String>,
    /// Tasks by partition.
    pub tasks: Vec<TaskReport>,
    /// Counts over all versions.
    pub counts: Counts,
    /// Counts of the version in force: what an earlier one left waiting was taken up by it.
    pub version_counts: Counts,
    /// What it runs beside, if it is a shadow.
    pub shadow_of: Option<ShadowOf>,
    /// The shadow that runs beside it.
    pub shadow: Option<FunctionName>,
}

/// What a shadow runs beside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShadowOf {
    /// The function.
    pub function: FunctionName,
    /// Whether it began without state; otherwise with a copy of the function's.
    pub empty: bool,
    /// When.
    pub began: Timestamp,
}

/// One task.
#[derive(Clone, Debug)]
pub struct TaskReport {
    /// Topic it reads.
    pub topic: String,
    /// Partition it reads.
    pub partition: u32,
    /// Next offset to read.
    pub position: u64,
    /// Committed end of the partition.
    pub end: u64,
    /// Events not yet read.
    pub lag: u64,
    /// Age of the oldest event not yet read; 0 without lag.
    pub lag_seconds: f64,
    /// Offsets that were taken away before it read them.
    pub cut_off: u64,
    /// Events that wait to be tried again, or behind one of their key that does.
    pub retrying: u64,
    /// Its watermark, if it has one.
    pub watermark: Option<Timestamp>,
    /// Timers that are set; unknown while it doesn't run.
    pub timers: Option<u64>,
    /// Status.
    pub status: FunctionStatus,
    /// Why, in words.
    pub status_reason: Option<String>,
    /// Whether something that it needs holds it up: memory, a thread, the disk, storage.
    pub waits: bool,
}

/// A version that is kept.
#[derive(Clone, Debug)]
pub struct VersionReport {
    /// Its number.
    pub version: u32,
    /// `sha256:…`.
    pub digest: String,
    /// Bytes of the component.
    pub bytes: usize,
    /// Interfaces it imports.
    pub imports: Vec<String>,
    /// Its manifest.
    pub manifest: Manifest,
    /// When it was put in force; unknown for those of a host before versions were kept.
    pub deployed: Option<Timestamp>,
    /// The version it went back to, if it was a rollback.
    pub rollback_of: Option<u32>,
    /// Whether it began without the state of the one before.
    pub reset: bool,
    /// Whether it is in force.
    pub in_force: bool,
    /// The version whose state and positions it began with, as they were when that was left.
    pub restored: Option<u32>,
    /// What is kept of it as it was when it was left.
    pub kept: Option<KeptReport>,
}

/// State and positions of a version as they were when it was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptReport {
    /// When it was left.
    pub left: Timestamp,
    /// Whether it can be gone back to: its state is all there.
    pub ready: bool,
}

/// One entry of state.
#[derive(Clone, Debug)]
pub struct StateEntry {
    /// Partition it lives on.
    pub partition: u32,
    /// Its key.
    pub key: Bytes,
    /// The key of the entry, in a map.
    pub entry: Option<Bytes>,
    /// Its value.
    pub value: Bytes,
}

/// Some entries of state, in order.
#[derive(Clone, Debug, Default)]
pub struct StatePage {
    /// The entries.
    pub entries: Vec<StateEntry>,
    /// Where to go on, if there are more: partition and place.
    pub next: Option<(u32, Bytes)>,
}
