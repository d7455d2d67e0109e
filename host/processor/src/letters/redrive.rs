//! Putting dead letters back, and discarding them: each is one frame.
//!
//! A letter that is put back becomes a parked event of its function, due at once; the same frame says that
//! the letter was dealt with and counts it. The function's tasks stand while that frame is made, for
//! theirs are the only ones that change what is parked.

use super::{DeadLetter, Done, Handled, LetterPlace, LetterQuery, Letters};
use crate::deployment::Deployment;
use crate::effects::partition_of;
use crate::function::Standings;
use crate::note::{Floor, Note};
use crate::origin::{HEADER, Moved, Origin};
use crate::parked::{self, Parked, ParkedChange, ParkedEvent};
use crate::pointer::Pointer;
use crate::processor::Inner;
use crate::record::{Role, reader};
use crate::task::driver::park;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidemill_log::{Advance, Draft};
use tidemill_state::{Changes, Scope};
use tidemill_types::{Error, ErrorKind, Headers, PartitionId, Result, encode_header};

/// Most letters of one frame.
const LETTERS: usize = 1000;

/// Letters that are to be dealt with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Chosen {
    /// These.
    These(Vec<LetterPlace>),
    /// All that are wanted, as many as one frame takes.
    All(LetterQuery),
}

/// What became of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dealt {
    /// So many were dealt with.
    pub count: u64,
    /// With these something was done before.
    pub already: Vec<LetterPlace>,
    /// These can't be put back, and why.
    pub refused: Vec<(LetterPlace, String)>,
    /// Where to go on, if there may be more.
    pub next: Option<LetterPlace>,
    /// Up to where was looked, by partition.
    pub ends: Vec<LetterPlace>,
}

/// Letters with which nothing was done yet; the others are in what is answered.
async fn open(letters: &Letters, chosen: Chosen) -> Result<(Vec<DeadLetter>, Dealt)> {
    let mut dealt = Dealt::default();
    let mut found = Vec::new();
    match chosen {
        Chosen::All(query) => {
            let limit = query.limit.clamp(1, LETTERS);
            let query = LetterQuery {
                all: false,
                limit,
                ..query
            };
            let page = letters.page(&query).await?;
            (dealt.next, dealt.ends, found) = (page.next, page.ends, page.letters);
        }
        Chosen::These(mut places) => {
            places.sort_unstable();
            places.dedup();
            if places.len() > LETTERS {
                let detail = format!("at most {LETTERS} letters can be named at once");
                return Err(Error::invalid("invalid-request", detail));
            }
            for place in places {
                let letter = letters.one(place).await?;
                match letter.done {
                    Some(_) => dealt.already.push(place),
                    None => found.push(letter),
                }
            }
        }
    }
    Ok((found, dealt))
}

impl Letters {
    /// Says in a draft what was done with letters.
    fn mark(&self, draft: &mut Draft, places: &[LetterPlace], done: Done) -> Result<()> {
        let mut by_partition: BTreeMap<u32, Handled> = BTreeMap::new();
        for (partition, offset) in places {
            let handled = match by_partition.remove(partition) {
                Some(handled) => handled,
                None => self.handled(*partition)?,
            };
            let mut handled = handled;
            handled.add(*offset, done);
            by_partition.insert(*partition, handled);
        }
        let ranges = self.parts.log.ranges(self.topic.id)?;
        for range in ranges {
            if let Some(handled) = by_partition.get(&range.partition) {
                let entry = handled.encode(self.topic.id, range.start)?;
                draft.entry(&Handled::key(&self.function, range.partition), Some(&entry));
            }
        }
        Ok(())
    }
}

/// Discards letters; durable when it returns.
///
/// # Errors
/// `function-not-found`, `dead-letter-not-found`, `too-scattered`.
pub(crate) async fn discard(inner: &Arc<Inner>, name: &str, chosen: Chosen) -> Result<Dealt> {
    let _admin = inner.admin.lock().await;
    let letters = inner.with(name, |function| Letters::find(&inner.parts, function))??;
    let (found, mut dealt) = open(&letters, chosen).await?;
    let places: Vec<_> = found.iter().map(|letter| letter.place).collect();
    if !places.is_empty() {
        let mut draft = Draft::new();
        letters.mark(&mut draft, &places, Done::Discarded)?;
        inner.parts.commit_durably(draft, &[]).await?;
    }
    dealt.count = places.len() as u64;
    Ok(dealt)
}

