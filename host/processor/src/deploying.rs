//! A deployment from request to running tasks: everything is checked before anything changes, then
//! the component is stored, the topics are made, and one commit puts the version in force.

mod check;

use crate::deployment::{Deployment, by_key_topic, dead_letter_topic};
use crate::function::Function;
use crate::function_log::FunctionLog;
use crate::manifest::{Manifest, Start};
use crate::note::Note;
use crate::processor::Inner;
use crate::record::{NEXT, Record, Role, Standing, component_path, reader};
use crate::stored::Slots;
use crate::task::driver::park;
use crate::usage::Usage;
use crate::{Deploy, Deployed, KeepState};
use check::Checked;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use tidemill_log::{Advance, Draft, Format, TimeOf, Topic, TopicSettings};
use tidemill_state::{Change, Changes, Scope};
use tidemill_types::{Error, PartitionId, Result, TopicId, TopicName};
use tidemill_wasm::Component;

/// Committed ends of all topics at the moment of a request.
pub(crate) type Ends = HashMap<TopicId, Vec<u64>>;

/// Deploys.
///
/// # Errors
/// See [`crate::Processor::deploy`].
pub(crate) async fn deploy(inner: &Arc<Inner>, deploy: Deploy) -> Result<Deployed> {
    let ends = ends(inner);
    let begun = inner.parts.clock.elapsed();
    let component = compile(inner, deploy.component.clone()).await?;
    let manifest = Manifest::resolve(component.manifest(), deploy.manifest.as_ref(), &deploy.name)?;
    let took = inner.parts.clock.elapsed().saturating_sub(begun);
    let _admin = inner.admin.lock().await;
    let before = inner.record(&deploy.name);
    let checked = check::check(inner, component, manifest, before.as_ref(), deploy.state).await?;
    let changed = deploy.state == KeepState::Reset
        || before.as_ref().is_none_or(|before| {
            before.standing == Standing::Deleted
                || before.digest != checked.component.digest()
                || before.manifest != checked.manifest.source
        });
    let version = before.as_ref().map_or(0, |before| before.version) + u32::from(changed);
    let deployed = Deployed {
        version,
        digest: checked.component.digest().to_owned(),
        bytes: deploy.component.len(),
        manifest: checked.manifest.clone(),
        imports: checked.component.imports().to_vec(),
        compile_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        changed,
    };
    if changed && !deploy.dry_run {
        put_in_force(inner, &deploy, checked, before, &deployed, &ends).await?;
    }
    Ok(deployed)
}

/// Checks and compiles a component, beside everything else.
///
/// # Errors
/// `invalid-component`.
pub(crate) async fn compile(inner: &Inner, bytes: bytes::Bytes) -> Result<Component> {
    inner.settings.maxima.check_component(bytes.len())?;
    inner.parts.compiler.upload(bytes).await
}

fn ends(inner: &Inner) -> Ends {
    let log = &inner.parts.log;
    let ends = |topic: &Topic| -> Vec<u64> {
        log.ranges(topic.id)
            .unwrap_or_default()
            .iter()
            .map(|range| range.end)
            .collect()
    };
    log.topics()
        .iter()
        .map(|topic| (topic.id, ends(topic)))
        .collect()
}

