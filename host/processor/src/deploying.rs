//! A deployment from request to running tasks: everything is checked before anything changes, then
//! the component is stored, the topics are made, and one commit puts the version in force. Going back to
//! an earlier version is a deployment of what that one was, under a new number.

mod beside;
mod check;
mod plan;
mod restoring;
pub(crate) mod starting;
mod topics;

use crate::calls::SEED;
use crate::deployment::Deployment;
use crate::function::Function;
use crate::function_log::FunctionLog;
use crate::leaving;
use crate::manifest::{Manifest, Start};
use crate::processor::Inner;
use crate::record::{NEXT, Record, Standing, component_path};
use crate::restore::{self, Copying, Keeping, Taken};
use crate::shadow;
use crate::task::driver::park;
use crate::version::{self, Version};
use crate::{Deploy, Deployed, KeepState, Rollback};
pub(crate) use beside::{begin as begin_shadow, promote as promote_shadow};
use bytes::Bytes;
use check::Checked;
pub use plan::{Plan, PlanAgain, PlanChange, PlanStart};
use starting::Starting;
pub(crate) use starting::step;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tidemill_log::{Draft, Topic};
use tidemill_state::{Change, Changes, Scope};
use tidemill_types::{Error, FunctionId, FunctionName, Result, TopicId};
use tidemill_wasm::Component;
pub(crate) use topics::{fetch, take_up};

/// Committed ends of all topics at the moment of a request.
pub(crate) type Ends = HashMap<TopicId, Vec<u64>>;

/// A version that is wanted, compiled.
struct Wanted {
    name: FunctionName,
    component: Component,
    /// Its bytes, if storage may not have them.
    bytes: Option<Bytes>,
    size: usize,
    manifest: Manifest,
    compiled_in: Duration,
    start: Option<Start>,
    state: KeepState,
    rollback_of: Option<u32>,
    ends: Ends,
    dry_run: bool,
}

/// Deploys.
///
/// # Errors
/// See [`crate::Processor::deploy`].
pub(crate) async fn deploy(inner: &Arc<Inner>, deploy: Deploy) -> Result<Deployed> {
    let wanted = sent(inner, deploy).await?;
    let admin = inner.admin.lock().await;
    let (deployed, copying) = put(inner, wanted).await?;
    drop(admin);
    kept(inner, copying).await;
    Ok(deployed)
}

/// The state of the version that was left is kept; the one that follows is at work already.
async fn kept(inner: &Inner, copying: Option<Copying>) {
    if let Some(copying) = copying {
        copying.run(inner).await;
    }
}

/// What a request wants, its component compiled.
async fn sent(inner: &Inner, deploy: Deploy) -> Result<Wanted> {
    if matches!(deploy.state, KeepState::Restore { .. }) {
        return Err(Error::invalid(
            "invalid-request",
            "state: what it was when a version was left can only be gone back to with that version; use rollback",
        ));
    }
    let ends = ends(inner);
    let begun = inner.parts.clock.elapsed();
    let component = compile(inner, deploy.component.clone()).await?;
    let manifest = Manifest::resolve(component.manifest(), deploy.manifest.as_ref(), &deploy.name)?;
    Ok(Wanted {
        compiled_in: inner.parts.clock.elapsed().saturating_sub(begun),
        name: deploy.name,
        component,
        size: deploy.component.len(),
        bytes: Some(deploy.component),
        manifest,
        start: deploy.start,
        state: deploy.state,
        rollback_of: None,
        ends,
        dry_run: deploy.dry_run,
    })
}

/// Goes back to an earlier version.
///
/// # Errors
/// See [`crate::Processor::rollback`].
pub(crate) async fn rollback(
    inner: &Arc<Inner>,
    name: &str,
    rollback: Rollback,
) -> Result<Deployed> {
    let ends = ends(inner);
    let admin = inner.admin.lock().await;
    let (name, record) = inner.existing(name)?;
    let versions = version::kept(&inner.parts, &name, &record)?;
    let Some(version) = versions.get(&rollback.version) else {
        let known: Vec<String> = versions.keys().map(u32::to_string).collect();
        let (wanted, known) = (rollback.version, known.join(", "));
        return Err(Error::not_found(
            "version-not-found",
            format!("function {name:?} has no version {wanted}; there are {known}"),
        ));
    };
    let begun = inner.parts.clock.elapsed();
    let wanted = Wanted {
        component: fetch(inner, &version.digest).await?,
        manifest: Manifest::resolve(None, Some(&version.manifest), &name)?,
        compiled_in: inner.parts.clock.elapsed().saturating_sub(begun),
        name,
        bytes: None,
        size: version.bytes,
        start: None,
        state: rollback.state,
        rollback_of: Some(rollback.version),
        ends,
        dry_run: rollback.dry_run,
    };
    let (deployed, copying) = match rollback.state {
        KeepState::Restore { again } => {
            restoring::restore(inner, wanted, (&record, &versions), again).await?
        }
        KeepState::Keep | KeepState::Reset => put(inner, wanted).await?,
    };
    drop(admin);
    kept(inner, copying).await;
    Ok(deployed)
}

