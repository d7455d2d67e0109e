//! Looking at functions from outside: reports.

use crate::deployment::Input;
use crate::function::{Function, Standings};
use crate::note::Note;
use crate::parts::Parts;
use crate::record::{Role, Standing, reader};
use crate::{Counts, FunctionReport, FunctionStatus, ShadowOf, TaskReport};
use std::collections::HashMap;
use std::sync::Arc;
use tidemill_log::{ReadLimit, Topic};
use tidemill_types::{FunctionName, PartitionId, Timestamp};

/// What can be said of a function now.
pub(crate) fn report(parts: &Parts, name: &FunctionName, function: &Function) -> FunctionReport {
    let record = &function.record;
    let mut all = Totals::default();
    let mut tasks = Vec::new();
    for role in [Role::Repartition, Role::Main] {
        role_report(parts, function, role, &mut all, &mut tasks);
    }
    let Totals {
        counts,
        version_counts,
    } = all;
    behind_its_key(&mut tasks, function);
    let (status, status_reason) = match stands(function) {
        Some((status, why)) => {
            for task in &mut tasks {
                (task.status, task.status_reason) = (status, Some(why.clone()));
            }
            (status, Some(why))
        }
        None => works(&tasks, counts.cut_off, function),
    };
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
        version_counts,
        shadow_of: record.shadow.as_ref().map(|shadow| ShadowOf {
            function: shadow.of.clone(),
            empty: shadow.empty,
            began: Timestamp::from_micros(shadow.began),
        }),
        shadow: None,
    }
}

/// Why none of its tasks is at work, if none is meant to be.
fn stands(function: &Function) -> Option<(FunctionStatus, String)> {
    let record = &function.record;
    let since = record.since.map_or_else(String::new, |since| {
        format!(" since {}", Timestamp::from_micros(since))
    });
    if let Some(broken) = &function.broken {
        return Some((FunctionStatus::Stopped, broken.clone()));
    }
    match record.standing {
        Standing::Running => None,
        Standing::Paused => {
            let why = format!("paused{since}, as was asked for; resume lets it go on");
            Some((FunctionStatus::Paused, why))
        }
        Standing::Stopped | Standing::Deleted => {
            let why = record.reason.as_deref().unwrap_or("it is deleted");
            let why = format!("stopped{since}: {why}");
            Some((FunctionStatus::Stopped, why))
        }
    }
}

/// What can be said of a function that is at work: what its tasks say, those that try something again first.
fn works(
    tasks: &[TaskReport],
    cut_off: u64,
    function: &Function,
) -> (FunctionStatus, Option<String>) {
    let retrying = |task: &&TaskReport| task.status == FunctionStatus::Retrying;
    let said = tasks.iter().filter(|task| task.status_reason.is_some());
    let said = said.clone().find(retrying).or_else(|| {
        // What one task waits for from another is said there.
        said.clone().find(|task| task.waits)
    });
    if let Some(task) = said {
        let why = task.status_reason.as_deref().unwrap_or_default();
        let why = format!("partition {} of {}: {why}", task.partition, task.topic);
        return (task.status, Some(why));
    }
    if function.tasks.is_empty() {
        let why = "it stands for as long as something takes that needs it to: a deployment, taking hold of its state, putting dead letters back";
        return (FunctionStatus::Running, Some(why.into()));
    }
    let cut_off = (cut_off > 0)
        .then(|| format!("cut off: {cut_off} events were taken away before they were read"));
    (FunctionStatus::Running, cut_off)
}

/// Main tasks that have nothing to read while events wait to be brought together by their keys say so.
fn behind_its_key(tasks: &mut [TaskReport], function: &Function) {
    let Some(deployment) = &function.deployment else {
        return;
    };
    for (_, input) in deployment.repartitioned() {
        let (from, to) = (input.topic.name.as_str(), input.read().name.as_str());
        let behind = tasks.iter().filter(|task| task.topic == from);
        let behind: u64 = behind.map(|task| task.lag).sum();
        let idle = tasks
            .iter_mut()
            .filter(|task| task.topic == to && task.lag == 0 && task.status_reason.is_none());
        for task in idle.filter(|_| behind > 0) {
            task.status_reason = Some(format!(
                "waiting for events by their keys: {behind} of {from} aren't brought to {to} yet"
            ));
        }
    }
}