/// From here on things change; each step alone is harmless if the next one fails.
async fn put_in_force(
    inner: &Arc<Inner>,
    deploy: &Deploy,
    checked: Checked,
    before: Option<Record>,
    deployed: &Deployed,
    ends: &Ends,
) -> Result<()> {
    let path = component_path(&deployed.digest);
    // Another function may have brought the same component; what lies there is the same.
    inner
        .parts
        .objects
        .create(&path, deploy.component.clone())
        .await?;
    let resets = deploy.state == KeepState::Reset && before.is_some();
    let record = record(inner, deployed, before.as_ref(), resets);
    let deployment = Arc::new(make_topics(inner, checked, &record).await?);
    let first = first_positions(inner, &deployment, &record, deploy.start, ends).await?;
    let mut record = record;
    record
        .started
        .extend(first.iter().map(|(topic, _)| topic.0));
    let tasks = inner.take_tasks(&deploy.name);
    park(tasks).await;
    let committed = commit(
        inner,
        &deployment,
        &record,
        before.is_none(),
        &first,
        resets,
    )
    .await;
    if committed.is_ok() {
        inner.install(&deploy.name, |old| Function {
            record,
            manifest: deployed.manifest.clone(),
            deployment: Some(deployment),
            broken: None,
            tasks: Vec::new(),
            lines: old.map_or_else(
                || Arc::new(FunctionLog::new(inner.settings.log_lines)),
                |old| Arc::clone(&old.lines),
            ),
        });
    }
    inner.start(&deploy.name)?;
    committed
}

/// The function's record as it will be.
fn record(inner: &Inner, deployed: &Deployed, before: Option<&Record>, resets: bool) -> Record {
    let standing = match before.map(|before| before.standing) {
        Some(Standing::Paused) => Standing::Paused,
        _ => Standing::Running,
    };
    let mut record = Record {
        id: before.map_or_else(|| inner.next_function(), |before| before.id),
        version: deployed.version,
        digest: deployed.digest.clone(),
        bytes: deployed.bytes,
        imports: deployed.imports.clone(),
        manifest: deployed.manifest.source.clone(),
        standing,
        reason: None,
        started: before.map_or_else(Vec::new, |before| before.started.clone()),
        slots: before.map_or_else(BTreeMap::new, |before| before.slots.clone()),
        stamped: resets || before.is_none_or(|before| before.stamped),
    };
    record.number_slots(&deployed.manifest);
    record
}

/// Makes the topics the function needs and doesn't have.
async fn make_topics(inner: &Inner, checked: Checked, record: &Record) -> Result<Deployment> {
    let Checked {
        component,
        manifest,
        input,
    } = checked;
    let like_input = |format| TopicSettings {
        partitions: input.settings.partitions,
        format,
        ..TopicSettings::default()
    };
    let mut outputs = Vec::new();
    for output in &manifest.outputs {
        let mut settings = like_input(output.format);
        settings.partitions = output.partitions.unwrap_or(settings.partitions);
        outputs.push(topic(inner, &output.topic, settings).await?);
    }
    let dead_letters: TopicName = dead_letter_topic(&manifest.name).parse()?;
    let dead_letters = topic(inner, &dead_letters, like_input(Format::Bytes)).await?;
    let by_key = match manifest.inputs[0].key {
        Some(_) => {
            let name: TopicName = by_key_topic(&manifest.name).parse()?;
            Some(topic(inner, &name, like_input(Format::Bytes)).await?)
        }
        None => None,
    };
    Ok(Deployment {
        function: record.function(),
        name: manifest.name.clone(),
        version: record.version,
        slots: Slots::new(record, &manifest),
        usage: Usage::new(by_key.as_ref().unwrap_or(&input).settings.partitions),
        pages: AtomicU32::new(0),
        manifest,
        component,
        input,
        by_key,
        outputs,
        dead_letters,
    })
}

async fn topic(inner: &Inner, name: &TopicName, settings: TopicSettings) -> Result<Arc<Topic>> {
    match inner.parts.log.topic(name.as_str()) {
        Some(topic) => Ok(topic),
        None => inner
            .parts
            .log
            .create_topic(name, settings)
            .await
            .map(|(topic, _)| topic),
    }
}

/// Where to start in topics for which that isn't decided yet.
async fn first_positions(
    inner: &Inner,
    deployment: &Deployment,
    record: &Record,
    start: Option<Start>,
    ends: &Ends,
) -> Result<Vec<(TopicId, Vec<u64>)>> {
    let input = &deployment.input;
    let mut first = Vec::new();
    if !record.has_started(input.id) {
        let start = start.unwrap_or(deployment.manifest.inputs[0].start);
        first.push((input.id, offsets(inner, input, start, ends).await?));
    }
    match &deployment.by_key {
        Some(by_key) if !record.has_started(by_key.id) => first.push((by_key.id, Vec::new())),
        _ => {}
    }
    Ok(first)
}

