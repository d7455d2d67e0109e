//! The one door to what is not pure: clock, randomness, local files, object storage, HTTP to the outside,
//! secrets, metrics.
//!
//! Nothing else in the host touches these (clippy's `disallowed-methods` refuses it), so that the
//! whole engine can run on a simulated disk and bucket from one seed (feature `sim`).
//!
//! This crate knows nothing of topics, functions or paths.

mod background;
mod buffers;
mod clock;
pub mod files;
mod memory;
pub mod metrics;
pub mod objects;
pub mod outside;
mod random;
mod recent;
mod secrets;

pub use background::{Urgency, in_background};
pub use buffers::Buffers;
pub use clock::Clock;
pub use memory::{ResidentMemory, machine_memory, resident_memory};
pub use random::Random;
pub use recent::Recent;
pub use secrets::SecretFolder;
pub use tokio_util::sync::CancellationToken as Shutdown;
