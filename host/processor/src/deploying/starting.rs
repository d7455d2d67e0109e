//! Where the readers of a deployment go on: where the version before stands, or where they are told.

use super::Ends;
use super::plan::PlanStart;
use crate::deployment::{Deployment, read_topics};
use crate::function::Standings;
use crate::manifest::{Manifest, Start};
use crate::note::Note;
use crate::processor::Inner;
use crate::record::{Record, Role, reader};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidemill_log::{Advance, Draft, TimeOf, Topic};
use tidemill_types::{Error, FunctionName, PartitionId, Result, TopicId};

/// Positions that a deployment decides.
#[derive(Default)]
pub(super) struct Starting {
    /// Input by input, by partition; `None`: they are what they are.
    pub(super) inputs: Vec<Option<Vec<u64>>>,
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
        (topics, manifest): (&[Arc<Topic>], &Manifest),
        before: Option<&Record>,
        start: Option<Start>,
        ends: &Ends,
    ) -> Result<Self> {
        let has_started = |topic: &Topic| before.is_some_and(|before| before.has_started(topic.id));
        if start == Some(Start::Keep) && !topics.iter().any(|topic| has_started(topic)) {
            let topic = &topics[0].name;
            return Err(Error::invalid(
                "invalid-start",
                format!(
                    "start=keep: the function has never read topic {topic:?}, so there is no position to keep; say earliest, latest or a time"
                ),
            ));
        }
        let mut starting = Self::default();
        for (topic, spec) in topics.iter().zip(&manifest.inputs) {
            let start = match (start, has_started(topic)) {
                (None | Some(Start::Keep), true) => {
                    starting.inputs.push(None);
                    continue;
                }
                // One that was added begins where the manifest says.
                (None | Some(Start::Keep), false) => spec.start,
                (Some(start), _) => start,
            };
            let offsets = offsets(inner, topic, start, ends).await?;
            starting.inputs.push(Some(offsets));
            starting.moves |= has_started(topic);
        }
        Ok(starting)
    }

    /// The same, for people.
    pub(super) fn shown(
        &self,
        inner: &Inner,
        (topics, manifest): (&[Arc<Topic>], &Manifest),
        before: Option<&Record>,
    ) -> Result<Vec<PlanStart>> {
        let mut shown = Vec::new();
        for ((topic, spec), decided) in topics.iter().zip(&manifest.inputs).zip(&self.inputs) {
            let role = match spec.key {
                Some(_) => Role::Repartition,
                None => Role::Main,
            };
            let stands = match (decided, before) {
                (Some(offsets), _) => offsets.clone(),
                (None, Some(before)) => positions(inner, before, role, topic),
                (None, None) => Vec::new(),
            };
            let ranges = inner.parts.log.ranges(topic.id)?.into_iter();
            shown.extend(ranges.map(|range| {
                let offset = stands.get(range.partition as usize).copied();
                PlanStart {
                    topic: topic.name.to_string(),
                    partition: range.partition,
                    offset: offset.unwrap_or_default().max(range.start),
                    end: range.end,
                }
            }));
        }
        Ok(shown)
    }

    /// Adds what it decides to the transaction; answers where the main tasks begin, input by input.
    pub(super) fn lay_out(
        &self,
        inner: &Inner,
        deployment: &Deployment,
        (record, before): (&Record, Option<&Record>),
        draft: &mut Draft,
    ) -> Result<Vec<Vec<u64>>> {
        let (mut moving, mut main, mut first) = (Vec::new(), Vec::new(), Vec::new());
        for (input, decided) in deployment.inputs.iter().zip(&self.inputs) {
            let read = input.read();
            let Some(offsets) = decided else {
                first.push(positions(inner, record, Role::Main, read));
                continue;
            };
            let begin = match &input.by_key {
                None => offsets.clone(),
                Some(by_key) => {
                    moving.push((input.topic.id, offsets.clone()));
                    // What waits there was moved from elsewhere in the input: it is passed over.
                    let ends = inner.parts.log.ranges(by_key.id)?;
                    ends.iter().map(|range| range.end).collect()
                }
            };
            main.push((read.id, begin.clone()));
            first.push(begin);
        }
        let Some(before) = before else {
            begin_at(record, Role::Repartition, moving, draft);
            begin_at(record, Role::Main, main, draft);
            return Ok(first);
        };
        if !moving.is_empty() {
            let mut steps = Steps::of(inner, record, Role::Repartition)?;
            steps.set(moving, true);
            steps.lay_out(draft);
        }
        let old = reads(inner, &deployment.name, before)?;
        let new: Vec<TopicId> = deployment.inputs.iter().map(|i| i.read().id).collect();
        if !main.is_empty() || old != new {
            let mut steps = Steps::of(inner, record, Role::Main)?;
            let stood = steps.places.clone();
            steps.set(main, false);
            for partition in 0..deployment.partitions() {
                steps.take_over(&stood, (&old, &new), partition);
            }
            steps.lay_out(draft);
        }
        Ok(first)
    }
}

