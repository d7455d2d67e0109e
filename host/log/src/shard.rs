//! The log without threads: a shared state and the steps that move it. The façade runs the steps on
//! threads; the simulation runs them one after the other.

use crate::draft::Draft;
use crate::frame;
use crate::journal::{JournalFile, Placed, Pool, Queued, Writer};
use crate::sequencer::{Sequencer, TopicChange, partition_not_found, topic_not_found};
use crate::tail::{CHUNK_BYTES, Chunk, Partition, Place, Source, Taken};
use crate::{ReadLimit, Settings, Ticket, Topic, Written};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use tidemill_env::Clock;
use tidemill_env::files::Files;
use tidemill_types::{
    Batch, CommitSeq, Commits, Error, ErrorKind, IngestTimes, Offsets, PartitionId, ROW_HEAD_BYTES,
    Result, Timestamp, TopicId,
};
use tokio::sync::{Notify, oneshot, watch};

/// A group grows up to about this many bytes: about a millisecond of disk.
const GROUP_BYTES: usize = 4 << 20;

/// The log's state.
pub(crate) struct Shard {
    pub(crate) settings: Settings,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) clock: Clock,
    pub(crate) pool: Pool,
    inbox: Mutex<Inbox>,
    /// Something is queued, or the log is closing.
    work: Condvar,
    closing: Condvar,
    room: Notify,
    writer: Mutex<Flusher>,
    topics: RwLock<HashMap<TopicId, Arc<TopicPartitions>>>,
    journal: Mutex<BTreeMap<u64, Used>>,
    durable: watch::Receiver<CommitSeq>,
    tail_bytes: AtomicU64,
    written: AtomicU64,
    pub(crate) meters: crate::meters::Meters,
}

/// A topic's partitions as readers see them.
pub(crate) struct TopicPartitions {
    pub(crate) topic: Topic,
    pub(crate) partitions: Vec<Arc<Mutex<Partition>>>,
}

/// A journal file that counts, and what it is needed for.
pub(crate) struct Used {
    pub(crate) file: Arc<JournalFile>,
    pub(crate) bytes: u64,
    pub(crate) last_seq: u64,
    /// The last frame in it that has state sections; 0 = none.
    pub(crate) last_state: u64,
}

struct Inbox {
    sequencer: Sequencer,
    queue: VecDeque<Queued>,
    in_flight: usize,
    condition: Condition,
    storage_full: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Condition {
    Open,
    Closing,
    Failed,
}

/// What belongs to the one who writes.
struct Flusher {
    writer: Writer,
    pending: VecDeque<Queued>,
    durable: Option<watch::Sender<CommitSeq>>,
    group: u64,
    memory: VecDeque<GroupMemory>,
}

/// What of a group is in memory.
struct GroupMemory {
    group: u64,
    bytes: usize,
    touched: Vec<Arc<Mutex<Partition>>>,
}

/// What a flush did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flushed {
    /// A group became durable.
    Group,
    /// There was nothing.
    Nothing,
    /// The next file can't be made; try again when there may be space.
    NoSpace,
    /// The disk failed; nothing will be written any more.
    Failed,
}

/// What a shard starts from.
pub(crate) struct Start {
    pub(crate) settings: Settings,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) clock: Clock,
    pub(crate) pool: Pool,
    pub(crate) sequencer: Sequencer,
    pub(crate) topics: HashMap<TopicId, Arc<TopicPartitions>>,
    pub(crate) journal: BTreeMap<u64, Used>,
    /// Bytes of journal since the newest snapshot.
    pub(crate) written: u64,
    pub(crate) meters: crate::meters::Meters,
}

impl Shard {
    /// Begins a new journal file behind what was recovered.
    ///
    /// # Errors
    /// When the disk has no room for it or fails.
    pub(crate) fn new(start: Start) -> Result<Self> {
        let writer = Writer::begin(&start.pool)?;
        let last = start.sequencer.last();
        let (durable, durable_seen) = watch::channel(last);
        let shard = Self {
            inbox: Mutex::new(Inbox {
                sequencer: start.sequencer,
                queue: VecDeque::new(),
                in_flight: 0,
                condition: Condition::Open,
                storage_full: false,
            }),
            work: Condvar::new(),
            closing: Condvar::new(),
            room: Notify::new(),
            topics: RwLock::new(start.topics),
            journal: Mutex::new(start.journal),
            durable: durable_seen,
            tail_bytes: AtomicU64::new(0),
            written: AtomicU64::new(start.written),
            writer: Mutex::new(Flusher {
                writer,
                pending: VecDeque::new(),
                durable: Some(durable),
                group: 0,
                memory: VecDeque::new(),
            }),
            settings: start.settings,
            files: start.files,
            clock: start.clock,
            pool: start.pool,
            meters: start.meters,
        };
        for topic in shard.all_topics() {
            topic
                .partitions
                .iter()
                .for_each(|partition| lock(partition).wake());
        }
        shard.check_space();
        Ok(shard)
    }

