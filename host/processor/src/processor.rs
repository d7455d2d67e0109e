//! The façade: deploy, list, describe, pause, resume, delete, look inside, stop.

mod inner;

use crate::broken::Faults;
use crate::calls::Caller;
use crate::compiling::Compiler;
use crate::deployment::{by_key_topics, dead_letter_topic};
use crate::function_log::{Keeper, LogQuery, LogReader, LogRetention};
use crate::grants::HostGrants;
use crate::instances::Instances;
use crate::letters::{self, Letters};
use crate::measure::{FunctionMetrics, Named, Seen};
use crate::parts::Parts;
use crate::pool::Pool;
use crate::record::{Record, Standing};
use crate::slot::{Slot, Wanted};
use crate::task::driver::park;
use crate::version::{self, Version};
use crate::{Chosen, DeadLetter, Dealt, LetterPage, LetterPlace, LetterQuery};
use crate::{
    FunctionReport, KeptReport, Manifest, Maxima, Plan, Start, StateEntry, StatePage, VersionReport,
};
use crate::{cleaning, deploying, housekeeping, renewing, restore};
use bytes::Bytes;
pub(crate) use inner::{Functions, Inner};
use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tidemill_env::metrics::Metrics;
use tidemill_env::objects::Objects;
use tidemill_env::{Clock, Random, Urgency};
use tidemill_log::{Draft, Log};
use tidemill_state::Store;
use tidemill_types::{ByteSize, Error, FunctionName, Result, Timestamp};
use tidemill_wasm::Sandbox;

/// Settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Threads that run functions; 0 = as many as cores.
    pub threads: usize,
    /// What is kept of each function's log.
    pub log_retention: LogRetention,
    /// Linear memory of all instances.
    pub memory_bytes: ByteSize,
    /// How long an instance is kept that isn't used.
    pub idle: Duration,
    /// What functions are allowed at most.
    pub maxima: Maxima,
    /// How long compiling a component may take.
    pub compile_time: Duration,
    /// What functions may be granted.
    pub grants: HostGrants,
    /// Memory of all replays that run.
    pub replay_bytes: ByteSize,
    /// Folder for the state of replays; what is in it goes at a start.
    pub replay_dir: PathBuf,
    /// Of how many versions of a function state and positions are kept as they were when they were left; 0: of none.
    pub restores: usize,
    /// How long they are.
    pub restore_age: Duration,
    /// Functions that have metrics of their own; those of the others are added up.
    pub metrics: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            threads: 0,
            log_retention: LogRetention::default(),
            memory_bytes: ByteSize::mib(64),
            idle: Duration::from_secs(30),
            maxima: Maxima::default(),
            grants: HostGrants::default(),
            compile_time: Duration::from_secs(60),
            replay_bytes: ByteSize::mib(256),
            replay_dir: PathBuf::from("tidemill-data/replay"),
            restores: 2,
            restore_age: Duration::from_secs(7 * 24 * 3600),
            metrics: 100,
        }
    }
}

/// A request to deploy.
#[derive(Clone, Debug)]
pub struct Deploy {
    /// Under which name.
    pub name: FunctionName,
    /// The component.
    pub component: Bytes,
    /// The manifest beside it, in JSON form.
    pub manifest: Option<serde_json::Value>,
    /// Overrides the manifest's start.
    pub start: Option<Start>,
    /// What happens to the state of an earlier version.
    pub state: KeepState,
    /// Only check and report.
    pub dry_run: bool,
}

/// A request to go back to an earlier version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rollback {
    /// Number of the version.
    pub version: u32,
    /// What happens to state.
    pub state: KeepState,
    /// Only check and report.
    pub dry_run: bool,
}

/// What happens to state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeepState {
    /// It stays.
    Keep,
    /// It goes.
    Reset,
    /// It is again what it was when the version that is gone back to was left, and so are positions: events
    /// since are handled again.
    Restore {
        /// Whether it is meant that they are, and that what is emitted for them is there twice.
        again: bool,
    },
}

/// What a deployment came to.
#[derive(Clone, Debug)]
pub struct Deployed {
    /// Version number, from 1.
    pub version: u32,
    /// `sha256:…`.
    pub digest: String,
    /// Bytes of the component.
    pub bytes: usize,
    /// The manifest in force.
    pub manifest: Manifest,
    /// Interfaces it imports.
    pub imports: Vec<String>,
    /// Time to check and compile.
    pub compile_ms: u64,
    /// Whether anything changed; the same digest and manifest again change nothing.
    pub changed: bool,
    /// The version it went back to.
    pub rollback_of: Option<u32>,
    /// What changed, or would.
    pub plan: Plan,
}

/// All functions of a host. Cheap to clone.
#[derive(Clone)]
pub struct Processor {
    pub(crate) inner: Arc<Inner>,
    seen: Arc<Seen>,
}

