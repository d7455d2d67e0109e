//! A function at work on one batch: reads it, calls the author's code event by event, writes the answer.

#[cfg(test)]
mod counts;
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
mod hashing;
mod maps;
mod overlay;
mod pass;
mod running;
#[cfg(test)]
mod tests;
mod timers;

pub(crate) use maps::{Entries, MapPage};
pub(crate) use overlay::{Overlay, SlotValue};
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use pass::OnBatch;
pub(crate) use pass::{Next, on_batch};
pub use running::Running;
pub(crate) use running::{Instance, Surroundings};

/// What is the same for all events of a call (`call` in the WIT).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// Index of the input.
    pub(crate) input: u32,
    /// Partition of the input.
    pub(crate) partition: u32,
    /// Earlier attempts at the first event.
    pub(crate) attempt: u32,
    /// Watermark, µs since 1970; `i64::MIN` while there is none.
    pub(crate) watermark: i64,
    /// Seed of random numbers.
    pub(crate) seed: u64,
}
