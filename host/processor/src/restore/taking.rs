//! Takes hold of what is kept of a version, at the border at which it is left; its tasks stand.

use super::{Copying, Keeping, Letters, Point, beyond, points};
use crate::deploying::step;
use crate::deployment::Deployment;
use crate::function::Standings;
use crate::letters::Handled;
use crate::manifest::Manifest;
use crate::note::Note;
use crate::processor::Inner;
use crate::record::{Record, Role, reader};
use crate::replay::held;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidemill_log::{Draft, Topic};
use tidemill_state::Frozen;
use tidemill_types::{Error, FunctionId, FunctionName, PartitionId, Result};

/// Where a task stands in one of its inputs; with one of them its note is kept.
type Stand = (PartitionId, u64, Option<Note>);

/// What will be kept once a transaction says so.
pub(crate) struct Taken {
    name: FunctionName,
    version: u32,
    point: Point,
    stands: Vec<Stand>,
    /// Its state, and under which number that lies; `None`: there is none to copy.
    state: Option<(Arc<Frozen>, FunctionId)>,
}

/// What is needed to come back to where a version stands, under the number `kept`. Nothing is kept where nothing
/// is wanted, or of a function that can't run.
///
/// # Errors
/// When its state can't be read.
pub(crate) async fn take(
    inner: &Inner,
    (name, record): (&FunctionName, &Record),
    kept: u32,
) -> Result<Option<Taken>> {
    let ready = |function: &crate::function::Function| function.deployment.clone();
    let deployment = inner.with(name.as_str(), ready).ok().flatten();
    let Some(deployment) = deployment.filter(|_| inner.settings.restores > 0) else {
        return Ok(None);
    };
    let frozen = match keeps(inner, record, &deployment.manifest)? {
        true => Some(Arc::new(held(inner).await?)),
        false => {
            inner.parts.settled().await?;
            None
        }
    };
    let state = frozen.map(|frozen| (frozen, record.function()));
    let point = Point {
        copied: state.is_none(),
        ..here(inner, (name, record), &deployment, kept)?
    };
    Ok(Some(Taken {
        stands: stands(inner, record.function(), &reads(&deployment))?,
        name: name.clone(),
        version: record.version,
        point,
        state,
    }))
}

/// What says where a version stands, its state and positions lying under the number `kept`.
///
/// # Errors
/// When the registry can't be read.
pub(crate) fn here(
    inner: &Inner,
    (name, record): (&FunctionName, &Record),
    deployment: &Deployment,
    kept: u32,
) -> Result<Point> {
    let mut topics = deployment.inputs.iter().map(|input| input.read().id.0);
    Ok(Point {
        kept,
        partitions: deployment.partitions(),
        topic: topics.next().unwrap_or_default(),
        others: topics.collect(),
        taken: inner.parts.clock.now().micros(),
        copied: true,
        slots: record.slots.clone(),
        stamped: record.stamped,
        letters: letters(inner, name, &deployment.dead_letters)?,
    })
}

