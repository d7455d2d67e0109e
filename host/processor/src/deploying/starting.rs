//! Where the readers of a deployment go on: where the version before stands, or where they are told.

use super::Ends;
use super::plan::PlanStart;
use crate::deployment::{Deployment, by_key_topic};
use crate::manifest::{Manifest, Start};
use crate::note::Note;
use crate::processor::Inner;
use crate::record::{Record, Role, reader};
use std::collections::BTreeMap;
use tidemill_log::{Advance, Draft, TimeOf, Topic};
use tidemill_types::{Error, PartitionId, Result, TopicId};

/// Positions that a deployment decides.
#[derive(Default)]
pub(super) struct Starting {
    /// In its input, by partition; `None`: they are what they are.
    pub(super) input: Option<Vec<u64>>,
    /// Whether its readers stood elsewhere before.
    pub(super) moves: bool,
}

impl Starting {
    /// Decides.
    ///
    /// # Errors
    /// `invalid-start` when there is nothing to keep.
    pub(super) async fn decide(
        inner: &Inner,
        (input, manifest): (&Topic, &Manifest),
        before: Option<&Record>,
        start: Option<Start>,
        ends: &Ends,
    ) -> Result<Self> {
        let has_started = before.is_some_and(|before| before.has_started(input.id));
        let start = match (start, has_started) {
            (None | Some(Start::Keep), true) => return Ok(Self::default()),
            (Some(Start::Keep), false) => {
                let topic = &input.name;
                return Err(Error::invalid(
                    "invalid-start",
                    format!(
                        "start=keep: the function has never read topic {topic:?}, so there is no position to keep; say earliest, latest or a time"
                    ),
                ));
            }
            (Some(start), _) => start,
            (None, false) => manifest.inputs[0].start,
        };
        Ok(Self {
            input: Some(offsets(inner, input, start, ends).await?),
            moves: has_started,
        })
    }

    /// The same, for people.
    pub(super) fn shown(
        &self,
        inner: &Inner,
        input: &Topic,
        (before, by_key): (Option<&Record>, bool),
    ) -> Result<Vec<PlanStart>> {
        let role = if by_key {
            Role::Repartition
        } else {
            Role::Main
        };
        let stands = match (&self.input, before) {
            (Some(offsets), _) => offsets.clone(),
            (None, Some(before)) => positions(inner, before, role, input),
            (None, None) => Vec::new(),
        };
        let shown = inner.parts.log.ranges(input.id)?.into_iter();
        Ok(shown
            .map(|range| {
                let offset = stands.get(range.partition as usize).copied();
                PlanStart {
                    partition: range.partition,
                    offset: offset.unwrap_or_default().max(range.start),
                    end: range.end,
                }
            })
            .collect())
    }

    /// Adds what it decides to the transaction; answers where the main tasks begin.
    pub(super) fn lay_out(
        &self,
        inner: &Inner,
        deployment: &Deployment,
        (record, before): (&Record, Option<&Record>),
        draft: &mut Draft,
    ) -> Result<Vec<u64>> {
        let main = deployment.main_input();
        let Some(offsets) = &self.input else {
            return Ok(positions(inner, record, Role::Main, main));
        };
        let input = (deployment.input.id, offsets.clone());
        let (readers, first) = match &deployment.by_key {
            None => (vec![(Role::Main, vec![input])], offsets.clone()),
            Some(by_key) => {
                // What waits there was moved from elsewhere in the input: it is passed over.
                let ends = inner.parts.log.ranges(by_key.id)?;
                let ends: Vec<u64> = ends.iter().map(|range| range.end).collect();
                let own = (by_key.id, ends.clone());
                (
                    vec![(Role::Repartition, vec![input]), (Role::Main, vec![own])],
                    ends,
                )
            }
        };
        for (role, to) in readers {
            if before.is_some() {
                move_to(inner, record, role, to, draft)?;
            } else {
                begin_at(record, role, to, draft);
            }
        }
        Ok(first)
    }
}

