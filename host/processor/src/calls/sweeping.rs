//! Records of calls that nobody needs any more go. Most do in the frame that gives their event its fate; what
//! stays is that of an event whose fate had no part in calls: one that a version without grants handled, that was
//! cut off, or that the function went past when it began elsewhere or dropped its input.
//!
//! A record is needed while its event stands in front or is parked, or its timer hasn't had its turn. Positions
//! are looked at first and waited for until they are durable, then the records, then what is parked: whatever has
//! its fate by the positions and isn't parked afterwards is done with, and nobody makes a record of it again.

use super::{Kind, SLOT, Subject, from_key};
use crate::deployment::Deployment;
use crate::function::Standings;
use crate::parked::{self, ParkedEvent};
use crate::processor::Inner;
use crate::record::{Role, reader};
use crate::replay::blocking;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tidemill_log::{Draft, Position};
use tidemill_state::{Change, Changes, Scope, Store};
use tidemill_types::{FunctionId, Result, TopicId};

/// A function with grants is looked at so often.
const EVERY: Duration = Duration::from_secs(3600);
/// One without, which still has records that an event may need, or that couldn't be looked at.
const AGAIN: Duration = Duration::from_secs(10);
/// Records that are looked at at once.
const PAGE: usize = 1024;

/// When functions are looked at next; those without grants never again once they have no records.
#[derive(Default)]
pub(crate) struct Sweeps(BTreeMap<FunctionId, (u32, Option<Duration>)>);

impl Sweeps {
    /// Whether a function's turn has come, for the first time in this version or by the clock.
    fn is_due(&self, of: &Deployment, now: Duration) -> bool {
        match self.0.get(&of.function) {
            Some((version, next)) if *version == of.version => next.is_some_and(|next| now >= next),
            _ => true,
        }
    }

    fn done(&mut self, of: &Deployment, now: Duration, left: Option<usize>) {
        let pause = match left {
            Some(_) if !of.manifest.grants.http.is_empty() => Some(EVERY),
            Some(0) => None,
            _ => Some(AGAIN),
        };
        let next = pause.map(|pause| now + pause);
        self.0.insert(of.function, (of.version, next));
    }
}

/// Looks at the functions whose turn it is.
pub(crate) async fn sweep(inner: &Inner, sweeps: &mut Sweeps) {
    let now = inner.parts.clock.elapsed();
    let mut all = Vec::new();
    inner.each(|function| all.extend(function.deployment.clone()));
    let here: BTreeSet<FunctionId> = all.iter().map(|of| of.function).collect();
    sweeps.0.retain(|function, _| here.contains(function));
    all.retain(|of| sweeps.is_due(of, now));
    for of in all {
        let left = match one(inner, &of).await {
            Ok(left) => Some(left),
            Err(error) => {
                tracing::warn!(function = %of.name, %error, "records of calls that nobody needs can't be taken away now");
                None
            }
        };
        sweeps.done(&of, now, left);
    }
}

/// Takes a function's away; answers how many are still needed.
async fn one(inner: &Inner, of: &Arc<Deployment>) -> Result<usize> {
    let parts = &inner.parts;
    let positions = parts.log.positions(reader(of.function, Role::Main));
    let (state, of) = (parts.state.clone(), Arc::clone(of));
    // Most functions have none; then nothing has to be waited for.
    let scopes: Vec<Scope> = (0..of.partitions())
        .map(|partition| Scope {
            function: of.function,
            partition,
        })
        .collect();
    let has_any = move || -> Result<Vec<Scope>> {
        let mut some = Vec::new();
        for scope in scopes {
            let records = state.list(parked::scope(scope), SLOT, b"", None, 1)?;
            some.extend((!records.is_empty()).then_some(scope));
        }
        Ok(some)
    };
    let scopes = blocking(has_any).await?;
    if scopes.is_empty() {
        return Ok(0);
    }
    parts.settled().await?;
    let (state, standings) = (parts.state.clone(), Standings::new(positions.clone())?);
    let look = move || -> Result<(Vec<Changes>, usize)> {
        let (mut changes, mut needed) = (Vec::new(), 0);
        for scope in scopes {
            let inputs: Vec<_> = of.reads(scope.partition).collect();
            let (_, note, _) = standings.stand(&inputs);
            let mut stands = stands(&positions, scope.partition);
            // Of an input that never moved there is no position.
            for at in inputs {
                stands.entry(at.topic).or_default();
            }
            let place = (scope, &stands, note.counts.timers);
            let (leftover, kept) = leftovers(&state, &of, place)?;
            needed += kept;
            if !leftover.is_empty() {
                let mut deletes = Changes::new(parked::scope(scope));
                for key in &leftover {
                    deletes.push(Change::Delete { slot: SLOT, key });
                }
                changes.push(deletes);
            }
        }
        Ok((changes, needed))
    };
    let (changes, needed) = blocking(look).await?;
    if !changes.is_empty() {
        parts.commit_durably(Draft::new(), &changes).await?;
    }
    Ok(needed)
}