    /// Sequences a transaction; see [`crate::Log::commit`].
    pub(crate) fn commit(&self, mut draft: Draft) -> Result<Ticket, (Error, Draft)> {
        let most = usize::try_from(self.pool.room()).unwrap_or(usize::MAX);
        if let Err(error) = draft.lay_out(most) {
            return Err((error, draft));
        }
        let bytes = draft.bytes();
        let now = self.clock.now();
        let mut inbox = self.inbox();
        let admitted = inbox
            .admit(bytes, self.settings.in_flight_bytes.as_usize())
            .and_then(|()| inbox.sequencer.check(draft.facts()));
        if let Err(error) = admitted {
            return Err((error, draft));
        }
        let sequenced = inbox.sequencer.next(now);
        let (mut body, mut facts) = draft.into_parts();
        let from_memory = inbox.sequencer.acks_from_memory(&facts);
        inbox.sequencer.apply(sequenced, &mut facts);
        self.apply_topics(&facts.topics);
        body.slices = facts.slices;
        let (waiting, durable) = match from_memory {
            true => (None, None),
            false => {
                let (sender, receiver) = oneshot::channel();
                (Some(sender), Some(receiver))
            }
        };
        let written = written(&body.slices);
        let has_state = facts.has_state;
        inbox.in_flight += bytes;
        inbox.queue.push_back(Queued {
            sequenced,
            body,
            bytes,
            has_state,
            waiting,
        });
        let first = inbox.queue.len() == 1;
        drop(inbox);
        if first {
            self.work.notify_one();
        }
        Ok(Ticket {
            commit: CommitSeq(sequenced.seq),
            time: Timestamp::from_micros(sequenced.time),
            written,
            durable,
        })
    }

    fn apply_topics(&self, changes: &[TopicChange]) {
        if changes.is_empty() {
            return;
        }
        let mut topics = self.topics.write().unwrap_or_else(PoisonError::into_inner);
        for change in changes {
            apply_topic(&mut topics, change);
        }
    }

