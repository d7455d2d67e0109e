//! A host: its parts opened in order, served, and closed in the opposite order.

use crate::app::App;
use crate::budget::Budget;
use crate::config::Config;
use crate::ingest::Pointers;
use crate::metrics::{HttpMetrics, MemoryMetrics};
use crate::serve::serve;
use crate::telemetry::start_telemetry;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;
use tidemill_env::files::Disk;
use tidemill_env::metrics::Metrics;
use tidemill_env::objects::Objects;
use tidemill_env::{Buffers, Clock, Random, Shutdown};
use tidemill_log::Log;
use tidemill_processor::{Processor, StateRecovery};
use tidemill_state::Store;
use tidemill_types::{ByteSize, Error, ErrorKind, Result};
use tidemill_wasm::Sandbox;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Bytes of memory kept for answers to come.
const ANSWERS: usize = 16 << 20;
/// How soon it is noticed that the log has stopped.
const LOOK: Duration = Duration::from_millis(50);

/// Serves a host on `listener` until `shutdown`; then stops accepting, lets requests finish within
/// `http.stop_timeout`, stops the functions at a transaction border and closes the log.
///
/// # Errors
/// What keeps the host from starting (`directory-in-use`, `not-loopback`, `Corrupt`, …), and
/// `unavailable` when the log stopped by itself: then the process should end with a failure.
pub async fn run(config: Config, listener: TcpListener, shutdown: Shutdown) -> Result<()> {
    start_telemetry(&config.telemetry);
    let address = listener
        .local_addr()
        .map_err(|e| Error::internal(format!("the listener has no address: {e}")))?;
    refuse_open_address(address)?;
    let parts = Parts::open(&config).await?;
    tracing::info!(%address, dir = %config.dir.display(), "serving");
    let served = parts.serve(&config, listener, shutdown).await;
    let closed = parts.close().await;
    tracing::info!("stopped");
    served.and(closed)
}

/// Refuses an address that others could reach: there is no authentication.
///
/// # Errors
/// `not-loopback`.
pub(crate) fn refuse_open_address(address: SocketAddr) -> Result<()> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    let detail = format!(
        "{address} could be reached by others, and there is no authentication yet: listen on 127.0.0.1 or [::1], and put a proxy that authenticates in front"
    );
    Err(Error::invalid("not-loopback", detail))
}

/// What a host is made of.
struct Parts {
    state: Store,
    log: Log,
    processor: Processor,
    objects: Objects,
    clock: Clock,
    random: Random,
    metrics: Metrics,
}

impl Parts {
    async fn open(config: &Config) -> Result<Self> {
        let (clock, random, metrics) = (Clock::system(), Random::system(), Metrics::default());
        create_dir(&config.dir)?;
        let objects = config.open_storage(&clock, &random, &metrics)?;
        probe_once(&config.dir, &objects, &random).await?;
        let settings = tidemill_state::Settings {
            dir: config.dir.join("state"),
            memory_bytes: config.state.memory_bytes,
            dirty_bytes: config.state.dirty_bytes,
            store_bytes: config.state.store_bytes,
            snapshot_memory: config.state.snapshot_memory,
        };
        let state = Store::open(settings, &metrics)?;
        let settings = tidemill_log::Settings {
            dir: config.dir.clone(),
            cache_bytes: match config.storage.is_remote() {
                true => config.storage.cache_bytes,
                false => ByteSize(0),
            },
            ..config.log.clone()
        };
        let mut recovery = StateRecovery::new(state.clone(), objects.clone());
        // Of what is read, and as much of what is written: a fourth of the share together; the log has the rest.
        let kept = ByteSize(settings.reuse_bytes.0 / 8).as_usize();
        let log = Log::open(
            settings,
            Arc::new(Disk::keeping(kept)),
            objects.clone(),
            clock.clone(),
            random.clone(),
            &metrics,
            &mut recovery,
        )
        .await?;
        let settings = tidemill_wasm::Settings {
            cache_dir: Some(config.dir.join("cache")),
            cache_bytes: config.functions.cache_bytes,
            instances: config.functions.instances,
        };
        let sandbox = Sandbox::new(settings)?;
        let settings = tidemill_processor::Settings {
            threads: config.functions.threads,
            log_retention: config.functions.log_retention,
            memory_bytes: config.functions.memory_bytes,
            idle: config.functions.idle,
            maxima: config.functions.maxima,
            compile_time: config.functions.compile_time,
            grants: config.grants.clone(),
            replay_dir: config.dir.join("replay"),
            replay_bytes: config.functions.replay_bytes,
            restores: config.functions.restores,
            restore_age: config.functions.restore_age,
            metrics: config.functions.metrics,
        };
        let processor = Processor::open(
            settings,
            log.clone(),
            state.clone(),
            sandbox,
            objects.clone(),
            clock.clone(),
            random.clone(),
            &metrics,
        )
        .await?;
        Ok(Self {
            state,
            log,
            processor,
            objects,
            clock,
            random,
            metrics,
        })
    }

