//! Compiling on all cores, and no more urgently than whoever asks for it.

use tidemill_types::{Error, Result};
use wasmtime::Engine;
use wasmtime::component::Component;

/// Compiles a component's functions side by side, on threads that live as long as that takes. They
/// inherit the priority of the calling thread, so that a compilation that isn't urgent takes only
/// what the cores have left.
///
/// # Errors
/// `Unavailable` when the system has no threads for it; within: what is wrong with the component.
pub(super) fn on_all_cores(engine: &Engine, bytes: &[u8]) -> Result<wasmtime::Result<Component>> {
    let pool = rayon::ThreadPoolBuilder::new()
        .thread_name(|number| format!("compile-{number}"))
        .build()
        .map_err(|error| Error::unavailable("unavailable", format!("no threads: {error}")))?;
    Ok(pool.install(|| Component::from_binary(engine, bytes)))
}