    /// Waits until something is queued; false when the log is closing and nothing is.
    pub(crate) fn wait_for_work(&self) -> bool {
        let mut inbox = self.inbox();
        loop {
            if !inbox.queue.is_empty() {
                return true;
            }
            if inbox.condition != Condition::Open {
                return false;
            }
            inbox = self
                .work
                .wait(inbox)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// One group: written, synced, published, acknowledged.
    pub(crate) fn flush(&self) -> Flushed {
        let mut flusher = self.flusher();
        let flusher = &mut *flusher;
        if flusher.pending.is_empty() {
            std::mem::swap(&mut flusher.pending, &mut self.inbox().queue);
        }
        let Some(first) = flusher.pending.front() else {
            return Flushed::Nothing;
        };
        if flusher.durable.is_none() {
            self.fail(flusher, &stopped());
            return Flushed::Failed;
        }
        if first.bytes as u64 > flusher.writer.room() {
            match Writer::begin(&self.pool) {
                Ok(writer) => flusher.writer = writer,
                Err(error) if error.kind == ErrorKind::StorageFull => {
                    if !std::mem::replace(&mut self.inbox().storage_full, true) {
                        tracing::error!(%error, "no space for the next journal file; commits are refused until there is");
                    }
                    return Flushed::NoSpace;
                }
                Err(error) => {
                    self.fail(flusher, &error);
                    return Flushed::Failed;
                }
            }
        }
        let mut group = take_group(&mut flusher.pending, flusher.writer.room());
        let durable = self.durable.borrow().0;
        let started = self.clock.elapsed();
        match flusher.writer.write(&mut group, durable) {
            Ok(placed) => {
                self.meters
                    .synced(&group, self.clock.elapsed().saturating_sub(started));
                self.publish(flusher, group, placed);
                Flushed::Group
            }
            Err(error) => {
                flusher.pending.extend(group);
                self.fail(flusher, &error);
                Flushed::Failed
            }
        }
    }

    /// Nothing will become durable any more: everybody who waits is told so.
    fn fail(&self, flusher: &mut Flusher, error: &Error) {
        tracing::error!(%error, "the journal can't be written; the log stops");
        let mut inbox = self.inbox();
        inbox.condition = Condition::Failed;
        inbox.in_flight = 0;
        let queued = std::mem::take(&mut inbox.queue);
        drop(inbox);
        flusher.durable = None;
        for queued in flusher.pending.drain(..).chain(queued) {
            if let Some(waiting) = queued.waiting {
                let _ = waiting.send(Err(stopped().at(error)));
            }
        }
        self.work.notify_all();
        self.room.notify_waiters();
    }

    fn publish(&self, flusher: &mut Flusher, group: Vec<Queued>, placed: Vec<Placed>) {
        flusher.group += 1;
        let number = flusher.group;
        self.account_file(flusher.writer.file(), &group);
        let mut memory = GroupMemory {
            group: number,
            bytes: 0,
            touched: Vec::new(),
        };
        for (queued, placed) in group.iter().zip(&placed) {
            memory.bytes += placed.body.len();
            self.publish_frame(flusher.writer.file().number, queued, placed, &mut memory);
        }
        for partition in &memory.touched {
            lock(partition).wake();
        }
        if let (Some(durable), Some(last)) = (&flusher.durable, group.last()) {
            durable.send_replace(CommitSeq(last.sequenced.seq));
        }
        let bytes: usize = group.iter().map(|queued| queued.bytes).sum();
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
        self.inbox().in_flight -= bytes;
        self.room.notify_waiters();
        for queued in group {
            if let Some(waiting) = queued.waiting {
                let _ = waiting.send(Ok(()));
            }
        }
        self.remember(flusher, memory);
    }

    fn publish_frame(&self, file: u64, queued: &Queued, placed: &Placed, memory: &mut GroupMemory) {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        for slice in &queued.body.slices {
            // A topic deleted meanwhile has no readers.
            let Some(topic) = topics.get(&TopicId(slice.topic)) else {
                continue;
            };
            let (Some(partition), Some(section)) = (
                topic.partitions.get(slice.partition as usize),
                queued.body.sections.get(slice.section as usize),
            ) else {
                continue;
            };
            let batch = batch_of(
                &placed.body,
                section,
                slice,
                queued.sequenced.seq,
                queued.sequenced.time,
            );
            let place = Place {
                first: slice.base,
                end: slice.base + u64::from(slice.rows),
                bytes: u64::from(slice.bytes),
                time: queued.sequenced.time,
                file,
                at: placed.at,
                len: placed.len,
            };
            let mut locked = lock(partition);
            locked.push(Chunk {
                batch,
                place,
                group: memory.group,
            });
            memory.bytes += CHUNK_BYTES;
            if locked.touched != memory.group {
                locked.touched = memory.group;
                memory.touched.push(partition.clone());
            }
        }
    }

    fn account_file(&self, file: &Arc<JournalFile>, group: &[Queued]) {
        let mut journal = self.journal();
        let used = journal.entry(file.number).or_insert_with(|| Used {
            file: file.clone(),
            bytes: 0,
            last_seq: 0,
            last_state: 0,
        });
        for queued in group {
            used.bytes += queued.bytes as u64;
            used.last_seq = queued.sequenced.seq;
            if queued.has_state {
                used.last_state = queued.sequenced.seq;
            }
        }
    }

    /// Keeps a group in memory and lets the oldest go while there is too much.
    fn remember(&self, flusher: &mut Flusher, memory: GroupMemory) {
        let mut bytes = self.tail_bytes.load(Ordering::Relaxed) + memory.bytes as u64;
        flusher.memory.push_back(memory);
        while bytes > self.settings.tail_bytes.0 {
            let Some(oldest) = flusher.memory.pop_front() else {
                break;
            };
            for partition in &oldest.touched {
                lock(partition).forget(oldest.group);
            }
            bytes -= oldest.bytes as u64;
        }
        self.tail_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Makes the next file ready once half of the current one is used, so that switching never waits.
    pub(crate) fn prepare_file(&self) {
        let used = self.flusher().writer.used();
        if used > self.pool.room() / 2
            && let Err(error) = self.pool.prepare()
        {
            tracing::warn!(%error, "the next journal file isn't ready ahead");
        }
    }

    /// Looks how much disk is free and refuses or admits commits accordingly.
    pub(crate) fn check_space(&self) {
        match self.files.free_bytes(self.pool.dir()) {
            Ok(free) => {
                let full = free < self.settings.reserve_bytes.0;
                let before = std::mem::replace(&mut self.inbox().storage_full, full);
                if full != before {
                    tracing::warn!(free, full, "free disk space passed the reserve");
                }
            }
            Err(error) => tracing::warn!(%error, "free disk space can't be told"),
        }
    }

    /// Waits until there is room for another commit, or the log has stopped.
    pub(crate) async fn wait_for_room(&self) {
        loop {
            let notified = self.room.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            {
                let inbox = self.inbox();
                let roomy = inbox.in_flight < self.settings.in_flight_bytes.as_usize();
                if roomy || inbox.condition != Condition::Open {
                    return;
                }
            }
            notified.await;
        }
    }

    /// Refuses new commits from now on. A last frame says that all before it was written, so that a
    /// later start can tell damage from a torn tail, if the close is `orderly`.
    pub(crate) fn begin_close(&self, orderly: bool) {
        let mut last = Draft::new();
        last.closed();
        let laid_out = last.lay_out(frame::frame_bytes(0, 1 << 10)).is_ok();
        let mut inbox = self.inbox();
        if inbox.condition == Condition::Open {
            inbox.condition = Condition::Closing;
            if orderly && laid_out {
                let sequenced = inbox.sequencer.next(self.clock.now());
                let bytes = last.bytes();
                let (body, mut facts) = last.into_parts();
                inbox.sequencer.apply(sequenced, &mut facts);
                inbox.in_flight += bytes;
                inbox.queue.push_back(Queued {
                    sequenced,
                    body,
                    bytes,
                    has_state: false,
                    waiting: None,
                });
            }
        }
        drop(inbox);
        self.work.notify_all();
        self.closing.notify_all();
        self.room.notify_waiters();
    }

    /// Nothing more will be written; everybody who waits is told so.
    pub(crate) fn stop(&self) {
        let mut flusher = self.flusher();
        self.fail(&mut flusher, &stopped());
    }

    /// Whether a new file is needed soon.
    pub(crate) fn file_is_half_used(&self) -> bool {
        self.flusher().writer.used() > self.pool.room() / 2
    }

    /// Waits a while, or until the log is closing; then what has no space is given up.
    pub(crate) fn wait_for_space(&self, most: Duration) {
        let inbox = self.inbox();
        let open = |inbox: &mut Inbox| inbox.condition == Condition::Open;
        let waited = self.closing.wait_timeout_while(inbox, most, open);
        let (inbox, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let closing = inbox.condition == Condition::Closing;
        drop(inbox);
        if closing {
            self.stop();
        } else {
            self.check_space();
        }
    }

    pub(crate) fn meter(&self) {
        let bytes: u64 = self.journal().values().map(|used| used.bytes).sum();
        self.meters.journal_bytes.set(bytes.cast_signed());
        self.meters.tail_bytes.set(self.tail_bytes().cast_signed());
    }

    /// Whether a sync or write failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.inbox().condition == Condition::Failed
    }

    pub(crate) fn durable(&self) -> watch::Receiver<CommitSeq> {
        let mut durable = self.durable.clone();
        durable.mark_unchanged();
        durable
    }

    pub(crate) fn tail_bytes(&self) -> u64 {
        self.tail_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of journal written since the newest snapshot that was known at the start.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// The last durable frame with changes of state, as far as its file isn't cut.
    pub(crate) fn last_state(&self) -> u64 {
        self.journal()
            .values()
            .map(|used| used.last_state)
            .max()
            .unwrap_or(0)
    }

    /// Takes off the journal what nobody needs: files whose frames are in the manifest, whose state is
    /// in the snapshot and whose events are in segments. The newest file with frames stays: it says
    /// where the sequence stands.
    ///
    /// # Errors
    /// Whatever the disk says; the file is no longer part of this log, and a later start finds it again.
    pub(crate) fn cut(&self, manifest: CommitSeq, snapshot: CommitSeq) -> Result<()> {
        let mut needed = u64::MAX;
        for topic in self.all_topics() {
            for partition in &topic.partitions {
                needed = needed.min(lock(partition).oldest_file().unwrap_or(u64::MAX));
            }
        }
        loop {
            let mut journal = self.journal();
            let newest = journal.last_key_value().map(|(number, _)| *number);
            let Some(oldest) = journal.first_entry() else {
                return Ok(());
            };
            let used = oldest.get();
            let unneeded = *oldest.key() < needed
                && used.last_seq <= manifest.0
                && used.last_state <= snapshot.0;
            if !unneeded || Some(*oldest.key()) == newest {
                return Ok(());
            }
            let used = oldest.remove();
            drop(journal);
            self.pool.put_back(used.file)?;
        }
    }

    /// What is true after all sequenced frames.
    pub(crate) fn with_sequencer<T>(&self, look: impl FnOnce(&Sequencer) -> T) -> T {
        look(&self.inbox().sequencer)
    }

    /// A topic's partitions.
    pub(crate) fn topic(&self, topic: TopicId) -> Result<Arc<TopicPartitions>> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        topics
            .get(&topic)
            .cloned()
            .ok_or_else(|| topic_not_found(topic))
    }

    pub(crate) fn all_topics(&self) -> Vec<Arc<TopicPartitions>> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = topics.values().cloned().collect();
        all.sort_by_key(|topic| topic.topic.id);
        all
    }

    pub(crate) fn partition(&self, at: PartitionId) -> Result<Arc<Mutex<Partition>>> {
        let topic = self.topic(at.topic)?;
        let partition = topic.partitions.get(at.partition as usize);
        partition.cloned().ok_or_else(|| partition_not_found(at))
    }

    /// Where events of a partition are.
    pub(crate) fn source(&self, at: PartitionId, from: u64, limit: ReadLimit) -> Result<Source> {
        let partition = self.partition(at)?;
        Ok(lock(&partition).source(from, limit))
    }

    /// Events from places of the journal; blocks.
    ///
    /// # Errors
    /// `Unavailable` when a file can't be read, `Corrupt` when it isn't what was written.
    pub(crate) fn read_places(
        &self,
        at: PartitionId,
        places: &[Place],
        from: u64,
        limit: ReadLimit,
    ) -> Result<Taken> {
        let mut taken = Taken::new(from, limit);
        for place in places {
            if taken.is_full() {
                break;
            }
            let file = self
                .journal()
                .get(&place.file)
                .map(|used| used.file.clone());
            // Cut meanwhile: the events are in a segment now.
            let Some(file) = file else { break };
            read_place(&file, at, place, &mut taken)?;
        }
        Ok(taken)
    }

    /// Events that are in memory or in the journal; blocks. Empty at the end.
    ///
    /// # Errors
    /// As [`Shard::read_places`]; `OutOfRange` for what is only in segments.
    pub(crate) fn read_local(&self, at: PartitionId, from: u64, limit: ReadLimit) -> Result<Taken> {
        let mut from = from;
        loop {
            match self.source(at, from, limit)? {
                Source::Memory(taken) => return Ok(taken),
                Source::Journal(places) => return self.read_places(at, &places, from, limit),
                Source::End => return Ok(Taken::new(from, limit)),
                Source::Gap(next) => from = next,
                Source::Segment(_) => {
                    return Err(Error::internal(format!(
                        "offset {from} is in a segment already"
                    )));
                }
            }
        }
    }

    pub(crate) fn journal(&self) -> MutexGuard<'_, BTreeMap<u64, Used>> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flusher(&self) -> MutexGuard<'_, Flusher> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inbox {
    fn admit(&self, bytes: usize, most: usize) -> Result<()> {
        match self.condition {
            Condition::Open => {}
            Condition::Closing => {
                return Err(Error::unavailable(
                    "stopping",
                    "the log is being closed; nothing was written",
                ));
            }
            Condition::Failed => return Err(stopped()),
        }
        if self.storage_full {
            return Err(Error::new(
                ErrorKind::StorageFull,
                "storage-full",
                "the disk of the data directory has too little free space: make room; reads go on",
            ));
        }
        if self.in_flight > 0 && self.in_flight + bytes > most {
            return Err(Error::new(
                ErrorKind::Busy,
                "busy",
                format!("{} bytes wait for the disk: come again", self.in_flight),
            ));
        }
        Ok(())
    }
}

fn stopped() -> Error {
    Error::unavailable(
        "journal-failed",
        "the journal can't be written any more and the host has to be started again; what wasn't acknowledged may or may not be there",
    )
}

pub(crate) fn lock(partition: &Mutex<Partition>) -> MutexGuard<'_, Partition> {
    partition.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn apply_topic(
    topics: &mut HashMap<TopicId, Arc<TopicPartitions>>,
    change: &TopicChange,
) {
    match change {
        TopicChange::Created(topic) => {
            let partition = || Arc::new(Mutex::new(Partition::new(0, 0, 0, Vec::new())));
            let partitions = (0..topic.settings.partitions)
                .map(|_| partition())
                .collect();
            let topic = (**topic).clone();
            topics.insert(topic.id, Arc::new(TopicPartitions { topic, partitions }));
        }
        TopicChange::Altered(topic) => {
            if let Some(known) = topics.get_mut(&topic.id) {
                let partitions = known.partitions.clone();
                let topic = (**topic).clone();
                *known = Arc::new(TopicPartitions { topic, partitions });
            }
        }
        TopicChange::Deleted(topic) => {
            if let Some(known) = topics.remove(topic) {
                known
                    .partitions
                    .iter()
                    .for_each(|partition| lock(partition).close());
            }
        }
    }
}

fn written(slices: &[frame::Slice]) -> Vec<Written> {
    let mut all: Vec<Written> = slices
        .iter()
        .map(|slice| Written {
            at: PartitionId {
                topic: TopicId(slice.topic),
                partition: slice.partition,
            },
            first: slice.base,
            last: slice.base + u64::from(slice.rows) - 1,
        })
        .collect();
    all.sort_by_key(|written| (written.at, written.first));
    all.dedup_by(|next, last| {
        let joined = next.at == last.at;
        if joined {
            last.last = next.last;
        }
        joined
    });
    all
}

fn take_group(pending: &mut VecDeque<Queued>, room: u64) -> Vec<Queued> {
    let (mut bytes, mut frames) = (0, 0);
    for queued in &*pending {
        let with = bytes + queued.bytes;
        if with as u64 > room || (frames > 0 && with > GROUP_BYTES) {
            break;
        }
        bytes = with;
        frames += 1;
    }
    pending.drain(..frames).collect()
}

/// One slice's events, sharing the body's memory.
fn batch_of(
    body: &Bytes,
    section: &frame::Section,
    slice: &frame::Slice,
    seq: u64,
    time: i64,
) -> Batch {
    let at = section.at as usize;
    let heads_at = at + section.payload as usize + slice.first_row as usize * ROW_HEAD_BYTES;
    Batch::new(
        body.slice(heads_at..heads_at + slice.rows as usize * ROW_HEAD_BYTES),
        body.slice(at..at + section.payload as usize),
        Offsets::From(slice.base),
        IngestTimes::Same(Timestamp::from_micros(time)),
        Commits::Same(CommitSeq(seq)),
    )
}

fn read_place(file: &JournalFile, at: PartitionId, place: &Place, taken: &mut Taken) -> Result<()> {
    let len =
        usize::try_from(place.len).map_err(|_| Error::internal("place above address space"))?;
    let mut bytes = vec![0; len];
    file.file
        .read_at(place.at, &mut bytes)
        .map_err(|e| crate::journal::disk_error(&file.path, "can't be read", &e))?;
    let bytes = Bytes::from(bytes);
    let mut start = 0;
    while start < bytes.len() && !taken.is_full() {
        let damaged = || {
            Error::corrupt(format!(
                "{}: the frame at byte {} is damaged: restore the file from a copy of the disk",
                file.path.display(),
                place.at + start as u64
            ))
        };
        let rest = &bytes[start..];
        let head = frame::Head::read(rest, file.nonce).ok_or_else(damaged)?;
        if !head.body_is_whole(rest) {
            return Err(damaged());
        }
        let body = bytes.slice(start + head.body().start..start + head.body().end);
        let sections = head.sections(&body)?;
        for slice in &head.slices {
            let ours = slice.topic == at.topic.0 && slice.partition == at.partition;
            let Some(section) = sections.get(slice.section as usize).filter(|_| ours) else {
                continue;
            };
            taken.take(&batch_of(
                &body,
                section,
                slice,
                head.stamp.seq,
                head.stamp.time,
            ));
        }
        start += head.frame_bytes();
    }
    Ok(())
}
