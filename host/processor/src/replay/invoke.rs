//! A function on events that aren't anywhere: what it would do, as it stands, and nothing is written.

use super::aside::Frame;
use super::diff::{emitted, one_by_one, until};
use super::lane::{Lane, Run, blocking};
use super::run;
use super::same::{Emitted, Reading, StateSummary};
use super::source::Found;
use crate::deployment::Deployment;
use crate::function::Standings;
use crate::manifest::SlotKind;
use crate::merge::Gathered;
use crate::note::Note;
use crate::pointer::Pointer;
use crate::processor::{Inner, Processor};
use crate::record::Role;
use crate::stored::{Slot, TIMERS, entry_prefix};
use crate::{Counts, KeepState};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tidemill_env::Shutdown;
use tidemill_state::{Change, Changes, Scope};
use tidemill_types::{
    Batch, CommitSeq, Commits, Error, ErrorKind, IngestTimes, Offsets, PackedRows, PartitionId,
    Result, RowView, Timestamp, partition_of_key,
};

/// State of the events' keys that is taken along.
const STATE_BYTES: usize = 64 << 20;
/// Entries read at once.
const PAGE: usize = 1024;
/// Differences of state that are told.
const TOLD: usize = 1000;
/// Events that may be asked for at once.
const EVENTS: usize = 10_000;
/// Bytes of what they lead to.
const EMITTED_BYTES: usize = 64 << 20;

/// What an event came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It led to at least one effect.
    Effective,
    /// It led to nothing.
    Filtered,
    /// The function passed it over.
    Skipped,
    /// It became a dead letter.
    DeadLettered,
    /// It came too late.
    Late,
}

/// What became of one of the events.
#[derive(Clone, Debug, Default)]
pub struct InvokedEvent {
    /// What it came to; `None`: the function stopped before.
    pub fate: Option<Fate>,
    /// What it (and timers before it) led to.
    pub emitted: Vec<Emitted>,
}

/// What a function would do.
#[derive(Clone, Debug, Default)]
pub struct Invoked {
    /// The version that was asked.
    pub version: u32,
    /// By event.
    pub events: Vec<InvokedEvent>,
    /// Totals of the events alone.
    pub counts: Counts,
    /// How state would change; left: as it is.
    pub state: StateSummary,
    /// Why the function would stop, if it would.
    pub stopped: Option<String>,
}

impl Processor {
    /// What a version of a function would do with events, with the state that it has (or, with `Reset`,
    /// without any); nothing changes. They are taken for events of the topic, which must be named where the
    /// function reads several.
    ///
    /// # Errors
    /// `function-not-found`, `version-not-found`, `invalid-request` for a topic; `too-large` when there are too many events, their keys
    /// have too much state, or they lead to too much; `busy` when enough replays run.
    pub async fn invoke(
        &self,
        name: &str,
        version: Option<u32>,
        state: KeepState,
        rows: PackedRows,
        topic: Option<&str>,
    ) -> Result<Invoked> {
        let inner = &self.inner;
        if rows.len() > EVENTS {
            let detail = format!("a function is asked about at most {EVENTS} events at once");
            return Err(too_large(detail));
        }
        let found = Found::of(inner, name)?;
        let _place = inner.jobs.place()?;
        let deployment = found.deployment(inner, version).await?;
        let input = input(&deployment, topic)?;
        let run = run(inner, 1).await?;
        let invoking = Invoking {
            found,
            deployment,
            input,
            run,
            state,
            bytes: AtomicUsize::new(0),
        };
        invoking.invoke(inner, &rows).await
    }
}

/// The input of a topic.
fn input(deployment: &Deployment, topic: Option<&str>) -> Result<usize> {
    let names = deployment
        .inputs
        .iter()
        .map(|input| input.topic.name.as_str());
    let all = || names.clone().collect::<Vec<_>>().join(", ");
    let refuse = |what: String| Err(Error::invalid("invalid-request", what));
    match topic {
        None if names.len() == 1 => Ok(0),
        None => refuse(format!(
            "the function reads several topics: say with `topic` whose events these are, one of {}",
            all()
        )),
        Some(topic) => match names.clone().position(|name| name == topic) {
            Some(input) => Ok(input),
            None => refuse(format!(
                "the function doesn't read topic {topic:?}; it reads {}",
                all()
            )),
        },
    }
}

struct Invoking {
    found: Found,
    deployment: Arc<Deployment>,
    /// The input whose events they are.
    input: usize,
    run: Arc<Run>,
    state: KeepState,
    /// Bytes of what was emitted so far.
    bytes: AtomicUsize,
}

