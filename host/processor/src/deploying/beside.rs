//! A version put beside the one in force, and put in force from there.

use super::{Wanted, check, ends, fetch, kept, plan, put, sent, starting, topics};
use crate::deployment::dead_letter_topic;
use crate::function::Function;
use crate::function_log::FunctionLog;
use crate::manifest::Manifest;
use crate::note::Note;
use crate::parked;
use crate::processor::Inner;
use crate::record::{NEXT, Record, Role, Shadow, Standing, component_path, reader};
use crate::shadow;
use crate::task::driver::park;
use crate::version::{self, Version};
use crate::{Deploy, Deployed, KeepState};
use starting::{Starting, step};
use std::sync::Arc;
use tidemill_log::{Draft, Position, Topic};
use tidemill_state::{Frozen, Scope};
use tidemill_types::{Error, ErrorKind, FunctionId, FunctionName, Result};

/// A shadow about to begin.
struct Beginning {
    wanted: Wanted,
    checked: check::Checked,
    /// The function it runs beside.
    live: Record,
    record: Record,
    shadow: Shadow,
    /// Its manifest.
    manifest: Manifest,
    /// The topic that main tasks read.
    main: Vec<Arc<Topic>>,
}

/// Begins a shadow.
///
/// # Errors
/// See [`crate::Processor::deploy_shadow`].
pub(crate) async fn begin(inner: &Arc<Inner>, deploy: Deploy) -> Result<Deployed> {
    if deploy.start.is_some() {
        return Err(Error::invalid(
            "invalid-start",
            "a shadow begins where the function stands; leave start out",
        ));
    }
    let wanted = sent(inner, deploy).await?;
    let _admin = inner.admin.lock().await;
    let (of, live) = inner.existing(wanted.name.as_str())?;
    shadow::is_none(&of, Some(&live))?;
    shadow::may_be(&wanted.manifest)?;
    let name = free(inner, &of, &wanted.manifest)?;
    let checked = (&wanted.component, &wanted.manifest);
    let checked = check::check(inner, checked.0, checked.1, Some(&live), wanted.state).await?;
    let main = same_inputs(inner, &of, &live, &wanted.manifest)?;
    let starting = (checked.inputs.as_slice(), &wanted.manifest);
    let starting =
        Starting::decide(inner, starting, Some(&live), wanted.start, &wanted.ends).await?;
    let mut plan = plan(inner, &wanted, Some(&live), (&checked, &starting))?;
    // What it is about is the shadow, whose state is its own.
    plan.resets = wanted.state == KeepState::Reset;
    let manifest = shadow::manifest(&wanted.manifest, &name)?;
    let deployed = Deployed {
        version: 1,
        digest: wanted.component.digest().to_owned(),
        bytes: wanted.size,
        manifest: manifest.clone(),
        imports: wanted.component.imports().to_vec(),
        compile_ms: u64::try_from(wanted.compiled_in.as_millis()).unwrap_or(u64::MAX),
        changed: true,
        rollback_of: None,
        plan,
    };
    if wanted.dry_run {
        return Ok(deployed);
    }
    let shadow = Shadow {
        of,
        manifest: wanted.manifest.source.clone(),
        kept: inner.next_function() + 1,
        partitions: checked.partitions,
        empty: wanted.state == KeepState::Reset,
        began: inner.parts.clock.now().micros(),
    };
    let record = record(inner, &deployed, &live, &shadow);
    let beginning = Beginning {
        wanted,
        checked,
        live,
        record,
        shadow,
        manifest,
        main,
    };
    beginning.perform(inner, &name).await?;
    Ok(deployed)
}

/// The shadow's name, if neither it nor one of its topics is taken.
fn free(inner: &Inner, of: &FunctionName, manifest: &Manifest) -> Result<FunctionName> {
    let name = shadow::name_of(of)?;
    let taken = |code: &'static str, what: String| Err(Error::new(ErrorKind::Conflict, code, what));
    match inner.record(&name).map(|record| record.shadow.is_some()) {
        None => {}
        Some(true) => {
            return taken(
                "shadow-exists",
                format!("function {of:?} has a shadow already; promote or stop it first"),
            );
        }
        Some(false) => {
            return taken(
                "shadow-exists",
                format!("there is a function {name:?}, whose name the shadow needs"),
            );
        }
    }
    let outputs = manifest.outputs.iter();
    let topics = outputs.map(|output| shadow::topic_of(&name, &output.name));
    let letters = dead_letter_topic(&name).parse();
    for topic in topics.chain([letters]) {
        let topic = topic?;
        if inner.parts.log.topic(topic.as_str()).is_some() {
            return taken(
                "topic-exists",
                format!(
                    "topic {:?} exists, but the shadow needs that name for what it emits; delete the topic first",
                    topic.as_str()
                ),
            );
        }
    }
    Ok(name)
}

