//! The log without threads: a shared state and the steps that move it. The façade runs the steps on
//! threads; the simulation runs them one after the other.

mod ahead;
mod flush;
mod local;
mod stint;
mod truncate;
mod upkeep;

pub(crate) use flush::Flushed;
pub(crate) use local::batch_of;

use crate::ahead::Hold;
use crate::draft::Draft;
use crate::journal::{FILE_HEAD, Filling, Frames, JournalFile, Pool, Queued, Writer};
use crate::sequencer::{
    Facts, Sequencer, TopicChange, partition_not_found, topic_not_found, written,
};
use crate::tail::{InMemory, Partition, Shared, Undelivered, share};
use crate::{Settings, Ticket, Topic};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use tidemill_env::Buffers;
use tidemill_env::Clock;
use tidemill_env::files::Files;
use tidemill_types::{
    ByteSize, CommitSeq, Error, ErrorKind, PartitionId, Result, Timestamp, TopicId,
};
use tokio::sync::{Notify, oneshot, watch};

/// The log's state.
pub(crate) struct Shard {
    pub(crate) settings: Settings,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) clock: Clock,
    pub(crate) pool: Pool,
    pub(crate) buffers: Buffers,
    inbox: Mutex<Inbox>,
    /// Something is queued, or the log is closing.
    work: Condvar,
    closing: Condvar,
    room: Notify,
    writer: Mutex<Flusher>,
    topics: RwLock<HashMap<TopicId, Arc<TopicPartitions>>>,
    journal: Mutex<BTreeMap<u64, Used>>,
    frames: Frames,
    durable: watch::Receiver<CommitSeq>,
    tail_bytes: AtomicU64,
    written: AtomicU64,
    /// Whether a topic has much that its partitions haven't got.
    crowded: AtomicBool,
    /// How many follow a partition.
    pub(crate) followers: AtomicU64,
    pub(crate) hold: Hold,
    /// What a group's write and sync took, in µs, on the average of the last ones.
    sync_micros: AtomicU64,
    /// And its bytes.
    group_bytes: AtomicU64,
    /// What all groups' writes and syncs took together, in µs.
    busy_micros: AtomicU64,
    pub(crate) meters: crate::meters::Meters,
}

/// A topic's partitions as readers see them.
pub(crate) struct TopicPartitions {
    pub(crate) topic: Topic,
    partitions: Vec<Arc<Shared>>,
    /// Frames that aren't with all of them.
    undelivered: Arc<Undelivered>,
}

impl TopicPartitions {
    pub(crate) fn new(topic: Topic, partitions: impl ExactSizeIterator<Item = Partition>) -> Self {
        let (undelivered, partitions) = share(partitions);
        Self {
            topic,
            partitions,
            undelivered,
        }
    }

    /// One of them.
    pub(crate) fn partition(&self, number: u32) -> Option<&Arc<Shared>> {
        self.partitions.get(number as usize)
    }

    /// All of them, for those who are going to look at each.
    pub(crate) fn all(&self) -> &[Arc<Shared>] {
        self.deliver();
        &self.partitions
    }

    /// Brings all partitions what was published for them. Whoever locks one finds it there without this, but has to look
    /// for it.
    pub(crate) fn deliver(&self) {
        self.undelivered.deliver_all(&self.partitions);
    }
}

/// A journal file that counts, and what it is needed for.
pub(crate) struct Used {
    pub(crate) file: Arc<JournalFile>,
    pub(crate) bytes: u64,
    pub(crate) last_seq: u64,
    /// The last frame in it that has state sections; 0 = none.
    pub(crate) last_state: u64,
}

impl Used {
    /// The file, and how far it is durable.
    fn durable_part(&self) -> (Arc<JournalFile>, u64) {
        (self.file.clone(), FILE_HEAD + self.bytes)
    }
}

struct Inbox {
    sequencer: Sequencer,
    queue: VecDeque<Queued>,
    /// Bytes of what is queued.
    queued: usize,
    /// Whether somebody may wait for any of that.
    awaited: bool,
    /// Whether the flusher lets it gather now.
    gathers: bool,
    in_flight: usize,
    condition: Condition,
    storage_full: bool,
    journal_full: bool,
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
    /// Whether what was queued last is of those that may gather.
    lets_gather: bool,
    group: u64,
    memory: VecDeque<GroupMemory>,
}

