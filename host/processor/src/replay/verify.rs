//! Executes again what was committed and compares: every event emitted is looked for, byte for byte and in
//! order, where it was committed; the totals and the state at the end are compared with those of the
//! function as of the same position.
//!
//! What is looked for is known from the replay; what else lies in an output topic may be somebody else's
//! and is passed over. That the function didn't emit more than the replay is known from its totals, which
//! are kept with its position.

use super::aside::Frame;
use super::cursor::{Cursor, Sought};
use super::diff::{emitted, until};
use super::job::Progress;
use super::lane::{Events, Lane, Run, blocking};
use super::same::{Emitted, Reading, StateSummary};
use super::source::{Found, Span};
use crate::Counts;
use crate::deploying::starting::goes_on;
use crate::deployment::Deployment;
use crate::function::Standings;
use crate::manifest::Order;
use crate::merge::Positions;
use crate::note::Note;
use crate::processor::Inner;
use crate::record::{Role, reader};
use crate::task::driver::park;
use crate::version::{self, Version};
use futures::{StreamExt, TryStreamExt};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tidemill_env::Shutdown;
use tidemill_log::Topic;
use tidemill_state::Frozen;
use tidemill_types::{Error, ErrorKind, PartitionId, Result, TopicId};

/// What verifying came to.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// The first version that was executed again, and the last.
    pub versions: (u32, u32),
    /// Events that were.
    pub events: u64,
    /// Events emitted that were found where they were committed.
    pub found: u64,
    /// Those that weren't.
    pub missing: u64,
    /// Those that weren't looked for, because too many before them on their way were missing.
    pub unsought: u64,
    /// Events that weren't compared, for their topic no longer has all of them, by topic.
    pub gone: BTreeMap<String, u64>,
    /// Some of those that are missing.
    pub examples: Vec<Emitted>,
    /// Partitions whose totals aren't those of the replay: those that were kept, and the replay's.
    pub totals: Vec<(u32, Counts, Counts)>,
    /// Left: as it is; right: the replay's.
    pub state: StateSummary,
    /// Why the replay stopped before the end, by partition.
    pub stopped: Vec<(u32, String)>,
}

impl Verified {
    /// Whether everything is as it was committed.
    pub fn is_same(&self) -> bool {
        self.missing + self.unsought == 0
            && self.totals.is_empty()
            && self.stopped.is_empty()
            && self.state.is_same()
    }
}

/// A version over a part of the history, on each partition.
struct Stretch {
    deployment: Arc<Deployment>,
    /// Input by input, by partition.
    first: Vec<Vec<u64>>,
    /// `None`: up to where the function stands.
    end: Option<Vec<Vec<u64>>>,
}

/// The offsets of one partition, input by input.
fn on(offsets: &[Vec<u64>], partition: u32) -> Positions {
    let of = |list: &Vec<u64>| list.get(partition as usize).copied().unwrap_or_default();
    Positions::of(offsets.iter().map(of))
}

/// The function as it stands.
struct Stand {
    frozen: Frozen,
    standings: Standings,
}

/// Everything that is needed.
pub(crate) struct Verifying {
    found: Found,
    stretches: Vec<Stretch>,
    base: (u32, Version),
    stand: Stand,
    run: Arc<Run>,
    /// Topics that no longer have everything.
    incomplete: BTreeSet<TopicId>,
    examples: usize,
}