/// The topics of the main tasks; both read the same.
fn same_inputs(
    inner: &Inner,
    of: &FunctionName,
    live: &Record,
    wanted: &Manifest,
) -> Result<Vec<Arc<Topic>>> {
    let now = Manifest::resolve(None, Some(&live.manifest), of)?;
    let topics = |manifest: &Manifest| {
        let inputs = manifest.inputs.iter();
        let names: Vec<_> = inputs
            .map(|input| format!("{:?}", input.topic.as_str()))
            .collect();
        names.join(", ")
    };
    let (now, wanted) = (topics(&now), topics(wanted));
    if now != wanted {
        return Err(Error::invalid(
            "invalid-manifest",
            format!(
                "manifest, input: a shadow reads what the function reads, in the same order: {now}, not {wanted}"
            ),
        ));
    }
    let ready = inner.with(of.as_str(), |function| {
        let deployment = function.deployment.as_ref();
        let broken = function.broken.clone().unwrap_or_default();
        deployment
            .map(|deployment| {
                deployment
                    .inputs
                    .iter()
                    .map(|i| Arc::clone(i.read()))
                    .collect()
            })
            .ok_or(broken)
    })?;
    ready.map_err(|why| {
        let detail = format!("function {of:?} can't run, so that nothing can run beside it: {why}");
        Error::new(ErrorKind::Conflict, "replay-impossible", detail)
    })
}

/// The shadow's record as it is while its state is copied.
fn record(inner: &Inner, deployed: &Deployed, live: &Record, shadow: &Shadow) -> Record {
    let mut record = Record {
        id: inner.next_function(),
        version: deployed.version,
        digest: deployed.digest.clone(),
        bytes: deployed.bytes,
        imports: deployed.imports.clone(),
        manifest: deployed.manifest.source.clone(),
        standing: Standing::Deleted,
        reason: None,
        since: None,
        started: live.started.clone(),
        slots: live.slots.clone(),
        stamped: shadow.empty || live.stamped,
        shadow: Some(shadow.clone()),
    };
    record.number_slots(&deployed.manifest);
    record
}

impl Beginning {
    /// From here on things change; what an earlier step left goes if a later one fails, or at the next start.
    async fn perform(self, inner: &Arc<Inner>, name: &FunctionName) -> Result<()> {
        let mut draft = Draft::new();
        draft.entry(&Record::key(name), Some(&self.record.encode()?));
        let next = (self.shadow.kept + 1).to_string();
        draft.entry(NEXT, Some(next.as_bytes()));
        inner.parts.commit_durably(draft, &[]).await?;
        let unfinished = self.record.clone();
        let put = self.copy_and_start(inner, name).await;
        if let Err(wrong) = put {
            if let Err(left) = shadow::sweep(inner, name, &unfinished).await {
                tracing::warn!(function = %name, error = %left, "what a shadow left that couldn't begin goes at the next start");
            }
            return Err(wrong);
        }
        inner.start(name)
    }

