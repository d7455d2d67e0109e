//! Shadows: a version that runs beside the one in force, on the same events, with state, positions and
//! outputs of its own. A shadow is a function `<function>.shadow` that reads what the function reads;
//! it begins at a transaction border of the function with a copy of its state. So everything that is known
//! of functions is known of it, also over restarts, and nothing of the function itself changes.
//!
//! Under a further number lie the function's positions and state as they were when it began: a comparison
//! of the two begins there (`replay/beside.rs`).

mod copy;

use crate::deploying::clear;
use crate::function::Function;
use crate::manifest::Manifest;
use crate::note::Note;
use crate::parked;
use crate::parts::Parts;
use crate::processor::{Functions, Inner, Processor};
use crate::record::{Record, Role, Shadow, Standing, reader};
use crate::version;
use crate::{Deploy, Deployed, FunctionReport, KeepState, deploying};
pub(crate) use copy::{Pages, load, state};
use serde_json::{Value, json};
use tidemill_log::{Draft, Position};
use tidemill_state::Changes;
use tidemill_types::{Error, ErrorKind, FunctionId, FunctionName, Result, TopicName};

/// Refuses a version that calls the outside or reads secrets: it would do so for each event once more, and two
/// such versions can't be compared.
///
/// # Errors
/// `not-deterministic`.
pub(crate) fn may_be(manifest: &Manifest) -> Result<()> {
    if manifest.grants.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Conflict,
        "not-deterministic",
        "a version with grants can't run as a shadow: it would call the outside for each event once more, and what it is answered can't be compared; deploy it under another name, on a topic of its own",
    ))
}

impl Processor {
    /// Runs a version beside the one in force: it begins where the function stands, with a copy of its
    /// state or without any, and what it emits goes to topics of its own. Durable when it returns. The
    /// function stands for as long as it takes to take hold of its state.
    ///
    /// # Errors
    /// As [`Processor::deploy`]; `function-not-found` where there is nothing to run beside,
    /// `shadow-exists`, `not-deterministic`.
    pub async fn deploy_shadow(&self, deploy: Deploy) -> Result<Deployed> {
        let inner = self.inner.clone();
        // To its end, whoever stops waiting for it: it is several steps.
        let begun = tokio::spawn(async move { deploying::begin_shadow(&inner, deploy).await });
        begun
            .await
            .map_err(|_| Error::internal("beginning a shadow panicked"))?
    }

    /// The shadow of a function.
    ///
    /// # Errors
    /// `function-not-found`, `shadow-not-found`.
    pub async fn shadow(&self, name: &str) -> Result<FunctionReport> {
        let (name, _) = self.inner.existing(name)?;
        let (shadow, _) = existing(&self.inner, &name)?;
        self.describe(shadow.as_str()).await
    }

    /// Deploys the version that ran as a shadow, in the ordinary way, and ends the shadow. The function goes
    /// on where it stands, with its own state.
    ///
    /// # Errors
    /// As [`Processor::deploy`]; `function-not-found`, `shadow-not-found`.
    pub async fn promote_shadow(
        &self,
        name: &str,
        state: KeepState,
        dry_run: bool,
    ) -> Result<Deployed> {
        let (inner, name) = (self.inner.clone(), name.to_owned());
        let done = tokio::spawn(async move {
            deploying::promote_shadow(&inner, &name, (state, dry_run)).await
        });
        done.await
            .map_err(|_| Error::internal("promoting a shadow panicked"))?
    }

    /// Ends a shadow; its state goes, and its topics where no function reads them.
    ///
    /// # Errors
    /// `function-not-found`, `shadow-not-found`.
    pub async fn stop_shadow(&self, name: &str) -> Result<()> {
        let _admin = self.inner.admin.lock().await;
        let (name, _) = self.inner.existing(name)?;
        let (shadow, record) = existing(&self.inner, &name)?;
        self.inner.drop_function(&shadow, &record).await
    }
}

/// The name of a function's shadow.
///
/// # Errors
/// `invalid-name` when that is too long.
pub(crate) fn name_of(function: &FunctionName) -> Result<FunctionName> {
    format!("{function}.shadow").parse()
}

/// The topic that a shadow's output goes to.
///
/// # Errors
/// `invalid-name` when that is too long.
pub(crate) fn topic_of(shadow: &FunctionName, output: &str) -> Result<TopicName> {
    format!("{shadow}.{output}").parse()
}

/// A function's shadow among all functions.
pub(crate) fn of<'f>(
    functions: &'f Functions,
    name: &FunctionName,
) -> Option<(&'f FunctionName, &'f Function)> {
    let known = functions.get_key_value(&name_of(name).ok()?)?;
    let shadow = known.1.record.shadow.as_ref();
    (shadow.is_some_and(|shadow| shadow.of == *name)).then_some(known)
}

/// A function's shadow.
///
/// # Errors
/// `shadow-not-found`.
pub(crate) fn existing(inner: &Inner, name: &FunctionName) -> Result<(FunctionName, Record)> {
    inner.shadow_of(name).ok_or_else(|| {
        Error::not_found(
            "shadow-not-found",
            format!("nothing runs beside function {name:?}; deploy with shadow=true"),
        )
    })
}