impl Verifying {
    /// Finds what to execute, and takes hold of the function's state as it is now.
    ///
    /// # Errors
    /// `replay-impossible` when the beginning isn't known or no longer there.
    pub(crate) async fn prepare(
        inner: &Inner,
        found: Found,
        run: Arc<Run>,
        examples: usize,
    ) -> Result<Self> {
        let base = base(&found)?;
        let mut stretches: Vec<Stretch> = Vec::new();
        let way = version::led_to(&found.versions, found.record.version);
        for (number, version) in way.iter().filter_map(|n| found.versions.get_key_value(n)) {
            // One that began with what another had left stands where that stood.
            let moved = version.left().filter(|_| version.restored.is_none());
            if let Some(last) = stretches.last_mut() {
                last.end = Some(moved.unwrap_or_else(|| version.begins()));
            }
            stretches.push(Stretch {
                deployment: found.deployment(inner, Some(*number)).await?,
                first: version.begins(),
                end: None,
            });
        }
        let mut incomplete = BTreeSet::new();
        for stretch in &stretches {
            complete(inner, stretch)?;
            let outputs = &stretch.deployment.outputs;
            for topic in outputs.iter().chain([&stretch.deployment.dead_letters]) {
                let cut = inner
                    .parts
                    .log
                    .ranges(topic.id)?
                    .iter()
                    .any(|range| range.start > 0);
                if cut || topic.settings.cleanup.compacts() {
                    incomplete.insert(topic.id);
                }
            }
        }
        let last = stretches.last().map(|last| &last.deployment);
        let last = last.ok_or_else(|| Error::internal("a function without a version"))?;
        let stand = stand(inner, &found).await?;
        let by_key = stretches
            .iter()
            .any(|stretch| stretch.deployment.manifest.retry.order == Order::Key);
        let notes = (0..last.partitions()).map(|partition| stand.of(last, partition).1);
        in_order(by_key, notes)?;
        Ok(Self {
            found,
            stretches,
            base,
            stand,
            run,
            incomplete,
            examples,
        })
    }

    /// Does it.
    ///
    /// # Errors
    /// `cancelled`; what can't be read.
    pub(crate) async fn verify(
        self: Arc<Self>,
        inner: &Inner,
        (progress, stop): (&Arc<Progress>, &Shutdown),
    ) -> Result<Verified> {
        let last = self.stretches.last();
        let partitions = last.map_or(0, |last| last.deployment.partitions());
        for partition in 0..partitions {
            for stretch in &self.stretches {
                progress.expect(self.span(stretch, partition).len());
            }
        }
        let lanes = (0..partitions).map(|partition| {
            let (this, log) = (Arc::clone(&self), inner.parts.log.clone());
            let (progress, stop) = (Arc::clone(progress), stop.clone());
            async move { this.lane(&log, partition, &progress, &stop).await }
        });
        let many = (partitions as usize).clamp(1, self.run.memory.lanes);
        let done: Vec<Verified> = futures::stream::iter(lanes)
            .buffer_unordered(many)
            .try_collect()
            .await?;
        let mut total = Verified {
            versions: (self.base.0, self.found.record.version),
            ..Verified::default()
        };
        for lane in done {
            total.add(lane, self.examples);
        }
        let this = Arc::clone(&self);
        total.state = blocking(move || this.states(partitions)).await?;
        Ok(total)
    }

    fn span(&self, stretch: &Stretch, partition: u32) -> Span {
        Span {
            partition,
            from: on(&stretch.first, partition),
            to: match &stretch.end {
                Some(end) => on(end, partition),
                None => self.stands(partition).0,
            },
        }
    }

    fn stands(&self, partition: u32) -> (Positions, Note) {
        let last = self.stretches.last();
        last.map_or_else(Default::default, |last| {
            self.stand.of(&last.deployment, partition)
        })
    }

