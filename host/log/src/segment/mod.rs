//! One run of committed events of one partition as one Parquet file, written once and read by range.

mod columns;
mod fetch;
mod file;
mod group;
mod lanes;
mod letters;
mod pages;
mod reader;
mod rows;
mod schema;
#[cfg(test)]
mod tests;
mod typed;
mod values;
mod writer;

pub(crate) use reader::{ABSENT, Segments};
pub(crate) use schema::{COLUMNS, ROW_GROUP_BYTES};
pub(crate) use writer::{Finished, Kind, NOT_TEXT, SegmentWriter};

use tidemill_types::TopicId;

/// What the manifest knows of one segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SegmentMeta {
    /// Whose events.
    pub(crate) topic: TopicId,
    /// Of which partition.
    pub(crate) partition: u32,
    /// Offset of its first event.
    pub(crate) first: u64,
    /// Offset behind its last event.
    pub(crate) end: u64,
    /// Number of events.
    pub(crate) events: u64,
    /// Size of the file.
    pub(crate) bytes: u64,
    /// Path of the object.
    pub(crate) path: String,
    /// Smallest event time, µs since 1970.
    pub(crate) min_time: i64,
    /// Largest event time.
    pub(crate) max_time: i64,
    /// Smallest ingest time.
    pub(crate) min_ingest: i64,
    /// Largest ingest time.
    pub(crate) max_ingest: i64,
}
