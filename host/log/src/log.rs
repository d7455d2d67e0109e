//! The façade.

use crate::draft::Draft;
use crate::keeper::Keeper;
use crate::meters::Meters;
use crate::open::{self, Parts};
use crate::sequencer::{Sequencer, TopicChange, Truncation, out_of_range, topic_not_found};
use crate::shard::{Shard, stopped};
use crate::threads::Threads;
use crate::{
    Compression, Follower, PartitionStats, Position, Range, Read, ReadLimit, Recovery, Retention,
    Schema, Settings, SnapshotRef, Stats, Ticket, TimeOf, Topic, TopicSettings, ahead, read, stats,
};
use bytes::Bytes;
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_env::files::Files;
use tidemill_env::metrics::Metrics;
use tidemill_env::objects::Objects;
use tidemill_env::{Clock, Random};
use tidemill_types::{
    CommitSeq, Error, ErrorKind, PartitionId, Result, Timestamp, TopicId, TopicName, limits,
};
use tokio::sync::watch;

/// The log. Cheap to clone.
#[derive(Clone)]
pub struct Log {
    inner: Arc<Inner>,
}

struct Inner {
    shard: Arc<Shard>,
    keeper: Arc<Keeper>,
    /// One change of topics at a time, so that their numbers are given out in turn.
    topic_changes: tokio::sync::Mutex<()>,
    threads: Mutex<Option<Threads>>,
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
        let held = open::take_directory(&*files, &settings.dir)?;
        let mut found = Keeper::find(objects, &random).await?;
        let parts = Parts {
            settings,
            files,
            clock,
            random: random.clone(),
            meters: Meters::new(metrics),
        };
        let marks = std::mem::take(&mut found.marks);
        let opened = open::open(parts, found.manifest.clone(), marks, recovery).await?;
        let shard = Arc::new(opened.shard);
        let keeper = Keeper::begin(found, opened.manifest, &shard, random).await?;
        let keeper = Arc::new(keeper);
        let threads = Threads::start(&shard, &keeper, held)?;
        let inner = Inner {
            shard,
            keeper,
            topic_changes: tokio::sync::Mutex::new(()),
            threads: Mutex::new(Some(threads)),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// An empty draft with room for `bytes` bytes of sections, in the memory of an earlier one where there is any.
    pub fn draft_with_room(&self, bytes: usize) -> Draft {
        Draft::in_buffer(
            self.inner
                .shard
                .buffers
                .take(bytes.min(limits::FRAME_BYTES)),
        )
    }

    /// An empty draft for events that arrive: its payload takes the memory of an earlier one's.
    pub fn draft(&self) -> Draft {
        Draft::with_buffers(self.inner.shard.buffers.clone())
    }

    /// Sequences a transaction: decides offsets and order, appends to memory, never waits for the disk.
    /// A request that must take effect once and did so before ([`Draft::once`]) appends nothing; its
    /// ticket is the one of then, marked as replayed.
    ///
    /// # Errors
    /// `Busy` when too much is in flight (wait with [`Log::room`]); `StorageFull`; `Conflict` with code
    /// `position-moved` when a position isn't what the draft says, or `tail-moved` when a partition
    /// doesn't end where it says; for a request that must take effect once `producer-fenced` (with
    /// `current_epoch`), `invalid-producer-epoch`, `out-of-order-sequence` (with `expected` and
    /// `received`), `idempotency-key-reused`, and of kind `Busy` `producers-full` and
    /// `idempotency-keys-full` (with `retry_after`, in seconds); `NotFound` for an unknown topic or
    /// partition; `TooLarge`; `Unavailable` after a failed sync. On an error nothing happened and the
    /// draft comes back as it was, to be tried again. What an error says of others' requests may not be
    /// durable yet: wait with [`Log::settled`] before telling anybody.
    #[expect(
        clippy::result_large_err,
        reason = "the draft comes back so that nothing is copied"
    )]
    pub fn commit(&self, draft: Draft) -> Result<Ticket, (Error, Draft)> {
        self.inner.shard.commit(draft)
    }

    /// The same for a transaction whose durability nobody waits for, of somebody who has more to do at once: such
    /// frames may gather for a moment, so that the disk is synced less often. Gives its commit.
    ///
    /// # Errors
    /// As [`Log::commit`].
    #[expect(
        clippy::result_large_err,
        reason = "the draft comes back so that nothing is copied"
    )]
    pub fn commit_unawaited(&self, draft: Draft) -> Result<CommitSeq, (Error, Draft)> {
        let ticket = self.inner.shard.sequence(draft, false)?;
        Ok(ticket.commit)
    }

    /// Waits until there is room for another commit, or the log has stopped.
    pub async fn room(&self) {
        self.inner.shard.wait_for_room().await;
    }

    /// Events of a partition from an offset on, only durable ones, from segments, journal or tail;
    /// empty at the committed end.
    ///
    /// # Errors
    /// `OutOfRange` below the start or above the end; `NotFound`; `Unavailable` when storage can't be read.
    pub async fn read(&self, at: PartitionId, from: u64, limit: ReadLimit) -> Result<Read> {
        self.read_through(at, from, limit, u64::MAX).await
    }

    /// The same for one of several that read other partitions of the same frames at the same pace: goes
    /// through little of the journal at a time, so that the next of them finds it in memory. There may be more
    /// although the limit isn't reached; it is empty only at the committed end.
    ///
    /// # Errors
    /// As [`Log::read`].
    pub async fn read_in_step(&self, at: PartitionId, from: u64, limit: ReadLimit) -> Result<Read> {
        self.read_through(at, from, limit, read::STEP).await
    }

    async fn read_through(
        &self,
        at: PartitionId,
        from: u64,
        limit: ReadLimit,
        journal: u64,
    ) -> Result<Read> {
        let segments = self.inner.keeper.segments();
        read::read(&self.inner.shard, segments, at, from, limit, journal).await
    }

    /// The same without waiting: `None` when the events aren't in memory.
    pub fn read_tail(&self, at: PartitionId, from: u64, limit: ReadLimit) -> Option<Read> {
        read::read_memory(&self.inner.shard, at, from, limit)
    }

    /// The same up to the appended end, for those who [`Log::follow`] the partition: events that aren't
    /// durable yet are among them. `None` when the next events aren't in memory.
    pub fn read_ahead(&self, at: PartitionId, from: u64, limit: ReadLimit) -> Option<Read> {
        ahead::read(&self.inner.shard, at, from, limit)
    }

    /// Follows a partition ahead of the disk.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn follow(&self, at: PartitionId) -> Result<Follower> {
        Follower::new(&self.inner.shard, at)
    }

    /// The last commit that was sequenced. Whoever follows a partition ([`Log::follow`]) since an earlier one
    /// became durable finds every event up to it by [`Log::read_ahead`]: a reader of several partitions
    /// that asks for this first, and reads them then, has missed nothing of these commits.
    pub fn appended(&self) -> CommitSeq {
        // Frames reach followers under the lock that this takes.
        self.inner.shard.with_sequencer(Sequencer::last)
    }

    /// The first offset whose time of that kind is at least `time`, by lookup over all of the
    /// partition; the end if there is none.
    ///
    /// # Errors
    /// As [`Log::read`].
    pub async fn offset_at(
        &self,
        at: PartitionId,
        time: Timestamp,
        time_of: TimeOf,
    ) -> Result<u64> {
        read::offset_at(
            &self.inner.shard,
            self.inner.keeper.segments(),
            at,
            time,
            time_of,
        )
        .await
    }

    /// Takes away a partition's events below an offset; nothing if it starts behind it already.
    /// Durable when it returns; the objects go in the background. Answers what is left.
    ///
    /// # Errors
    /// `OutOfRange` above the committed end; `NotFound`.
    pub async fn truncate(&self, at: PartitionId, before: u64) -> Result<Range> {
        let range = self.range(at)?;
        if before > range.end {
            return Err(out_of_range(before, range.start, range.end));
        }
        if before > range.start {
            loop {
                match self.inner.shard.truncate(Truncation { at, before }) {
                    Ok(ticket) => break ticket.durable().await?,
                    Err(error) if error.kind == ErrorKind::Busy => self.room().await,
                    Err(error) => return Err(error),
                }
            }
        }
        self.range(at)
    }

    /// What one partition holds.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn range(&self, at: PartitionId) -> Result<Range> {
        let partition = self.inner.shard.partition(at)?;
        let range = partition.lock().range(at.partition);
        Ok(range)
    }

    /// Compacts what is due now, as it is done in the background.
    ///
    /// # Errors
    /// `Unavailable` when storage can't be read or written; `Corrupt`; `Fenced`. What failed is as it was.
    pub async fn compact(&self) -> Result<()> {
        self.inner.keeper.compact(&self.inner.shard).await
    }

    /// Merges small segments until none are due, as it is done in the background.
    ///
    /// # Errors
    /// As [`Log::compact`].
    pub async fn merge(&self) -> Result<()> {
        while self.inner.keeper.merge(&self.inner.shard).await? {}
        Ok(())
    }

    /// The committed (durable) end of a partition, as it moves. It closes when the topic is deleted.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn watch(&self, at: PartitionId) -> Result<watch::Receiver<u64>> {
        let partition = self.inner.shard.partition(at)?;
        partition.watch().ok_or_else(|| topic_not_found(at.topic))
    }

    /// The durable commit sequence, as it moves. An error in the channel means that the log stopped.
    pub fn durable(&self) -> watch::Receiver<CommitSeq> {
        self.inner.shard.durable()
    }

    /// Waits until everything sequenced before the call is durable, so that what was seen of positions,
    /// entries and state outlives a crash, and what came with it can be read.
    ///
    /// # Errors
    /// `journal-failed` when the log stopped before.
    pub async fn settled(&self) -> Result<()> {
        let last = self.inner.shard.with_sequencer(Sequencer::last);
        let mut durable = self.inner.shard.durable();
        match durable.wait_for(|durable| *durable >= last).await {
            Ok(_) => Ok(()),
            Err(_) => Err(stopped()),
        }
    }

    /// Creates a topic. Durable when it returns.
    ///
    /// # Errors
    /// `topic-exists` if there is one with other settings; the same settings give the existing topic
    /// and `false`.
    pub async fn create_topic(
        &self,
        name: &TopicName,
        settings: TopicSettings,
    ) -> Result<(Arc<Topic>, bool)> {
        if settings.partitions == 0 || settings.partitions > limits::PARTITIONS {
            return Err(Error::invalid(
                "invalid-partitions",
                format!(
                    "a topic has 1 to {} partitions, not {}",
                    limits::PARTITIONS,
                    settings.partitions
                ),
            ));
        }
        let _turn = self.inner.topic_changes.lock().await;
        let (known, next) = self
            .inner
            .shard
            .with_sequencer(|s| (s.topic_named(name).cloned(), s.next_topic()));
        if let Some(known) = known {
            return match known.settings == settings {
                true => Ok((known, false)),
                false => Err(Error::conflict(
                    "topic-exists",
                    format!(
                        "the topic {:?} exists with other settings: choose another name, or delete it first",
                        name.as_str()
                    ),
                )),
            };
        }
        let topic = Arc::new(Topic {
            id: TopicId(next),
            name: name.clone(),
            settings,
        });
        self.change_topic(TopicChange::Created(topic.clone()))
            .await?;
        Ok((topic, true))
    }

    /// Changes a topic's retention and, if one is given, its schema. Durable when it returns.
    ///
    /// # Errors
    /// `NotFound`; `setting-fixed` when the schema can't take the place of the one there is.
    pub async fn alter_topic(
        &self,
        name: &TopicName,
        retention: Retention,
        schema: Option<Schema>,
    ) -> Result<Arc<Topic>> {
        let _turn = self.inner.topic_changes.lock().await;
        let mut topic = (*self.named(name)?).clone();
        topic.settings.retention = retention;
        if let Some(schema) = schema {
            schema.follows(topic.settings.schema.as_deref())?;
            topic.settings.schema = Some(Arc::new(schema));
        }
        let topic = Arc::new(topic);
        self.change_topic(TopicChange::Altered(topic.clone()))
            .await?;
        Ok(topic)
    }

    /// Deletes a topic with its events; its objects go in the background. Durable when it returns.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn delete_topic(&self, name: &TopicName) -> Result<()> {
        let _turn = self.inner.topic_changes.lock().await;
        let topic = self.named(name)?.id;
        self.change_topic(TopicChange::Deleted(topic)).await
    }

    fn named(&self, name: &TopicName) -> Result<Arc<Topic>> {
        let known = self
            .inner
            .shard
            .with_sequencer(|s| s.topic_named(name).cloned());
        known.ok_or_else(|| {
            Error::not_found(
                "topic-not-found",
                format!("there is no topic {:?}", name.as_str()),
            )
        })
    }

    async fn change_topic(&self, change: TopicChange) -> Result<()> {
        let mut draft = Draft::new();
        draft.topic_change(change);
        loop {
            draft = match self.commit(draft) {
                Ok(ticket) => return ticket.durable().await,
                Err((error, draft)) if error.kind == ErrorKind::Busy => draft,
                Err((error, _)) => return Err(error),
            };
            self.room().await;
        }
    }

    /// A topic by name.
    pub fn topic(&self, name: &str) -> Option<Arc<Topic>> {
        let name: TopicName = name.parse().ok()?;
        self.inner
            .shard
            .with_sequencer(|s| s.topic_named(&name).cloned())
    }

    /// A topic by number.
    pub fn topic_by_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        self.inner.shard.with_sequencer(|s| s.topic(id).cloned())
    }

    /// All topics by name.
    pub fn topics(&self) -> Vec<Arc<Topic>> {
        let mut topics: Vec<_> = self
            .inner
            .shard
            .with_sequencer(|s| s.topics().map(|known| known.topic.clone()).collect());
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        topics
    }

    /// What each partition of a topic holds.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn ranges(&self, topic: TopicId) -> Result<Vec<Range>> {
        let topic = self.inner.shard.topic(topic)?;
        Ok((0..)
            .zip(topic.all())
            .map(|(nth, partition)| partition.lock().range(nth))
            .collect())
    }

    /// Figures about each partition of a topic.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn partition_stats(&self, topic: TopicId) -> Result<Vec<PartitionStats>> {
        stats::partitions(&self.inner.shard, topic)
    }

    /// How well the newest segments of a topic are compressed.
    ///
    /// # Errors
    /// `NotFound`; `Unavailable` when storage can't be read.
    pub async fn compression(&self, topic: TopicId) -> Result<Compression> {
        stats::compression(&self.inner.shard, self.inner.keeper.segments(), topic).await
    }

    /// All positions of a reader (sequenced, not only durable).
    pub fn positions(&self, reader: u32) -> Vec<Position> {
        self.inner.shard.with_sequencer(|s| s.positions_of(reader))
    }

    /// Entries of the registry whose key starts with `prefix`, in key order.
    pub fn entries(&self, prefix: &str) -> Vec<(String, Bytes)> {
        self.inner.shard.with_sequencer(|s| {
            let from = s.entries().range(prefix.to_owned()..);
            let ours = from.take_while(|(key, _)| key.starts_with(prefix));
            ours.map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        })
    }

    /// Turns true when the journal has grown enough that a snapshot should be taken.
    pub fn snapshot_due(&self) -> watch::Receiver<bool> {
        self.inner.keeper.snapshot_due()
    }

    /// The snapshot that the manifest names.
    pub async fn snapshot(&self) -> Option<SnapshotRef> {
        self.inner.keeper.snapshot().await
    }

    /// Records a snapshot: the next manifest names it, and journal files from before it may be cut
    /// once their events are sealed. Returns when the manifest is committed.
    ///
    /// # Errors
    /// `Unavailable` when storage can't be written; `Fenced`.
    pub async fn snapshot_taken(&self, snapshot: SnapshotRef) -> Result<()> {
        self.inner
            .keeper
            .snapshot_taken(&self.inner.shard, snapshot)
            .await
    }

    /// Seals everything committed so far into segments and commits the manifest.
    ///
    /// # Errors
    /// `Unavailable` when storage can't be written; `Fenced`.
    pub async fn seal(&self) -> Result<()> {
        self.inner.keeper.seal_all(&self.inner.shard).await
    }

    /// Figures.
    pub fn stats(&self) -> Stats {
        let shard = &self.inner.shard;
        let mut stats = Stats {
            durable: *shard.durable().borrow(),
            journal_bytes: shard.journal_bytes(),
            tail_bytes: shard.tail_bytes(),
            ..Stats::default()
        };
        for topic in shard.all_topics() {
            for partition in topic.all() {
                let partition = partition.lock();
                stats.segments += partition.segments().len() as u64;
                stats.segment_bytes += partition.segments().iter().map(|s| s.bytes).sum::<u64>();
            }
        }
        stats
    }

    /// Refuses new commits, makes durable what is sequenced, stops the background work, releases the
    /// directory. Doesn't seal.
    ///
    /// # Errors
    /// `Unavailable` when the last frames couldn't be made durable.
    pub async fn close(&self) -> Result<()> {
        let threads = self
            .inner
            .threads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(threads) = threads else {
            return Ok(());
        };
        self.inner.shard.begin_close(true);
        read::in_background(move || {
            threads.join();
            Ok(())
        })
        .await?;
        match self.inner.shard.has_failed() {
            true => Err(Error::unavailable(
                "journal-failed",
                "the last frames couldn't be made durable; what wasn't acknowledged may or may not be there",
            )),
            false => Ok(()),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let threads = self
            .threads
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(threads) = threads {
            self.shard.begin_close(false);
            threads.join();
        }
    }
}

#[cfg(test)]
mod tests;