fn begin_at(record: &Record, role: Role, to: Vec<(TopicId, Vec<u64>)>, draft: &mut Draft) {
    for (topic, offsets) in to {
        for (partition, to) in (0..).zip(offsets).filter(|(_, offset)| *offset > 0) {
            let reader = reader(record.function(), role);
            draft.advance(step(reader, PartitionId { topic, partition }, to, None));
        }
    }
}

/// A reader's positions, to be set anew. Positions only go on from where they are, so all of the reader's are
/// forgotten for that.
pub(crate) struct Steps {
    reader: u32,
    places: BTreeMap<PartitionId, (u64, Option<Note>)>,
}

impl Steps {
    /// As they are.
    ///
    /// # Errors
    /// `Corrupt` when a note can't be read.
    pub(crate) fn of(inner: &Inner, record: &Record, role: Role) -> Result<Self> {
        let reader = reader(record.function(), role);
        let mut places = BTreeMap::new();
        for position in inner.parts.log.positions(reader) {
            let note = match position.note.is_empty() {
                true => None,
                false => Some(Note::decode(&position.note)?),
            };
            places.insert(position.at, (position.offset, note));
        }
        Ok(Self { reader, places })
    }

    /// Sets positions in some topics; time begins again with them if it is asked for.
    fn set(&mut self, to: Vec<(TopicId, Vec<u64>)>, anew: bool) {
        for (topic, offsets) in to {
            for (partition, offset) in (0..).zip(offsets) {
                let place = self.places.entry(PartitionId { topic, partition });
                let place = place.or_default();
                let note = place.1;
                *place = (
                    offset,
                    if anew {
                        note.map(|note| note.moved())
                    } else {
                        note
                    },
                );
            }
        }
    }

    /// The note of a task is kept with an input that it still reads, and its time goes on unless it reads on
    /// from elsewhere.
    fn take_over(
        &mut self,
        stood: &BTreeMap<PartitionId, (u64, Option<Note>)>,
        (old, new): (&[TopicId], &[TopicId]),
        partition: u32,
    ) {
        let at = |topic: &TopicId| PartitionId {
            topic: *topic,
            partition,
        };
        let noted = |topics: &[TopicId], places: &BTreeMap<PartitionId, (u64, Option<Note>)>| {
            let mut topics = topics.iter().map(at);
            topics.find(|at| places.get(at).is_some_and(|(_, note)| note.is_some()))
        };
        let of = |topics: &[TopicId], places: &BTreeMap<PartitionId, (u64, Option<Note>)>| {
            let offset = |topic| places.get(&at(topic)).map_or(0, |(offset, _)| *offset);
            topics
                .iter()
                .map(|topic| (*topic, offset(topic)))
                .collect::<Vec<_>>()
        };
        let goes_on = goes_on(&of(old, stood), &of(new, &self.places));
        let kept = noted(new, &self.places);
        let Some(from) = kept.or_else(|| noted(old, &self.places)) else {
            return;
        };
        let note = self.places.get_mut(&from).and_then(|place| place.1.take());
        let to = kept.unwrap_or_else(|| at(&new[0]));
        let note = note.map(|note| match goes_on {
            true => note.rearranged(old, new),
            false => note.moved(),
        });
        self.places.entry(to).or_default().1 = note;
    }