async fn offsets(inner: &Inner, topic: &Topic, start: Start, ends: &Ends) -> Result<Vec<u64>> {
    let log = &inner.parts.log;
    let mut offsets = Vec::new();
    for range in log.ranges(topic.id)? {
        let at = PartitionId {
            topic: topic.id,
            partition: range.partition,
        };
        let known = ends
            .get(&topic.id)
            .and_then(|ends| ends.get(range.partition as usize));
        offsets.push(match start {
            Start::Earliest => range.start,
            // A topic made after the request is new as a whole.
            Start::Latest => known.copied().unwrap_or_default().max(range.start),
            Start::At(time) => log.offset_at(at, time, TimeOf::Event).await?,
        });
    }
    Ok(offsets)
}

/// The one commit that puts a version in force.
async fn commit(
    inner: &Inner,
    deployment: &Deployment,
    record: &Record,
    is_first: bool,
    first: &[(TopicId, Vec<u64>)],
    resets: bool,
) -> Result<()> {
    let mut draft = Draft::new();
    draft.entry(&Record::key(&deployment.name), Some(&record.encode()?));
    if is_first {
        draft.entry(NEXT, Some((record.id + 1).to_string().as_bytes()));
    }
    let role = if deployment.by_key.is_some() {
        Role::Repartition
    } else {
        Role::Main
    };
    for (topic, offsets) in first {
        for (partition, offset) in (0..).zip(offsets).filter(|(_, offset)| **offset > 0) {
            draft.advance(Advance {
                reader: reader(deployment.function, role),
                topic: *topic,
                partition,
                from: 0,
                to: *offset,
                note: Note::default().encode().to_vec().into(),
            });
        }
    }
    let partitions = deployment.main_input().settings.partitions;
    let cleared = if resets {
        clear(record, partitions)
    } else {
        Vec::new()
    };
    inner.parts.commit_durably(draft, &cleared).await
}

/// Changes that empty all of a function's state.
pub(crate) fn clear(record: &Record, partitions: u32) -> Vec<Changes> {
    let cleared = |partition| {
        let mut changes = Changes::new(Scope {
            function: record.function(),
            partition,
        });
        changes.push(Change::Clear);
        changes
    };
    (0..partitions).map(cleared).collect()
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
    let path = component_path(&record.digest);
    let bytes = inner.parts.objects.get(&path).await?;
    let component = inner.parts.compiler.again(bytes).await?;
    if component.digest() != record.digest {
        let digest = component.digest();
        return Err(Error::corrupt(format!(
            "{path} holds the component {digest}"
        )));
    }
    let find = |name: &str| {
        let missing = || Error::not_found("topic-not-found", format!("its topic {name:?} is gone"));
        inner.parts.log.topic(name).ok_or_else(missing)
    };
    let outputs = manifest
        .outputs
        .iter()
        .map(|output| find(output.topic.as_str()));
    let input = find(manifest.inputs[0].topic.as_str())?;
    let by_key = match manifest.inputs[0].key {
        Some(_) => Some(find(&by_key_topic(&manifest.name))?),
        None => None,
    };
    Ok(Deployment {
        function: record.function(),
        name: manifest.name.clone(),
        version: record.version,
        slots: Slots::new(record, manifest),
        manifest: Manifest {
            limits: inner.settings.maxima.clamp(&manifest.limits),
            ..manifest.clone()
        },
        component,
        usage: Usage::new(by_key.as_ref().unwrap_or(&input).settings.partitions),
        pages: AtomicU32::new(0),
        input,
        by_key,
        outputs: outputs.collect::<Result<_>>()?,
        dead_letters: find(&dead_letter_topic(&manifest.name))?,
    })
}
