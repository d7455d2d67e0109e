//! Going back to where a version was left, with the state of then: the function takes the number under which
//! both are kept, in one commit. What was read since is read again.

use super::plan::PlanAgain;
use super::starting::{Starting, positions, step};
use super::topics::make;
use super::{NEXT, PlanStart, Wanted, check, install, plan, record};
use crate::deployment::{Deployment, Input, read_topics};
use crate::function::Standings;
use crate::manifest::Manifest;
use crate::note::Note;
use crate::processor::Inner;
use crate::record::{Record, Role, reader};
use crate::replay::held;
use crate::restore::{self, Copying, Keeping, Point, Taken};
use crate::shadow;
use crate::task::driver::park;
use crate::version::{self, Version, Versions};
use crate::{Counts, Deployed};
use std::sync::Arc;
use tidemill_log::{Draft, Topic};
use tidemill_types::{Error, ErrorKind, FunctionName, PartitionId, Result, Timestamp};

/// The version and what is kept of it.
struct Back {
    version: u32,
    point: Point,
    /// What its main tasks read.
    topics: Vec<Arc<Topic>>,
    /// The function's record as that version had it, but for its number and whether it is at work.
    as_was: Record,
}

/// Goes back, or only says what that comes to.
///
/// # Errors
/// `restore-impossible`, `runs-again`; as a deployment.
pub(super) async fn restore(
    inner: &Arc<Inner>,
    wanted: Wanted,
    (now, versions): (&Record, &Versions),
    again: bool,
) -> Result<(Deployed, Option<Copying>)> {
    shadow::is_none(&wanted.name, Some(now))?;
    let back = Back::find(inner, &wanted, (now, versions))?;
    let (component, manifest) = (&wanted.component, &wanted.manifest);
    let checked = check::check(inner, component, manifest, Some(&back.as_was), wanted.state);
    let checked = checked.await?;
    let mut plan = plan(inner, &wanted, Some(now), (&checked, &Starting::default()))?;
    let comes_to = back.comes_to(inner, now)?;
    plan.moves = true;
    plan.again = Some(comes_to);
    if manifest.inputs.iter().all(|input| input.key.is_none()) {
        plan.start = back.starts(inner)?;
    }
    let deployed = Deployed {
        version: now.version + 1,
        digest: wanted.component.digest().to_owned(),
        bytes: wanted.size,
        manifest: wanted.manifest.clone(),
        imports: wanted.component.imports().to_vec(),
        compile_ms: u64::try_from(wanted.compiled_in.as_millis()).unwrap_or(u64::MAX),
        changed: true,
        rollback_of: wanted.rollback_of,
        plan,
    };
    if wanted.dry_run {
        return Ok((deployed, None));
    }
    if !again {
        meant(&wanted.name, &comes_to)?;
    }
    let record = record(inner, &deployed, Some(&back.as_was));
    let deployment = make(inner, (wanted.component, wanted.manifest, checked), &record);
    let deployment = Arc::new(deployment.await?);
    let name = &wanted.name;
    park(inner.take_tasks(name)).await;
    let committed = back
        .commit(inner, (&record, now), &deployment, &deployed)
        .await;
    if committed.is_ok() {
        install(inner, record, &deployed, deployment);
    }
    inner.start(name)?;
    Ok((deployed, committed?.and_then(Taken::copying)))
}

/// What runs again is said before, and done only if it is meant.
fn meant(name: &FunctionName, again: &PlanAgain) -> Result<()> {
    let PlanAgain {
        version,
        left,
        events,
        emitted,
        dead_lettered,
        passed_over,
    } = again;
    if (*events, *emitted, *dead_lettered, *passed_over) == (0, 0, 0, 0) {
        return Ok(());
    }
    let passed = match passed_over {
        0 => String::new(),
        events => format!(
            " {events} events are passed over, for version {version} had handled them before it was left."
        ),
    };
    Err(Error::new(
        ErrorKind::Conflict,
        "runs-again",
        format!(
            "function {name:?} would be what it was when version {version} was left at {left}: {events} events that were handled since are handled again. The {emitted} events emitted and the {dead_lettered} dead letters written since stand, and come again as far as version {version} makes them.{passed} Say again=true if that is meant."
        ),
    ))
}

fn impossible(why: String) -> Error {
    Error::new(ErrorKind::Conflict, "restore-impossible", why)
}