async fn put(inner: &Arc<Inner>, wanted: Wanted) -> Result<(Deployed, Option<Copying>)> {
    let before = inner.record(&wanted.name);
    let before = before.as_ref();
    shadow::is_none(&wanted.name, before)?;
    let checked = check::check(
        inner,
        &wanted.component,
        &wanted.manifest,
        before,
        wanted.state,
    );
    let checked = checked.await?;
    let manifest = &wanted.manifest;
    let starting = (checked.inputs.as_slice(), manifest);
    let starting = Starting::decide(inner, starting, before, wanted.start, &wanted.ends).await?;
    if starting.moves {
        check::may_move(manifest, wanted.state)?;
    }
    let digest = wanted.component.digest().to_owned();
    let changed = wanted.state == KeepState::Reset
        || starting.moves
        || before.is_none_or(|before| {
            before.standing == Standing::Deleted
                || before.digest != digest
                || before.manifest != manifest.source
        });
    let plan = plan(inner, &wanted, before, (&checked, &starting))?;
    let deployed = Deployed {
        version: before.map_or(0, |before| before.version) + u32::from(changed),
        digest,
        bytes: wanted.size,
        manifest: manifest.clone(),
        imports: wanted.component.imports().to_vec(),
        compile_ms: u64::try_from(wanted.compiled_in.as_millis()).unwrap_or(u64::MAX),
        changed,
        rollback_of: wanted.rollback_of.filter(|_| changed),
        plan,
    };
    let copying = match changed && !wanted.dry_run {
        true => put_in_force(inner, wanted, checked, before, &deployed, &starting).await?,
        false => None,
    };
    Ok((deployed, copying))
}

fn plan(
    inner: &Inner,
    wanted: &Wanted,
    before: Option<&Record>,
    (checked, starting): (&Checked, &Starting),
) -> Result<Plan> {
    let live = before.filter(|before| before.standing != Standing::Deleted);
    let old = before.map(|before| Manifest::resolve(None, Some(&before.manifest), &wanted.name));
    let old = old.transpose()?;
    Ok(Plan {
        from: live.map(|before| before.version),
        changes: plan::changes(
            live.zip(old.as_ref())
                .map(|(before, manifest)| (before.digest.as_str(), manifest)),
            (wanted.component.digest(), &wanted.manifest),
        ),
        resets: wanted.state == KeepState::Reset && before.is_some(),
        start: starting.shown(inner, (&checked.inputs, &wanted.manifest), before)?,
        moves: starting.moves,
        again: None,
    })
}

/// Checks and compiles a component, beside everything else.
///
/// # Errors
/// `invalid-component`.
pub(crate) async fn compile(inner: &Inner, bytes: Bytes) -> Result<Component> {
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
    wanted: Wanted,
    checked: Checked,
    before: Option<&Record>,
    deployed: &Deployed,
    starting: &Starting,
) -> Result<Option<Copying>> {
    if let Some(bytes) = wanted.bytes {
        // Another function may have brought the same component; what lies there is the same.
        let path = component_path(&deployed.digest);
        inner.parts.objects.create(&path, bytes).await?;
    }
    let mut record = record(inner, deployed, before);
    let parts = (wanted.component, wanted.manifest, checked);
    let deployment = Arc::new(topics::make(inner, parts, &record).await?);
    record.start_in(&deployment);
    let name = &wanted.name;
    park(inner.take_tasks(name)).await;
    let committed = commit(inner, &deployment, (&record, before), deployed, starting).await;
    if committed.is_ok() {
        install(inner, record, deployed, deployment);
    }
    inner.start(name)?;
    let copying = committed.map(|taken| taken.and_then(Taken::copying))?;
    if let Err(wrong) = leaving::leave(inner, name).await {
        tracing::warn!(function = %name, error = %wrong, "where it stood in inputs that it doesn't read any more can't be forgotten now");
    }
    Ok(copying)
}

