//! Two versions over the same events, compared event by event.

use super::aside::Frame;
use super::job::Progress;
use super::lane::{Events, Lane, Run, blocking};
use super::same::{Emitted, Reading, StateSummary, Until};
use super::source::Span;
use crate::deployment::Deployment;
use crate::merge::Gathered;
use crate::note::Note;
use crate::origin;
use crate::parts::Parts;
use crate::record::Record;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tidemill_env::Shutdown;
use tidemill_types::{Event, Result, Timestamp};

/// What comparing two versions came to.
#[derive(Clone, Debug, Default)]
pub struct Diff {
    /// Events both were given.
    pub events: u64,
    /// Events (and turns of timers before them) for which both emitted the same.
    pub same: u64,
    /// Those for which they didn't.
    pub different: u64,
    /// What each emitted.
    pub left: Told,
    /// The other.
    pub right: Told,
    /// Some of those that differ.
    pub examples: Vec<EventDifference>,
    /// Their states at the end.
    pub state: StateSummary,
}

/// What a version did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Told {
    /// Its number.
    pub version: u32,
    /// Events it emitted.
    pub emitted: u64,
    /// Events that became dead letters.
    pub dead_lettered: u64,
    /// Why it stopped before the end, by partition.
    pub stopped: Vec<(u32, String)>,
}

/// An event for which two versions emitted something else.
#[derive(Clone, Debug)]
pub struct EventDifference {
    /// The input it is of.
    pub topic: String,
    /// Its partition.
    pub partition: u32,
    /// Its offset.
    pub offset: u64,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its value.
    pub value: Option<Bytes>,
    /// What the left emitted.
    pub left: Vec<Emitted>,
    /// What the right emitted.
    pub right: Vec<Emitted>,
}

/// Both sides of a comparison.
pub(crate) struct Sides {
    pub(crate) record: Record,
    pub(crate) left: (Arc<Run>, Arc<Deployment>),
    pub(crate) right: (Arc<Run>, Arc<Deployment>),
    pub(crate) examples: usize,
    pub(crate) begin: Begin,
}

/// How both sides begin.
pub(crate) enum Begin {
    /// Nothing was read before.
    Empty,
    /// By partition, with these totals; their state is there already.
    At(HashMap<u32, Note>),
}

impl Begin {
    fn note(&self, partition: u32) -> Note {
        match self {
            Self::Empty => Note::default(),
            Self::At(notes) => notes.get(&partition).copied().unwrap_or_default(),
        }
    }
}

/// A deployment that is handed one event at a time, so that what it emits can be told apart by event.
pub(crate) fn one_by_one(deployment: &Deployment) -> Arc<Deployment> {
    let mut one = deployment.clone();
    one.manifest.batch_events = 1;
    Arc::new(one)
}

impl Sides {
    /// Compares them over spans, which are run side by side.
    ///
    /// # Errors
    /// `cancelled`; what can't be read.
    pub(crate) async fn compare(
        self: &Arc<Self>,
        live: &Arc<Parts>,
        spans: Vec<Span>,
        (progress, stop): (&Arc<Progress>, &Shutdown),
    ) -> Result<Diff> {
        let many = self.left.0.memory.lanes;
        let lanes = spans.into_iter().map(|span| {
            let (sides, live) = (Arc::clone(self), Arc::clone(live));
            let (progress, stop) = (Arc::clone(progress), stop.clone());
            async move { sides.lane(&live, span, &progress, &stop).await }
        });
        let done: Vec<(Diff, Span, Note)> = futures::stream::iter(lanes)
            .buffer_unordered(many)
            .try_collect()
            .await?;
        let mut total = Diff::default();
        let mut stands = Vec::new();
        for (diff, span, note) in done {
            stands.push((span.partition, note));
            total.add(diff, self.examples);
        }
        total.left.version = self.left.1.version;
        total.right.version = self.right.1.version;
        total.examples.sort_by(|a, b| {
            (a.partition, a.offset, &a.topic).cmp(&(b.partition, b.offset, &b.topic))
        });
        let sides = Arc::clone(self);
        total.state = blocking(move || sides.states(&stands)).await?;
        Ok(total)
    }

    fn states(&self, stands: &[(u32, Note)]) -> Result<StateSummary> {
        let left = self.left.0.parts.state.frozen()?;
        let right = self.right.0.parts.state.frozen()?;
        let slots = &self.right.1.slots;
        let reading = Reading {
            record: &self.record,
            slots,
            examples: self.examples,
        };
        let mut summary = StateSummary::default();
        for (partition, note) in stands {
            let until = until(note, &self.right.1);
            reading.compare((&left, &right), *partition, until, &mut summary)?;
        }
        Ok(summary)
    }