/// Counts of a function's tasks together.
#[derive(Default)]
struct Totals {
    counts: Counts,
    version_counts: Counts,
}

fn role_report(
    parts: &Parts,
    function: &Function,
    role: Role,
    all: &mut Totals,
    tasks: &mut Vec<TaskReport>,
) {
    // Looked at before the positions: what a task says is on record by then.
    let said = |at: PartitionId| {
        let mut handles = function.tasks.iter();
        let handle = handles
            .find(|task| task.at == at && task.repartitions == (role == Role::Repartition))?;
        Some((
            handle.view.retrying(),
            handle.view.parked(),
            handle.view.waiting(parts.clock.elapsed()),
            handle.view.timers(),
        ))
    };
    let running = function.tasks.iter().map(|task| task.at);
    let said: HashMap<PartitionId, _> = running.filter_map(|at| Some((at, said(at)?))).collect();
    let positions = parts
        .log
        .positions(reader(function.record.function(), role));
    for position in &positions {
        let note = Note::decode(&position.note).unwrap_or_default();
        let note = note.taken_up_by(function.record.version);
        match role {
            Role::Main => {
                let counts = note.shown();
                all.counts = all.counts.plus(counts);
                all.version_counts = all.version_counts.plus(counts.since(note.base));
            }
            Role::Repartition => all.counts.cut_off += note.counts.cut_off,
        }
    }
    let standings = Standings::new(positions).unwrap_or_default();
    let Some(deployment) = &function.deployment else {
        return;
    };
    let topics: Vec<&Arc<Topic>> = match role {
        Role::Main => deployment.inputs.iter().map(Input::read).collect(),
        Role::Repartition => {
            let moved = deployment.repartitioned();
            moved.map(|(_, input)| &input.topic).collect()
        }
    };
    let ranges = topics.iter().flat_map(|topic| {
        let ranges = parts.log.ranges(topic.id).unwrap_or_default();
        ranges.into_iter().map(move |range| (topic, range))
    });
    for (topic, range) in ranges {
        let at = PartitionId {
            topic: topic.id,
            partition: range.partition,
        };
        // One task reads the partitions of this number of all inputs.
        let inputs: Vec<PartitionId> = match role {
            Role::Main => deployment.reads(range.partition).collect(),
            Role::Repartition => vec![at],
        };
        let (task, (stands, note, _)) = (inputs[0], standings.stand(&inputs));
        let note = note.taken_up_by(function.record.version);
        let input = inputs.iter().position(|of| *of == at).unwrap_or_default();
        let position = stands.get(input);
        // What is the task's as a whole is told once.
        let whole = input == 0;
        // What is gone can't be read any more: it is no lag.
        let missed = range.start.saturating_sub(position);
        all.counts.cut_off += missed;
        let lag = range.end.saturating_sub(position + missed);
        let parked = note.counts.retrying;
        let (why, parked_why, waits, timers) = said.get(&task).cloned().unwrap_or_default();
        let why = why.or_else(|| (parked > 0).then(|| waiting(parked, parked_why.as_deref())));
        let (retrying, held) = (why.is_some(), waits.is_some());
        // What is held up can't try anything again either.
        let why = waits.or(why);
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
            cut_off: missed + if whole { note.counts.cut_off } else { 0 },
            watermark: note.watermark(function.manifest.time.disorder),
            retrying: if whole { note.shown().retrying } else { 0 },
            timers: match deployment.slots.timers {
                true if role == Role::Main && whole => timers,
                _ => said.contains_key(&task).then_some(0),
            },
            status: match retrying {
                true => FunctionStatus::Retrying,
                false => FunctionStatus::Running,
            },
            status_reason: why,
            waits: held,
        });
    }
}

/// What is parked, in words.
fn waiting(parked: u64, why: Option<&str>) -> String {
    let why = why.map_or(String::new(), |why| format!(": {why}"));
    format!("{parked} events wait to be tried again, or behind one of their key that does{why}")
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
