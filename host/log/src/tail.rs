//! What one partition holds, as readers see it: segments, then places in the journal, then chunks in
//! memory, without a gap between them. Only durable events are in here, and apart from them those that
//! followers may read ahead.

mod ahead;
mod chunk;
mod place;
mod shared;

pub(crate) use chunk::{CHUNK_BYTES, Chunk, FrameAt, InMemory};
pub(crate) use place::Place;
pub(crate) use shared::{AHEAD, Shared, Undelivered, share, touch};

use crate::flow::Flow;
use crate::frame::Slice;
use crate::segment::SegmentMeta;
use crate::{Range, ReadLimit};
use place::Places;
use std::collections::VecDeque;
use std::sync::Arc;
use tidemill_types::Batch;
use tokio::sync::watch;

/// Chunks whose memory was let go are made places when so many new ones have come: each time costs memory that has left
/// the processor's cache.
const SETTLED_AT: u32 = 16;

/// A partition keeps room for so many chunks, however few it has.
const ROOMY: usize = 1024;

/// One partition. What each append comes to is in front and close together: with thousands of partitions, each of
/// them has left the processor's cache when its next event comes.
#[repr(C)]
pub(crate) struct Partition {
    end: u64,
    chunks: VecDeque<Chunk>,
    unsealed_bytes: u64,
    /// Chunks that came since those whose memory was let go were looked for.
    unsettled: u32,
    /// How many frames of those that aren't brought at once it has had, or been passed by.
    delivered: u64,
    places: Places,
    archived_end: u64,
    /// The last group whose events those who wait are told of.
    told: u64,
    /// What comes in.
    pub(crate) flow: Flow,
    /// Whether somebody may wait for its end to move. Told apart from `moved`, which lies elsewhere: with
    /// thousands of partitions, most have nobody.
    watched: bool,
    /// While anybody follows.
    ahead: Option<Box<ahead::Ahead>>,
    start: u64,
    segments: Vec<Arc<SegmentMeta>>,
    /// `None` when the topic is deleted.
    moved: Option<watch::Sender<u64>>,
}

/// Where the events at an offset are.
pub(crate) enum Source {
    /// In memory: here they are.
    Memory(Taken),
    /// In the journal; these places may have them, in order.
    Journal(Vec<Place>),
    /// In this segment.
    Segment(Arc<SegmentMeta>),
    /// Nowhere: the partition starts at this later offset.
    Below(u64),
    /// Nowhere: the reader is at the end.
    End,
    /// Lost or compacted away; they go on at this offset.
    Gap(u64),
}

/// Events gathered up to a limit.
pub(crate) struct Taken {
    pub(crate) batches: Vec<Batch>,
    pub(crate) next: u64,
    events: usize,
    bytes: usize,
    full: bool,
}

