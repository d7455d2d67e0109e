//! Ranges of a segment back into packed rows.

use super::SegmentMeta;
use crate::ReadLimit;
use tidemill_env::objects::Objects;
use tidemill_types::{Batch, Result, Timestamp};

/// Events of a segment with offsets from `from` on, at least one if there is one, else as many as
/// the limit allows; empty only if none has such an offset.
pub(crate) async fn read(
    objects: &Objects,
    meta: &SegmentMeta,
    from: u64,
    limit: ReadLimit,
) -> Result<Vec<Batch>> {
    let _ = (objects, meta, from, limit);
    unimplemented!("soon")
}

/// The first offset from `from` on whose event time is at least `time`.
pub(crate) async fn offset_at(
    objects: &Objects,
    meta: &SegmentMeta,
    from: u64,
    time: Timestamp,
) -> Result<Option<u64>> {
    let _ = (objects, meta, from, time);
    unimplemented!("soon")
}
