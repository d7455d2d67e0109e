//! What must be true before a deployment changes anything.

use crate::KeepState;
use crate::deployment::{by_key_topic, by_key_topics, dead_letter_topic, limits};
use crate::manifest::{Manifest, SlotSpec};
use crate::nearest::did_you_mean;
use crate::processor::Inner;
use crate::record::Record;
use crate::topology::{Flow, cycle};
use crate::version;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidemill_log::Topic;
use tidemill_types::{Error, ErrorKind, FunctionName, Result, TopicName};
use tidemill_wasm::{Component, Stateless};

/// A deployment that may go ahead.
pub(crate) struct Checked {
    /// The topics it reads, input by input.
    pub(crate) inputs: Vec<Arc<Topic>>,
    /// How many partitions its main tasks read of each.
    pub(crate) partitions: u32,
}

/// Checks a deployment against what exists; `before` is the function's record so far.
///
/// # Errors
/// `invalid-manifest`, `not-granted`, `unknown-topic`, `cycle`, `topic-exists`, `invalid-component`.
pub(crate) async fn check(
    inner: &Inner,
    component: &Component,
    manifest: &Manifest,
    before: Option<&Record>,
    state: KeepState,
) -> Result<Checked> {
    inner.settings.maxima.check(manifest)?;
    inner.settings.grants.check(manifest, component.imports())?;
    let inputs = inputs(inner, manifest)?;
    let partitions = partitions(inner, manifest, &inputs)?;
    own_topics(inner, manifest, before)?;
    same_key(manifest, before)?;
    if state == KeepState::Keep
        && let Some(before) = before
    {
        same_state(inner, manifest, before)?;
    }
    no_cycle(inner, manifest)?;
    starts(inner, component, manifest).await?;
    Ok(Checked { inputs, partitions })
}

/// What was read already may be read again only by a function that remembers nothing of it.
///
/// # Errors
/// `invalid-start`.
pub(super) fn may_move(manifest: &Manifest, state: KeepState) -> Result<()> {
    let keeps = !manifest.slots.is_empty() || manifest.timers;
    if !keeps || state == KeepState::Reset {
        return Ok(());
    }
    Err(Error::invalid(
        "invalid-start",
        "the function has read already and remembers what it read; elsewhere it can start only with state=reset, which forgets all state (or leave start out, or say start=keep, to go on where it stands)",
    ))
}

fn inputs(inner: &Inner, manifest: &Manifest) -> Result<Vec<Arc<Topic>>> {
    let inputs = manifest.inputs.iter();
    inputs
        .map(|spec| input(inner, spec.topic.as_str()))
        .collect()
}

fn input(inner: &Inner, name: &str) -> Result<Arc<Topic>> {
    inner.parts.log.topic(name).ok_or_else(|| {
        let topics = inner.parts.log.topics();
        let near = did_you_mean(name, topics.iter().map(|topic| topic.name.as_str()));
        Error::invalid(
            "unknown-topic",
            format!(
                "the function reads topic {name:?}, which doesn't exist.{near} Create it first."
            ),
        )
    })
}

/// How many partitions are read of each input. A task reads those of one number side by side, so that
/// inputs without a key of their own must have as many; the others go through internal topics that do.
fn partitions(inner: &Inner, manifest: &Manifest, inputs: &[Arc<Topic>]) -> Result<u32> {
    let keyed = |at: usize| manifest.inputs[at].key.is_some();
    let plain = inputs.iter().enumerate().find(|(at, _)| !keyed(*at));
    let first = plain.map_or(&inputs[0], |(_, topic)| topic);
    let partitions = first.settings.partitions;
    let refuse = |at: usize, other: &Topic, what: &str| {
        let (name, count) = (&first.name, other.settings.partitions);
        Err(Error::invalid(
            "invalid-manifest",
            format!(
                "manifest, input[{at}]: a task reads the partitions of one number of all inputs, but topic {name:?} has {partitions} partitions and topic {:?} has {count}; {what}",
                other.name
            ),
        ))
    };
    let internal = by_key_topics(manifest, &manifest.name).into_iter();
    for (at, (topic, by_key)) in inputs.iter().zip(internal).enumerate() {
        let by_key = by_key.and_then(|name| inner.parts.log.topic(&name));
        match by_key {
            Some(by_key) if by_key.settings.partitions != partitions => {
                return refuse(
                    at,
                    &by_key,
                    "the function moves this input's events there by key, and their state lies on its partitions: deploy under another name, or delete the function with its state first",
                );
            }
            None if !keyed(at) && topic.settings.partitions != partitions => {
                return refuse(
                    at,
                    topic,
                    "give both as many, or give one of these inputs a `key` pointer, by which its events are moved to an internal topic that has them",
                );
            }
            _ => {}
        }
    }
    Ok(partitions)
}