fn begin_at(record: &Record, role: Role, to: Vec<(TopicId, Vec<u64>)>, draft: &mut Draft) {
    for (topic, offsets) in to {
        for (partition, to) in (0..).zip(offsets).filter(|(_, offset)| *offset > 0) {
            let reader = reader(record.function(), role);
            draft.advance(step(
                reader,
                PartitionId { topic, partition },
                to,
                Note::default(),
            ));
        }
    }
}

/// Sets a reader's positions in some topics. Positions only go on from where they are, so all of the
/// reader's are forgotten and set anew.
fn move_to(
    inner: &Inner,
    record: &Record,
    role: Role,
    to: Vec<(TopicId, Vec<u64>)>,
    draft: &mut Draft,
) -> Result<()> {
    let reader = reader(record.function(), role);
    let mut steps: BTreeMap<PartitionId, (u64, Note)> = BTreeMap::new();
    for position in inner.parts.log.positions(reader) {
        let note = Note::decode(&position.note)?;
        steps.insert(position.at, (position.offset, note));
    }
    for (topic, offsets) in to {
        for (partition, offset) in (0..).zip(offsets) {
            let step = steps.entry(PartitionId { topic, partition }).or_default();
            *step = (offset, step.1.moved());
        }
    }
    draft.forget(reader);
    for (at, (to, note)) in steps {
        draft.advance(step(reader, at, to, note));
    }
    Ok(())
}

/// A reader's first step on a partition.
pub(crate) fn step(reader: u32, at: PartitionId, to: u64, note: Note) -> Advance {
    Advance {
        reader,
        topic: at.topic,
        partition: at.partition,
        from: 0,
        to,
        note: note.encode().to_vec().into(),
    }
}

/// Where a function's tasks of one role stand in a topic, by partition.
pub(crate) fn positions(inner: &Inner, record: &Record, role: Role, topic: &Topic) -> Vec<u64> {
    let mut offsets = vec![0; topic.settings.partitions as usize];
    for position in inner.parts.log.positions(reader(record.function(), role)) {
        let place = offsets.get_mut(position.at.partition as usize);
        if let Some(offset) = place.filter(|_| position.at.topic == topic.id) {
            *offset = position.offset;
        }
    }
    offsets
}

/// Where the main tasks of the version in force stand, and in which topic; `None` when the topic is gone.
pub(super) fn left_at(
    inner: &Inner,
    before: &Record,
    manifest: &Manifest,
) -> Option<(TopicId, Vec<u64>)> {
    let input = &manifest.inputs[0];
    let name = match input.key {
        Some(_) => by_key_topic(&manifest.name),
        None => input.topic.to_string(),
    };
    let topic = inner.parts.log.topic(&name)?;
    Some((topic.id, positions(inner, before, Role::Main, &topic)))
}
async fn offsets(inner: &Inner, topic: &Topic, start: Start, ends: &Ends) -> Result<Vec<u64>> {
    let log = &inner.parts.log;
    let mut offsets = Vec::new();
    for range in log.ranges(topic.id)? {
        let at = PartitionId {
            topic: topic.id,
            partition: range.partition,
        };
        let known = ends
            .get(&topic.id)
            .and_then(|ends| ends.get(range.partition as usize));
        offsets.push(match start {
            Start::Earliest => range.start,
            // A topic made after the request is new as a whole.
            Start::Latest => known.copied().unwrap_or_default().max(range.start),
            Start::Keep => range.start,
            Start::At(time) => log.offset_at(at, time, TimeOf::Event).await?,
        });
    }
    Ok(offsets)
}

/// How many events a function's main tasks have emitted, by partition of the topic they read.
pub(super) fn emitted(inner: &Inner, record: &Record, topic: TopicId) -> Result<Vec<u64>> {
    let mut emitted = Vec::new();
    for position in inner
        .parts
        .log
        .positions(reader(record.function(), Role::Main))
    {
        if position.at.topic != topic {
            continue;
        }
        let partition = position.at.partition as usize;
        emitted.resize(emitted.len().max(partition + 1), 0);
        emitted[partition] = Note::decode(&position.note)?.counts.emitted;
    }
    Ok(emitted)
}