impl Back {
    /// Finds what is kept, if it can be gone back to.
    fn find(inner: &Inner, wanted: &Wanted, (now, versions): (&Record, &Versions)) -> Result<Self> {
        let (name, number) = (&wanted.name, wanted.rollback_of.unwrap_or_default());
        if inner.shadow_of(name).is_some() {
            return Err(impossible(format!(
                "a version runs beside function {name:?}, and goes on from where that stands; promote or stop it first"
            )));
        }
        let points = restore::points(&inner.parts, name)?;
        let point = points
            .get(&number)
            .ok_or_else(|| missing(inner, name, number, &points))?;
        if !point.copied {
            return Err(impossible(format!(
                "the state of version {number} of function {name:?} is still being put aside; try again later"
            )));
        }
        let topics = topics(inner, wanted, (number, point))?;
        if wanted
            .manifest
            .inputs
            .iter()
            .any(|input| input.key.is_some())
        {
            same_input(wanted, versions, number)?;
        }
        let version = versions.get(&number);
        Ok(Self {
            version: number,
            as_was: Record {
                id: point.kept,
                slots: point.slots.clone(),
                stamped: point.stamped,
                manifest: version.map_or_else(|| now.manifest.clone(), |v| v.manifest.clone()),
                ..now.clone()
            },
            point: point.clone(),
            topics,
        })
    }

    /// What it comes to: what is between where the function stands and where it stood.
    ///
    /// # Errors
    /// `restore-impossible` where events that would be handled again are gone.
    fn comes_to(&self, inner: &Inner, now: &Record) -> Result<PlanAgain> {
        let stood = Standings::of(&inner.parts, self.point.function(), Role::Main)?;
        let stand = Standings::of(&inner.parts, now.function(), Role::Main)?;
        let mut again = PlanAgain {
            version: self.version,
            left: Timestamp::from_micros(self.point.taken),
            events: 0,
            emitted: 0,
            dead_lettered: 0,
            passed_over: 0,
        };
        let ranges = self
            .topics
            .iter()
            .map(|topic| inner.parts.log.ranges(topic.id));
        let ranges: Vec<_> = ranges.collect::<Result<_>>()?;
        for partition in 0..self.point.partitions {
            let ((from, was, _), (to, is, _)) = (
                stood.stand(&self.places(partition)),
                stand.stand(&self.places(partition)),
            );
            let (mut again_at, mut over_at) = (0, 0);
            for (input, topic) in self.topics.iter().enumerate() {
                let (from, to) = (from.get(input), to.get(input));
                let start = ranges[input]
                    .get(partition as usize)
                    .map_or(0, |range| range.start);
                if start > from && to > from {
                    let topic = &topic.name;
                    return Err(impossible(format!(
                        "version {} was left at {partition}:{from} of topic {topic:?}, but what was read from there on is gone: the partition starts at {partition}:{start} now",
                        self.version
                    )));
                }
                again_at += to.saturating_sub(from);
                over_at += from.saturating_sub(to);
            }
            let (is, was) = (is.counts, was.counts);
            // Among the offsets may be gaps, and marks of time.
            let read = |counts: &Counts| counts.events_in.saturating_sub(counts.redriven);
            let (is_read, was_read) = (read(&is), read(&was));
            again.events += is_read.saturating_sub(was_read).min(again_at);
            again.passed_over += was_read.saturating_sub(is_read).min(over_at);
            again.emitted += is.emitted.saturating_sub(was.emitted);
            again.dead_lettered += is.dead_lettered.saturating_sub(was.dead_lettered);
        }
        Ok(again)
    }

    /// What the task of a partition reads.
    fn places(&self, partition: u32) -> Vec<PartitionId> {
        let topics = self.topics.iter();
        let at = topics.map(|topic| PartitionId {
            topic: topic.id,
            partition,
        });
        at.collect()
    }

    /// Where it would read on, for people.
    fn starts(&self, inner: &Inner) -> Result<Vec<PlanStart>> {
        let stood = Standings::of(&inner.parts, self.point.function(), Role::Main)?;
        let mut starts = Vec::new();
        for (input, topic) in self.topics.iter().enumerate() {
            for range in inner.parts.log.ranges(topic.id)? {
                let (stood, ..) = stood.stand(&self.places(range.partition));
                starts.push(PlanStart {
                    topic: topic.name.to_string(),
                    partition: range.partition,
                    offset: stood.get(input).max(range.start),
                    end: range.end,
                });
            }
        }
        Ok(starts)
    }

    /// The one commit with which the function is what it was; none of its tasks is at work. Answers what is
    /// kept of the version gone back to, so that it can be gone back to once more.
    async fn commit(
        &self,
        inner: &Inner,
        (record, now): (&Record, &Record),
        deployment: &Deployment,
        deployed: &Deployed,
    ) -> Result<Option<Taken>> {
        let name = &deployment.name;
        let frozen = Arc::new(held(inner).await?);
        // Retention may have gone on meanwhile, and so has the function.
        self.comes_to(inner, now)?;
        let (mut draft, mut keeping) = (Draft::new(), Keeping::default());
        draft.entry(&Record::key(name), Some(&record.encode()?));
        self.take_over_repartition(inner, (record, now), &mut draft);
        let taken = self.keep(
            inner,
            (name, now),
            deployment,
            frozen,
            (&mut draft, &mut keeping),
        )?;
        let letters = (name, &*deployment.dead_letters);
        restore::letters_as_of(inner, letters, &self.point.letters, &mut draft)?;
        let left = super::starting::left_at(inner, name, now)?;
        let reads = deployment.inputs.iter().map(Input::read);
        let first = reads.map(|topic| positions(inner, record, Role::Main, topic));
        let first = first.collect();
        let version = Version {
            deployed: Some(inner.parts.clock.now().micros()),
            rollback_of: deployed.rollback_of,
            restored: Some(self.version),
            behind: inner.parts.log.durable().borrow().0,
            emitted: super::starting::emitted(inner, name, record)?,
            ..Version::of_record(record)
        };
        let version = version.between(first, left.map(|(_, offsets)| offsets));
        let number = (deployed.version, &version);
        version::add(&inner.parts, &mut draft, name, Some(now), number)?;
        inner.parts.commit_durably(draft, &keeping.cleared).await?;
        keeping.done(&inner.parts);
        Ok(taken)
    }

