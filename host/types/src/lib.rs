//! Pure values that every part of Tidemill speaks in: names, times, sizes, packed rows, errors.
//!
//! This crate knows nothing of I/O, async or serialisation formats. A value that exists is valid:
//! whatever can be wrong is refused when it is constructed.
//!
//! ```
//! use tidemill_types::{PackedRows, RowFlags, Timestamp, TopicName};
//!
//! let topic: TopicName = "orders".parse().unwrap();
//! let mut rows = PackedRows::default();
//! rows.push(Timestamp::from_micros(0), Some(b"UA"), Some(b"{}"), [("source", b"gate-3".as_slice())]).unwrap();
//! let event = rows.event(0);
//! assert_eq!(event.key, Some(b"UA".as_slice()));
//! assert_eq!(event.headers.count(), 1);
//! assert_eq!(topic.as_str(), "orders");
//! ```

mod batch;
mod error;
mod hash;
pub mod limits;
mod name;
mod row;
mod size;
mod time;

pub use batch::{Batch, Commits, Event, IngestTimes, Offsets};
pub use error::{Error, ErrorKind, Result};
pub use hash::{murmur2, partition_of_key};
pub use name::{FunctionName, TopicName};
pub use row::{Headers, PackedRows, ROW_HEAD_BYTES, RowFlags, RowHead, RowView, encode_header};
pub use size::ByteSize;
pub use time::{Timestamp, format_duration, parse_duration};

/// A topic's number: given at creation, never used again, so that what belonged to a deleted topic
/// can't be taken for a later one of the same name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopicId(pub u32);

/// A function's number: given at its first deployment, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FunctionId(pub u32);

/// Commit sequence number: counts the frames of a journal from 1, never repeats, never goes back.
/// 0 means "before the first commit".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CommitSeq(pub u64);

/// One partition of one topic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PartitionId {
    /// The topic.
    pub topic: TopicId,
    /// The partition, from 0.
    pub partition: u32,
}

impl std::fmt::Display for CommitSeq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
