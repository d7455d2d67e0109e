//! The façade.

use crate::{Draft, Range, Retention, Topic, TopicSettings};
use bytes::Bytes;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tidemill_env::files::Files;
use tidemill_env::metrics::Metrics;
use tidemill_env::objects::Objects;
use tidemill_env::{Clock, Random};
use tidemill_types::{Batch, ByteSize, CommitSeq, PartitionId, Result, Timestamp, TopicId, TopicName};
use tokio::sync::watch;

/// Settings of a log (data; the parts it works with are arguments of [`Log::open`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The data directory; the journal lies in `journal/` below it.
    pub dir: PathBuf,
    /// Size of one journal file.
    pub journal_file_bytes: ByteSize,
    /// Events kept in memory for readers; older unsealed ones are read from the journal.
    pub tail_bytes: ByteSize,
    /// Bytes that may be appended and not yet durable; beyond it commits are refused as busy.
    pub in_flight_bytes: ByteSize,
    /// A partition with this much unsealed is sealed.
    pub segment_bytes: ByteSize,
    /// A partition whose oldest unsealed event was committed this long ago is sealed.
    pub segment_age: Duration,
    /// Bytes of journal after which a snapshot of the state is asked for, so that the journal can be cut.
    pub snapshot_bytes: ByteSize,
    /// Disk space that must stay free; below it commits are refused as `storage-full`.
    pub reserve_bytes: ByteSize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            dir: PathBuf::from("tidemill-data"),
            journal_file_bytes: ByteSize::mib(64),
            tail_bytes: ByteSize::mib(64),
            in_flight_bytes: ByteSize::mib(64),
            segment_bytes: ByteSize::mib(64),
            segment_age: Duration::from_secs(600),
            snapshot_bytes: ByteSize::mib(512),
            reserve_bytes: ByteSize::mib(256),
        }
    }
}

/// A copy of all state at a commit, as an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotRef {
    /// Its path in object storage.
    pub path: String,
    /// The commit it reflects.
    pub commit: CommitSeq,
}

/// Who rebuilds what is derived from the journal while it is opened.
#[async_trait::async_trait]
pub trait Recovery: Send {
    /// Called once, before any frame; may fetch the snapshot. Answers up to which commit the state is
    /// there already; sections of later commits follow.
    ///
    /// # Errors
    /// What can't be rebuilt stops the start.
    async fn begin(&mut self, snapshot: Option<&SnapshotRef>) -> Result<CommitSeq>;
    /// One state section, in commit order, each once.
    ///
    /// # Errors
    /// A section that makes no sense stops the start.
    fn state(&mut self, commit: CommitSeq, section: &[u8]) -> Result<()>;
}

/// A committed position of a reader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Position {
    /// Who reads.
    pub reader: u32,
    /// What.
    pub at: PartitionId,
    /// Offset of the next event to read.
    pub offset: u64,
    /// What was kept with it.
    pub note: Bytes,
}

/// Where one append's rows landed in one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// Topic and partition.
    pub at: PartitionId,
    /// Offset of its first row.
    pub first: u64,
    /// Offset of its last row.
    pub last: u64,
}

/// A sequenced transaction on its way to the disk.
pub struct Ticket {
    /// Its commit sequence number.
    pub commit: CommitSeq,
    /// Its ingest time.
    pub time: Timestamp,
    /// Where the events landed, by topic and partition.
    pub written: Vec<Written>,
    _durable: tokio::sync::oneshot::Receiver<Result<()>>,
}

impl Ticket {
    /// Waits until the frame is durable. Tickets become durable in commit order.
    ///
    /// # Errors
    /// `Unavailable` when the journal failed: the outcome is unknown and the host stops.
    pub async fn durable(self) -> Result<()> {
        unimplemented!("helper")
    }
}

/// How much one read may bring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadLimit {
    /// Events.
    pub events: usize,
    /// Key, value and header bytes; at least one event comes even if it is larger.
    pub bytes: usize,
}

/// What a read brought.
#[derive(Clone, Debug)]
pub struct Read {
    /// Events in offset order, in one or more runs.
    pub batches: Vec<Batch>,
    /// Where to go on.
    pub next: u64,
    /// Committed end at the time of reading.
    pub end: u64,
}

/// Figures about the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Last durable commit.
    pub durable: CommitSeq,
    /// Bytes in journal files that can't be cut yet.
    pub journal_bytes: u64,
    /// Bytes of events in memory.
    pub tail_bytes: u64,
    /// Segments in the manifest.
    pub segments: u64,
    /// Bytes of those segments.
    pub segment_bytes: u64,
}

/// The log. Cheap to clone.
#[derive(Clone)]
pub struct Log {
    _shard: Arc<()>,
}

impl Log {
    /// Opens (or begins) the log in a directory: takes the directory's lock, fences the manifest,
    /// replays the journal, removes objects that a crash left behind, starts the flusher and the sealer.
    ///
    /// # Errors
    /// `directory-in-use` when another process holds the directory; `Corrupt` where the journal or
    /// manifest isn't what was written (says file and position); `Fenced` when a newer owner exists.
    pub async fn open(
        settings: Settings,
        files: Arc<dyn Files>,
        objects: Objects,
        clock: Clock,
        random: Random,
        metrics: &Metrics,
        recovery: &mut dyn Recovery,
    ) -> Result<Self> {
        let _ = (settings, files, objects, clock, random, metrics, recovery);
        unimplemented!("helper")
    }