impl Invoking {
    async fn invoke(self, inner: &Arc<Inner>, rows: &PackedRows) -> Result<Invoked> {
        let mut invoked = Invoked {
            version: self.deployment.version,
            events: vec![InvokedEvent::default(); rows.len()],
            ..Invoked::default()
        };
        let by_partition = self.by_partition(rows);
        let this = Arc::new(self);
        let (live, keys) = (Arc::clone(&inner.parts), keys(&by_partition));
        let before = {
            let this = Arc::clone(&this);
            blocking(move || {
                this.take_along(&live, &keys)?;
                this.run.parts.state.frozen()
            })
            .await?
        };
        let mut stands = Vec::new();
        for (partition, events) in &by_partition {
            let note = this.lane(inner, *partition, events, &mut invoked).await?;
            stands.push((*partition, note));
            if invoked.stopped.is_some() {
                break;
            }
        }
        let summary = blocking(move || {
            let after = this.run.parts.state.frozen()?;
            let reading = Reading {
                record: &this.found.record,
                slots: &this.deployment.slots,
                examples: TOLD,
            };
            let mut summary = StateSummary::default();
            for (partition, note) in &stands {
                let until = until(note, &this.deployment);
                reading.compare((&before, &after), *partition, until, &mut summary)?;
            }
            Ok(summary)
        });
        invoked.state = summary.await?;
        Ok(invoked)
    }

    /// Events by the partition on which they meet their key's state, with their place in the request.
    fn by_partition(&self, rows: &PackedRows) -> ByPartition {
        let pointer = self.deployment.manifest.inputs[self.input]
            .key
            .as_deref()
            .map(Pointer::new);
        let count = self.deployment.partitions();
        let mut all = ByPartition::new();
        for nth in 0..rows.len() {
            let row = rows.event(nth);
            let key = match &pointer {
                Some(pointer) => {
                    let key = row.value.and_then(|value| pointer.scalar(value));
                    key.map(std::borrow::Cow::into_owned)
                }
                None => row.key.map(<[u8]>::to_vec),
            };
            let partition = key.as_deref().map_or(0, |key| partition_of_key(key, count));
            all.entry(partition)
                .or_default()
                .push((nth, key, Owned::of(row)));
        }
        all
    }

    fn take_along(
        &self,
        live: &crate::parts::Parts,
        keys: &BTreeMap<u32, BTreeSet<Vec<u8>>>,
    ) -> Result<()> {
        if self.state == KeepState::Reset {
            return Ok(());
        }
        let mut bytes = 0;
        for (partition, keys) in keys {
            let scope = Scope {
                function: self.deployment.function,
                partition: *partition,
            };
            for key in keys {
                let mut changes = Changes::new(scope);
                for slot in &self.deployment.slots.list {
                    copy(live, scope, slot, key, &mut changes)?;
                }
                if self.deployment.slots.timers {
                    copy_entries(live, scope, TIMERS, key, &mut changes)?;
                }
                bytes += changes.as_bytes().len();
                if bytes > STATE_BYTES {
                    let detail = "the keys of these events have more than 64 MiB of state: ask with fewer of them";
                    return Err(too_large(detail.to_owned()));
                }
                self.run
                    .aside()?
                    .apply(&self.run.parts.state, &[changes.into_bytes().into()])?;
            }
        }
        Ok(())
    }

    async fn lane(
        &self,
        inner: &Inner,
        partition: u32,
        events: &[(usize, Option<Vec<u8>>, Owned)],
        invoked: &mut Invoked,
    ) -> Result<Note> {
        let inputs: Vec<PartitionId> = self.deployment.reads(partition).collect();
        let standings = Standings::of(&inner.parts, self.deployment.function, Role::Main)?;
        let (mut at, mut note, _) = standings.stand(&inputs);
        if self.state == KeepState::Reset {
            note = Note::default();
        }
        note.counts = Counts::default();
        let now = inner.parts.clock.now();
        let one = one_by_one(&self.deployment);
        let stop = Shutdown::new();
        let mut lane = Lane::new(&self.run, &one, partition, (at.clone(), note), &stop);
        for event in events {
            let before = lane.note().counts;
            let offset = at.get(self.input);
            at = at.with(self.input, offset + 1);
            let read = Gathered {
                batches: vec![batch(event, offset, now, self.by_key(partition))?],
                inputs: vec![self.input],
                next: at.clone(),
            };
            let (frames, stopped) = lane.feed(read).await?;
            invoked.events[event.0] = self.told(&frames, before)?;
            if stopped.is_some() {
                invoked.stopped = stopped;
                break;
            }
        }
        let note = lane.note();
        invoked.counts = invoked.counts.plus(note.counts);
        Ok(note)
    }

    fn by_key(&self, partition: u32) -> Option<u32> {
        let input = &self.deployment.inputs[self.input];
        input.by_key.as_ref().map(|_| partition)
    }

