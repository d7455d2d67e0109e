//! A function as this process holds it: its record, its deployment and its running tasks.

use crate::deployment::{Deployment, Input};
use crate::function_log::FunctionLog;
use crate::manifest::Manifest;
use crate::merge::Positions;
use crate::note::Note;
use crate::parts::Parts;
use crate::record::{Record, Role, Standing, reader};
use crate::sources::Sources;
use crate::task::driver::{Handle, Stopped};
use crate::task::{Start, View};
use std::collections::HashMap;
use std::sync::Arc;
use tidemill_env::Shutdown;
use tidemill_log::Position;
use tidemill_types::{Error, FunctionId, PartitionId, Result};
use tokio::sync::mpsc;

/// One function.
pub(crate) struct Function {
    /// As the registry has it.
    pub(crate) record: Record,
    /// Its manifest, checked.
    pub(crate) manifest: Manifest,
    /// Ready to run; absent while its component can't be had.
    pub(crate) deployment: Option<Arc<Deployment>>,
    /// Why it isn't ready to run.
    pub(crate) broken: Option<String>,
    /// Its running tasks.
    pub(crate) tasks: Vec<Handle>,
    /// What it logged.
    pub(crate) lines: Arc<FunctionLog>,
}

impl Function {
    /// Whether its tasks should run.
    pub(crate) fn should_run(&self) -> bool {
        self.record.standing == Standing::Running
    }
}

/// Starts the tasks of a deployment at their committed positions.
///
/// # Errors
/// When a topic is gone or a position's note can't be read.
pub(crate) fn start_tasks(
    parts: &Arc<Parts>,
    deployment: &Arc<Deployment>,
    lines: &Arc<FunctionLog>,
    shutdown: &Shutdown,
    stopped: &mpsc::UnboundedSender<Stopped>,
) -> Result<Vec<Handle>> {
    let mut tasks = Vec::new();
    let mut start = |role, stands: (Positions, Note, usize), inputs, sources| {
        let (position, note, noted) = stands;
        let start = Start {
            deployment: Arc::clone(deployment),
            role,
            inputs,
            position,
            note,
            noted,
            sources,
            lines: Arc::clone(lines),
            view: Arc::new(View::default()),
            stop: shutdown.child_token(),
        };
        tasks.push(Handle::start(parts, start, stopped.clone())?);
        Ok::<_, Error>(())
    };
    let standings = Standings::of(parts, deployment.function, Role::Main)?;
    let mut notes = Vec::new();
    for partition in 0..deployment.partitions() {
        let inputs: Vec<PartitionId> = deployment.reads(partition).collect();
        let stands = standings.stand(&inputs);
        notes.push(stands.1.reading(inputs.len()));
        start(Role::Main, stands, inputs, None)?;
    }
    let standings = Standings::of(parts, deployment.function, Role::Repartition)?;
    for (number, Input { topic, .. }) in deployment.repartitioned() {
        let of = |partition| PartitionId {
            topic: topic.id,
            partition,
        };
        let all: Vec<PartitionId> = (0..topic.settings.partitions).map(of).collect();
        let stands: Vec<_> = all.iter().map(|at| standings.stand(&[*at])).collect();
        let times = stands.iter().map(|(_, note, _)| (note.seen, note.ingested));
        let known = notes.iter().map(|note| note.seen_of(number));
        let idle = deployment.manifest.time.idle;
        let sources = Arc::new(Sources::new(idle, times, known));
        for (at, stands) in all.into_iter().zip(stands) {
            start(
                Role::Repartition,
                stands,
                vec![at],
                Some(Arc::clone(&sources)),
            )?;
        }
    }
    Ok(tasks)
}

/// Committed positions of a function's tasks of one role. A task with several inputs has a position in each
/// of them, and its note with one: that of the first input that had no other beside it, and has it since.
#[derive(Default)]
pub(crate) struct Standings(HashMap<PartitionId, (u64, Option<Note>)>);

impl Standings {
    /// Looks them up.
    ///
    /// # Errors
    /// `Corrupt` when a note can't be read.
    pub(crate) fn of(parts: &Parts, function: FunctionId, role: Role) -> Result<Self> {
        Self::new(parts.log.positions(reader(function, role)))
    }

    /// Of these positions.
    ///
    /// # Errors
    /// `Corrupt` when a note can't be read.
    pub(crate) fn new(positions: Vec<Position>) -> Result<Self> {
        let positions = positions.into_iter().map(|position| {
            let note = match position.note.is_empty() {
                true => None,
                false => Some(Note::decode(&position.note)?),
            };
            Ok((position.at, (position.offset, note)))
        });
        positions.collect::<Result<_>>().map(Self)
    }

    /// Where a task stands in its inputs, its note, and with which of them it is kept.
    pub(crate) fn stand(&self, inputs: &[PartitionId]) -> (Positions, Note, usize) {
        let of = |at: &PartitionId| self.0.get(at).copied().unwrap_or_default();
        let noted = inputs.iter().position(|at| of(at).1.is_some());
        let noted = noted.unwrap_or_default();
        let note = inputs.get(noted).and_then(|at| of(at).1);
        let positions = Positions::of(inputs.iter().map(|at| of(at).0));
        (positions, note.unwrap_or_default(), noted)
    }
}
