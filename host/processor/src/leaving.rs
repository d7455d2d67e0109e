//! Inputs that a function doesn't read any more. Its position in one stays as long as a version that reads it is
//! kept to be gone back to: whoever takes the drop back goes on where the function stood, and what it would read is
//! held back anyway. After that the position goes, so that retention doesn't wait for it; should the input be added
//! again, it begins where its `start` says.

use crate::deploying::starting::Steps;
use crate::deployment::{Deployment, by_key_topic};
use crate::processor::Inner;
use crate::record::{Record, Role};
use crate::restore;
use crate::task::driver::park;
use std::collections::BTreeSet;
use std::sync::Arc;
use tidemill_log::Draft;
use tidemill_types::{FunctionName, Result, TopicId};

/// Looks at all functions. Nobody else changes functions meanwhile.
///
/// # Errors
/// As a commit.
pub(crate) async fn sweep(inner: &Inner) -> Result<()> {
    let mut names = Vec::new();
    inner.each(|function| names.extend(function.deployment.as_ref().map(|of| of.name.clone())));
    for name in names {
        leave(inner, &name).await?;
    }
    Ok(())
}

/// Forgets where a function stands in inputs that neither it nor a version that can be gone back to reads. Its
/// tasks stand meanwhile.
///
/// # Errors
/// As a commit.
pub(crate) async fn leave(inner: &Inner, name: &FunctionName) -> Result<()> {
    let found = inner.with(name.as_str(), |function| {
        Some((function.record.clone(), function.deployment.clone()?))
    })?;
    let Some((mut record, deployment)) = found else {
        return Ok(());
    };
    let gone = left(inner, &record, &deployment)?;
    if gone.is_empty() {
        return Ok(());
    }
    park(inner.take_tasks(name)).await;
    let left = forget(inner, (name, &mut record), &gone).await;
    if left.is_ok() {
        inner.keep_record(name, record);
    }
    inner.start(name)?;
    left
}

async fn forget(
    inner: &Inner,
    (name, record): (&FunctionName, &mut Record),
    gone: &BTreeSet<TopicId>,
) -> Result<()> {
    inner.parts.settled().await?;
    let mut draft = Draft::new();
    for role in [Role::Main, Role::Repartition] {
        let mut steps = Steps::of(inner, record, role)?;
        if steps.leave(gone, role) {
            steps.lay_out(&mut draft);
        }
    }
    let is_gone = |topic: &u32| gone.contains(&TopicId(*topic));
    record.started.retain(|topic| !is_gone(topic));
    draft.entry(&Record::key(name), Some(&record.encode()?));
    inner.parts.commit_durably(draft, &[]).await
}

/// Topics in which it once began, and in which nobody needs to know where it stood.
fn left(inner: &Inner, record: &Record, of: &Arc<Deployment>) -> Result<BTreeSet<TopicId>> {
    let reads = of.inputs.iter();
    let reads = reads.flat_map(|input| std::iter::once(&input.topic).chain(&input.by_key));
    let mut needed: BTreeSet<TopicId> = reads.map(|topic| topic.id).collect();
    let started = record.started.iter().map(|topic| TopicId(*topic));
    if started.clone().all(|topic| needed.contains(&topic)) {
        return Ok(BTreeSet::new());
    }
    let internal = by_key_topic(&of.owner, None);
    for point in restore::points(&inner.parts, &of.name)?.values() {
        for topic in point.topics().map(TopicId) {
            let is_new = needed.insert(topic);
            let topic = inner.parts.log.topic_by_id(topic);
            if is_new && topic.is_some_and(|topic| topic.name.as_str().starts_with(&internal)) {
                // It may be filled from any of the topics that were inputs once.
                return Ok(BTreeSet::new());
            }
        }
    }
    Ok(started.filter(|topic| !needed.contains(topic)).collect())
}
