//! The topics of a deployment: made where they are missing, looked up where they must be there.

use super::check::Checked;
use crate::Manifest;
use crate::deployment::{Deployment, Input, by_key_topics, dead_letter_topic, followed};
use crate::processor::Inner;
use crate::record::{Record, component_path};
use crate::stored::Slots;
use crate::usage::Usage;
use std::sync::Arc;
use tidemill_log::{Format, TopicSettings};
use tidemill_types::{Error, Result, TopicName};
use tidemill_wasm::Component;

/// Makes the topics the function needs and doesn't have.
pub(super) async fn make(
    inner: &Inner,
    (component, manifest, checked): (Component, Manifest, Checked),
    record: &Record,
) -> Result<Deployment> {
    let Checked { inputs, partitions } = checked;
    let like_input = |format| TopicSettings {
        partitions,
        format,
        ..TopicSettings::default()
    };
    let mut outputs = Vec::new();
    for output in &manifest.outputs {
        let mut settings = like_input(output.format);
        settings.partitions = output.partitions.unwrap_or(settings.partitions);
        outputs.push(inner.parts.topic(&output.topic, settings).await?);
    }
    let dead_letters: TopicName = dead_letter_topic(&manifest.name).parse()?;
    let dead_letters = inner
        .parts
        .topic(&dead_letters, like_input(Format::Bytes))
        .await?;
    let mut read = Vec::new();
    let by_key = by_key_topics(&manifest, record.owner(&manifest.name));
    for (topic, by_key) in inputs.into_iter().zip(by_key) {
        let by_key = match by_key {
            Some(name) => {
                let name: TopicName = name.parse()?;
                Some(inner.parts.topic(&name, like_input(Format::Bytes)).await?)
            }
            None => None,
        };
        read.push(Input { topic, by_key });
    }
    Ok(Deployment {
        function: record.function(),
        name: manifest.name.clone(),
        owner: record.owner(&manifest.name).clone(),
        version: record.version,
        slots: Slots::new(record, &manifest),
        usage: Arc::new(Usage::new(partitions)),
        pages: Arc::default(),
        manifest: followed(&component, manifest),
        component,
        inputs: read,
        outputs,
        dead_letters,
    })
}

/// Takes a function of the registry up again: its component from storage, its topics from the log.
///
/// # Errors
/// When something of it is missing or no longer valid; says what.
pub(crate) async fn take_up(
    inner: &Inner,
    manifest: &Manifest,
    record: &Record,
) -> Result<Deployment> {
    let component = fetch(inner, &record.digest).await?;
    let find = |name: &str| {
        let missing = || Error::not_found("topic-not-found", format!("its topic {name:?} is gone"));
        inner.parts.log.topic(name).ok_or_else(missing)
    };
    let outputs = manifest
        .outputs
        .iter()
        .map(|output| find(output.topic.as_str()));
    let by_key = by_key_topics(manifest, record.owner(&manifest.name));
    let inputs = manifest.inputs.iter().zip(by_key).map(|(input, by_key)| {
        Ok(Input {
            topic: find(input.topic.as_str())?,
            by_key: by_key.map(|name| find(&name)).transpose()?,
        })
    });
    let inputs: Vec<Input> = inputs.collect::<Result<_>>()?;
    let partitions = inputs[0].read().settings.partitions;
    if let Some(other) = inputs
        .iter()
        .map(Input::read)
        .find(|read| read.settings.partitions != partitions)
    {
        let (first, name) = (&inputs[0].read().name, &other.name);
        let other = other.settings.partitions;
        return Err(Error::invalid(
            "invalid-manifest",
            format!(
                "it reads the partitions of its topics side by side, but {first:?} has {partitions} of them and {name:?} {other}"
            ),
        ));
    }
    let allowed = Manifest {
        limits: inner.settings.maxima.clamp(&manifest.limits),
        ..manifest.clone()
    };
    Ok(Deployment {
        function: record.function(),
        name: manifest.name.clone(),
        owner: record.owner(&manifest.name).clone(),
        version: record.version,
        slots: Slots::new(record, manifest),
        manifest: followed(&component, allowed),
        component,
        usage: Arc::new(Usage::new(partitions)),
        pages: Arc::default(),
        inputs,
        outputs: outputs.collect::<Result<_>>()?,
        dead_letters: find(&dead_letter_topic(&manifest.name))?,
    })
}

/// A component out of storage, compiled.
///
/// # Errors
/// When it isn't there, or isn't what its name says.
pub(crate) async fn fetch(inner: &Inner, digest: &str) -> Result<Component> {
    let path = component_path(digest);
    let bytes = inner.parts.objects.get(&path).await?;
    let component = inner.parts.compiler.again(bytes).await?;
    if component.digest() != digest {
        let found = component.digest();
        return Err(Error::corrupt(format!(
            "{path} holds the component {found}"
        )));
    }
    Ok(component)
}