/// What of a group is in memory.
struct GroupMemory {
    group: u64,
    bytes: usize,
    frames: Vec<Arc<InMemory>>,
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
        let writer = Writer::begin(&start.pool, Filling::Zeros)?;
        let last = start.sequencer.last();
        let (durable, durable_seen) = watch::channel(last);
        let reuse = start.settings.reuse_bytes.0;
        let shard = Self {
            inbox: Mutex::new(Inbox {
                sequencer: start.sequencer,
                queue: VecDeque::new(),
                queued: 0,
                awaited: false,
                gathers: false,
                in_flight: 0,
                condition: Condition::Open,
                storage_full: false,
                journal_full: false,
            }),
            work: Condvar::new(),
            closing: Condvar::new(),
            room: Notify::new(),
            topics: RwLock::new(start.topics),
            journal: Mutex::new(start.journal),
            frames: Frames::new(reuse / 4, start.meters.stretches.clone()),
            durable: durable_seen,
            tail_bytes: AtomicU64::new(0),
            written: AtomicU64::new(start.written),
            crowded: AtomicBool::new(false),
            followers: AtomicU64::new(0),
            hold: Hold::default(),
            sync_micros: AtomicU64::new(0),
            group_bytes: AtomicU64::new(0),
            busy_micros: AtomicU64::new(0),
            writer: Mutex::new(Flusher {
                writer,
                pending: VecDeque::new(),
                durable: Some(durable),
                lets_gather: false,
                group: 0,
                memory: VecDeque::new(),
            }),
            settings: start.settings,
            files: start.files,
            clock: start.clock,
            pool: start.pool,
            // The disk has the last fourth.
            buffers: Buffers::keeping(ByteSize(reuse / 2).as_usize()),
            meters: start.meters,
        };
        for topic in shard.all_topics() {
            topic
                .all()
                .iter()
                .for_each(|partition| partition.lock().wake());
        }
        shard.check_space();
        Ok(shard)
    }

    /// Sequences a transaction; see [`crate::Log::commit`].
    #[expect(
        clippy::result_large_err,
        reason = "the draft comes back so that nothing is copied"
    )]
    pub(crate) fn commit(&self, draft: Draft) -> Result<Ticket, (Error, Draft)> {
        self.sequence(draft, true)
    }

    /// Sequences a transaction that somebody waits for, or nobody ([`crate::Log::commit_unawaited`]).
    #[expect(
        clippy::result_large_err,
        reason = "the draft comes back so that nothing is copied"
    )]
    pub(crate) fn sequence(
        &self,
        mut draft: Draft,
        awaited: bool,
    ) -> Result<Ticket, (Error, Draft)> {
        let most = usize::try_from(self.pool.room()).unwrap_or(usize::MAX);
        if let Err(error) = draft.lay_out(most) {
            return Err((error, draft));
        }
        let bytes = draft.bytes();
        let now = self.clock.now();
        let mut inbox = self.inbox();
        let admitted = inbox
            .admit(self.settings.in_flight_bytes.as_usize(), draft.facts())
            .and_then(|()| inbox.sequencer.check(draft.facts(), now));
        match admitted {
            Ok(None) => {}
            Ok(Some(earlier)) => {
                let from_memory = inbox.sequencer.acks_from_memory(draft.facts());
                return Ok(self.again(earlier, from_memory));
            }
            Err(error) => return Err((error, draft)),
        }
        let sequenced = inbox.sequencer.next(now);
        let (mut body, mut facts) = draft.into_parts();
        let from_memory = inbox.sequencer.acks_from_memory(&facts);
        inbox.sequencer.apply(sequenced, &mut facts);
        self.apply_topics(&facts.topics);
        body.slices = facts.slices;
        self.append_ahead(&mut body, sequenced);
        let (waiting, durable) = match from_memory || !awaited {
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
            truncations: facts.truncations,
            waiting,
        });
        inbox.queued += bytes;
        inbox.awaited |= awaited;
        let wakes = match inbox.gathers {
            true => !self.may_gather(&inbox),
            false => inbox.queue.len() == 1,
        };
        drop(inbox);
        if wakes {
            self.work.notify_one();
        }
        Ok(Ticket {
            commit: CommitSeq(sequenced.seq),
            time: Timestamp::from_micros(sequenced.time),
            written,
            replayed: false,
            durable,
            earlier: None,
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
        drop(topics);
        all.sort_by_key(|topic| topic.topic.id);
        all
    }

    pub(crate) fn partition(&self, at: PartitionId) -> Result<Arc<Shared>> {
        let topic = self.topic(at.topic)?;
        let partition = topic.partition(at.partition);
        partition.cloned().ok_or_else(|| partition_not_found(at))
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
    fn admit(&self, most: usize, facts: &Facts) -> Result<()> {
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
        if self.storage_full && !facts.makes_room() {
            return Err(Error::new(
                ErrorKind::StorageFull,
                "storage-full",
                "the disk of the data directory has too little free space: make room; reads go on",
            ));
        }
        if self.journal_full && !facts.makes_room() {
            return Err(Error::new(
                ErrorKind::StorageFull,
                "journal-full",
                "the journal has reached log.journal_bytes and can't be cut, most likely because object storage doesn't take segments: see that it does; reads go on",
            ));
        }
        if self.in_flight >= most {
            return Err(Error::new(
                ErrorKind::Busy,
                "busy",
                format!("{} bytes wait for the disk: come again", self.in_flight),
            ));
        }
        Ok(())
    }
}

pub(crate) fn stopped() -> Error {
    Error::unavailable(
        "journal-failed",
        "the journal can't be written any more and the host has to be started again; what wasn't acknowledged may or may not be there",
    )
}

pub(crate) fn apply_topic(
    topics: &mut HashMap<TopicId, Arc<TopicPartitions>>,
    change: &TopicChange,
) {
    match change {
        TopicChange::Created(topic) => {
            let count = topic.settings.partitions as usize;
            let partitions = (0..count).map(|_| Partition::new(0, 0, 0, Vec::new()));
            let known = TopicPartitions::new((**topic).clone(), partitions);
            topics.insert(topic.id, Arc::new(known));
        }
        TopicChange::Altered(topic) => {
            if let Some(known) = topics.get_mut(&topic.id) {
                *known = Arc::new(TopicPartitions {
                    topic: (**topic).clone(),
                    partitions: known.partitions.clone(),
                    undelivered: known.undelivered.clone(),
                });
            }
        }
        TopicChange::Deleted(topic) => {
            if let Some(known) = topics.remove(topic) {
                known
                    .partitions
                    .iter()
                    .for_each(|partition| partition.lock().close());
            }
        }
    }
}
