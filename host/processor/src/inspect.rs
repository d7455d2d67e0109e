//! Looking at functions from outside: reports and state.

use crate::function::Function;
use crate::note::Note;
use crate::parts::Parts;
use crate::record::{Role, Standing, reader};
use crate::{Counts, FunctionReport, FunctionStatus, StateEntry, TaskReport};
use bytes::Bytes;
use std::collections::HashMap;
use tidemill_log::ReadLimit;
use tidemill_state::{Scope, Store};
use tidemill_types::{Error, FunctionName, PartitionId, Result, partition_of_key};

/// What can be said of a function now.
pub(crate) fn report(parts: &Parts, name: &FunctionName, function: &Function) -> FunctionReport {
    let record = &function.record;
    let (mut status, mut status_reason) = match record.standing {
        Standing::Running => (FunctionStatus::Running, None),
        Standing::Paused => (FunctionStatus::Paused, None),
        Standing::Stopped | Standing::Deleted => (FunctionStatus::Stopped, record.reason.clone()),
    };
    if let Some(broken) = &function.broken {
        (status, status_reason) = (FunctionStatus::Stopped, Some(broken.clone()));
    }
    let mut counts = Counts::default();
    let mut tasks = Vec::new();
    for role in [Role::Repartition, Role::Main] {
        role_report(parts, function, role, &mut counts, &mut tasks);
    }
    for task in &mut tasks {
        match status {
            FunctionStatus::Paused | FunctionStatus::Stopped => task.status = status,
            FunctionStatus::Running | FunctionStatus::Retrying => {}
        }
    }
    let retrying = tasks
        .iter()
        .filter(|task| task.status == FunctionStatus::Retrying);
    counts.retrying = retrying.clone().count() as u64;
    if let Some(task) = retrying.clone().next() {
        status = FunctionStatus::Retrying;
        status_reason = task
            .status_reason
            .as_ref()
            .map(|why| format!("partition {} of {}: {why}", task.partition, task.topic));
    }
    if status == FunctionStatus::Running && counts.cut_off > 0 {
        let missed = counts.cut_off;
        status_reason = Some(format!(
            "cut off: {missed} events were taken away before they were read"
        ));
    }
    FunctionReport {
        name: name.clone(),
        version: record.version,
        digest: record.digest.clone(),
        bytes: record.bytes,
        imports: record.imports.clone(),
        manifest: function.manifest.clone(),
        status,
        status_reason,
        tasks,
        counts,
    }
}

fn role_report(
    parts: &Parts,
    function: &Function,
    role: Role,
    counts: &mut Counts,
    tasks: &mut Vec<TaskReport>,
) {
    let mut notes: HashMap<PartitionId, (u64, Note)> = HashMap::new();
    for position in parts
        .log
        .positions(reader(function.record.function(), role))
    {
        let note = Note::decode(&position.note).unwrap_or_default();
        match role {
            Role::Main => *counts = counts.plus(note.counts),
            Role::Repartition => counts.cut_off += note.counts.cut_off,
        }
        notes.insert(position.at, (position.offset, note));
    }
    let Some(deployment) = &function.deployment else {
        return;
    };
    let topic = match role {
        Role::Main => deployment.main_input(),
        Role::Repartition if deployment.by_key.is_some() => &deployment.input,
        Role::Repartition => return,
    };
    for range in parts.log.ranges(topic.id).unwrap_or_default() {
        let at = PartitionId {
            topic: topic.id,
            partition: range.partition,
        };
        let (position, note) = notes.get(&at).copied().unwrap_or_default();
        // What is gone can't be read any more: it is no lag.
        let missed = range.start.saturating_sub(position);
        counts.cut_off += missed;
        let lag = range.end.saturating_sub(position + missed);
        let why = function
            .tasks
            .iter()
            .filter(|task| task.partition == at.partition)
            .filter(|task| task.repartitions == (role == Role::Repartition))
            .find_map(|task| task.view.retrying());
        tasks.push(TaskReport {
            topic: topic.name.to_string(),
            partition: at.partition,
            position,
            end: range.end,
            lag,
            lag_seconds: if lag == 0 {
                0.0
            } else {
                age(parts, at, position + missed, &note)
            },
            cut_off: note.counts.cut_off + missed,
            watermark: note.watermark(function.manifest.time.disorder),
            status: match why {
                Some(_) => FunctionStatus::Retrying,
                None => FunctionStatus::Running,
            },
            status_reason: why,
        });
    }
}