/// Puts letters back; durable when it returns.
///
/// # Errors
/// `function-not-found`, `dead-letter-not-found`, `too-scattered`, `parked-full`.
pub(crate) async fn redrive(inner: &Arc<Inner>, name: &str, chosen: Chosen) -> Result<Dealt> {
    let _admin = inner.admin.lock().await;
    let (letters, deployment) = inner.with(name, |function| {
        let letters = Letters::find(&inner.parts, function)?;
        let deployment = function.deployment.clone();
        deployment
            .map(|deployment| (letters, deployment))
            .ok_or_else(|| Error::internal("a function with letters and without deployment"))
    })??;
    let (found, mut dealt) = open(&letters, chosen).await?;
    if found.is_empty() {
        return Ok(dealt);
    }
    park(inner.take_tasks(&deployment.name)).await;
    let put = put_back(&letters, &deployment, found, &mut dealt).await;
    inner.start(&deployment.name)?;
    put.map(|()| dealt)
}

async fn put_back(
    letters: &Letters,
    deployment: &Arc<Deployment>,
    found: Vec<DeadLetter>,
    dealt: &mut Dealt,
) -> Result<()> {
    let mut back = Back::new(letters, deployment);
    let mut places = Vec::new();
    for letter in found {
        match back.put(&letter).await? {
            Put::Done => places.push(letter.place),
            Put::Refused(why) => dealt.refused.push((letter.place, why)),
            Put::Full if places.is_empty() => {
                let detail = "the function has as many events waiting as may be; try again when it has dealt with some".to_owned();
                return Err(Error::new(ErrorKind::Busy, "parked-full", detail));
            }
            Put::Full => {
                dealt.next = Some(letter.place);
                break;
            }
        }
    }
    dealt.count = places.len() as u64;
    if places.is_empty() {
        return Ok(());
    }
    let mut draft = Draft::new();
    letters.mark(&mut draft, &places, Done::Redriven)?;
    back.commit(draft).await
}

enum Put {
    Done,
    Refused(String),
    Full,
}

/// A task that letters are put back to.
struct Target {
    /// The input with which its note is kept, and where it stands there.
    at: PartitionId,
    position: u64,
    before: Note,
    note: Note,
    parked: Parked,
    changes: Changes,
}

struct Back<'a> {
    letters: &'a Letters,
    deployment: &'a Deployment,
    /// How each input is keyed.
    pointers: Vec<Option<Pointer>>,
    targets: BTreeMap<u32, Target>,
}

impl<'a> Back<'a> {
    fn new(letters: &'a Letters, deployment: &'a Deployment) -> Self {
        let inputs = deployment.manifest.inputs.iter();
        let pointers = inputs.map(|input| input.key.as_deref().map(Pointer::new));
        Self {
            letters,
            deployment,
            pointers: pointers.collect(),
            targets: BTreeMap::new(),
        }
    }

    fn scope(&self, partition: u32) -> Scope {
        parked::scope(Scope {
            function: self.deployment.function,
            partition,
        })
    }

    async fn target(&mut self, partition: u32) -> Result<&mut Target> {
        if !self.targets.contains_key(&partition) {
            let parts = &self.letters.parts;
            let inputs: Vec<PartitionId> = self.deployment.reads(partition).collect();
            let standings = Standings::of(parts, self.deployment.function, Role::Main)?;
            let (positions, before, noted) = standings.stand(&inputs);
            let (at, position) = (inputs[noted], positions.get(noted));
            let scope = self.scope(partition);
            let stored = match before.counts.retrying {
                0 => Vec::new(),
                _ => {
                    let state = parts.state.clone();
                    let read = move || parked::stored_in(&state, scope);
                    let stored = tokio::task::spawn_blocking(read).await;
                    stored.map_err(|_| Error::internal("reading what is parked panicked"))??
                }
            };
            let target = Target {
                at,
                position,
                before,
                note: before.taken_up_by(self.deployment.version),
                parked: Parked::load(&stored, self.deployment.version)?,
                changes: Changes::new(scope),
            };
            self.targets.insert(partition, target);
        }
        let target = self.targets.get_mut(&partition);
        target.ok_or_else(|| Error::internal("a task that isn't there"))
    }