    /// Sequences a transaction: decides offsets and order, appends to memory, never waits for the disk.
    ///
    /// # Errors
    /// `Busy` when too much is in flight (wait with [`Log::room`]); `StorageFull`; `Conflict` with code
    /// `position-moved` when a position isn't what the draft says; `NotFound` for an unknown topic or
    /// partition; `Unavailable` after a failed sync. On an error nothing happened; on `Busy` the draft
    /// comes back to be tried again.
    pub fn commit(&self, draft: Draft) -> Result<Ticket, (tidemill_types::Error, Draft)> {
        let _ = draft;
        unimplemented!("helper")
    }

    /// Waits until there is room for another commit.
    pub async fn room(&self) {
        unimplemented!("helper")
    }

    /// Events of a partition from an offset on, only durable ones, from segments, journal or tail;
    /// empty at the committed end.
    ///
    /// # Errors
    /// `OutOfRange` below the start or above the end; `NotFound`; `Unavailable` when storage can't be read.
    pub async fn read(&self, at: PartitionId, from: u64, limit: ReadLimit) -> Result<Read> {
        let _ = (at, from, limit);
        unimplemented!("helper")
    }

    /// The same without waiting: `None` when the events aren't in memory.
    pub fn read_tail(&self, at: PartitionId, from: u64, limit: ReadLimit) -> Option<Read> {
        let _ = (at, from, limit);
        unimplemented!("helper")
    }

    /// The first offset whose event time is at least `time`, by lookup over all of the partition;
    /// the end if there is none (S-LOG-01).
    ///
    /// # Errors
    /// As [`Log::read`].
    pub async fn offset_at(&self, at: PartitionId, time: Timestamp) -> Result<u64> {
        let _ = (at, time);
        unimplemented!("helper")
    }

    /// The committed (durable) end of a partition, as it moves.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn watch(&self, at: PartitionId) -> Result<watch::Receiver<u64>> {
        let _ = at;
        unimplemented!("helper")
    }

    /// The durable commit sequence, as it moves. An error in the channel means that the log stopped.
    pub fn durable(&self) -> watch::Receiver<CommitSeq> {
        unimplemented!("helper")
    }

    /// Creates a topic. Durable when it returns.
    ///
    /// # Errors
    /// `topic-exists` if there is one with other settings; the same settings give the existing topic
    /// and `false`.
    pub async fn create_topic(&self, name: &TopicName, settings: TopicSettings) -> Result<(Arc<Topic>, bool)> {
        let _ = (name, settings);
        unimplemented!("helper")
    }

    /// Changes a topic's retention. Durable when it returns.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn alter_topic(&self, name: &TopicName, retention: Retention) -> Result<Arc<Topic>> {
        let _ = (name, retention);
        unimplemented!("helper")
    }

    /// Deletes a topic with its events; its objects go in the background. Durable when it returns.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn delete_topic(&self, name: &TopicName) -> Result<()> {
        let _ = name;
        unimplemented!("helper")
    }

    /// A topic by name.
    pub fn topic(&self, name: &str) -> Option<Arc<Topic>> {
        let _ = name;
        unimplemented!("helper")
    }

    /// A topic by number.
    pub fn topic_by_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        let _ = id;
        unimplemented!("helper")
    }

    /// All topics by name.
    pub fn topics(&self) -> Vec<Arc<Topic>> {
        unimplemented!("helper")
    }

    /// What each partition of a topic holds.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn ranges(&self, topic: TopicId) -> Result<Vec<Range>> {
        let _ = topic;
        unimplemented!("helper")
    }

    /// All positions of a reader (sequenced, not only durable).
    pub fn positions(&self, reader: u32) -> Vec<Position> {
        let _ = reader;
        unimplemented!("helper")
    }

    /// Entries of the registry whose key starts with `prefix`, in key order.
    pub fn entries(&self, prefix: &str) -> Vec<(String, Bytes)> {
        let _ = prefix;
        unimplemented!("helper")
    }

    /// Turns true when the journal has grown enough that a snapshot should be taken.
    pub fn snapshot_due(&self) -> watch::Receiver<bool> {
        unimplemented!("helper")
    }

    /// Records a snapshot: the next manifest names it, and journal files from before it may be cut
    /// once their events are sealed. Returns when the manifest is committed.
    ///
    /// # Errors
    /// `Unavailable` when storage can't be written; `Fenced`.
    pub async fn snapshot_taken(&self, snapshot: SnapshotRef) -> Result<()> {
        let _ = snapshot;
        unimplemented!("helper")
    }

    /// Seals everything committed so far into segments and commits the manifest.
    ///
    /// # Errors
    /// `Unavailable` when storage can't be written; `Fenced`.
    pub async fn seal(&self) -> Result<()> {
        unimplemented!("helper")
    }

    /// Figures.
    pub fn stats(&self) -> Stats {
        unimplemented!("helper")
    }

    /// Refuses new commits, makes durable what is sequenced, stops the background work, releases the
    /// directory. Doesn't seal.
    ///
    /// # Errors
    /// `Unavailable` when the last frames couldn't be made durable.
    pub async fn close(&self) -> Result<()> {
        unimplemented!("helper")
    }
}
