//! A function compared with its shadow, event by event: both run once more over what both have read since
//! the shadow began, from the state that the function had then. What they emit is what they emitted, for
//! functions depend on nothing else; so it can be told by event, which outputs that lie in topics can't.

use super::diff::{Begin, Sides};
use super::job::{Place, Progress};
use super::lane::blocking;
use super::source::{Found, Span};
use super::{Outcome, ReplayReport, ReplayStatus, impossible, run};
use crate::deployment::Deployment;
use crate::function::Standings;
use crate::merge::Positions;
use crate::note::Note;
use crate::processor::{Inner, Processor};
use crate::record::{Record, Role, Shadow};
use crate::{Counts, shadow};
use std::collections::HashMap;
use std::sync::Arc;
use tidemill_env::Shutdown;
use tidemill_state::Scope;
use tidemill_types::{Error, FunctionName, PartitionId, Result, limits};

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
        progress.expect(beside.spans.iter().map(Span::len).sum());
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
        let began = Standings::new(shadow.began_at(&inner.parts))?;
        let of = |record: &Record| Standings::of(&inner.parts, record.function(), Role::Main);
        let (live, beside) = (of(&found.record)?, of(record)?);
        let (mut spans, mut notes) = (Vec::new(), HashMap::new());
        for partition in 0..left.partitions() {
            let inputs: Vec<PartitionId> = left.reads(partition).collect();
            let (from, note, _) = began.stand(&inputs);
            let (live, beside) = (live.stand(&inputs).0, beside.stand(&inputs).0);
            // Both have read their inputs in the same order, so that one is behind in all of them.
            let both = live.iter().zip(beside.iter()).zip(from.iter());
            let to = both.map(|((live, beside), from)| live.min(beside).max(from));
            let to = Positions::of(to);
            still_there(inner, &left, (partition, &from, &to))?;
            let counts = Counts::default();
            notes.insert(partition, Note { counts, ..note });
            spans.push(Span {
                partition,
                from,
                to,
            });
        }
        let sides = Sides {
            left: (run(inner, 2).await?, left),
            right: (run(inner, 2).await?, right),
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

/// What both have read since must still be there.
fn still_there(
    inner: &Inner,
    deployment: &Deployment,
    (partition, from, to): (u32, &Positions, &Positions),
) -> Result<()> {
    for (input, (from, to)) in deployment.inputs.iter().zip(from.iter().zip(to.iter())) {
        let topic = input.read();
        let range = inner.parts.log.range(PartitionId {
            topic: topic.id,
            partition,
        })?;
        if range.start > from && to > from {
            let (topic, start) = (&topic.name, range.start);
            return Err(impossible(format!(
                "the shadow began at {partition}:{from} of topic {topic:?}, but retention left nothing before {partition}:{start}"
            )));
        }
    }
    Ok(())
}
