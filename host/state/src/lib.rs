//! Keyed state of functions: a map of live values in memory, bounded in bytes, an embedded LSM store
//! behind it that lags and may be thrown away, and snapshots to object storage. A cache of the
//! journal, never the truth. Knows nothing of functions but a number.

mod changes;
mod store;

pub use changes::{Change, Changes, ChangesReader, Scope};
pub use store::{Missing, Settings, Stats, Store};