/// The topics that belong to the function must have valid names, be nobody else's, and not be read or
/// written by the function itself.
fn own_topics(inner: &Inner, manifest: &Manifest, before: Option<&Record>) -> Result<()> {
    let by_key: Vec<String> = by_key_topics(manifest, &manifest.name)
        .into_iter()
        .flatten()
        .collect();
    let own = [
        dead_letter_topic(&manifest.name),
        by_key_topic(&manifest.name, None),
    ];
    for name in own.iter().chain(&by_key) {
        name.parse::<TopicName>().map_err(|_| {
            let detail = format!(
                "the function's name (or that of a topic it is keyed by) is too long: its own topic {name:?} needs room for a suffix"
            );
            Error::invalid("invalid-manifest", detail)
        })?;
        let outputs = manifest.outputs.iter().map(|output| &output.topic);
        let inputs = manifest.inputs.iter().map(|input| &input.topic);
        if inputs.chain(outputs).any(|topic| topic.as_str() == name) {
            let detail =
                format!("topic {name:?} is the function's own; it can't be its input or output");
            return Err(Error::invalid("invalid-manifest", detail));
        }
    }
    let theirs = by_key
        .iter()
        .filter_map(|name| inner.parts.log.topic(name))
        .find(|topic| !before.is_some_and(|before| before.has_started(topic.id)));
    match theirs {
        None => Ok(()),
        Some(topic) => Err(Error::new(
            ErrorKind::Conflict,
            "topic-exists",
            format!(
                "topic {:?} exists, but the function needs that name for its events by key; delete the topic or name the function differently",
                topic.name
            ),
        )),
    }
}

/// What an input is keyed by can't change: events would wait under the old key, and state lies there.
fn same_key(manifest: &Manifest, before: Option<&Record>) -> Result<()> {
    let Some(before) = before else { return Ok(()) };
    let before = Manifest::resolve(None, Some(&before.manifest), &manifest.name)?;
    // The first input is what it is by its place, a further one by its topic.
    let changed = manifest.inputs.iter().enumerate().find_map(|(at, new)| {
        let old = match at {
            0 => before.inputs.first(),
            _ => before
                .inputs
                .iter()
                .skip(1)
                .find(|old| old.topic == new.topic),
        };
        let old = &old.filter(|old| old.key != new.key)?.key;
        Some((at, old, &new.key))
    });
    let Some((at, old, new)) = changed else {
        return moved_place(manifest, &before);
    };
    let shown = |key: &Option<String>| match key {
        Some(pointer) => format!("{pointer:?}"),
        None => "the event's own key".into(),
    };
    let (old, new) = (shown(old), shown(new));
    Err(Error::invalid(
        "invalid-manifest",
        format!(
            "manifest, input[{at}].key: the function is keyed by {old}, which can't become {new}; deploy under another name, or delete the function with its state first"
        ),
    ))
}

