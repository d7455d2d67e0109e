//! HTTP, configuration, telemetry and wiring: the only composition root.
//!
//! [`run`] serves a host until it is asked to stop; everything external (settings, listener, signal)
//! is an argument. [`Host`] is the same as a handle, for programs that hold a host inside.
//!
//! ```no_run
//! use tidemill_server::{Config, Overrides, Shutdown, run};
//!
//! # async fn serve() -> tidemill_server::Result<()> {
//! let config = Config::load(None, std::env::vars(), &Overrides::default())?;
//! let listener = tokio::net::TcpListener::bind(config.listen).await.map_err(|e| tidemill_server::Error::internal(e.to_string()))?;
//! run(config, listener, Shutdown::new()).await
//! # }
//! ```

mod app;
mod body;
mod budget;
mod config;
mod edge;
mod functions;
mod host;
mod ingest;
mod metrics;
pub mod offline;
mod operations;
mod problem;
mod query;
mod read;
mod routes;
mod serve;
mod suggest;
mod telemetry;
mod topics;

pub use config::{Config, Functions, Http, LogFormat, Overrides, State, Storage, Telemetry};
pub use host::{Host, run};
pub use read::{PackedEvent, PackedPage};
pub use telemetry::start_telemetry;
pub use tidemill_env::Shutdown;
pub use tidemill_types::{Error, ErrorKind, Result};
