//! From the queue to the disk, to readers and to those who wait: one group at a time.

use super::{Condition, Flusher, GroupMemory, Inbox, Shard, TopicPartitions, Used, stopped};
use crate::draft::Body;
use crate::frame::Slice;
use crate::journal::{JournalFile, Placed, Queued, Writer};
use crate::tail::{AHEAD, CHUNK_BYTES, Chunk, FrameAt, InMemory, Shared, touch};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;
use tidemill_types::{CommitSeq, Error, ErrorKind, TopicId};

/// A group grows up to about this many bytes: about a millisecond of disk.
const GROUP_BYTES: usize = 4 << 20;

/// What nobody waits for gathers until it is this much, or for so long. It costs a reader at the end no more than that,
/// and where tasks have fallen behind each sync takes time from them.
const GATHER_BYTES: usize = 512 << 10;
/// See [`GATHER_BYTES`].
const GATHER: Duration = Duration::from_millis(2);
/// Whoever brings less than this in the time of a sync hasn't fallen behind.
const GATHER_LEAST: usize = 64 << 10;
/// Of what may be in flight, this part gathers at most.
const GATHER_PART: usize = 4;

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

impl Shard {
    /// One group: written, synced, published, acknowledged.
    pub(crate) fn flush(&self) -> Flushed {
        let mut flusher = self.flusher();
        let flusher = &mut *flusher;
        if flusher.pending.is_empty() {
            let mut inbox = self.inbox();
            std::mem::swap(&mut flusher.pending, &mut inbox.queue);
            let awaited = std::mem::take(&mut inbox.awaited);
            flusher.lets_gather = std::mem::take(&mut inbox.queued) >= GATHER_LEAST && !awaited;
        }
        let Some(first) = flusher.pending.front() else {
            return Flushed::Nothing;
        };
        if flusher.durable.is_none() {
            self.fail(flusher, &stopped());
            return Flushed::Failed;
        }
        if first.bytes as u64 > flusher.writer.room() {
            match Writer::begin(&self.pool, self.filling()) {
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
        let (writer, buffers) = (&mut flusher.writer, &self.buffers);
        match writer.write(&mut group, durable, buffers, &self.clock) {
            Ok((placed, took)) => {
                let bytes = group.iter().map(|queued| queued.bytes as u64).sum();
                self.note_sync(took.write + took.sync, bytes);
                self.meters.synced(&group, took);
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

    /// Lets what is queued gather a little, where nobody waits for it and it comes without a pause.
    pub(crate) fn gather(&self) {
        let Some(mut inbox) = self.gathering() else {
            return;
        };
        inbox.gathers = true;
        let goes_on = |inbox: &mut Inbox| self.may_gather(inbox);
        let waited = self.work.wait_timeout_while(inbox, GATHER, goes_on);
        let (mut inbox, _) = waited.unwrap_or_else(PoisonError::into_inner);
        inbox.gathers = false;
    }

    /// What is queued, if it is to gather.
    fn gathering(&self) -> Option<MutexGuard<'_, Inbox>> {
        let flusher = self.flusher();
        let lets_gather = flusher.lets_gather && flusher.pending.is_empty();
        drop(flusher);
        let inbox = self.inbox();
        (lets_gather && !inbox.queue.is_empty() && self.may_gather(&inbox)).then_some(inbox)
    }

    /// Whether what is queued may go on gathering.
    pub(super) fn may_gather(&self, inbox: &Inbox) -> bool {
        let enough = GATHER_BYTES.min(self.settings.in_flight_bytes.as_usize() / GATHER_PART);
        inbox.condition == Condition::Open && !inbox.awaited && inbox.queued < enough
    }

    /// Whether the flusher would let what is queued gather.
    #[cfg(test)]
    pub(crate) fn would_gather(&self) -> bool {
        self.gathering().is_some()
    }

    /// Nothing will become durable any more: everybody who waits is told so.
    pub(super) fn fail(&self, flusher: &mut Flusher, error: &Error) {
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

    fn publish(&self, flusher: &mut Flusher, mut group: Vec<Queued>, placed: Vec<Placed>) {
        flusher.group += 1;
        let number = flusher.group;
        self.account_file(flusher.writer.file(), &group);
        let mut memory = GroupMemory {
            group: number,
            bytes: 0,
            frames: Vec::with_capacity(group.len()),
        };
        let mut waited_for = Vec::new();
        let file = flusher.writer.file().number;
        for (queued, placed) in group.iter_mut().zip(&placed) {
            memory.bytes += placed.body.len();
            self.publish_frame(file, queued, placed, &mut memory, &mut waited_for);
        }
        for partition in waited_for {
            partition.lock().wake();
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

    fn publish_frame(
        &self,
        file: u64,
        queued: &mut Queued,
        placed: &Placed,
        memory: &mut GroupMemory,
        waited_for: &mut Vec<Arc<Shared>>,
    ) {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        let at = FrameAt {
            seq: queued.sequenced.seq,
            time: queued.sequenced.time,
            file,
            at: placed.at,
            len: placed.len,
        };
        let frame = InMemory::new(placed.body.clone(), queued.body.sections.clone(), at);
        memory.frames.push(frame.clone());
        match publish_wide(&topics, &frame, queued, memory, waited_for) {
            None => publish_slices(&topics, &frame, &queued.body, memory, waited_for),
            Some(0) => {}
            Some(_) => self.crowded.store(true, Ordering::Relaxed),
        }
        self.publish_truncations(&topics, &queued.truncations);
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
            oldest.frames.iter().for_each(|frame| frame.let_go());
            bytes -= oldest.bytes as u64;
        }
        self.tail_bytes.store(bytes, Ordering::Relaxed);
    }
}

/// Brings what a frame appends to its partitions.
fn publish_slices(
    topics: &HashMap<TopicId, Arc<TopicPartitions>>,
    frame: &Arc<InMemory>,
    body: &Body,
    memory: &mut GroupMemory,
    waited_for: &mut Vec<Arc<Shared>>,
) {
    let mut known: (u32, Option<&Arc<TopicPartitions>>) = (0, None);
    let mut partition_of = |slice: &Slice| {
        if known.1.is_none() || known.0 != slice.topic {
            known = (slice.topic, topics.get(&TopicId(slice.topic)));
        }
        // A topic deleted meanwhile has no readers.
        known.1?.partitions.get(slice.partition as usize)
    };
    for slices in body.slices.chunks(AHEAD) {
        touch(slices.iter().filter_map(&mut partition_of));
        for slice in slices {
            let has_section = (slice.section as usize) < body.sections.len();
            let Some(partition) = partition_of(slice).filter(|_| has_section) else {
                continue;
            };
            let mut locked = partition.lock();
            locked.push(Chunk::new(frame, slice));
            memory.bytes += CHUNK_BYTES;
            if locked.has_to_tell(memory.group) {
                waited_for.push(partition.clone());
            }
        }
    }
}

/// A frame that is spread over very many partitions of a topic: how many times over it is time that they get what is
/// theirs. `None` if it isn't one.
fn publish_wide(
    topics: &HashMap<TopicId, Arc<TopicPartitions>>,
    frame: &Arc<InMemory>,
    queued: &mut Queued,
    memory: &mut GroupMemory,
    waited_for: &mut Vec<Arc<Shared>>,
) -> Option<usize> {
    let slices = &mut queued.body.slices;
    let topic = topics.get(&TopicId(slices.first()?.topic))?;
    let undelivered = &topic.undelivered;
    if !undelivered.takes(slices) {
        return None;
    }
    memory.bytes += CHUNK_BYTES * slices.len();
    let group = memory.group;
    undelivered.publish(frame, std::mem::take(slices), |partition| {
        let partition = topic.partitions.get(partition as usize);
        waited_for.extend(partition.filter(|it| it.has_to_tell(group)).cloned());
    });
    Some(undelivered.fullness())
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