/// Puts what was committed in place of what was there.
fn install(inner: &Inner, record: Record, deployed: &Deployed, deployment: Arc<Deployment>) {
    let name = &deployed.manifest.name;
    inner.install(name, |old| Function {
        record,
        manifest: deployed.manifest.clone(),
        deployment: Some(deployment),
        broken: None,
        tasks: Vec::new(),
        lines: old.map_or_else(
            || Arc::new(FunctionLog::new(&inner.parts.keeper, name)),
            |old| Arc::clone(&old.lines),
        ),
    });
}

/// The function's record as it will be.
fn record(inner: &Inner, deployed: &Deployed, before: Option<&Record>) -> Record {
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
        since: before
            .filter(|_| standing == Standing::Paused)
            .and_then(|before| before.since),
        started: before.map_or_else(Vec::new, |before| before.started.clone()),
        slots: before.map_or_else(BTreeMap::new, |before| before.slots.clone()),
        stamped: deployed.plan.resets || before.is_none_or(|before| before.stamped),
        shadow: None,
    };
    record.number_slots(&deployed.manifest);
    record
}

/// The one commit that puts a version in force; no task of the function is at work. Answers what it keeps of the
/// version before.
async fn commit(
    inner: &Inner,
    deployment: &Deployment,
    (record, before): (&Record, Option<&Record>),
    deployed: &Deployed,
    starting: &Starting,
) -> Result<Option<Taken>> {
    let taken = match before {
        Some(before) => {
            let kept = inner.next_function();
            restore::take(inner, (&deployment.name, before), kept).await?
        }
        None => None,
    };
    inner.parts.settled().await?;
    let mut draft = Draft::new();
    let mut keeping = Keeping::default();
    draft.entry(&Record::key(&deployment.name), Some(&record.encode()?));
    let given = match (before, &taken) {
        (None, _) => Some(record.id),
        (_, taken) => taken.as_ref().map(Taken::kept),
    };
    if let Some(given) = given {
        draft.entry(NEXT, Some((given + 1).to_string().as_bytes()));
    }
    if let Some(taken) = &taken {
        taken.lay_out(inner, &mut draft, &mut keeping, None)?;
    }
    if !deployment.manifest.grants.http.is_empty() && inner.parts.log.entries(SEED).is_empty() {
        let seed = inner.parts.random.nonce() + &inner.parts.random.nonce();
        draft.entry(SEED, Some(seed.as_bytes()));
    }
    let first = starting.lay_out(inner, deployment, (record, before), &mut draft)?;
    let here: Vec<TopicId> = deployment.inputs.iter().map(|i| i.read().id).collect();
    let stood = match before {
        Some(before) => starting::left_at(inner, &deployment.name, before)?,
        None => None,
    };
    let left_at = stood
        .filter(|(topics, offsets)| *topics != here || *offsets != first)
        .map(|(_, offsets)| offsets);
    let version = Version {
        deployed: Some(inner.parts.clock.now().micros()),
        rollback_of: deployed.rollback_of,
        reset: deployed.plan.resets,
        behind: inner.parts.log.durable().borrow().0,
        emitted: match before {
            Some(before) => starting::emitted(inner, &deployment.name, before)?,
            None => Vec::new(),
        },
        ..Version::of_record(record)
    };
    let version = version.between(first, left_at);
    let (name, number) = (&deployment.name, deployed.version);
    version::add(&inner.parts, &mut draft, name, before, (number, &version))?;
    if deployed.plan.resets {
        let partitions = deployment.partitions();
        keeping.cleared.extend(clear(record.function(), partitions));
    }
    inner.parts.commit_durably(draft, &keeping.cleared).await?;
    keeping.done(&inner.parts);
    Ok(taken)
}

/// Changes that empty all of a function's state.
pub(crate) fn clear(function: FunctionId, partitions: u32) -> Vec<Changes> {
    let cleared = |partition| {
        let mut changes = Changes::new(Scope {
            function,
            partition,
        });
        changes.push(Change::Clear);
        changes
    };
    (0..partitions).map(cleared).collect()
}
