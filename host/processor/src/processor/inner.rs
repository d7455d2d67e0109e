//! What is behind the façade: the functions by name, and the few ways in which they change.

use crate::deploying::{clear, take_up};
use crate::deployment::by_key_topic;
use crate::function::{Function, start_tasks};
use crate::function_log::FunctionLog;
use crate::inspect;
use crate::measure::Seen;
use crate::nearest::did_you_mean;
use crate::parked;
use crate::parts::Parts;
use crate::processor::{Draft, Settings};
use crate::record::{NEXT, PREFIX, Record, Role, Standing, reader};
use crate::renewing::Found;
use crate::replay::Jobs;
use crate::restore::{self, Keeping};
use crate::shadow;
use crate::task::driver::{Handle, Stopped, park};
use crate::version;
use crate::{FunctionReport, Manifest};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tidemill_env::Shutdown;
use tidemill_types::{Error, FunctionName, Result};
use tokio::sync::mpsc;

pub(crate) type Functions = BTreeMap<FunctionName, Function>;

/// All functions, deleted but kept ones included. Whoever changes one holds `admin` while doing so.
pub(crate) struct Inner {
    pub(crate) settings: Settings,
    pub(crate) parts: Arc<Parts>,
    pub(crate) admin: tokio::sync::Mutex<()>,
    pub(crate) shutdown: Shutdown,
    pub(crate) jobs: Arc<Jobs>,
    functions: Mutex<Functions>,
    stopped: mpsc::UnboundedSender<Stopped>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl Inner {
    /// Takes up what the registry has and starts what should run.
    ///
    /// # Errors
    /// When the registry can't be read.
    pub(crate) async fn open(settings: Settings, parts: Arc<Parts>) -> Result<Arc<Self>> {
        let (stopped, ended) = mpsc::unbounded_channel();
        // What a replay leaves behind when the host is killed.
        let _ = std::fs::remove_dir_all(&settings.replay_dir);
        let inner = Arc::new(Self {
            jobs: Arc::new(Jobs::new(settings.replay_bytes)),
            settings,
            parts,
            admin: tokio::sync::Mutex::default(),
            shutdown: Shutdown::new(),
            functions: Mutex::default(),
            stopped,
        });
        let mut unfinished = Vec::new();
        for (key, entry) in inner.parts.log.entries(PREFIX) {
            let (name, record) = Record::decode(&key, &entry)?;
            if record.standing == Standing::Deleted && record.shadow.is_some() {
                unfinished.push((name, record));
                continue;
            }
            let manifest = Manifest::resolve(None, Some(&record.manifest), &name)?;
            inner.take(name, record, manifest).await;
        }
        for (name, record) in unfinished {
            shadow::sweep(&inner, &name, &record).await?;
        }
        restore::sweep(&inner, true).await?;
        version::sweep(&inner.parts).await?;
        tokio::spawn(supervise(Arc::downgrade(&inner), ended));
        Ok(inner)
    }

    async fn take(&self, name: FunctionName, mut record: Record, manifest: Manifest) {
        let mut broken = None;
        let deployment = match record.standing {
            Standing::Deleted => None,
            _ => match take_up(self, &manifest, &record).await {
                Ok(deployment) => {
                    // An input that was made again while nobody looked is begun with.
                    record.start_in(&deployment);
                    Some(Arc::new(deployment))
                }
                Err(wrong) => {
                    tracing::error!(function = %name, error = %wrong, "a function can't be taken up");
                    broken = Some(unready(wrong));
                    None
                }
            },
        };
        let lines = Arc::new(FunctionLog::new(&self.parts.keeper, &name));
        let function = Function {
            record,
            manifest,
            deployment,
            broken,
            tasks: Vec::new(),
            lines,
        };
        self.install(&name, |_| function);
        if let Err(wrong) = self.start(&name) {
            tracing::error!(function = %name, error = %wrong, "a function can't be started");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Functions> {
        self.functions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at a function.
    ///
    /// # Errors
    /// `function-not-found`.
    pub(crate) fn with<T>(&self, name: &str, look: impl FnOnce(&Function) -> T) -> Result<T> {
        let functions = self.lock();
        let mut live = live(&functions);
        if let Some((_, function)) = live.clone().find(|(known, _)| known.as_str() == name) {
            return Ok(look(function));
        }
        let names: Vec<&str> = live.by_ref().map(|(name, _)| name.as_str()).collect();
        let near = did_you_mean(name, names);
        let detail = format!("There is no function {name:?}.{near}");
        Err(Error::not_found("function-not-found", detail))
    }

    /// The record of a function that isn't deleted.
    ///
    /// # Errors
    /// `function-not-found`.
    pub(crate) fn existing(&self, name: &str) -> Result<(FunctionName, Record)> {
        self.with(name, |function| {
            (function.manifest.name.clone(), function.record.clone())
        })
    }

    /// The record of a function, deleted or not.
    pub(crate) fn record(&self, name: &FunctionName) -> Option<Record> {
        self.lock()
            .get(name)
            .map(|function| function.record.clone())
    }

    /// Manifests of all functions that aren't deleted.
    pub(crate) fn manifests(&self) -> Vec<Manifest> {
        live(&self.lock())
            .map(|(_, function)| function.manifest.clone())
            .collect()
    }

    /// Looks at every function.
    pub(crate) fn each(&self, look: impl FnMut(&Function)) {
        self.lock().values().for_each(look);
    }

    /// Reports of all functions that aren't deleted.
    pub(crate) fn reports(&self) -> Vec<FunctionReport> {
        let functions = self.lock();
        live(&functions)
            .map(|(name, function)| FunctionReport {
                shadow: shadow::of(&functions, name).map(|(name, _)| name.clone()),
                ..inspect::report(&self.parts, name, function)
            })
            .collect()
    }

    /// The shadow of a function, with its record.
    pub(crate) fn shadow_of(&self, name: &FunctionName) -> Option<(FunctionName, Record)> {
        let functions = self.lock();
        let (name, function) = shadow::of(&functions, name)?;
        Some((name.clone(), function.record.clone()))
    }

    /// Shows what metrics say of functions as they are now.
    pub(crate) fn observe(&self, seen: &Seen) {
        let functions = self.lock();
        let report = |(name, function)| (inspect::report(&self.parts, name, function), function);
        seen.set(live(&functions).map(report));
    }

    /// Report of one function.
    ///
    /// # Errors
    /// `function-not-found`.
    pub(crate) fn report(&self, name: &str) -> Result<FunctionReport> {
        let report = self.with(name, |function| {
            inspect::report(&self.parts, &function.manifest.name, function)
        })?;
        let shadow = self.shadow_of(&report.name).map(|(name, _)| name);
        Ok(FunctionReport { shadow, ..report })
    }

    /// The number for the next new function.
    pub(crate) fn next_function(&self) -> u32 {
        let entries = self.parts.log.entries(NEXT);
        let next = entries.iter().find(|(key, _)| key == NEXT);
        let next = next.and_then(|(_, entry)| std::str::from_utf8(entry).ok()?.parse().ok());
        next.unwrap_or(1)
    }

    /// Takes the handles of a function's tasks, to park them.
    pub(crate) fn take_tasks(&self, name: &FunctionName) -> Vec<Handle> {
        self.lock()
            .get_mut(name)
            .map(|function| std::mem::take(&mut function.tasks))
            .unwrap_or_default()
    }

    /// Takes the handles of all tasks.
    pub(crate) fn take_all_tasks(&self) -> Vec<Handle> {
        self.lock()
            .values_mut()
            .flat_map(|function| std::mem::take(&mut function.tasks))
            .collect()
    }

    /// Puts a function in place of what was there.
    pub(crate) fn install(
        &self,
        name: &FunctionName,
        make: impl FnOnce(Option<&Function>) -> Function,
    ) {
        let mut functions = self.lock();
        let function = make(functions.get(name));
        functions.insert(name.clone(), function);
    }

    /// Starts a function's tasks if they should run and don't.
    ///
    /// # Errors
    /// When a topic is gone or a position can't be read.
    pub(crate) fn start(&self, name: &FunctionName) -> Result<()> {
        let mut functions = self.lock();
        let Some(function) = functions.get_mut(name) else {
            return Ok(());
        };
        let Some(deployment) = &function.deployment else {
            return Ok(());
        };
        if !function.should_run() || !function.tasks.is_empty() || self.shutdown.is_cancelled() {
            return Ok(());
        }
        let started = start_tasks(
            &self.parts,
            deployment,
            &function.lines,
            &self.shutdown,
            &self.stopped,
        );
        match started {
            Ok(tasks) => {
                function.tasks = tasks;
                function.broken = None;
                Ok(())
            }
            Err(wrong) => {
                function.broken = Some(wrong.detail.clone());
                Err(wrong)
            }
        }
    }

    /// Functions that should run, with what became of their topics.
    pub(crate) fn deployed(&self) -> Vec<(FunctionName, Found)> {
        let functions = self.lock();
        let wanted = functions
            .iter()
            .filter(|(_, function)| function.should_run());
        wanted
            .map(|(name, function)| {
                let found = match &function.deployment {
                    Some(deployment) => Found::of(&self.parts, deployment),
                    None => Found::Unready,
                };
                (name.clone(), found)
            })
            .collect()
    }

    /// Says why a function still can't be taken up.
    pub(crate) fn still_unready(&self, name: &FunctionName, why: Error) {
        if let Some(function) = self.lock().get_mut(name)
            && function.deployment.is_none()
        {
            function.broken = Some(unready(why));
        }
    }

    /// Says that a function's input is gone.
    pub(crate) fn without_input(&self, name: &FunctionName, topic: &str) {
        if let Some(function) = self.lock().get_mut(name) {
            let why = || format!("its topic {topic:?} is gone; it goes on once that is made again");
            function.broken.get_or_insert_with(why);
        }
    }

    /// Takes a function up again if it couldn't be, or if some of its topics are others now; answers whether
    /// it was so. A new input is read from its beginning.
    ///
    /// # Errors
    /// What is missing; as a commit.
    pub(crate) async fn renew(&self, name: &FunctionName) -> Result<bool> {
        let facts = self.with(name.as_str(), |function| {
            let deployment = function.deployment.as_ref();
            let same = deployment
                .is_some_and(|deployment| Found::of(&self.parts, deployment) == Found::Same);
            (!same).then(|| (function.manifest.clone(), function.record.clone()))
        })?;
        let Some((manifest, mut record)) = facts else {
            return Ok(false);
        };
        let deployment = take_up(self, &manifest, &record).await?;
        park(self.take_tasks(name)).await;
        record.start_in(&deployment);
        if let Some(function) = self.lock().get_mut(name) {
            function.deployment = Some(Arc::new(deployment));
            function.broken = None;
        }
        self.stand(name, record).await.map(|()| true)
    }

    /// Commits a function's changed record; tasks that should no longer run are parked before.
    ///
    /// # Errors
    /// As a commit; then the function goes on as it was.
    pub(crate) async fn stand(&self, name: &FunctionName, record: Record) -> Result<()> {
        park(self.take_tasks(name)).await;
        let mut draft = Draft::new();
        draft.entry(&Record::key(name), Some(&record.encode()?));
        let committed = self.parts.commit_durably(draft, &[]).await;
        if committed.is_ok()
            && let Some(function) = self.lock().get_mut(name)
        {
            function.record = record;
        }
        self.start(name)?;
        committed
    }

    /// A function's record changed otherwise; that is committed already.
    pub(crate) fn keep_record(&self, name: &FunctionName, record: Record) {
        if let Some(function) = self.lock().get_mut(name) {
            function.record = record;
        }
    }

    /// Deletes a function with its state and its internal topic.
    ///
    /// # Errors
    /// As a commit; then the function goes on as it was.
    pub(crate) async fn drop_function(&self, name: &FunctionName, record: &Record) -> Result<()> {
        park(self.take_tasks(name)).await;
        let partitions = self.with(name.as_str(), |function| {
            function.deployment.as_ref().map(|at| at.partitions())
        })?;
        let shadow = record.shadow.as_ref();
        let partitions = partitions.or(shadow.map(|shadow| shadow.partitions));
        let mut draft = Draft::new();
        draft.entry(&Record::key(name), None);
        version::remove(&self.parts, &mut draft, name, record)?;
        for role in [Role::Main, Role::Repartition] {
            draft.forget(reader(record.function(), role));
        }
        let partitions = partitions.unwrap_or_default();
        let mut keeping = Keeping::default();
        keeping.drop_all(self, &mut draft, name)?;
        let cleared = &mut keeping.cleared;
        cleared.extend(clear(record.function(), partitions));
        cleared.extend(parked::cleared(record.function(), partitions));
        if let Some(shadow) = shadow {
            shadow.forget(&mut draft, cleared);
        }
        if let Err(wrong) = self.parts.commit_durably(draft, &keeping.cleared).await {
            self.start(name)?;
            return Err(wrong);
        }
        self.lock().remove(name);
        keeping.done(&self.parts);
        self.parts.metrics.forget(name);
        self.parts.state.forget(record.function());
        if let Some(shadow) = shadow {
            self.parts.state.forget(shadow.kept());
            return shadow::drop_topics(self, name, record).await;
        }
        // Also those of inputs that earlier versions read.
        let own = by_key_topic(name, None);
        for topic in self.parts.log.topics() {
            let rest = topic.name.as_str().strip_prefix(&own);
            let is_own = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
            if is_own && record.has_started(topic.id) {
                self.parts.log.delete_topic(&topic.name).await?;
            }
        }
        Ok(())
    }
}

/// Why a function can't be taken up, in words.
fn unready(why: Error) -> String {
    match why.code {
        "topic-not-found" => format!("{}; it goes on once that is made again", why.detail),
        _ => format!("it can't be taken up: {}; that is tried again", why.detail),
    }
}

/// The functions that aren't deleted.
fn live(functions: &Functions) -> impl Iterator<Item = (&FunctionName, &Function)> + Clone {
    functions
        .iter()
        .filter(|(_, function)| function.record.standing != Standing::Deleted)
}

/// Puts functions whose tasks came to a stand on record as stopped, and parks their other tasks.
async fn supervise(inner: Weak<Inner>, mut ended: mpsc::UnboundedReceiver<Stopped>) {
    while let Some(task) = ended.recv().await {
        let Some(inner) = inner.upgrade() else { return };
        let _admin = inner.admin.lock().await;
        let Some((name, record)) = inner.running(&task) else {
            continue;
        };
        tracing::error!(function = %name, version = task.version, why = task.why, "a function stopped");
        let record = Record {
            standing: Standing::Stopped,
            reason: Some(task.why),
            since: Some(inner.parts.clock.now().micros()),
            ..record
        };
        inner.stop_for_good(&name, record).await;
    }
}

impl Inner {
    /// Parks a function's tasks and puts it on record as stopped; it stands still even where that
    /// can't be committed.
    async fn stop_for_good(&self, name: &FunctionName, record: Record) {
        park(self.take_tasks(name)).await;
        if let Some(function) = self.lock().get_mut(name) {
            function.record = record.clone();
        }
        if let Err(wrong) = self.stand(name, record).await {
            tracing::error!(function = %name, error = %wrong, "that it stopped can't be put on record");
        }
    }

    /// The function a task belonged to, if it still runs that version.
    fn running(&self, task: &Stopped) -> Option<(FunctionName, Record)> {
        let functions = self.lock();
        let (name, function) = functions
            .iter()
            .find(|(_, function)| function.record.function() == task.function)?;
        let record = &function.record;
        (record.standing == Standing::Running && record.version == task.version)
            .then(|| (name.clone(), record.clone()))
    }
}