    /// What the transactions of one event came to.
    fn told(&self, frames: &[Frame], before: Counts) -> Result<InvokedEvent> {
        let mut told = InvokedEvent::default();
        for frame in frames {
            let counts = Note::decode(&frame.note)?.counts;
            told.fate = told.fate.or(fate(&before, &counts));
            told.emitted.extend(emitted(&self.deployment, frame));
        }
        let bytes: usize = told.emitted.iter().map(Emitted::bytes).sum();
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > EMITTED_BYTES {
            let most = EMITTED_BYTES >> 20;
            return Err(too_large(format!(
                "these events lead to more than {most} MiB: ask about fewer of them"
            )));
        }
        Ok(told)
    }
}

/// What an event came to, by the totals before and behind it.
fn fate(before: &Counts, after: &Counts) -> Option<Fate> {
    let grown = [
        (before.effective, after.effective, Fate::Effective),
        (before.filtered, after.filtered, Fate::Filtered),
        (before.skipped, after.skipped, Fate::Skipped),
        (
            before.dead_lettered,
            after.dead_lettered,
            Fate::DeadLettered,
        ),
        (before.late, after.late, Fate::Late),
    ];
    let grown = grown.into_iter().find(|(before, after, _)| after > before);
    grown.map(|(.., fate)| fate)
}

fn too_large(detail: String) -> Error {
    Error::new(ErrorKind::TooLarge, "too-large", detail)
}

type ByPartition = BTreeMap<u32, Vec<(usize, Option<Vec<u8>>, Owned)>>;

/// A row of a request.
struct Owned {
    time: Timestamp,
    key: Option<Bytes>,
    value: Option<Bytes>,
    headers: Vec<(String, Bytes)>,
}

impl Owned {
    fn of(row: RowView<'_>) -> Self {
        Self {
            time: row.time,
            key: row.key.map(Bytes::copy_from_slice),
            value: row.value.map(Bytes::copy_from_slice),
            headers: row
                .headers
                .map(|(name, value)| (name.to_owned(), Bytes::copy_from_slice(value)))
                .collect(),
        }
    }
}

fn keys(events: &ByPartition) -> BTreeMap<u32, BTreeSet<Vec<u8>>> {
    let of = |events: &[(usize, Option<Vec<u8>>, Owned)]| {
        events
            .iter()
            .filter_map(|(_, key, _)| key.clone())
            .collect()
    };
    events
        .iter()
        .map(|(partition, events)| (*partition, of(events)))
        .collect()
}

/// An event as it would lie in the topic the function's main tasks read.
fn batch(
    (_, key, event): &(usize, Option<Vec<u8>>, Owned),
    offset: u64,
    now: Timestamp,
    by_key: Option<u32>,
) -> Result<Batch> {
    let mut rows = PackedRows::default();
    let mut origin = Vec::new();
    if let Some(partition) = by_key {
        crate::origin::Origin {
            partition,
            offset,
            key: event.key.as_deref(),
            moved: crate::origin::Moved::Event,
            reached: None,
        }
        .encode(&mut origin);
    }
    let origin = by_key.map(|_| (crate::origin::HEADER, origin.as_slice()));
    let headers = event
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), &value[..]));
    let all = origin.into_iter().chain(headers);
    rows.push(event.time, key.as_deref(), event.value.as_deref(), all)?;
    let heads: Vec<u8> = rows.heads.iter().flat_map(|head| head.to_bytes()).collect();
    Ok(Batch::new(
        heads.into(),
        Bytes::copy_from_slice(&rows.payload),
        Offsets::From(offset),
        IngestTimes::Same(now),
        Commits::Same(CommitSeq(0)),
    ))
}

fn copy(
    live: &crate::parts::Parts,
    scope: Scope,
    slot: &Slot,
    key: &[u8],
    changes: &mut Changes,
) -> Result<()> {
    if slot.kind == SlotKind::Map {
        return copy_entries(live, scope, slot.number, key, changes);
    }
    let value = loop {
        match live.state.get(scope, slot.number, key) {
            Ok(value) => break value,
            Err(missing) => live.state.load(scope, &[missing])?,
        }
    };
    if let Some(value) = &value {
        let slot = slot.number;
        changes.push(Change::Set { slot, key, value });
    }
    Ok(())
}

fn copy_entries(
    live: &crate::parts::Parts,
    scope: Scope,
    slot: u16,
    key: &[u8],
    changes: &mut Changes,
) -> Result<()> {
    let prefix = entry_prefix(key);
    let mut last: Option<Bytes> = None;
    loop {
        let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let found = live.state.scan(scope, slot, &prefix, from, PAGE)?;
        for (key, value) in &found {
            changes.push(Change::Set { slot, key, value });
        }
        if found.len() < PAGE || changes.as_bytes().len() > STATE_BYTES {
            return Ok(());
        }
        last = found.last().map(|(key, _)| key.clone());
    }
}