    fn budget(&self, config: &Config) -> Budget {
        Budget::new(
            config.http.memory_bytes,
            config.http.busy_wait,
            self.clock.clone(),
        )
    }

    /// Serves until asked to stop or until the log stops by itself.
    async fn serve(
        &self,
        config: &Config,
        listener: TcpListener,
        shutdown: Shutdown,
    ) -> Result<()> {
        let app = Arc::new(App {
            http: config.http.clone(),
            arriving: self.budget(config),
            leaving: self.budget(config),
            answers: Buffers::keeping(ANSWERS),
            log: self.log.clone(),
            processor: self.processor.clone(),
            objects: self.objects.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            counted: HttpMetrics::new(&self.metrics),
            memory: MemoryMetrics::new(&self.metrics, config.planned_memory()),
            metrics: self.metrics.clone(),
            stopping: Shutdown::new(),
            pointers: Pointers::default(),
            sticky: AtomicU32::new(0),
        });
        let stop = shutdown.child_token();
        let watching = log_stopped(self.log.clone(), self.clock.clone(), stop.clone());
        let watching = tokio::spawn(watching);
        serve(app, listener, stop.clone()).await;
        stop.cancel();
        match watching.await {
            Ok(true) => Err(Error::unavailable(
                "unavailable",
                "the log stopped because storage failed; the host's log says why. Start the host again once that is mended",
            )),
            _ => Ok(()),
        }
    }

    /// Closes in the opposite order of opening.
    async fn close(&self) -> Result<()> {
        self.processor.stop().await;
        let state = self.state.clone();
        // It writes back what is durable, which takes as long as the disk does.
        let written = tokio::task::spawn_blocking(move || state.close()).await;
        self.log.close().await?;
        written.map_err(|e| Error::internal(format!("the state store didn't close: {e}")))
    }
}

/// Waits until the log stops by itself (true; also asks the host to stop) or the host is asked to stop.
async fn log_stopped(log: Log, clock: Clock, stop: Shutdown) -> bool {
    let mut durable = log.durable();
    // Each commit moves it: looked at after each of them, it would cost a thread's wake-up.
    let ended = async {
        while durable.changed().await.is_ok() {
            clock.sleep(LOOK).await;
        }
    };
    let by_itself = tokio::select! {
        biased;
        () = stop.cancelled() => false,
        () = ended => true,
    };
    if by_itself {
        tracing::error!("the log has stopped; the host stops too");
        stop.cancel();
    }
    by_itself
}

fn create_dir(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(|error| {
        let kind = if error.kind() == std::io::ErrorKind::StorageFull {
            ErrorKind::StorageFull
        } else {
            ErrorKind::Unavailable
        };
        Error::new(
            kind,
            "unavailable",
            format!(
                "the data directory {} can't be made: {error}",
                dir.display()
            ),
        )
    })
}

/// Proves at a directory's first start that its storage can be used.
async fn probe_once(dir: &Path, objects: &Objects, random: &Random) -> Result<()> {
    if dir.join("journal").exists() {
        return Ok(());
    }
    objects.probe(&random.nonce()).await
}

/// A host in this process, on an address of its own.
pub struct Host {
    address: SocketAddr,
    shutdown: Shutdown,
    running: JoinHandle<Result<()>>,
}

impl Host {
    /// Starts a host; it answers when this returns. `config.listen` may have port 0.
    ///
    /// # Errors
    /// As [`run`], and when the address can't be listened on.
    pub async fn start(config: Config) -> Result<Self> {
        refuse_open_address(config.listen)?;
        let listener = TcpListener::bind(config.listen).await.map_err(|e| {
            Error::unavailable(
                "unavailable",
                format!("{} can't be listened on: {e}", config.listen),
            )
        })?;
        let address = listener
            .local_addr()
            .map_err(|e| Error::internal(format!("the listener has no address: {e}")))?;
        let parts = Parts::open(&config).await?;
        let shutdown = Shutdown::new();
        let asked = shutdown.clone();
        let running = tokio::spawn(async move {
            let served = parts.serve(&config, listener, asked).await;
            let closed = parts.close().await;
            served.and(closed)
        });
        Ok(Self {
            address,
            shutdown,
            running,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops it as [`run`] stops.
    ///
    /// # Errors
    /// As [`run`].
    pub async fn stop(self) -> Result<()> {
        self.shutdown.cancel();
        self.running
            .await
            .map_err(|e| Error::internal(format!("the host ended early: {e}")))?
    }
}
