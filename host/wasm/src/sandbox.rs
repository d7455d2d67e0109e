//! Components: checked, compiled once, and instantiated as often as needed.

mod artefact;
mod cache;
mod check;
mod compiling;
mod engine;
mod guest;
mod instance;
mod outside;
mod wasi;

pub use guest::{HostServices, LogLevel, LogLine, MapScan, NoLevel, Stateless};
pub use instance::{Call, CallLimits, Failure, FailureKind, Instance};
pub use outside::{HTTP, HttpAnswer, HttpError, HttpErrorKind, HttpOutcome, HttpRequest, SECRETS};

use artefact::Artefact;
use cache::Cache;
use engine::{Allocator, Engines};
use guest::Guest;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tidemill_types::{ByteSize, Error, Result};
use wasmtime::component::InstancePre;

/// Settings of the sandbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Where precompiled components are kept, by digest and engine version; `None`: nowhere.
    pub cache_dir: Option<PathBuf>,
    /// Most bytes kept there; those that weren't used for longest go first.
    pub cache_bytes: ByteSize,
    /// Most live instances in the pool; beyond it instances come from an allocator on demand.
    pub instances: u32,
}

/// The engine: one per process. Cheap to clone.
#[derive(Clone)]
pub struct Sandbox {
    inner: Arc<Inner>,
}

struct Inner {
    engines: Engines,
    cache: Cache,
    /// By digest, so that one component under many names is compiled and kept once.
    loaded: Mutex<BTreeMap<String, Weak<Compiled>>>,
}

/// A checked and compiled component. Cheap to clone.
#[derive(Clone)]
pub struct Component {
    inner: Arc<Compiled>,
}

struct Compiled {
    digest: String,
    inspected: check::Inspected,
    pooled: InstancePre<Guest>,
    /// For instances beyond the pool: made when the first of them is wanted.
    on_demand: OnceLock<Result<InstancePre<Guest>, String>>,
}

impl Sandbox {
    /// Starts the engine and its deadline ticks.
    ///
    /// # Errors
    /// When the engine can't be configured on this machine.
    pub fn new(settings: Settings) -> Result<Self> {
        let engines = Engines::start(settings.instances)
            .map_err(|error| Error::internal(format!("the sandbox can't start: {error:#}")))?;
        let engine = engines.get(Allocator::Pool);
        let cache = Cache::new(settings.cache_dir, settings.cache_bytes, engine);
        Ok(Self {
            inner: Arc::new(Inner {
                engines,
                cache,
                loaded: Mutex::default(),
            }),
        })
    }

    /// Checks a component (is one, exports the world's functions with the right types, imports nothing
    /// but `tidemill:function` and what of WASI is served) and compiles it, or takes the compiled form from the cache. Blocks for
    /// as long as compilation takes; call it off the request path.
    ///
    /// # Errors
    /// `invalid-component` with the check that failed and what to do.
    pub fn compile(&self, bytes: &[u8]) -> Result<Component> {
        let digest = format!("sha256:{:x}", Sha256::digest(bytes));
        if let Some(inner) = self.loaded().get(&digest).and_then(Weak::upgrade) {
            return Ok(Component { inner });
        }
        let inspected = check::inspect(bytes)?;
        let engine = self.inner.engines.get(Allocator::Pool);
        let component = match self.inner.cache.load(&digest, engine) {
            Some(component) => component,
            None => {
                let component = compiling::on_all_cores(engine, bytes)?
                    .map_err(|error| check::does_not_validate(&error))?;
                self.inner.cache.store(&digest, &component);
                component
            }
        };
        check::on_batch_type(engine, &component)?;
        let pooled = self
            .inner
            .engines
            .link(Allocator::Pool, &component)
            .map_err(|error| check::wrong_import(&error))?;
        let inner = Arc::new(Compiled {
            digest: digest.clone(),
            inspected,
            pooled,
            on_demand: OnceLock::new(),
        });
        let mut loaded = self.loaded();
        loaded.retain(|_, known| known.strong_count() > 0);
        loaded.insert(digest, Arc::downgrade(&inner));
        drop(loaded);
        Ok(Component { inner })
    }

    fn loaded(&self) -> MutexGuard<'_, BTreeMap<String, Weak<Compiled>>> {
        self.inner
            .loaded
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// An instance with its own memory, as much as its limits allow.
    ///
    /// # Errors
    /// When the component's start traps or limits forbid it.
    pub fn instantiate(
        &self,
        component: &Component,
        limits: CallLimits,
        services: Arc<dyn HostServices>,
    ) -> Result<Instance, Failure> {
        self.instantiate_within(component, limits, limits.memory, services)
    }

    /// An instance that may use `granted` of its memory for now; see [`Instance::grant`].
    ///
    /// # Errors
    /// As [`Sandbox::instantiate`]; [`FailureKind::Short`] when its start needs more.
    pub fn instantiate_within(
        &self,
        component: &Component,
        limits: CallLimits,
        granted: ByteSize,
        services: Arc<dyn HostServices>,
    ) -> Result<Instance, Failure> {
        let limits = (limits, granted);
        let pooled = &component.inner.pooled;
        let ticks = self.inner.engines.ticks();
        match Instance::start(pooled, limits, services.clone(), ticks.clone()) {
            Err(instance::StartError::PoolIsFull) => {}
            Err(instance::StartError::Failed(failure)) => return Err(failure),
            Ok(instance) => return Ok(instance),
        }
        let on_demand = self.on_demand(component).map_err(|message| Failure {
            kind: FailureKind::Trap,
            message,
        })?;
        Instance::start(on_demand, limits, services, ticks).map_err(|error| match error {
            instance::StartError::Failed(failure) => failure,
            instance::StartError::PoolIsFull => Failure {
                kind: FailureKind::Memory,
                message: "no room for another instance".into(),
            },
        })
    }

    fn on_demand<'c>(&self, component: &'c Component) -> Result<&'c InstancePre<Guest>, String> {
        let compiled = &component.inner;
        let link = || {
            let artefact = Artefact::of(compiled.pooled.component())?;
            let engine = self.inner.engines.get(Allocator::OnDemand);
            self.inner
                .engines
                .link(Allocator::OnDemand, &artefact.load(engine)?)
        };
        compiled
            .on_demand
            .get_or_init(|| {
                link().map_err(|error| format!("an instance beyond the pool: {error:#}"))
            })
            .as_ref()
            .map_err(String::clone)
    }
}

impl Component {
    /// `sha256:` and 64 hexadecimal digits, of the component's bytes.
    pub fn digest(&self) -> &str {
        &self.inner.digest
    }

    /// Whether both share their machine code.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// The manifest (JSON text) from the custom section `tidemill-manifest` of the component or of a
    /// module in it.
    pub fn manifest(&self) -> Option<&str> {
        self.inner.inspected.manifest.as_deref()
    }

    /// Whether each event has to be called alone, on an instance that handled nothing before: the component
    /// can ask WASI for the time or for random numbers, and what a standard library makes of them may
    /// outlast an event.
    pub fn is_alone(&self) -> bool {
        wasi::is_alone(&self.inner.inspected.imports)
    }

    /// Interfaces it imports, with versions.
    pub fn imports(&self) -> &[String] {
        &self.inner.inspected.imports
    }
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").finish_non_exhaustive()
    }
}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Component").field(&self.digest()).finish()
    }
}