impl Taken {
    pub(crate) fn new(from: u64, limit: ReadLimit) -> Self {
        Self {
            batches: Vec::new(),
            next: from,
            events: limit.events,
            bytes: limit.bytes,
            full: limit.events == 0,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// What is left of the limit.
    pub(crate) fn limit(&self) -> ReadLimit {
        ReadLimit {
            events: self.events,
            bytes: self.bytes,
        }
    }

    /// Takes what the limit allows of `batch` from `next` on.
    pub(crate) fn take(&mut self, batch: &Batch) {
        let first = batch.row_at(self.next);
        let mut rows = first;
        while rows < batch.len() && !self.full {
            let bytes = batch.head(rows).bytes();
            // The very first event comes even if it is larger than the limit.
            if bytes > self.bytes && (rows > first || !self.batches.is_empty()) {
                self.full = true;
                break;
            }
            rows += 1;
            self.bytes = self.bytes.saturating_sub(bytes);
            self.events -= 1;
            self.full = self.events == 0;
        }
        if rows > first {
            self.next = batch.offset(rows - 1) + 1;
            self.batches.push(batch.slice(first..rows));
        }
    }
}

impl Partition {
    pub(crate) fn new(start: u64, archived_end: u64, end: u64, segments: Vec<SegmentMeta>) -> Self {
        Self {
            start,
            archived_end,
            end,
            segments: segments.into_iter().map(Arc::new).collect(),
            places: Places::default(),
            chunks: VecDeque::new(),
            unsealed_bytes: 0,
            flow: Flow::default(),
            unsettled: 0,
            delivered: 0,
            watched: false,
            told: 0,
            moved: Some(watch::Sender::new(end)),
            ahead: None,
        }
    }

    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn archived_end(&self) -> u64 {
        self.archived_end
    }

    pub(crate) fn segments(&self) -> &[Arc<SegmentMeta>] {
        &self.segments
    }

    /// The end as it moves; `None` when the topic is deleted.
    fn watch(&mut self) -> Option<watch::Receiver<u64>> {
        self.watched = true;
        let moved = self.moved.as_ref()?;
        moved.send_replace(self.end);
        Some(moved.subscribe())
    }

    /// The topic is deleted: nobody needs to wait any more.
    pub(crate) fn close(&mut self) {
        self.moved = None;
        self.ahead = None;
        self.chunks.clear();
        self.places.clear();
    }

    /// Whether somebody may wait for its end to move.
    fn is_watched(&self) -> bool {
        self.watched || self.is_followed()
    }

    /// Whether somebody who may wait hasn't been noted for this group.
    pub(crate) fn has_to_tell(&mut self, group: u64) -> bool {
        self.watched && std::mem::replace(&mut self.told, group) != group
    }

    /// Tells those who wait that the end has moved.
    pub(crate) fn wake(&mut self) {
        if let Some(moved) = &self.moved {
            self.watched = moved.receiver_count() > 0;
            if self.watched {
                moved.send_replace(self.end);
            }
        }
    }

    pub(crate) fn range(&self, partition: u32) -> Range {
        let archived: u64 = self.segments.iter().map(|segment| segment.bytes).sum();
        Range {
            partition,
            start: self.start,
            end: self.end,
            archived_end: self.archived_end,
            bytes: archived + self.unsealed_bytes,
        }
    }

    /// Bytes of events that no segment holds.
    pub(crate) fn unsealed_bytes(&self) -> u64 {
        self.unsealed_bytes
    }

    /// Memory of what is noted of where unsealed events lie.
    pub(crate) fn notes_bytes(&self) -> usize {
        let gone = self.chunks.partition_point(Chunk::is_gone);
        self.places.memory() + gone * size_of::<Chunk>()
    }

    /// Bytes of events in memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let there = self.chunks.iter().filter(|chunk| !chunk.is_gone());
        there.map(Chunk::bytes).sum()
    }

    /// Bytes from `from` on that are in the journal, and the ingest time of the first such event.
    pub(crate) fn unsealed_from(&self, from: u64) -> (u64, Option<i64>) {
        let oldest = self
            .in_journal()
            .find(|place| place.end > from)
            .map(|place| place.time);
        let bytes = match from == self.archived_end {
            true => self.unsealed_bytes,
            false => self.in_journal().map(|place| left_of(&place, from)).sum(),
        };
        (bytes, oldest)
    }

    /// All places in the journal, also of what is in memory, in order.
    fn in_journal(&self) -> impl Iterator<Item = Place> {
        self.places
            .iter()
            .chain(self.chunks.iter().map(Chunk::place))
    }

    /// Events that became durable.
    pub(crate) fn push(&mut self, chunk: Chunk) {
        self.flow.add(chunk.end() - chunk.first, chunk.bytes());
        self.end = chunk.end();
        self.unsealed_bytes += chunk.bytes();
        self.chunks.push_back(chunk);
        self.unsettled += 1;
        if self.unsettled >= SETTLED_AT {
            self.settle();
        }
        self.let_ahead_go();
    }

    /// Events that became durable some time ago: their memory may be gone already.
    fn bring(&mut self, frame: &Arc<InMemory>, slice: &Slice) {
        let chunk = Chunk::new(frame, slice);
        if !self.chunks.is_empty() || !chunk.is_gone() {
            self.push(chunk);
            return;
        }
        self.flow.add(chunk.end() - chunk.first, chunk.bytes());
        self.push_place(chunk.place());
        self.let_ahead_go();
    }

    /// Durable events known only by their place in the journal.
    pub(crate) fn push_place(&mut self, place: Place) {
        self.end = self.end.max(place.end);
        self.unsealed_bytes += place.bytes;
        self.places.push(place);
    }

    /// Looks which events' memory was let go: what isn't in a segment is still known by its place.
    fn settle(&mut self) {
        self.settle_some(usize::MAX);
    }

    /// The same for so many chunks at most: of a partition that nothing comes to any more.
    pub(crate) fn settle_some(&mut self, most: usize) {
        self.unsettled = 0;
        for _ in 0..most {
            let Some(chunk) = self.chunks.pop_front_if(|chunk| chunk.is_gone()) else {
                break;
            };
            if chunk.end() > self.archived_end {
                self.places.push(chunk.place());
            }
        }
        // Room for many times as many is let go, too.
        if self.chunks.capacity() > ROOMY && self.chunks.len() < self.chunks.capacity() / 8 {
            self.chunks.shrink_to(self.chunks.len() * 2);
        }
    }

    /// A segment was committed.
    pub(crate) fn archive(&mut self, segment: SegmentMeta) {
        self.archived_end = self.archived_end.max(segment.end);
        if segment.end > self.start {
            self.segments.push(Arc::new(segment));
        }
        self.let_go();
    }

    /// Compaction has replaced segments.
    pub(crate) fn replace_segments(&mut self, segments: &[SegmentMeta]) {
        let left = segments.iter().filter(|segment| segment.end > self.start);
        self.segments = left.cloned().map(Arc::new).collect();
    }

    /// Whether a segment is part of it.
    pub(crate) fn has_segment(&self, path: &str) -> bool {
        self.segments.iter().any(|segment| segment.path == path)
    }

    /// Events below an offset go. Answers how many offsets and about how many bytes that were.
    pub(crate) fn truncate(&mut self, before: u64) -> (u64, u64) {
        let (events, bytes) = (before.saturating_sub(self.start), self.range(0).bytes);
        if events == 0 {
            return (0, 0);
        }
        self.start = before;
        self.end = self.end.max(before);
        self.let_ahead_go();
        self.segments.retain(|segment| segment.end > before);
        self.archived_end = self.archived_end.max(before);
        self.let_go();
        (events, bytes.saturating_sub(self.range(0).bytes))
    }

    /// Forgets places that nobody needs any more.
    fn let_go(&mut self) {
        self.settle();
        self.places.let_go(self.archived_end);
        let left = self
            .in_journal()
            .map(|place| left_of(&place, self.archived_end))
            .sum();
        self.unsealed_bytes = left;
    }

    /// Where events from `from` on are; those in memory are taken at once.
    pub(crate) fn source(&mut self, from: u64, limit: ReadLimit) -> Source {
        if from < self.start {
            return Source::Below(self.start);
        }
        if from >= self.end {
            return Source::End;
        }
        let mut in_memory = self.chunks.front().map(|chunk| chunk.first);
        if in_memory.is_some_and(|first| from >= first) {
            if let Some(taken) = self.take(from, limit) {
                return Source::Memory(taken);
            }
            self.settle();
            in_memory = self.chunks.front().map(|chunk| chunk.first);
        }
        if from < self.archived_end {
            let nth = self.segments.partition_point(|segment| segment.end <= from);
            return match self.segments.get(nth) {
                Some(segment) => Source::Segment(segment.clone()),
                None => Source::Gap(self.archived_end),
            };
        }
        let places = self.places.some_from(from);
        match places.first() {
            Some(place) if place.first <= from => Source::Journal(places),
            Some(place) => Source::Gap(place.first),
            None => Source::Gap(in_memory.unwrap_or(self.end)),
        }
    }

    /// Events in memory; `None` when the memory of the first was let go.
    fn take(&self, from: u64, limit: ReadLimit) -> Option<Taken> {
        let mut taken = Taken::new(from, limit);
        let nth = self.chunks.partition_point(|chunk| chunk.end() <= from);
        for (at, chunk) in self.chunks.range(nth..).enumerate() {
            if taken.is_full() {
                break;
            }
            match chunk.batch() {
                Some(batch) => taken.take(&batch),
                None if at == 0 => return None,
                None => break,
            }
        }
        Some(taken)
    }

    /// Whether the journal and memory have all events from the archived end to `end`.
    pub(crate) fn missing(&self) -> Option<u64> {
        let mut at = self.archived_end;
        for place in self.in_journal() {
            if place.first > at {
                return Some(at);
            }
            at = at.max(place.end);
        }
        (at < self.end).then_some(at)
    }

    /// The number of the oldest journal file that holds events of it which no segment holds.
    pub(crate) fn oldest_file(&self) -> Option<u64> {
        self.in_journal()
            .find(|place| place.end > self.archived_end)
            .map(|place| place.file)
    }
}

fn left_of(place: &Place, archived_end: u64) -> u64 {
    let rows = place.end - place.first;
    let left = place.end.saturating_sub(archived_end.max(place.first));
    place.bytes / rows.max(1) * left
}

#[cfg(test)]
mod tests;