    async fn put(&mut self, letter: &DeadLetter) -> Result<Put> {
        let refused = |why: &str| Ok(Put::Refused(why.to_owned()));
        if letter.story.contains_key("timer") {
            return refused(
                "it was a timer, no event: let the function set it again, and discard this",
            );
        }
        let origin: Option<u32> = letter.number("partition");
        let (Some(origin), Some(offset)) = (origin, letter.number::<u64>("offset")) else {
            return refused("it doesn't say where its event was");
        };
        let topic = letter.story.get("topic").map_or("", String::as_str);
        let mut inputs = self.deployment.inputs.iter().enumerate();
        let Some((nth, input)) = inputs.find(|(_, input)| input.topic.name.as_str() == topic)
        else {
            return refused("its event was of a topic that the function doesn't read");
        };
        let topic = input.topic.id;
        let by_key = self.pointers[nth].as_ref().and_then(|pointer| {
            let value = letter.value.as_deref()?;
            pointer.scalar(value).map(|key| key.into_owned())
        });
        let mut headers = Vec::new();
        let (partition, key) = match &input.by_key {
            None => (origin, letter.key.as_deref()),
            Some(topic) => {
                let mut place = Vec::new();
                let key = letter.key.as_deref();
                let origin_of = Origin {
                    partition: origin,
                    offset,
                    key,
                    moved: Moved::Event,
                    reached: None,
                };
                origin_of.encode(&mut place);
                encode_header(&mut headers, HEADER, &place)?;
                let count = topic.settings.partitions;
                (
                    partition_of(by_key.as_deref(), origin, count),
                    by_key.as_deref(),
                )
            }
        };
        headers.extend_from_slice(&letter.headers);
        if partition >= self.deployment.partitions() {
            return refused("its event was of a partition that the topic doesn't have");
        }
        let now = self.letters.parts.clock.now();
        let (version, limits) = (self.deployment.version, &self.deployment.manifest.time);
        let target = self.target(partition).await?;
        // Received anew: it sees state as the next event that is read.
        let received = target.note.processing.map_or(now, |time| time.max(now));
        target.note.arrives(received, limits.idle);
        let event = ParkedEvent {
            attempts: 0,
            version,
            redriven: letter.number::<u32>("redriven").unwrap_or(0) + 1,
            due: i64::MIN,
            first: now,
            floor: Floor::new(target.note.watermark_micros(limits.disorder), received),
            time: letter.time,
            offset,
            topic: Some(topic),
            key,
            value: letter.value.as_deref(),
            headers: Headers(&headers),
            cause: None,
        };
        if !target.parked.has_room(1, event.bytes()) {
            return Ok(Put::Full);
        }
        let number = target.parked.next();
        event.write(number, &mut target.changes);
        target.parked.apply(ParkedChange {
            number,
            place: Some(event.place()),
        });
        let note = &mut target.note;
        note.processing = Some(received);
        note.floor = note.floor.or(Some(event.floor));
        note.counts.events_in += 1;
        note.counts.redriven += 1;
        note.counts.retrying += 1;
        Ok(Put::Done)
    }

    /// Everything in one frame.
    async fn commit(self, draft: Draft) -> Result<()> {
        let mut draft = draft;
        let (parts, deployment) = (&self.letters.parts, self.deployment);
        let meter = parts.metrics.of(&deployment.name, deployment.version);
        let mut changes = Vec::new();
        let mut counts = Vec::new();
        for (partition, target) in self.targets {
            if target.changes.is_empty() {
                continue;
            }
            draft.advance(Advance {
                reader: reader(deployment.function, Role::Main),
                topic: target.at.topic,
                partition,
                from: target.position,
                to: target.position,
                note: target.note.encode().into(),
            });
            counts.push((target.before.counts, target.note.counts));
            changes.push(target.changes);
        }
        parts.commit_durably(draft, &changes).await?;
        for (before, after) in counts {
            meter.committed(&before, &after);
        }
        Ok(())
    }
}