/// An internal topic has its name from whether its input is the first: what waits there would be left.
fn moved_place(manifest: &Manifest, before: &Manifest) -> Result<()> {
    let firsts = [&manifest.inputs[0].topic, &before.inputs[0].topic];
    let keyed = [before, manifest].into_iter().flat_map(|of| &of.inputs);
    let mut keyed = keyed.filter(|input| input.key.is_some() && firsts.contains(&&input.topic));
    let moved = |topic: &TopicName| {
        let place = |of: &Manifest| of.inputs.iter().position(|input| input.topic == *topic);
        let (old, new) = (place(before)?, place(manifest)?);
        ((old == 0) != (new == 0)).then_some((old, new))
    };
    match keyed.find_map(|input| Some((&input.topic, moved(&input.topic)?))) {
        None => Ok(()),
        Some((topic, (old, new))) => Err(Error::invalid(
            "invalid-manifest",
            format!(
                "manifest, input[{new}]: topic {topic:?} is keyed by a pointer and was input[{old}]; leave the first input where it is, and add others behind it"
            ),
        )),
    }
}

/// What lies in a slot can't be read as another kind, and its times not as another clock's.
/// Slots that the version in force doesn't have still lie there as the last one that had them left them.
fn same_state(inner: &Inner, manifest: &Manifest, record: &Record) -> Result<()> {
    let before = remembered(inner, record, &manifest.name)?;
    for slot in &manifest.slots {
        let place = format!("manifest, state.{}", slot.name);
        let refuse = |what: String| {
            let detail = format!(
                "{what}; give the slot another name, or deploy with state=reset, which forgets all state"
            );
            Err(Error::invalid("invalid-manifest", detail))
        };
        if slot.ttl.is_some() && !record.stamped {
            return refuse(format!(
                "{place}.ttl: the function's values don't say when they were written, for it was first deployed by an earlier host"
            ));
        }
        let Some(old) = before.get(&slot.name) else {
            continue;
        };
        if old.kind != slot.kind {
            let (old, new) = (old.kind.as_str(), slot.kind.as_str());
            return refuse(format!(
                "{place}.kind: it holds a {old}, which can't become a {new}"
            ));
        }
        if old.ttl_time != slot.ttl_time {
            return refuse(format!(
                "{place}.ttl_time: its values have times of the other kind"
            ));
        }
    }
    Ok(())
}

/// Every slot that may hold something, as the newest version that has it says it is.
fn remembered(
    inner: &Inner,
    record: &Record,
    name: &FunctionName,
) -> Result<BTreeMap<String, SlotSpec>> {
    let mut slots = BTreeMap::new();
    let versions = version::kept(&inner.parts, name, record)?;
    let way = version::led_to(&versions, record.version);
    for version in way.iter().filter_map(|number| versions.get(number)) {
        let manifest = Manifest::resolve(None, Some(&version.manifest), name)?;
        slots.extend(
            manifest
                .slots
                .into_iter()
                .map(|slot| (slot.name.clone(), slot)),
        );
    }
    Ok(slots)
}

fn no_cycle(inner: &Inner, manifest: &Manifest) -> Result<()> {
    let others = inner.manifests();
    let flows: Vec<Flow<'_>> = others.iter().map(flow).collect();
    match cycle(&flows, &flow(manifest)) {
        None => Ok(()),
        Some(way) => {
            let way = way.join(" → ");
            let detail = format!(
                "the function would feed itself for ever: {way} (topics and functions in turn)"
            );
            Err(Error::invalid("cycle", detail))
        }
    }
}

fn flow(manifest: &Manifest) -> Flow<'_> {
    Flow {
        function: manifest.name.as_str(),
        inputs: manifest
            .inputs
            .iter()
            .map(|input| input.topic.as_str())
            .collect(),
        outputs: manifest
            .outputs
            .iter()
            .map(|output| output.topic.as_str())
            .collect(),
    }
}

/// A component whose start fails is refused here, not at the first event.
async fn starts(inner: &Inner, component: &Component, manifest: &Manifest) -> Result<()> {
    let (sandbox, component, limits) = (
        inner.parts.sandbox.clone(),
        component.clone(),
        limits(manifest),
    );
    let started = tokio::task::spawn_blocking(move || {
        sandbox
            .instantiate(&component, limits, Arc::new(Stateless::default()))
            .map(drop)
    });
    match started.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(failure)) => Err(Error::invalid(
            "invalid-component",
            format!(
                "the component can't be started within its limits: {}",
                failure.message
            ),
        )),
        Err(_) => Err(Error::internal("the sandbox panicked")),
    }
}
