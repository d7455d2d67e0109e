//! A function as this process holds it: its record, its deployment and its running tasks.

use crate::deployment::Deployment;
use crate::function_log::FunctionLog;
use crate::manifest::Manifest;
use crate::note::Note;
use crate::parts::Parts;
use crate::record::{Record, Role, Standing, reader};
use crate::task::driver::{Handle, Stopped};
use crate::task::{Start, View};
use std::collections::HashMap;
use std::sync::Arc;
use tidemill_env::Shutdown;
use tidemill_log::Topic;
use tidemill_types::{PartitionId, Result};
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
    let mut roles: Vec<(Role, &Arc<Topic>)> = vec![(Role::Main, deployment.main_input())];
    if deployment.repartitions() {
        roles.push((Role::Repartition, &deployment.input));
    }
    let mut tasks = Vec::new();
    for (role, topic) in roles {
        let positions = positions(parts, deployment, role)?;
        for partition in 0..topic.settings.partitions {
            let at = PartitionId {
                topic: topic.id,
                partition,
            };
            let (position, note) = positions.get(&at).copied().unwrap_or_default();
            let start = Start {
                deployment: Arc::clone(deployment),
                role,
                at,
                position,
                note,
                lines: Arc::clone(lines),
                view: Arc::new(View::default()),
                stop: shutdown.child_token(),
            };
            tasks.push(Handle::start(parts, start, stopped.clone())?);
        }
    }
    Ok(tasks)
}

/// Committed positions of a deployment's tasks of one role, with their notes.
fn positions(
    parts: &Parts,
    deployment: &Deployment,
    role: Role,
) -> Result<HashMap<PartitionId, (u64, Note)>> {
    let reader = reader(deployment.function, role);
    let positions = parts.log.positions(reader).into_iter();
    positions
        .map(|position| {
            Ok((
                position.at,
                (position.offset, Note::decode(&position.note)?),
            ))
        })
        .collect()
}