    async fn copy_and_start(self, inner: &Arc<Inner>, name: &FunctionName) -> Result<()> {
        let (frozen, stands) = self.hold(inner).await?;
        self.copy(inner, &Arc::new(frozen)).await?;
        let path = component_path(&self.record.digest);
        if let Some(bytes) = self.wanted.bytes.clone() {
            inner.parts.objects.create(&path, bytes).await?;
        }
        self.side_topics(inner, name).await?;
        let record = Record {
            standing: Standing::Running,
            ..self.record
        };
        let parts = (self.wanted.component, self.manifest.clone(), self.checked);
        let deployment = topics::make(inner, parts, &record).await?;
        let mut draft = Draft::new();
        draft.entry(&Record::key(name), Some(&record.encode()?));
        let mut first = vec![vec![0; deployment.partitions() as usize]; self.main.len()];
        for position in &stands {
            let note = match position.note.is_empty() {
                true => None,
                false => Some(Note::decode(&position.note)?),
            };
            let begins = note.map(|note| shadow::note(&note, self.shadow.empty));
            for (function, note) in [(record.function(), begins), (self.shadow.kept(), note)] {
                let reader = reader(function, Role::Main);
                draft.advance(step(reader, position.at, position.offset, note));
            }
            let input = self
                .main
                .iter()
                .position(|topic| topic.id == position.at.topic);
            let first = input.and_then(|input| first.get_mut(input));
            if let Some(first) = first.and_then(|of| of.get_mut(position.at.partition as usize)) {
                *first = position.offset;
            }
        }
        let version = Version {
            deployed: Some(self.shadow.began),
            reset: self.shadow.empty,
            behind: inner.parts.log.durable().borrow().0,
            ..Version::of_record(&record)
        };
        let version = version.between(first, None);
        let number = (record.version, &version);
        version::add(&inner.parts, &mut draft, name, None, number)?;
        inner.parts.commit_durably(draft, &[]).await?;
        inner.install(name, |_| Function {
            record,
            manifest: self.manifest,
            deployment: Some(Arc::new(deployment)),
            broken: None,
            tasks: Vec::new(),
            lines: Arc::new(FunctionLog::new(&inner.parts.keeper, name)),
        });
        Ok(())
    }

    /// Stops the function between two transactions for as long as it takes to take hold of its state.
    async fn hold(&self, inner: &Inner) -> Result<(Frozen, Vec<Position>)> {
        let of = &self.shadow.of;
        park(inner.take_tasks(of)).await;
        let frozen = crate::replay::held(inner).await;
        let reader = reader(self.live.function(), Role::Main);
        let mut stands = inner.parts.log.positions(reader);
        inner.start(of)?;
        stands.retain(|position| {
            let read = self.main.iter().any(|topic| topic.id == position.at.topic);
            read && (position.offset > 0 || !position.note.is_empty())
        });
        Ok((frozen?, stands))
    }

    async fn copy(&self, inner: &Inner, frozen: &Arc<Frozen>) -> Result<()> {
        let of = |function: FunctionId, partition| Scope {
            function,
            partition,
        };
        let (live, own) = (self.live.function(), self.record.function());
        for partition in 0..self.shadow.partitions {
            let from = of(live, partition);
            let (kept, own) = (of(self.shadow.kept(), partition), of(own, partition));
            let to: &[Scope] = match self.shadow.empty {
                true => &[kept],
                false => &[kept, own],
            };
            shadow::state(&inner.parts, frozen, from, to).await?;
            if !self.shadow.empty {
                let (from, to) = (parked::scope(from), [parked::scope(own)]);
                shadow::state(&inner.parts, frozen, from, &to).await?;
            }
        }
        Ok(())
    }

    /// Topics for what it emits are like those the function writes, so that the same is taken and refused.
    async fn side_topics(&self, inner: &Inner, name: &FunctionName) -> Result<()> {
        for output in &self.wanted.manifest.outputs {
            let Some(like) = inner.parts.log.topic(output.topic.as_str()) else {
                continue;
            };
            let topic = shadow::topic_of(name, &output.name)?;
            let settings = like.settings.clone();
            inner.parts.log.create_topic(&topic, settings).await?;
        }
        Ok(())
    }
}

/// Puts the version that runs as a shadow in force, and ends the shadow.
///
/// # Errors
/// See [`crate::Processor::promote_shadow`].
pub(crate) async fn promote(
    inner: &Arc<Inner>,
    name: &str,
    (state, dry_run): (KeepState, bool),
) -> Result<Deployed> {
    let ends = ends(inner);
    let admin = inner.admin.lock().await;
    let (name, _) = inner.existing(name)?;
    let (beside, record) = shadow::existing(inner, &name)?;
    let shadow = record.shadow.as_ref();
    let shadow = shadow.ok_or_else(|| Error::internal("a shadow of nothing"))?;
    let begun = inner.parts.clock.elapsed();
    let wanted = Wanted {
        component: fetch(inner, &record.digest).await?,
        manifest: Manifest::resolve(None, Some(&shadow.manifest), &name)?,
        compiled_in: inner.parts.clock.elapsed().saturating_sub(begun),
        name,
        bytes: None,
        size: record.bytes,
        start: None,
        state,
        rollback_of: None,
        ends,
        dry_run,
    };
    let (deployed, copying) = put(inner, wanted).await?;
    if !dry_run {
        inner.drop_function(&beside, &record).await?;
    }
    drop(admin);
    kept(inner, copying).await;
    Ok(deployed)
}