    async fn lane(
        &self,
        live: &Parts,
        span: Span,
        progress: &Progress,
        stop: &Shutdown,
    ) -> Result<(Diff, Span, Note)> {
        let lane = |side: &(Arc<Run>, Arc<Deployment>)| {
            let begin = (span.from.clone(), self.begin.note(span.partition));
            Lane::new(&side.0, &one_by_one(&side.1), span.partition, begin, stop)
        };
        let (mut left, mut right) = (lane(&self.left), lane(&self.right));
        // Of several inputs one event at a time, too, so that it is told by event.
        let mut source = Events::new(&one_by_one(&self.left.1), &span, self.left.0.memory.chunk);
        let mut diff = Diff::default();
        while let Some(read) = source.next(&live.log).await? {
            let events = read.clone();
            let (a, b) = futures::try_join!(left.feed(read.clone()), right.feed(read))?;
            diff.events += source.count(&events);
            progress.done(events.len() as u64);
            self.count(span.partition, &events, (&a.0, &b.0), &mut diff);
            for (side, stopped) in [(&mut diff.left, a.1), (&mut diff.right, b.1)] {
                side.stopped
                    .extend(stopped.map(|why| (span.partition, why)));
            }
            if !diff.left.stopped.is_empty() || !diff.right.stopped.is_empty() {
                break;
            }
        }
        let (a, b) = (left.note(), right.note());
        for (side, note) in [(&mut diff.left, a), (&mut diff.right, b)] {
            side.emitted = note.counts.emitted;
            side.dead_lettered = note.counts.dead_lettered + note.counts.timers_dead_lettered;
        }
        Ok((diff, span, b))
    }

    fn count(
        &self,
        partition: u32,
        events: &Gathered,
        (left, right): (&[Frame], &[Frame]),
        diff: &mut Diff,
    ) {
        let mut by_event: BTreeMap<(u64, usize), [Vec<Emitted>; 2]> = BTreeMap::new();
        for (side, frames, deployment) in [(0, left, &self.left.1), (1, right, &self.right.1)] {
            for frame in frames {
                let (topic, offset) = frame.at;
                let mut inputs = deployment.inputs.iter();
                let input = inputs.position(|input| input.read().id == topic);
                let event = (offset, input.unwrap_or_default());
                let told = &mut by_event.entry(event).or_default()[side];
                told.extend(emitted(deployment, frame));
            }
        }
        for ((offset, input), [left, right]) in by_event {
            let is_quiet = left.is_empty() && right.is_empty();
            let by_key = self.left.1.by_key() & 1 << input != 0;
            if by_key
                && is_quiet
                && event_at(events, input, offset).is_some_and(|it| origin::is_mark(&it))
            {
                continue;
            }
            let same = left.len() == right.len()
                && left.iter().zip(&right).all(|(a, b)| a.says_the_same(b));
            if same {
                diff.same += 1;
                continue;
            }
            diff.different += 1;
            if diff.examples.len() >= self.examples {
                continue;
            }
            let event = event_at(events, input, offset);
            let part = |of: fn(&Event<'_>) -> Option<Bytes>| event.as_ref().and_then(of);
            let key = part(|event| event.row.key.map(Bytes::copy_from_slice));
            let value = part(|event| event.row.value.map(Bytes::copy_from_slice));
            diff.examples.push(EventDifference {
                topic: self.left.1.inputs[input].topic.name.to_string(),
                partition,
                offset,
                key,
                value,
                left,
                right,
            });
        }
    }
}

impl Diff {
    fn add(&mut self, other: Self, examples: usize) {
        self.events += other.events;
        self.same += other.same;
        self.different += other.different;
        for (side, of) in [(&mut self.left, other.left), (&mut self.right, other.right)] {
            side.emitted += of.emitted;
            side.dead_lettered += of.dead_lettered;
            side.stopped.extend(of.stopped);
        }
        let room = examples.saturating_sub(self.examples.len());
        self.examples.extend(other.examples.into_iter().take(room));
    }
}

/// What a frame emitted.
pub(crate) fn emitted(deployment: &Deployment, frame: &Frame) -> Vec<Emitted> {
    let mut all = Vec::new();
    for (at, batch) in &frame.rows {
        let topics = deployment.outputs.iter().chain([&deployment.dead_letters]);
        let topic = topics.into_iter().find(|topic| topic.id == at.topic);
        let topic = topic.map_or("", |topic| topic.name.as_str());
        all.extend(
            batch
                .iter()
                .map(|event| Emitted::new(topic, *at, event.row)),
        );
    }
    all
}

fn event_at(events: &Gathered, input: usize, offset: u64) -> Option<Event<'_>> {
    let of = |at: usize| events.inputs.get(at).copied().unwrap_or_default();
    let runs = events.batches.iter().enumerate();
    runs.filter(|(at, _)| of(*at) == input)
        .find_map(|(_, batch)| {
            let row = batch.row_at(offset);
            (row < batch.len() && batch.offset(row) == offset).then(|| batch.get(row))
        })
}

/// How far time is for a task with these totals.
pub(crate) fn until(note: &Note, deployment: &Deployment) -> Until {
    Until {
        event: note.watermark_micros(deployment.manifest.time.disorder),
        processing: note.processing.map_or(i64::MIN, Timestamp::micros),
    }
}