    /// The tasks that move events to the internal topic go on where they stand, under the new number.
    fn take_over_repartition(
        &self,
        inner: &Inner,
        (record, now): (&Record, &Record),
        draft: &mut Draft,
    ) {
        let (old, new) = (now.function(), record.function());
        let (old, new) = (
            reader(old, Role::Repartition),
            reader(new, Role::Repartition),
        );
        for position in inner.parts.log.positions(old) {
            let note = (!position.note.is_empty())
                .then(|| Note::decode(&position.note).unwrap_or_default());
            draft.advance(step(new, position.at, position.offset, note));
        }
        draft.forget(old);
    }

    /// What the version in force leaves stays where it lies; of the one gone back to another copy is made.
    fn keep(
        &self,
        inner: &Inner,
        (name, now): (&FunctionName, &Record),
        deployment: &Deployment,
        frozen: Arc<tidemill_state::Frozen>,
        (draft, keeping): (&mut Draft, &mut Keeping),
    ) -> Result<Option<Taken>> {
        let left = inner.with(name.as_str(), |function| function.deployment.clone())?;
        let left = left.as_deref().unwrap_or(deployment);
        if inner.settings.restores == 0 {
            Keeping::forget_entry(draft, name, self.version);
            let partitions = left.partitions();
            keeping.clear(draft, now.function(), partitions);
            return Ok(None);
        }
        let here = restore::here(inner, (name, now), left, now.id)?;
        if inner.settings.restores == 1 {
            Keeping::forget_entry(draft, name, self.version);
            Keeping::add(draft, name, (now.version, &here))?;
            keeping.drop_others(inner, draft, name, &[self.version, now.version])?;
            return Ok(None);
        }
        let kept = inner.next_function();
        draft.entry(NEXT, Some((kept + 1).to_string().as_bytes()));
        let of = (&self.point, &*self.topics);
        let taken = Taken::again(inner, (name, self.version), of, (kept, frozen))?;
        taken.lay_out(inner, draft, keeping, Some((now.version, &here)))?;
        Ok(Some(taken))
    }
}

/// That nothing is kept of a version, and what is.
fn missing(inner: &Inner, name: &FunctionName, number: u32, points: &restore::Points) -> Error {
    let most = inner.settings.restores;
    let known = match points.is_empty() {
        true => "none is kept".to_owned(),
        false => {
            let versions: Vec<String> = points.keys().map(u32::to_string).collect();
            format!("it is of {}", versions.join(", "))
        }
    };
    impossible(format!(
        "what function {name:?} was when version {number} was left isn't kept ({known}): of the {most} versions that were left last it is (functions.restores), for a time (functions.restore_age); state=keep and state=reset go back to any version"
    ))
}

/// The topics that the main tasks of a version read, if they are still those it read then.
fn topics(
    inner: &Inner,
    wanted: &Wanted,
    (number, point): (u32, &Point),
) -> Result<Vec<Arc<Topic>>> {
    let name = &wanted.name;
    let read = read_topics(&wanted.manifest, name).into_iter();
    let known: Vec<u32> = point.topics().collect();
    let found = read.enumerate().map(|(input, topic)| {
        let found = inner.parts.log.topic(&topic);
        found.filter(|found| known.get(input) == Some(&found.id.0)).ok_or_else(|| {
            impossible(format!(
                "topic {topic:?}, which version {number} of function {name:?} read, was deleted since, so that its events can't be handled again"
            ))
        })
    });
    found.collect()
}

/// Internal topics have what all versions read: they must have read the same.
fn same_input(wanted: &Wanted, versions: &Versions, number: u32) -> Result<()> {
    let name = &wanted.name;
    let keyed = |manifest: &Manifest| -> Vec<String> {
        let inputs = manifest.inputs.iter().filter(|input| input.key.is_some());
        inputs.map(|input| input.topic.to_string()).collect()
    };
    let read = keyed(&wanted.manifest);
    for (other, version) in versions.range(number..) {
        let manifest = Manifest::resolve(None, Some(&version.manifest), name)?;
        if keyed(&manifest) != read {
            let topics = keyed(&manifest);
            return Err(impossible(format!(
                "version {other} of function {name:?} read {topics:?} by a pointer, not {read:?}: what was brought together since can't be told apart"
            )));
        }
    }
    Ok(())
}