/// What isn't a shadow may be deployed.
///
/// # Errors
/// `is-shadow`.
pub(crate) fn is_none(name: &FunctionName, record: Option<&Record>) -> Result<()> {
    match record.and_then(|record| record.shadow.as_ref()) {
        None => Ok(()),
        Some(shadow) => Err(Error::new(
            ErrorKind::Conflict,
            "is-shadow",
            format!(
                "{name:?} is the shadow of function {:?}: it has one version; stop it and deploy with shadow=true to run another one",
                shadow.of
            ),
        )),
    }
}

/// A function's manifest as its shadow's: the same, but for where outputs go.
///
/// # Errors
/// `invalid-name` when a topic's name becomes too long.
pub(crate) fn manifest(of: &Manifest, shadow: &FunctionName) -> Result<Manifest> {
    let mut source = of.source.clone();
    source["function"]["name"] = json!(shadow.as_str());
    for output in &of.outputs {
        let topic = topic_of(shadow, &output.name)?;
        source["output"][&output.name]["topic"] = json!(topic.as_str());
    }
    Manifest::resolve(None, Some(&source), shadow)
}

/// A manifest as it would be deployed, with the shadow's topics for outputs whose own aren't made yet.
///
/// # Errors
/// `invalid-manifest`, `invalid-name`.
pub(crate) fn where_missing(
    inner: &Inner,
    manifest: &Value,
    shadow: &FunctionName,
) -> Result<Value> {
    let mut source = manifest.clone();
    for output in Manifest::resolve(None, Some(manifest), shadow)?.outputs {
        if inner.parts.log.topic(output.topic.as_str()).is_none() {
            let topic = topic_of(shadow, &output.name)?;
            source["output"][&output.name]["topic"] = json!(topic.as_str());
        }
    }
    Ok(source)
}

/// The totals with which a shadow begins where a function's task stands: none, but its times, and with
/// its state the events that wait.
pub(crate) fn note(stands: &Note, empty: bool) -> Note {
    let waiting = if empty { 0 } else { stands.counts.retrying };
    let mut note = Note {
        floor: stands.floor.filter(|_| !empty),
        seen: stands.seen,
        ingested: stands.ingested,
        processing: stands.processing,
        inputs: stands.inputs,
        version: 1,
        ..Note::default()
    };
    (note.counts.events_in, note.counts.retrying) = (waiting, waiting);
    note
}

impl Shadow {
    /// The number under which the beginning lies.
    pub(crate) fn kept(&self) -> FunctionId {
        FunctionId(self.kept)
    }

    /// Where the function's main tasks stood when it began; partitions of which nothing was read are missing.
    pub(crate) fn began_at(&self, parts: &Parts) -> Vec<Position> {
        parts.log.positions(reader(self.kept(), Role::Main))
    }

    /// Takes the beginning away with a transaction.
    pub(crate) fn forget(&self, draft: &mut Draft, cleared: &mut Vec<Changes>) {
        draft.forget(reader(self.kept(), Role::Main));
        cleared.extend(clear(self.kept(), self.partitions));
    }
}

/// Takes away what is left of a shadow whose state was being copied when something went wrong.
///
/// # Errors
/// As a commit.
pub(crate) async fn sweep(inner: &Inner, name: &FunctionName, record: &Record) -> Result<()> {
    let parts = &inner.parts;
    let Some(shadow) = &record.shadow else {
        return Ok(());
    };
    debug_assert_eq!(record.standing, Standing::Deleted);
    let mut draft = Draft::new();
    draft.entry(&Record::key(name), None);
    version::remove(parts, &mut draft, name, record)?;
    draft.forget(reader(record.function(), Role::Main));
    let mut cleared = clear(record.function(), shadow.partitions);
    cleared.extend(parked::cleared(record.function(), shadow.partitions));
    shadow.forget(&mut draft, &mut cleared);
    parts.commit_durably(draft, &cleared).await?;
    parts.state.forget(record.function());
    parts.state.forget(shadow.kept());
    drop_topics(inner, name, record).await
}

/// Deletes the topics of a shadow that is gone, but for those that a function reads.
///
/// # Errors
/// As deleting a topic.
pub(crate) async fn drop_topics(inner: &Inner, name: &FunctionName, record: &Record) -> Result<()> {
    let manifest = Manifest::resolve(None, Some(&record.manifest), name)?;
    let letters = crate::deployment::dead_letter_topic(name).parse()?;
    let outputs = manifest.outputs.into_iter().map(|output| output.topic);
    let others = inner.manifests();
    let is_read = |topic: &TopicName| {
        let mut inputs = others.iter().flat_map(|other| &other.inputs);
        inputs.any(|input| input.topic == *topic)
    };
    for topic in outputs.chain([letters]) {
        if !is_read(&topic) && inner.parts.log.topic(topic.as_str()).is_some() {
            inner.parts.log.delete_topic(&topic).await?;
        }
    }
    Ok(())
}
