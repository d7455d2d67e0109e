//! The engines, what they link to guests, and the ticks that deadlines are counted in.

use super::guest::{self, Guest};
use super::wasi;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use wasmtime::component::{Component, InstancePre, Linker};
use wasmtime::{
    Config, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig, Result,
};

/// Time between two deadline ticks: how exactly a deadline is kept.
const TICK: Duration = Duration::from_millis(10);
/// Stack of a guest: a host thread has 2 MiB and the host's own frames need some of it.
const STACK_BYTES: usize = 512 << 10;
/// Frames of a trap that are kept.
const FRAMES: usize = 16;
/// Elements of one table; the largest language runtimes need about 12,000.
pub(super) const TABLE_ELEMENTS: usize = 20_000;
/// Most instances in the pool: each reserves two memories of 4 GiB address space, of which a process
/// has 128 TiB.
const POOL_INSTANCES: u32 = 8192;

/// Where the memory of an instance comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Allocator {
    /// Slots that were reserved at the start: fast.
    Pool,
    /// Mapped when wanted: for those who find the pool full.
    OnDemand,
}

/// One engine per allocator, alike in everything else, so that one artefact fits both.
pub(super) struct Engines {
    pool: Side,
    on_demand: Side,
    ticks: Arc<Ticks>,
}

struct Side {
    engine: Engine,
    linker: Linker<Guest>,
}

/// Keeps the deadline ticks coming while anybody holds it.
pub(super) struct Ticks {
    /// Never used to send: its end stops the thread.
    _alive: mpsc::Sender<()>,
}

impl Engines {
    /// Reserves a pool for `instances` instances and starts the ticks.
    pub(super) fn start(instances: u32) -> Result<Self> {
        let pool = Side::new(config().allocation_strategy(pool(instances)))?;
        let on_demand = Side::new(&config())?;
        let ticks = Arc::new(Ticks::start([
            pool.engine.clone(),
            on_demand.engine.clone(),
        ])?);
        Ok(Self {
            pool,
            on_demand,
            ticks,
        })
    }

    pub(super) fn get(&self, allocator: Allocator) -> &Engine {
        &self.side(allocator).engine
    }

    /// Gives a component of that engine its imports.
    pub(super) fn link(
        &self,
        allocator: Allocator,
        component: &Component,
    ) -> Result<InstancePre<Guest>> {
        let Side { engine, linker } = self.side(allocator);
        let mut linker = linker.clone();
        wasi::add(&mut linker, engine, component)?;
        linker.instantiate_pre(component)
    }

    pub(super) fn ticks(&self) -> Arc<Ticks> {
        self.ticks.clone()
    }

    fn side(&self, allocator: Allocator) -> &Side {
        match allocator {
            Allocator::Pool => &self.pool,
            Allocator::OnDemand => &self.on_demand,
        }
    }
}

impl Side {
    fn new(config: &Config) -> Result<Self> {
        let engine = Engine::new(config)?;
        let linker = guest::linker(&engine)?;
        Ok(Self { engine, linker })
    }
}

impl Ticks {
    fn start(engines: [Engine; 2]) -> Result<Self> {
        let (alive, ended) = mpsc::channel();
        std::thread::Builder::new()
            .name("deadline-ticks".into())
            .spawn(move || {
                while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                    engines.iter().for_each(Engine::increment_epoch);
                }
            })?;
        Ok(Self { _alive: alive })
    }

    /// Ticks after which `deadline` has surely passed, whenever within a tick it starts.
    pub(super) fn in_deadline(deadline: Duration) -> u64 {
        let ticks = deadline.as_millis().div_ceil(TICK.as_millis()) + 1;
        // The engine adds the current tick; a deadline of centuries must not overflow it.
        u64::try_from(ticks).unwrap_or(u64::MAX).min(u64::MAX / 2)
    }
}

/// Deterministic, and as fast as that allows. Memories keep their reservation of 4 GiB even though the
/// limit is far lower: without it every access is checked, which costs a third of a guest's speed.
fn config() -> Config {
    let mut config = Config::new();
    config
        .wasm_component_model(true)
        .concurrency_support(false)
        .epoch_interruption(true)
        .consume_fuel(false)
        .cranelift_opt_level(OptLevel::Speed)
        // On the threads of whoever compiles, which are as urgent as that is: see `compiling`.
        .parallel_compilation(true)
        .cranelift_nan_canonicalization(true)
        .wasm_relaxed_simd(false)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .memory_init_cow(true)
        .max_wasm_stack(STACK_BYTES)
        .wasm_backtrace_max_frames(NonZeroUsize::new(FRAMES));
    config
}

/// Address space only: nothing of the pool is resident before it is used, nor after.
fn pool(instances: u32) -> InstanceAllocationStrategy {
    let instances = instances.clamp(1, POOL_INSTANCES);
    let mut pool = PoolingAllocationConfig::default();
    // A component of one language runtime is made of about three core modules with two memories.
    pool.total_component_instances(instances)
        .total_core_instances(instances * 4)
        .total_memories(instances * 2)
        .total_tables(instances * 4)
        .max_memory_size(4 << 30)
        .table_elements(TABLE_ELEMENTS)
        .max_core_instance_size(4 << 20)
        .max_component_instance_size(4 << 20)
        .max_memories_per_module(1)
        .max_unused_warm_slots(instances);
    InstanceAllocationStrategy::Pooling(pool)
}
