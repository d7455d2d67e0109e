//! What must be true before a deployment changes anything.

use crate::KeepState;
use crate::deployment::{by_key_topic, dead_letter_topic, limits};
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
    pub(crate) input: Arc<Topic>,
}

/// Checks a deployment against what exists; `before` is the function's record so far.
///
/// # Errors
/// `invalid-manifest`, `unknown-topic`, `cycle`, `topic-exists`, `invalid-component`.
pub(crate) async fn check(
    inner: &Inner,
    component: &Component,
    manifest: &Manifest,
    before: Option<&Record>,
    state: KeepState,
) -> Result<Checked> {
    inner.settings.maxima.check(manifest)?;
    let input = input(inner, manifest)?;
    own_topics(inner, manifest, before)?;
    same_key(manifest, before)?;
    if state == KeepState::Keep
        && let Some(before) = before
    {
        same_state(inner, manifest, before)?;
    }
    no_cycle(inner, manifest)?;
    starts(inner, component, manifest).await?;
    Ok(Checked { input })
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

fn input(inner: &Inner, manifest: &Manifest) -> Result<Arc<Topic>> {
    let name = manifest.inputs[0].topic.as_str();
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

/// The topics that belong to the function must have valid names, be nobody else's, and not be read or
/// written by the function itself.
fn own_topics(inner: &Inner, manifest: &Manifest, before: Option<&Record>) -> Result<()> {
    let own = [
        dead_letter_topic(&manifest.name),
        by_key_topic(&manifest.name),
    ];
    for name in &own {
        name.parse::<TopicName>().map_err(|_| {
            let detail = format!(
                "the function's name is too long: its topic {name:?} needs room for a suffix"
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
    let by_key = inner.parts.log.topic(&own[1]);
    match by_key {
        Some(topic) if manifest.inputs[0].key.is_some() => {
            if before.is_some_and(|before| before.has_started(topic.id)) {
                return Ok(());
            }
            Err(Error::new(
                ErrorKind::Conflict,
                "topic-exists",
                format!(
                    "topic {:?} exists, but the function needs that name for its events by key; delete the topic or name the function differently",
                    topic.name
                ),
            ))
        }
        _ => Ok(()),
    }
}

/// What an input is keyed by can't change: events would wait under the old key, and state lies there.
fn same_key(manifest: &Manifest, before: Option<&Record>) -> Result<()> {
    let Some(before) = before else { return Ok(()) };
    let before = Manifest::resolve(None, Some(&before.manifest), &manifest.name)?;
    let (old, new) = (&before.inputs[0].key, &manifest.inputs[0].key);
    if old == new {
        return Ok(());
    }
    let shown = |key: &Option<String>| match key {
        Some(pointer) => format!("{pointer:?}"),
        None => "the event's own key".into(),
    };
    let (old, new) = (shown(old), shown(new));
    Err(Error::invalid(
        "invalid-manifest",
        format!(
            "manifest, input[0].key: the function is keyed by {old}, which can't become {new}; deploy under another name, or delete the function with its state first"
        ),
    ))
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