    /// Leaves out those in some topics; of main tasks not that which their note is kept with. Answers whether there
    /// were any.
    pub(crate) fn leave(&mut self, topics: &BTreeSet<TopicId>, role: Role) -> bool {
        let before = self.places.len();
        self.places.retain(|at, (_, note)| {
            !topics.contains(&at.topic) || (role == Role::Main && note.is_some())
        });
        self.places.len() < before
    }

    /// Adds them to a transaction.
    pub(crate) fn lay_out(self, draft: &mut Draft) {
        draft.forget(self.reader);
        for (at, (to, note)) in self.places {
            draft.advance(step(self.reader, at, to, note));
        }
    }
}

/// Whether a task that stood at some places in its inputs and begins at others goes on: it reads some of them
/// still, and those from where it stood.
pub(crate) fn goes_on(stood: &[(TopicId, u64)], begins: &[(TopicId, u64)]) -> bool {
    let begins = |topic: TopicId| begins.iter().find(|(other, _)| *other == topic);
    let mut both = stood
        .iter()
        .filter_map(|(topic, offset)| Some((*offset, begins(*topic)?.1)))
        .peekable();
    both.peek().is_some() && both.all(|(stood, begins)| stood == begins)
}

/// A reader's first step on a partition.
pub(crate) fn step(reader: u32, at: PartitionId, to: u64, note: Option<Note>) -> Advance {
    Advance {
        reader,
        topic: at.topic,
        partition: at.partition,
        from: 0,
        to,
        note: note.map_or_else(Bytes::new, |note| note.encode().into()),
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

/// The topics that the main tasks of the version in force read; those that are gone are left out.
fn topics(inner: &Inner, name: &FunctionName, record: &Record) -> Result<Vec<Option<Arc<Topic>>>> {
    let manifest = Manifest::resolve(None, Some(&record.manifest), name)?;
    let read = read_topics(&manifest, record.owner(name)).into_iter();
    Ok(read.map(|name| inner.parts.log.topic(&name)).collect())
}

fn reads(inner: &Inner, name: &FunctionName, record: &Record) -> Result<Vec<TopicId>> {
    let topics = topics(inner, name, record)?.into_iter().flatten();
    Ok(topics.map(|topic| topic.id).collect())
}

/// Topics, and positions in each of them by partition.
pub(super) type Stood = (Vec<TopicId>, Vec<Vec<u64>>);

/// Where the main tasks of the version in force stand, in which topics; `None` when one of them is gone.
pub(super) fn left_at(
    inner: &Inner,
    name: &FunctionName,
    before: &Record,
) -> Result<Option<Stood>> {
    let topics: Option<Vec<_>> = topics(inner, name, before)?.into_iter().collect();
    Ok(topics.map(|topics| {
        let stands = topics
            .iter()
            .map(|topic| positions(inner, before, Role::Main, topic));
        (
            topics.iter().map(|topic| topic.id).collect(),
            stands.collect(),
        )
    }))
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

/// How many events a function's main tasks have emitted, by partition.
pub(super) fn emitted(inner: &Inner, name: &FunctionName, record: &Record) -> Result<Vec<u64>> {
    let read = reads(inner, name, record)?;
    let standings = Standings::of(&inner.parts, record.function(), Role::Main)?;
    let mut partitions = 0;
    for topic in &read {
        let topic = inner.parts.log.topic_by_id(*topic);
        partitions = partitions.max(topic.map_or(0, |topic| topic.settings.partitions));
    }
    let of = |partition| {
        let at = |topic: &TopicId| PartitionId {
            topic: *topic,
            partition,
        };
        let (_, note, _) = standings.stand(&read.iter().map(at).collect::<Vec<_>>());
        note.counts.emitted
    };
    Ok((0..partitions).map(of).collect())
}
