//! What the façade takes and gives.

use crate::marks::Earlier;
use crate::shard::stopped;
use crate::tail::Taken;
use bytes::Bytes;
use std::path::PathBuf;
use std::time::Duration;
use tidemill_types::{Batch, ByteSize, CommitSeq, Error, PartitionId, Result, Timestamp};
use tokio::sync::watch;

/// Settings of a log (data; the parts it works with are arguments of [`Log::open`](crate::Log::open)).
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
    /// Small segments of topics that aren't compacted are merged until they have this much.
    pub merge_bytes: ByteSize,
    /// How often compaction and merging look for something to do.
    pub compaction_interval: Duration,
    /// A partition is compacted when this part of its segments' bytes, in percent, came since the last time.
    pub compaction_percent: u32,
    /// Memory for the keys of one compaction; what doesn't fit is left for the next.
    pub compaction_bytes: ByteSize,
    /// With this much journal that can't be cut, commits are refused as `journal-full`; 0: only the
    /// disk bounds it.
    pub journal_bytes: ByteSize,
    /// Memory for footers and decoded events of segments.
    pub reading_bytes: ByteSize,
    /// Memory for row groups of segments that are written side by side.
    pub sealing_bytes: ByteSize,
    /// Memory that is kept to be used again: buffers of frames, and what was read of the journal.
    pub reuse_bytes: ByteSize,
    /// Local disk for what is read of segments, in `cache/segments/`; 0: none, for storage that is local.
    pub cache_bytes: ByteSize,
    /// Disk space that must stay free; below it commits are refused as `storage-full`.
    pub reserve_bytes: ByteSize,
    /// Memory for the last steps of producers; beyond it those that were silent longest are forgotten.
    pub producer_bytes: ByteSize,
    /// A producer that was silent for less than this is never forgotten.
    pub producer_idle: Duration,
    /// Memory for idempotency keys; beyond it requests with new ones are refused.
    pub idempotency_bytes: ByteSize,
    /// How long an idempotency key counts, from its first acceptance.
    pub idempotency_window: Duration,
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
            merge_bytes: ByteSize::mib(128),
            compaction_interval: Duration::from_secs(15),
            compaction_percent: 50,
            compaction_bytes: ByteSize::mib(64),
            journal_bytes: ByteSize(0),
            reading_bytes: ByteSize::mib(128),
            sealing_bytes: ByteSize::mib(96),
            reuse_bytes: ByteSize::mib(64),
            cache_bytes: ByteSize(0),
            reserve_bytes: ByteSize::mib(256),
            producer_bytes: ByteSize::mib(16),
            producer_idle: Duration::from_secs(7 * 24 * 3600),
            idempotency_bytes: ByteSize::mib(256),
            idempotency_window: Duration::from_secs(24 * 3600),
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
    /// Called once, before any frame; may fetch the snapshot. Answers behind which commit it wants the
    /// sections: that up to which the state is there already, or an earlier one that isn't before the snapshot.
    ///
    /// # Errors
    /// What can't be rebuilt stops the start.
    async fn begin(&mut self, snapshot: Option<&SnapshotRef>) -> Result<CommitSeq>;
    /// Everything up to here was durable when what comes next was written: it may be written elsewhere.
    fn durable(&mut self, _commit: CommitSeq) {}
    /// One state section, in commit order, each once.
    ///
    /// # Errors
    /// A section that makes no sense stops the start.
    fn state(&mut self, commit: CommitSeq, section: &[u8]) -> Result<()>;
    /// Called once, behind the last section of the journal: whether those were all that there ever were behind
    /// the commit that `begin` asked for. They weren't where the journal was lost, then or earlier.
    fn end(&mut self, _is_complete: bool) {}
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
    /// Whether this is the answer to an earlier request of the same producer and number, or with the
    /// same key: nothing was appended now.
    pub replayed: bool,
    /// `None` when it needs no waiting.
    pub(crate) durable: Option<tokio::sync::oneshot::Receiver<Result<()>>>,
    /// What to watch if an earlier frame has to be waited for.
    pub(crate) earlier: Option<watch::Receiver<CommitSeq>>,
}

impl Ticket {
    /// The ticket of a request that was appended before; `durable` if that has to be waited for.
    pub(crate) fn again(earlier: Earlier, durable: Option<watch::Receiver<CommitSeq>>) -> Self {
        Self {
            commit: CommitSeq(earlier.commit),
            time: Timestamp::from_micros(earlier.time),
            written: earlier.written,
            replayed: true,
            durable: None,
            earlier: durable,
        }
    }

    /// Waits until the frame is durable. Tickets become durable in commit order.
    ///
    /// # Errors
    /// `Unavailable` when the journal failed: the outcome is unknown and the host stops.
    pub async fn durable(self) -> Result<()> {
        if let Some(mut durable) = self.earlier {
            let reached = durable.wait_for(|durable| *durable >= self.commit).await;
            return reached.map(drop).map_err(|_| stopped());
        }
        match self.durable {
            None => Ok(()),
            Some(durable) => durable.await.unwrap_or_else(|_| {
                Err(Error::unavailable(
                    "stopping",
                    "the log was closed before this became durable; it may or may not be there",
                ))
            }),
        }
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

/// Which of an event's two times is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TimeOf {
    /// The event's own.
    #[default]
    Event,
    /// When it was committed.
    Ingest,
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

impl Read {
    /// Takes what a limit allows off the front; what is left goes on where it ends.
    pub fn take(&mut self, limit: ReadLimit) -> Self {
        let from = self
            .batches
            .first()
            .map_or(self.next, |batch| batch.offset(0));
        let mut taken = Taken::new(from, limit);
        let mut left = std::mem::take(&mut self.batches).into_iter();
        for batch in left.by_ref() {
            taken.take(&batch);
            let rest = batch.slice(batch.row_at(taken.next)..batch.len());
            if !rest.is_empty() {
                self.batches.push(rest);
            }
            if taken.is_full() {
                break;
            }
        }
        self.batches.extend(left);
        Self {
            batches: taken.batches,
            next: if self.batches.is_empty() {
                self.next
            } else {
                taken.next
            },
            end: self.end,
        }
    }
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
