//! Keyed state of functions: a map of live values in memory, bounded in bytes, an embedded LSM store
//! behind it that lags and may be thrown away, and snapshots to object storage. A cache of the
//! journal, never the truth. Knows nothing of functions but a number.

mod behind;
mod cells;
mod changes;
mod engine;
mod frozen;
mod keys;
mod list;
mod live;
mod snapshot;
mod store;
mod write_back;
mod writer;

#[cfg(test)]
mod tests;

/// Slots from this number on keep their keys in order in memory too, so that a scan of a few of them
/// costs no more than they are.
pub const ORDERED_SLOTS: u16 = 1 << 15;

pub use changes::{Change, Changes, ChangesReader, Scope};
pub use frozen::{Frozen, FrozenValue};
pub use store::{Intent, Missing, Reader, Settings, Stats, Store};