impl Processor {
    /// Takes up the deployments of the log's registry and starts their tasks. A function whose
    /// component or topics are missing stands still and says why; the others run.
    ///
    /// # Errors
    /// When the registry can't be read or the machine refuses threads.
    #[expect(
        clippy::too_many_arguments,
        reason = "the composition root wires the parts one by one"
    )]
    pub async fn open(
        settings: Settings,
        log: Log,
        state: Store,
        sandbox: Sandbox,
        objects: Objects,
        clock: Clock,
        random: Random,
        metrics: &Metrics,
    ) -> Result<Self> {
        let faults = Faults::default();
        Self::open_with(
            settings, log, state, sandbox, objects, clock, random, metrics, faults,
        )
        .await
    }

    /// The same, with a promise that is broken.
    ///
    /// # Errors
    /// As [`Processor::open`].
    #[cfg(feature = "broken")]
    #[expect(clippy::too_many_arguments, reason = "as the other one")]
    pub async fn open_broken(
        settings: Settings,
        log: Log,
        state: Store,
        sandbox: Sandbox,
        objects: Objects,
        clock: Clock,
        random: Random,
        metrics: &Metrics,
        fault: crate::Fault,
    ) -> Result<Self> {
        let faults = Faults::of(fault, random.clone());
        Self::open_with(
            settings, log, state, sandbox, objects, clock, random, metrics, faults,
        )
        .await
    }

    #[expect(clippy::too_many_arguments, reason = "as the other one")]
    async fn open_with(
        settings: Settings,
        log: Log,
        state: Store,
        sandbox: Sandbox,
        objects: Objects,
        clock: Clock,
        random: Random,
        metrics: &Metrics,
        faults: Faults,
    ) -> Result<Self> {
        let pool = Pool::start(settings.threads, Urgency::Normal, clock.clone())?;
        let instances =
            Instances::new(settings.memory_bytes, settings.idle, clock.clone(), metrics);
        let compiler = Compiler::new(sandbox.clone(), clock.clone(), settings.compile_time);
        let caller = Caller::new(settings.grants.clone(), clock.clone(), metrics)?;
        let named = Arc::new(Named::new(settings.metrics));
        let seen = Seen::new(metrics, Arc::clone(&named));
        let metrics = FunctionMetrics::new(metrics, named);
        let parts = Parts {
            compiler,
            instances: Arc::new(instances),
            log,
            state,
            sandbox,
            objects,
            clock,
            random,
            pool,
            metrics,
            keeper: Arc::new(Keeper::new(settings.log_retention)),
            caller: Some(Arc::new(caller)),
            faults,
            aside: None,
            applying: RwLock::default(),
        };
        let inner = Inner::open(settings, Arc::new(parts)).await?;
        housekeeping::start(&inner.parts, &inner.shutdown);
        cleaning::start(&inner);
        renewing::start(&inner);
        restore::start(&inner);
        let instances = Arc::clone(&inner.parts.instances);
        tokio::spawn(instances.tidy(inner.shutdown.clone()));
        let seen = Arc::new(seen);
        Ok(Self { inner, seen })
    }

    /// Brings those metrics up to date that nobody counts: lag, state, memory. Called before metrics are shown.
    pub fn observe(&self) {
        self.inner.observe(&self.seen);
    }

    /// Deploys. Everything is checked before anything changes; durable when it returns. Tasks of an
    /// earlier version stop at a transaction border and the new version goes on from there.
    ///
    /// # Errors
    /// `invalid-component`, `invalid-manifest`, `unknown-topic` (an input), `cycle`, `topic-exists`.
    pub async fn deploy(&self, deploy: Deploy) -> Result<Deployed> {
        let inner = Arc::clone(&self.inner);
        // To its end, whoever stops waiting for it: the function's tasks stand meanwhile.
        let put = tokio::spawn(async move { deploying::deploy(&inner, deploy).await });
        put.await
            .map_err(|_| Error::internal("a deployment panicked"))?
    }

    /// Goes back to an earlier version: deploys what it was under a new number, from where the function
    /// stands, or with [`KeepState::Restore`] from where that version was left, with the state of then.
    /// Everything is checked as for a deployment.
    ///
    /// # Errors
    /// `function-not-found`, `version-not-found`, `restore-impossible`, `runs-again`; as [`Processor::deploy`].
    pub async fn rollback(&self, name: &str, rollback: Rollback) -> Result<Deployed> {
        let (inner, name) = (Arc::clone(&self.inner), name.to_owned());
        let back = tokio::spawn(async move { deploying::rollback(&inner, &name, rollback).await });
        back.await
            .map_err(|_| Error::internal("going back to a version panicked"))?
    }

    /// The versions of a function that are kept, the newest first.
    ///
    /// # Errors
    /// `function-not-found`, `journal-failed`.
    pub async fn versions(&self, name: &str) -> Result<Vec<VersionReport>> {
        let (name, record) = self.inner.existing(name)?;
        let kept = version::kept(&self.inner.parts, &name, &record)?;
        let points = restore::points(&self.inner.parts, &name)?;
        self.inner.parts.settled().await?;
        let report = |(number, version): (u32, Version)| {
            Ok(VersionReport {
                version: number,
                manifest: Manifest::resolve(None, Some(&version.manifest), &name)?,
                digest: version.digest,
                bytes: version.bytes,
                imports: version.imports,
                deployed: version.deployed.map(Timestamp::from_micros),
                rollback_of: version.rollback_of,
                reset: version.reset,
                in_force: number == record.version,
                restored: version.restored,
                kept: points.get(&number).map(|point| KeptReport {
                    left: Timestamp::from_micros(point.taken),
                    ready: point.copied,
                }),
            })
        };
        kept.into_iter().rev().map(report).collect()
    }

    /// All functions by name. What they say is durable, and outputs up to their positions can be read.
    ///
    /// # Errors
    /// `journal-failed`.
    pub async fn list(&self) -> Result<Vec<FunctionReport>> {
        let reports = self.inner.reports();
        self.inner.parts.settled().await?;
        Ok(reports)
    }

    /// One function. What is said is durable, and outputs up to its positions can be read.
    ///
    /// # Errors
    /// `function-not-found`, `journal-failed`.
    pub async fn describe(&self, name: &str) -> Result<FunctionReport> {
        let report = self.inner.report(name)?;
        self.inner.parts.settled().await?;
        Ok(report)
    }

    /// The names of all functions.
    pub fn names(&self) -> Vec<FunctionName> {
        let manifests = self.inner.manifests();
        manifests
            .into_iter()
            .map(|manifest| manifest.name)
            .collect()
    }

    /// What a function says of itself.
    ///
    /// # Errors
    /// `function-not-found`.
    pub fn manifest(&self, name: &str) -> Result<Manifest> {
        self.inner.with(name, |function| function.manifest.clone())
    }

    /// Stops its tasks at a transaction border; survives restarts. Durable when it returns.
    ///
    /// # Errors
    /// `function-not-found`.
    pub async fn pause(&self, name: &str) -> Result<FunctionReport> {
        let _admin = self.inner.admin.lock().await;
        let (name, record) = self.inner.existing(name)?;
        if record.standing != Standing::Paused {
            self.inner
                .stand(
                    &name,
                    Record {
                        standing: Standing::Paused,
                        reason: None,
                        since: Some(self.inner.parts.clock.now().micros()),
                        ..record
                    },
                )
                .await?;
        }
        self.describe(name.as_str()).await
    }

    /// Lets a paused or stopped function go on.
    ///
    /// # Errors
    /// `function-not-found`; what keeps it from running, if it can't.
    pub async fn resume(&self, name: &str) -> Result<FunctionReport> {
        let _admin = self.inner.admin.lock().await;
        let (name, _) = self.inner.existing(name)?;
        self.inner.renew(&name).await?;
        let (_, record) = self.inner.existing(name.as_str())?;
        if record.standing != Standing::Running {
            let record = Record {
                standing: Standing::Running,
                reason: None,
                since: None,
                ..record
            };
            self.inner.stand(&name, record).await?;
        }
        self.inner.start(&name)?;
        self.describe(name.as_str()).await
    }

    /// Deletes a function, and its shadow; with `Keep` a later deployment of the same name finds its
    /// positions and state. Its dead letters stay in any case.
    ///
    /// # Errors
    /// `function-not-found`.
    pub async fn delete(&self, name: &str, state: KeepState) -> Result<()> {
        let _admin = self.inner.admin.lock().await;
        let (name, record) = self.inner.existing(name)?;
        if let Some((shadow, record)) = self.inner.shadow_of(&name) {
            self.inner.drop_function(&shadow, &record).await?;
        }
        match state {
            _ if record.shadow.is_some() => self.inner.drop_function(&name, &record).await,
            KeepState::Keep | KeepState::Restore { .. } => {
                let record = Record {
                    standing: Standing::Deleted,
                    reason: None,
                    ..record
                };
                self.inner.stand(&name, record).await
            }
            KeepState::Reset => self.inner.drop_function(&name, &record).await,
        }
    }

    /// The log of a function: the lines there are, and those to come.
    ///
    /// # Errors
    /// `function-not-found`.
    pub fn logs(&self, name: &str, query: LogQuery) -> Result<LogReader> {
        let name = self
            .inner
            .with(name, |function| function.manifest.name.clone())?;
        Ok(LogReader::new(&self.inner.parts, &name, query))
    }

    /// The value of a slot for a key, or of an entry of its map, durable.
    ///
    /// # Errors
    /// `function-not-found`, `slot-not-found`, `key-not-found`, `journal-failed`.
    pub async fn state_get(
        &self,
        name: &str,
        slot: &str,
        key: &[u8],
        entry: Option<&[u8]>,
    ) -> Result<StateEntry> {
        let slot = self.slot(name, slot)?;
        let (key, entry) = (key.to_vec(), entry.map(<[u8]>::to_vec));
        self.settled_state(move || slot.get(&key, entry.as_deref()))
            .await
    }

    /// Entries of a slot by partition and key, durable, from `after` (as an earlier page's `next`) on: those
    /// whose keys begin with `prefix`, or with a `key` the entries of its map that do.
    ///
    /// # Errors
    /// `function-not-found`, `slot-not-found`, `journal-failed`.
    pub async fn state_list(
        &self,
        name: &str,
        slot: &str,
        key: Option<&[u8]>,
        prefix: &[u8],
        after: Option<(u32, Bytes)>,
        limit: usize,
    ) -> Result<StatePage> {
        let slot = self.slot(name, slot)?;
        let wanted = Wanted {
            key: key.map(<[u8]>::to_vec),
            prefix: prefix.to_vec(),
            after,
            limit,
        };
        self.settled_state(move || slot.list(&wanted)).await
    }

    /// Looks at state, and waits until what was seen is durable.
    async fn settled_state<T: Send + 'static>(
        &self,
        look: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let found = tokio::task::spawn_blocking(look).await;
        let found = found.map_err(|_| Error::internal("reading state panicked"))??;
        self.inner.parts.settled().await?;
        Ok(found)
    }

    fn slot(&self, name: &str, slot: &str) -> Result<Slot> {
        let parts = &self.inner.parts;
        self.inner
            .with(name, |function| Slot::find(parts, function, slot))?
    }

    /// Dead letters of a function.
    ///
    /// # Errors
    /// `function-not-found`; `Unavailable` when they can't be read.
    pub async fn dead_letters(&self, name: &str, query: &LetterQuery) -> Result<LetterPage> {
        let page = self.letters(name)?.page(query).await?;
        self.inner.parts.settled().await?;
        Ok(page)
    }

    /// One dead letter.
    ///
    /// # Errors
    /// `function-not-found`, `dead-letter-not-found`.
    pub async fn dead_letter(&self, name: &str, place: LetterPlace) -> Result<DeadLetter> {
        let letter = self.letters(name)?.one(place).await?;
        self.inner.parts.settled().await?;
        Ok(letter)
    }

    /// Puts dead letters back to the function, and to no other, each once; durable when it returns.
    ///
    /// # Errors
    /// `function-not-found`, `dead-letter-not-found`, `too-scattered`, `parked-full`.
    pub async fn redrive(&self, name: &str, chosen: Chosen) -> Result<Dealt> {
        let (inner, name) = (Arc::clone(&self.inner), name.to_owned());
        // To its end, whoever stops waiting for it: the function's tasks stand meanwhile.
        let put = tokio::spawn(async move { letters::redrive(&inner, &name, chosen).await });
        put.await
            .map_err(|_| Error::internal("putting dead letters back panicked"))?
    }

    /// Says of dead letters that nothing will be done with them; durable when it returns.
    ///
    /// # Errors
    /// `function-not-found`, `dead-letter-not-found`, `too-scattered`.
    pub async fn discard(&self, name: &str, chosen: Chosen) -> Result<Dealt> {
        letters::discard(&self.inner, name, chosen).await
    }

    fn letters(&self, name: &str) -> Result<Letters> {
        let parts = &self.inner.parts;
        self.inner
            .with(name, |function| Letters::find(parts, function))?
    }

    /// Functions that read a topic or write it, by name (a topic in use isn't deleted).
    pub fn users_of(&self, topic: &str) -> Vec<FunctionName> {
        let uses = |manifest: &Manifest| {
            manifest
                .inputs
                .iter()
                .any(|input| input.topic.as_str() == topic)
                || manifest
                    .outputs
                    .iter()
                    .any(|output| output.topic.as_str() == topic)
                || dead_letter_topic(&manifest.name) == topic
                || by_key_topics(manifest, &manifest.name)
                    .iter()
                    .flatten()
                    .any(|by_key| by_key == topic)
        };
        self.inner
            .manifests()
            .into_iter()
            .filter(uses)
            .map(|manifest| manifest.name)
            .collect()
    }

    /// Stops all tasks at a transaction border.
    pub async fn stop(&self) {
        let _admin = self.inner.admin.lock().await;
        park(self.inner.take_all_tasks()).await;
        self.inner.parts.keeper.flushed().await;
        self.inner.shutdown.cancel();
        let durable = *self.inner.parts.log.durable().borrow();
        self.inner.parts.state.durable(durable);
    }
}