    async fn lane(
        &self,
        log: &tidemill_log::Log,
        partition: u32,
        progress: &Progress,
        stop: &Shutdown,
    ) -> Result<Verified> {
        let mut verified = Verified::default();
        let mut cursors = HashMap::new();
        let mut note = Note::default();
        let mut stood: Option<Vec<(TopicId, u64)>> = None;
        for stretch in &self.stretches {
            let span = self.span(stretch, partition);
            let topics: Vec<_> = stretch
                .deployment
                .reads(partition)
                .map(|at| at.topic)
                .collect();
            let places = |at: &Positions| topics.iter().copied().zip(at.iter()).collect::<Vec<_>>();
            if let Some(stood) = stood {
                // As when it was deployed.
                let before: Vec<_> = stood.iter().map(|(topic, _)| *topic).collect();
                note = match goes_on(&stood, &places(&span.from)) {
                    true => note.rearranged(&before, &topics),
                    false => note.moved(),
                };
            }
            stood = Some(places(&span.to));
            let begin = (span.from.clone(), note);
            let mut lane = Lane::new(&self.run, &stretch.deployment, partition, begin, stop);
            let mut events = Events::new(&stretch.deployment, &span, self.run.memory.chunk);
            let (mut settled, kept) = (stretch.end.is_some(), self.stands(partition).1);
            loop {
                let (frames, stopped) = match events.next(log).await? {
                    Some(read) => {
                        verified.events += events.count(&read);
                        progress.done(read.len() as u64);
                        lane.feed(read).await?
                    }
                    // What the clock made due since the last event.
                    None if !settled => {
                        settled = true;
                        lane.settle(&kept).await?
                    }
                    None => break,
                };
                for frame in &frames {
                    let of = (&*stretch.deployment, frame);
                    self.look_for(log, of, &mut cursors, &mut verified).await?;
                }
                if let Some(why) = stopped {
                    verified.stopped.push((partition, why));
                    return Ok(verified);
                }
            }
            note = lane.note();
        }
        let kept = self.stands(partition).1.counts;
        let before = self.base.1.emitted.get(partition as usize).copied();
        let mut told = note.counts;
        told.emitted += before.unwrap_or_default();
        let differs = match self.base.0 {
            1 => told != kept,
            // Of the others it isn't known what they were at the beginning.
            _ => told.emitted != kept.emitted,
        };
        if differs {
            verified.totals.push((partition, kept, told));
        }
        Ok(verified)
    }