/// Age of the next event to read, in seconds, by its ingest time. Where the event isn't in memory, the
/// last one read says it nearly.
fn age(parts: &Parts, at: PartitionId, position: u64, note: &Note) -> f64 {
    let next = parts.log.read_tail(
        at,
        position,
        ReadLimit {
            events: 1,
            bytes: 1,
        },
    );
    let next = next.and_then(|read| {
        let batch = read.batches.iter().find(|batch| !batch.is_empty())?;
        Some(batch.ingest_time(0))
    });
    let Some(time) = next.or(note.ingested) else {
        return 0.0;
    };
    let micros = parts
        .clock
        .now()
        .micros()
        .saturating_sub(time.micros())
        .max(0);
    std::time::Duration::from_micros(micros.unsigned_abs()).as_secs_f64()
}

/// A slot of a function, found by name.
#[derive(Clone)]
pub(crate) struct Slot {
    state: Store,
    scope: Scope,
    number: u16,
    partitions: u32,
}

impl Slot {
    /// Finds it.
    ///
    /// # Errors
    /// `slot-not-found` with the slots there are.
    pub(crate) fn find(state: &Store, function: &Function, slot: &str) -> Result<Self> {
        let manifest = &function.manifest;
        let known = manifest.slots.iter().any(|known| known.name == slot);
        let number = function.record.slots.get(slot).copied().filter(|_| known);
        let Some((number, deployment)) = number.zip(function.deployment.as_ref()) else {
            let names: Vec<&str> = manifest
                .slots
                .iter()
                .map(|slot| slot.name.as_str())
                .collect();
            let has = if names.is_empty() {
                "no state".into()
            } else {
                names.join(", ")
            };
            let detail = format!(
                "function {:?} has no slot {slot:?}; it has {has}",
                manifest.name
            );
            return Err(Error::not_found("slot-not-found", detail));
        };
        Ok(Self {
            state: state.clone(),
            scope: Scope {
                function: function.record.function(),
                partition: 0,
            },
            number,
            partitions: deployment.main_input().settings.partitions,
        })
    }

    fn on(&self, partition: u32) -> Scope {
        Scope {
            partition,
            ..self.scope
        }
    }

    /// The value for a key; blocks. Looked for first where the key's hash says, then elsewhere, for
    /// producers may choose partitions themselves.
    ///
    /// # Errors
    /// `key-not-found`.
    pub(crate) fn get(&self, key: &[u8]) -> Result<StateEntry> {
        let first = partition_of_key(key, self.partitions);
        let others = (0..self.partitions).filter(|partition| *partition != first);
        for partition in std::iter::once(first).chain(others) {
            if let Some(value) = self.get_on(partition, key)? {
                return Ok(StateEntry {
                    partition,
                    key: Bytes::copy_from_slice(key),
                    value,
                });
            }
        }
        let shown = String::from_utf8_lossy(key);
        Err(Error::not_found(
            "key-not-found",
            format!("nothing is stored for the key {shown:?}"),
        ))
    }

    fn get_on(&self, partition: u32, key: &[u8]) -> Result<Option<Bytes>> {
        let scope = self.on(partition);
        match self.state.get(scope, self.number, key) {
            Ok(value) => Ok(value),
            Err(missing) => {
                self.state.load(scope, &[missing])?;
                let again = self.state.get(scope, self.number, key);
                again.map_err(|_| {
                    Error::unavailable(
                        "unavailable",
                        "the value was evicted while it was read; try again",
                    )
                })
            }
        }
    }

    /// Entries by partition and key; blocks.
    ///
    /// # Errors
    /// `Unavailable` when the store can't be read.
    pub(crate) fn list(
        &self,
        prefix: &[u8],
        after: Option<(u32, Bytes)>,
        limit: usize,
    ) -> Result<Vec<StateEntry>> {
        let (from, mut after) = match after {
            Some((partition, key)) => (partition, Some(key)),
            None => (0, None),
        };
        let mut entries = Vec::new();
        for partition in from..self.partitions {
            let left = limit - entries.len();
            if left == 0 {
                break;
            }
            let after = after.take();
            let found = self.state.list(
                self.on(partition),
                self.number,
                prefix,
                after.as_deref(),
                left,
            )?;
            entries.extend(found.into_iter().map(|(key, value)| StateEntry {
                partition,
                key,
                value,
            }));
        }
        Ok(entries)
    }
}
