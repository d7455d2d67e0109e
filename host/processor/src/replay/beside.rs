//! A function compared with its shadow, event by event: both run once more over what both have read since
//! the shadow began, from the state that the function had then. What they emit is what they emitted, for
//! functions depend on nothing else; so it can be told by event, which outputs that lie in topics can't.

use super::diff::{Begin, Sides};
use super::job::{Place, Progress};
use super::lane::blocking;
use super::source::{Found, Span};
use super::{Outcome, ReplayReport, ReplayStatus, impossible, run};
use crate::deployment::Deployment;
use crate::note::Note;
use crate::processor::{Inner, Processor};
use crate::record::{Record, Role, Shadow, reader};
use crate::{Counts, shadow};
use std::collections::HashMap;
use std::sync::Arc;
use tidemill_env::Shutdown;
use tidemill_state::Scope;
use tidemill_types::{Error, FunctionName, Result, limits};

impl Processor {
    /// Begins to compare a function with its shadow: left is the version in force, right the shadow, under
    /// the number it would have. [`Processor::replay_report`] says how far it is.
    ///
    /// # Errors
    /// `function-not-found`, `shadow-not-found`; `replay-impossible` when the input no longer has what was
    /// read; `busy` when enough replays run.
    pub async fn shadow_diff(&self, name: &str, examples: usize) -> Result<ReplayReport> {
        let inner = &self.inner;
        let found = Found::of(inner, name)?;
        let (beside, record) = shadow::existing(inner, &found.name)?;
        let place = inner.jobs.place()?;
        let whose = (found.name.clone(), found.record.version);
        let (progress, stop) = (Arc::new(Progress::default()), inner.shutdown.child_token());
        let examples = examples.min(limits::LISTED_ERRORS);
        let beside = Beside::prepare(inner, found, (&beside, &record), examples).await?;
        let events = beside.spans.iter().map(|span| span.to - span.from);
        progress.expect(events.sum());
        let id = inner.jobs.add(whose, Arc::clone(&progress), stop.clone());
        let jobs = Arc::clone(&inner.jobs);
        let inner = Arc::clone(inner);
        tokio::spawn(async move {
            let status = match beside.compare(&inner, place, (&progress, &stop)).await {
                Ok(outcome) => ReplayStatus::Done(outcome),
                Err(error) => ReplayStatus::Failed(error),
            };
            jobs.end(id, status);
        });
        self.inner.jobs.report(name, id)
    }
}

struct Beside {
    sides: Sides,
    shadow: Shadow,
    spans: Vec<Span>,
}

impl Beside {
    async fn prepare(
        inner: &Arc<Inner>,
        found: Found,
        (name, record): (&FunctionName, &Record),
        examples: usize,
    ) -> Result<Self> {
        let shadow = record.shadow.clone();
        let shadow = shadow.ok_or_else(|| Error::internal("a shadow of nothing"))?;
        let left = found.deployment(inner, None).await?;
        let number = found.record.version + 1;
        let manifest = shadow::where_missing(inner, &shadow.manifest, name)?;
        let what = (number, record.digest.as_str(), &manifest);
        let right = found.put_together(inner, what).await?;
        // Outputs up to positions can be read from here on.
        inner.parts.settled().await?;
        let began = shadow.began_at(&inner.parts).into_iter();
        let began = began
            .filter(|position| position.at.topic == left.main_input().id)
            .map(|position| Ok((position.at.partition, (position.offset, position.note))));
        let began: HashMap<u32, _> = began.collect::<Result<_>>()?;
        let (live, beside) = (
            stands(inner, &found.record, &left),
            stands(inner, record, &left),
        );
        let (mut spans, mut notes) = (Vec::new(), HashMap::new());
        for range in inner.parts.log.ranges(left.main_input().id)? {
            let of = |stands: &HashMap<u32, u64>| stands.get(&range.partition).copied();
            let to = of(&live).min(of(&beside)).unwrap_or_default();
            let (from, note) = match began.get(&range.partition) {
                Some((from, note)) => (*from, Note::decode(note)?),
                None => Default::default(),
            };
            if range.start > from && to > from {
                let (topic, partition) = (&left.main_input().name, range.partition);
                return Err(impossible(format!(
                    "the shadow began at {partition}:{from} of topic {topic:?}, but retention left nothing before {partition}:{}",
                    range.start
                )));
            }
            let counts = Counts::default();
            notes.insert(range.partition, Note { counts, ..note });
            spans.push(Span {
                partition: range.partition,
                from,
                to: to.max(from),
            });
        }
        let sides = Sides {
            left: (run(inner).await?, left),
            right: (run(inner).await?, right),
            record: found.record,
            examples,
            begin: Begin::At(notes),
        };
        Ok(Self {
            sides,
            shadow,
            spans,
        })
    }

    async fn compare(
        self,
        inner: &Arc<Inner>,
        place: Place,
        (progress, stop): (&Arc<Progress>, &Shutdown),
    ) -> Result<Outcome> {
        let _place = place;
        let state = inner.parts.state.clone();
        let frozen = Arc::new(blocking(move || state.frozen()).await?);
        for partition in 0..self.shadow.partitions {
            let of = |function| Scope {
                function,
                partition,
            };
            let (from, to) = (of(self.shadow.kept()), of(self.sides.record.function()));
            shadow::load(&self.sides.left.0, &frozen, from, to).await?;
            if !self.shadow.empty {
                shadow::load(&self.sides.right.0, &frozen, from, to).await?;
            }
        }
        let sides = Arc::new(self.sides);
        let diff = sides
            .compare(&inner.parts, self.spans, (progress, stop))
            .await?;
        Ok(Outcome::Diff(Box::new(diff)))
    }
}

/// Where a function's main tasks stand, by partition of the topic a deployment reads.
fn stands(inner: &Inner, record: &Record, deployment: &Deployment) -> HashMap<u32, u64> {
    let reader = reader(record.function(), Role::Main);
    let positions = inner.parts.log.positions(reader).into_iter();
    positions
        .filter(|position| position.at.topic == deployment.main_input().id)
        .map(|position| (position.at.partition, position.offset))
        .collect()
}