    async fn look_for(
        &self,
        log: &tidemill_log::Log,
        (deployment, frame): (&Deployment, &Frame),
        cursors: &mut HashMap<PartitionId, Cursor>,
        verified: &mut Verified,
    ) -> Result<()> {
        for (at, batch) in &frame.rows {
            if self.incomplete.contains(&at.topic) {
                let name = log.topic_by_id(at.topic);
                let name = name.map_or_else(String::new, |topic| topic.name.to_string());
                *verified.gone.entry(name).or_default() += batch.len() as u64;
                continue;
            }
            let cursor = match cursors.entry(*at) {
                std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::hash_map::Entry::Vacant(place) => {
                    let letters = at.topic == deployment.dead_letters.id;
                    place.insert(Cursor::new(log, *at, self.base.1.behind, letters)?)
                }
            };
            for event in batch.iter() {
                match cursor.find(event.row).await? {
                    Sought::Found => verified.found += 1,
                    Sought::Unsought => verified.unsought += 1,
                    Sought::Missing => {
                        verified.missing += 1;
                        if verified.examples.len() < self.examples {
                            let topics = emitted(deployment, frame);
                            let name = topics.iter().find(|e| e.partition == at.partition);
                            let name = name.map_or("", |known| known.topic.as_str());
                            verified.examples.push(Emitted::new(name, *at, event.row));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn states(&self, partitions: u32) -> Result<StateSummary> {
        let mut summary = StateSummary::default();
        let Some(last) = self.stretches.last() else {
            return Ok(summary);
        };
        let replayed = self.run.parts.state.frozen()?;
        let reading = Reading {
            record: &self.found.record,
            slots: &last.deployment.slots,
            examples: self.examples,
        };
        for partition in 0..partitions {
            let until = until(&self.stands(partition).1, &last.deployment);
            reading.compare(
                (&self.stand.frozen, &replayed),
                partition,
                until,
                &mut summary,
            )?;
        }
        Ok(summary)
    }
}

impl Verified {
    fn add(&mut self, lane: Self, examples: usize) {
        self.events += lane.events;
        self.found += lane.found;
        self.missing += lane.missing;
        self.unsought += lane.unsought;
        for (topic, events) in lane.gone {
            *self.gone.entry(topic).or_default() += events;
        }
        let room = examples.saturating_sub(self.examples.len());
        self.examples.extend(lane.examples.into_iter().take(room));
        self.totals.extend(lane.totals);
        self.totals.sort_by_key(|(partition, ..)| *partition);
        self.stopped.extend(lane.stopped);
    }
}

/// The version that began without state.
fn base(found: &Found) -> Result<(u32, Version)> {
    if found.record.shadow.is_some() {
        return Err(impossible(
            "a shadow begins with a copy of another function's state; compare it with that function instead",
        ));
    }
    let way = version::led_to(&found.versions, found.record.version);
    let first = way.first().and_then(|n| found.versions.get_key_value(n));
    match first.filter(|(number, version)| **number == 1 || version.reset) {
        Some((number, version)) if !version.first.is_empty() => Ok((*number, version.clone())),
        _ => Err(impossible(
            "where the function began isn't kept any more, for it was deployed by an earlier host or more than a hundred versions ago; what a version does from here on can be verified after it was deployed with state=reset",
        )),
    }
}

/// Something that can't be done again.
pub(super) fn impossible(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Conflict, "replay-impossible", why)
}

/// Events must have been handled in the order of their offsets, each once.
fn in_order(by_key: bool, notes: impl Iterator<Item = Note>) -> Result<()> {
    for counts in notes.map(|note| note.counts) {
        if counts.redriven > 0 {
            return Err(impossible(
                "dead letters of the function were put back, so that it handled events a second time, outside of their order",
            ));
        }
        if by_key && (counts.retrying > 0 || counts.dead_lettered > 0) {
            return Err(impossible(
                "with order = \"key\", events went ahead of others that had to be tried again, so that outputs lie in another order than a replay gives",
            ));
        }
    }
    Ok(())
}

/// Everything that was read must still be there.
fn complete(inner: &Inner, stretch: &Stretch) -> Result<()> {
    for (input, first) in stretch.deployment.inputs.iter().zip(&stretch.first) {
        whole(inner, input.read(), first)?;
    }
    Ok(())
}

fn whole(inner: &Inner, input: &Topic, first: &[u64]) -> Result<()> {
    if input.settings.cleanup.compacts() {
        let topic = &input.name;
        return Err(impossible(format!(
            "topic {topic:?} is compacted, so that not everything that was read is still there"
        )));
    }
    for range in inner.parts.log.ranges(input.id)? {
        let first = first.get(range.partition as usize).copied();
        let first = first.unwrap_or_default();
        if range.start > first {
            let (topic, partition, start) = (&input.name, range.partition, range.start);
            return Err(impossible(format!(
                "the function read topic {topic:?} from {partition}:{first} on, but retention left nothing before {partition}:{start}"
            )));
        }
    }
    Ok(())
}

/// Stops the function between two transactions for as long as it takes to take hold of its state.
async fn stand(inner: &Inner, found: &Found) -> Result<Stand> {
    let _admin = inner.admin.lock().await;
    let (_, record) = inner.existing(found.name.as_str())?;
    if record.version != found.record.version {
        return Err(impossible(
            "another version was deployed just now; try again",
        ));
    }
    park(inner.take_tasks(&found.name)).await;
    let frozen = held(inner).await;
    let positions = inner
        .parts
        .log
        .positions(reader(record.function(), Role::Main));
    inner.start(&found.name)?;
    Ok(Stand {
        frozen: frozen?,
        standings: Standings::new(positions)?,
    })
}

impl Stand {
    /// Where the task of a partition stands, with its note.
    fn of(&self, deployment: &Deployment, partition: u32) -> (Positions, Note) {
        let inputs: Vec<PartitionId> = deployment.reads(partition).collect();
        let (positions, note, _) = self.standings.stand(&inputs);
        (positions, note)
    }
}

/// Everything as it is; the tasks whose state is wanted stand.
pub(crate) async fn held(inner: &Inner) -> Result<Frozen> {
    inner.parts.settled().await?;
    let state = inner.parts.state.clone();
    state.durable(*inner.parts.log.durable().borrow());
    blocking(move || state.frozen()).await
}
