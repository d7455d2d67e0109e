//! Packed rows in, one Parquet file out.

use super::SegmentMeta;
use crate::Topic;
use std::path::Path;
use tidemill_types::{Batch, Result};

/// Writes one segment to a local file. Blocking; memory is bounded by one row group.
pub(crate) struct SegmentWriter {}

impl SegmentWriter {
    /// Begins a file, replacing one that a crash left there.
    pub(crate) fn create(path: &Path, topic: &Topic, partition: u32) -> Result<Self> {
        let _ = (path, topic, partition);
        unimplemented!("soon")
    }

    /// Appends events; their offsets must rise above those written before.
    pub(crate) fn write(&mut self, batch: &Batch) -> Result<()> {
        let _ = batch;
        unimplemented!("soon")
    }

    /// Ends and syncs the file. The path in the answer is empty: the caller knows where it will lie.
    pub(crate) fn finish(self) -> Result<SegmentMeta> {
        unimplemented!("soon")
    }
}