/// Where a function's tasks of one partition number stand, by topic.
fn stands(positions: &[Position], partition: u32) -> BTreeMap<TopicId, u64> {
    let of = positions.iter().filter(|at| at.at.partition == partition);
    of.map(|at| (at.at.topic, at.offset)).collect()
}

/// Keys of a task's records that nobody needs, and how many others there are.
fn leftovers(
    state: &Store,
    of: &Deployment,
    (scope, stands, timers): (Scope, &BTreeMap<TopicId, u64>, u64),
) -> Result<(Vec<Bytes>, usize)> {
    let mut records: Vec<Bytes> = Vec::new();
    loop {
        let page = state.list(
            parked::scope(scope),
            SLOT,
            b"",
            records.last().map(|key| &**key),
            PAGE,
        )?;
        let is_last = page.len() < PAGE;
        records.extend(page.into_iter().map(|(key, _)| key));
        if is_last {
            break;
        }
    }
    let waiting = waiting(state, of, scope)?;
    let all = records.len();
    let mut gone = Vec::new();
    for key in records {
        let subject = from_key(&key)?;
        if is_over(&subject, stands, timers) && !waiting.contains(&subject) {
            gone.push(key);
        }
    }
    let kept = all - gone.len();
    Ok((gone, kept))
}

/// Whether what made a call has its fate, unless it is parked.
fn is_over(subject: &Subject, stands: &BTreeMap<TopicId, u64>, timers: u64) -> bool {
    match subject.kind {
        // Of a topic in which it doesn't stand nothing comes any more.
        Kind::Event => {
            let stands = stands.get(&TopicId(subject.topic));
            stands.is_none_or(|stands| subject.number < *stands)
        }
        Kind::Redriven => true,
        Kind::Timer => subject.number < timers,
    }
}

/// What a task has parked, as what makes calls.
fn waiting(state: &Store, of: &Deployment, scope: Scope) -> Result<BTreeSet<Subject>> {
    let mut waiting = BTreeSet::new();
    for (key, stored) in parked::stored_in(state, parked::scope(scope))? {
        let event = ParkedEvent::read(&stored)?;
        let inputs = of.inputs.iter();
        let input = inputs
            .clone()
            .find(|input| Some(input.topic.id) == event.topic)
            .or(inputs.clone().next().filter(|_| of.inputs.len() == 1));
        let (kind, topic, number) = match (event.redriven, input) {
            (0, Some(input)) => (Kind::Event, input.read().id.0, event.offset),
            // It becomes a dead letter, without any call.
            (0, None) => continue,
            _ => (Kind::Redriven, 0, parked::from_key(&key)?),
        };
        waiting.insert(Subject {
            kind,
            topic,
            number,
        });
    }
    Ok(waiting)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(kind: Kind, topic: u32, number: u64) -> Subject {
        Subject {
            kind,
            topic,
            number,
        }
    }

    #[test]
    fn what_is_past_the_position_is_over() {
        let stands = BTreeMap::from([(TopicId(3), 7)]);
        for (subject, expected) in [
            (subject(Kind::Event, 3, 6), true),
            (subject(Kind::Event, 3, 7), false),
            (subject(Kind::Event, 4, 9), true),
            (subject(Kind::Redriven, 0, 9), true),
            (subject(Kind::Timer, 0, 1), true),
            (subject(Kind::Timer, 0, 2), false),
        ] {
            assert_eq!(is_over(&subject, &stands, 2), expected, "{subject:?}");
        }
    }
}