/// Whether there may be state, or parked events.
fn keeps(inner: &Inner, record: &Record, manifest: &Manifest) -> Result<bool> {
    if !record.slots.is_empty() || manifest.timers {
        return Ok(true);
    }
    for position in inner
        .parts
        .log
        .positions(reader(record.function(), Role::Main))
    {
        if Note::decode(&position.note)?.counts.retrying > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The topics that main tasks read.
fn reads(deployment: &Deployment) -> Vec<Arc<Topic>> {
    let inputs = deployment.inputs.iter();
    inputs.map(|input| Arc::clone(input.read())).collect()
}

/// Where main tasks stand, with their totals. What was taken away before they read it counts as passed over.
fn stands(inner: &Inner, function: FunctionId, topics: &[Arc<Topic>]) -> Result<Vec<Stand>> {
    let standings = Standings::of(&inner.parts, function, Role::Main)?;
    let mut starts: BTreeMap<u32, Vec<(PartitionId, u64)>> = BTreeMap::new();
    for topic in topics {
        for range in inner.parts.log.ranges(topic.id)? {
            let at = PartitionId {
                topic: topic.id,
                partition: range.partition,
            };
            let inputs = starts.entry(range.partition).or_default();
            inputs.push((at, range.start));
        }
    }
    let mut stands = Vec::new();
    for inputs in starts.values() {
        let places: Vec<PartitionId> = inputs.iter().map(|(at, _)| *at).collect();
        let (positions, mut note, noted) = standings.stand(&places);
        let gone = inputs.iter().zip(positions.iter());
        let gone = gone.map(|((_, start), offset)| start.saturating_sub(offset));
        note.counts.cut_off += gone.sum::<u64>();
        for (input, ((at, start), offset)) in inputs.iter().zip(positions.iter()).enumerate() {
            let offset = offset.max(*start);
            let note = (input == noted).then_some(note);
            // One that has read nothing of an input stands at its beginning.
            if offset > 0 || note.is_some_and(|note| note != Note::default()) {
                stands.push((*at, offset, note));
            }
        }
    }
    Ok(stands)
}

fn letters(inner: &Inner, name: &FunctionName, topic: &Topic) -> Result<Letters> {
    let log = &inner.parts.log;
    let mut letters = Letters {
        topic: topic.id.0,
        ..Letters::default()
    };
    for range in log.ranges(topic.id)? {
        letters.ends.push(range.end);
        let key = Handled::key(name, range.partition);
        for (_, entry) in log
            .entries(&key)
            .into_iter()
            .filter(|(known, _)| *known == key)
        {
            let done: Value = serde_json::from_slice(&entry)
                .map_err(|wrong| Error::corrupt(format!("registry entry {key:?}: {wrong}")))?;
            letters.done.insert(range.partition, done);
        }
    }
    Ok(letters)
}

/// Puts the marks of dead letters back to what they were: those of before can be dealt with as then. Those that
/// came since came of events that are handled again, so that they count as discarded.
///
/// # Errors
/// `Corrupt` when the registry can't be read; `too-scattered`.
pub(crate) fn letters_as_of(
    inner: &Inner,
    (name, topic): (&FunctionName, &Topic),
    letters: &Letters,
    draft: &mut Draft,
) -> Result<()> {
    if letters.topic != topic.id.0 {
        return Ok(());
    }
    for range in inner.parts.log.ranges(topic.id)? {
        let handled = letters.done.get(&range.partition);
        let handled = handled.map(|done| Handled::decode(done.to_string().as_bytes(), topic.id));
        let mut handled = handled.transpose()?.unwrap_or_default();
        let end = letters.ends.get(range.partition as usize).copied();
        handled.discard(end.unwrap_or_default()..range.end);
        let entry = handled.encode(topic.id, range.start)?;
        draft.entry(&Handled::key(name, range.partition), Some(&entry));
    }
    Ok(())
}

impl Taken {
    /// What a version of a function has kept already, to be kept once more under another number.
    pub(crate) fn again(
        inner: &Inner,
        (name, version): (&FunctionName, u32),
        (of, topics): (&Point, &[Arc<Topic>]),
        (kept, frozen): (u32, Arc<Frozen>),
    ) -> Result<Self> {
        Ok(Self {
            name: name.clone(),
            version,
            point: Point {
                kept,
                copied: false,
                taken: inner.parts.clock.now().micros(),
                ..of.clone()
            },
            stands: stands(inner, of.function(), topics)?,
            state: Some((frozen, of.function())),
        })
    }

    /// The number under which it will lie.
    pub(crate) fn kept(&self) -> u32 {
        self.point.kept
    }

    /// Says in a transaction that it is kept, and takes away what is kept beyond the number wanted; `also` is kept
    /// by the same transaction.
    ///
    /// # Errors
    /// When the registry can't be read.
    pub(crate) fn lay_out(
        &self,
        inner: &Inner,
        draft: &mut Draft,
        keeping: &mut Keeping,
        also: Option<(u32, &Point)>,
    ) -> Result<()> {
        let reader = reader(self.point.function(), Role::Main);
        for (at, offset, note) in &self.stands {
            draft.advance(step(reader, *at, *offset, *note));
        }
        Keeping::add(draft, &self.name, (self.version, &self.point))?;
        let mut points = points(&inner.parts, &self.name)?;
        // What was kept of the version before is not what is kept now.
        let replaced = points.insert(self.version, self.point.clone());
        if let Some(before) = replaced.filter(|_| also.is_none()) {
            keeping.clear(draft, before.function(), before.partitions);
        }
        if let Some((version, point)) = also {
            Keeping::add(draft, &self.name, (version, point))?;
            points.insert(version, point.clone());
        }
        let now: Vec<u32> = also
            .map(|(version, _)| version)
            .into_iter()
            .chain([self.version])
            .collect();
        for version in beyond(&points, inner.settings.restores, &now) {
            if let Some(point) = points.get(&version) {
                keeping.drop_point(draft, &self.name, (version, point));
            }
        }
        Ok(())
    }

    /// What is left to do once the transaction is committed.
    pub(crate) fn copying(self) -> Option<Copying> {
        let (frozen, from) = self.state?;
        Some(Copying {
            name: self.name,
            version: self.version,
            point: self.point,
            frozen,
            from,
        })
    }
}
