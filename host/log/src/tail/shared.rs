//! A partition as many come to it, and frames that are spread over very many partitions.
//!
//! With thousands of partitions, each of them has left the processor's cache when its next events come. So such frames
//! aren't taken to their partitions one by one: they stay with the topic, whoever looks at a partition brings it what is
//! its own first, and when there is enough all partitions get theirs at once, one after the other.

use super::{InMemory, Partition};
use crate::ahead::Pace;
use crate::frame::Slice;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Topics of fewer partitions have them in the processor's cache.
const MANY: usize = if cfg!(test) { 2 } else { 1024 };
/// A frame with fewer slices is brought to its partitions at once.
const WIDE: usize = if cfg!(test) { 2 } else { 64 };
/// All partitions get theirs when there are so many slices for each on the average.
const FULL: usize = if cfg!(test) { 4 } else { 64 };
/// Partitions that are asked for before they are needed.
pub(crate) const AHEAD: usize = 64;

/// A partition. Nobody who has it locked misses anything that was published.
pub(crate) struct Shared {
    undelivered: Arc<Undelivered>,
    number: u32,
    partition: Mutex<Partition>,
}

/// Frames of a topic whose events aren't with all of their partitions yet.
pub(crate) struct Undelivered {
    waiting: Mutex<Waiting>,
    /// How many frames there have been.
    end: AtomicU64,
    /// A bit for each partition: somebody may wait for its end to move. Set with the partition locked.
    watched: Box<[AtomicU64]>,
    partitions: usize,
}

#[derive(Default)]
struct Waiting {
    /// Number of the first frame.
    first: u64,
    frames: VecDeque<Wide>,
    slices: usize,
}

/// A frame with one append, its slices in the order of partitions.
#[derive(Clone)]
struct Wide {
    frame: Arc<InMemory>,
    slices: Arc<[Slice]>,
}

/// The partitions of a topic, and its frames that aren't with all of them.
pub(crate) fn share(
    partitions: impl ExactSizeIterator<Item = Partition>,
) -> (Arc<Undelivered>, Vec<Arc<Shared>>) {
    let undelivered = Arc::new(Undelivered::new(partitions.len()));
    let shared = (0..).zip(partitions).map(|(number, partition)| {
        Arc::new(Shared {
            undelivered: undelivered.clone(),
            number,
            partition: Mutex::new(partition),
        })
    });
    let shared = shared.collect();
    (undelivered, shared)
}

impl Shared {
    /// The partition, with all that was published.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Partition> {
        let mut partition = self.as_it_is();
        self.deliver(&mut partition);
        partition
    }

    fn as_it_is(&self) -> MutexGuard<'_, Partition> {
        self.partition
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn deliver(&self, partition: &mut Partition) {
        if partition.delivered != self.undelivered.end.load(Ordering::Acquire) {
            self.undelivered.deliver(partition, self.number);
        }
    }

    /// The end as it moves; `None` when the topic is deleted.
    pub(crate) fn watch(&self) -> Option<watch::Receiver<u64>> {
        self.watched(Partition::watch)
    }

    /// Somebody follows from now on: the end to read to as it moves. `None` when the topic is deleted.
    pub(crate) fn follow(&self, pace: &Arc<Pace>) -> Option<watch::Receiver<u64>> {
        self.watched(|partition| partition.follow(pace))
    }

    /// From now on what is published is brought at once.
    fn watched<T>(&self, look: impl FnOnce(&mut Partition) -> T) -> T {
        let mut partition = self.as_it_is();
        // First, so that what comes before that is seen is among what is delivered.
        self.undelivered.watch(self.number);
        self.deliver(&mut partition);
        look(&mut partition)
    }

    /// Takes what was published at once; whether those who wait have to be told.
    pub(crate) fn has_to_tell(&self, group: u64) -> bool {
        let mut partition = self.lock();
        if !partition.is_watched() {
            self.undelivered.unwatch(self.number);
        }
        partition.has_to_tell(group)
    }
}

impl Undelivered {
    fn new(partitions: usize) -> Self {
        Self {
            waiting: Mutex::default(),
            end: AtomicU64::new(0),
            watched: (0..partitions.div_ceil(64))
                .map(|_| AtomicU64::new(0))
                .collect(),
            partitions,
        }
    }

    /// Whether a frame with these slices is for here: of one append, in the order of partitions.
    pub(crate) fn takes(&self, slices: &[Slice]) -> bool {
        let append = |slice: &Slice| (slice.topic, slice.section);
        let in_order = |one: &Slice, next: &Slice| {
            append(one) == append(next) && one.partition < next.partition
        };
        self.partitions >= MANY && slices.len() >= WIDE && slices.is_sorted_by(in_order)
    }

    /// Publishes such a frame; partitions that somebody may wait for get theirs by [`Shared::has_to_tell`].
    pub(crate) fn publish(
        &self,
        frame: &Arc<InMemory>,
        slices: Vec<Slice>,
        mut watched: impl FnMut(u32),
    ) {
        let slices: Arc<[Slice]> = slices.into();
        let wide = Wide {
            frame: frame.clone(),
            slices: slices.clone(),
        };
        let mut waiting = self.waiting();
        waiting.slices += slices.len();
        waiting.frames.push_back(wide);
        self.end.store(waiting.end(), Ordering::Release);
        drop(waiting);
        for slice in &*slices {
            if self.is_watched(slice.partition) {
                watched(slice.partition);
            }
        }
    }

    /// How many times over it is time that all partitions get theirs.
    pub(crate) fn fullness(&self) -> usize {
        self.waiting().slices / (FULL * self.partitions)
    }

    /// Brings all partitions of the topic what is theirs.
    pub(crate) fn deliver_all(&self, partitions: &[Arc<Shared>]) {
        let (first, frames) = {
            let waiting = self.waiting();
            if waiting.frames.is_empty() {
                return;
            }
            let frames: Vec<Wide> = waiting.frames.iter().cloned().collect();
            (waiting.first, frames)
        };
        let end = first + frames.len() as u64;
        let sorted = Sorted::new(&frames, partitions.len());
        for (nth, some) in partitions.chunks(AHEAD).enumerate() {
            touch(some);
            for (number, shared) in (nth * AHEAD..).zip(some) {
                let theirs = sorted.of(number);
                if theirs.is_empty() {
                    continue;
                }
                let mut partition = shared.as_it_is();
                // Others may have brought it some of that.
                let had = partition.delivered;
                for note in theirs
                    .iter()
                    .filter(|note| first + u64::from(note.frame) >= had)
                {
                    let wide = &frames[note.frame as usize];
                    partition.bring(&wide.frame, &note.slice(&wide.slices[0]));
                }
                partition.delivered = had.max(end);
            }
        }
        // Their memory goes without anybody waiting for it.
        drop(self.forget(end));
    }

    /// Takes away what all partitions have.
    fn forget(&self, end: u64) -> Vec<Wide> {
        let mut waiting = self.waiting();
        let all = usize::try_from(end.saturating_sub(waiting.first)).unwrap_or(usize::MAX);
        let all = all.min(waiting.frames.len());
        let gone: Vec<Wide> = waiting.frames.drain(..all).collect();
        waiting.first += gone.len() as u64;
        waiting.slices -= gone.iter().map(|wide| wide.slices.len()).sum::<usize>();
        gone
    }

    /// Brings a partition what is its own.
    fn deliver(&self, partition: &mut Partition, number: u32) {
        let waiting = self.waiting();
        // What went before that had nothing for it.
        let had = partition.delivered.saturating_sub(waiting.first);
        let had = usize::try_from(had).unwrap_or(usize::MAX);
        for wide in waiting.frames.iter().skip(had) {
            let nth = wide.slices.binary_search_by_key(&number, |it| it.partition);
            if let Ok(nth) = nth {
                partition.bring(&wide.frame, &wide.slices[nth]);
            }
        }
        partition.delivered = waiting.end();
    }

    fn watch(&self, number: u32) {
        if let Some(word) = self.watched.get(number as usize / 64) {
            word.fetch_or(bit(number), Ordering::AcqRel);
        }
    }

    fn unwatch(&self, number: u32) {
        if let Some(word) = self.watched.get(number as usize / 64) {
            word.fetch_and(!bit(number), Ordering::AcqRel);
        }
    }

    fn is_watched(&self, number: u32) -> bool {
        let word = self.watched.get(number as usize / 64);
        word.is_some_and(|word| word.load(Ordering::Acquire) & bit(number) != 0)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn end(&self) -> u64 {
        self.first + self.frames.len() as u64
    }
}

/// Where in its word a partition's bit is.
fn bit(number: u32) -> u64 {
    1 << (number % 64)
}

/// Slices of frames by partition, and in the order of frames for each. All of it is gone through in the order in which it
/// lies in memory, but for places where as many streams of writes go on as there are partitions.
struct Sorted {
    /// Where each partition's begin, and behind the last one's.
    starts: Vec<u32>,
    all: Vec<Note>,
}

/// What is noted of a slice.
#[derive(Clone, Copy, Default)]
struct Note {
    base: u64,
    /// Which of the frames it is of.
    frame: u32,
    partition: u32,
    first_row: u32,
    rows: u32,
    bytes: u32,
}

impl Note {
    fn slice(&self, of_frame: &Slice) -> Slice {
        Slice {
            partition: self.partition,
            first_row: self.first_row,
            rows: self.rows,
            bytes: self.bytes,
            base: self.base,
            ..*of_frame
        }
    }
}

impl Sorted {
    fn new(frames: &[Wide], partitions: usize) -> Self {
        let known = |slice: &&Slice| (slice.partition as usize) < partitions;
        let mut starts = vec![0_u32; partitions + 2];
        for slice in frames.iter().flat_map(|wide| &*wide.slices).filter(known) {
            starts[slice.partition as usize + 2] += 1;
        }
        let mut before = 0;
        for start in &mut starts {
            before += *start;
            *start = before;
        }
        // Until all are in their places each start is one partition ahead, and moves to the next one's.
        let mut all = vec![Note::default(); before as usize];
        for (frame, wide) in (0..).zip(frames) {
            for slice in wide.slices.iter().filter(known) {
                let place = &mut starts[slice.partition as usize + 1];
                all[*place as usize] = Note {
                    base: slice.base,
                    frame,
                    partition: slice.partition,
                    first_row: slice.first_row,
                    rows: slice.rows,
                    bytes: slice.bytes,
                };
                *place += 1;
            }
        }
        Self { starts, all }
    }

    fn of(&self, partition: usize) -> &[Note] {
        let (start, end) = (self.starts[partition], self.starts[partition + 1]);
        &self.all[start as usize..end as usize]
    }
}

/// Asks for the memory of some partitions, so that it comes while others are waited for: each lock that is taken waits
/// for its own memory first.
pub(crate) fn touch<'a>(partitions: impl IntoIterator<Item = &'a Arc<Shared>>) {
    let all: usize = partitions.into_iter().map(Arc::strong_count).sum();
    std::hint::black_box(all);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tail::{Chunk, FrameAt};
    use bytes::Bytes;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const PARTITIONS: usize = 70;

    /// A topic, and what each of its partitions should have.
    struct Model {
        undelivered: Arc<Undelivered>,
        partitions: Vec<Arc<Shared>>,
        ends: Vec<u64>,
        frames: Vec<Arc<InMemory>>,
        watched: BTreeMap<usize, watch::Receiver<u64>>,
    }

    impl Model {
        fn new() -> Self {
            let new = |_| Partition::new(0, 0, 0, Vec::new());
            let (undelivered, partitions) = share((0..PARTITIONS).map(new));
            Self {
                undelivered,
                partitions,
                ends: vec![0; PARTITIONS],
                frames: Vec::new(),
                watched: BTreeMap::new(),
            }
        }

        /// A frame with so many events for each of some partitions, in the way of [`crate::shard::Shard`].
        fn publish(&mut self, parts: &BTreeMap<usize, u32>) {
            let seq = self.frames.len() as u64 + 1;
            let at = FrameAt {
                seq,
                time: 0,
                file: 1,
                at: seq << 20,
                len: 1 << 19,
            };
            let frame = InMemory::new(Bytes::new(), Vec::new(), at);
            self.frames.push(frame.clone());
            let mut slices = Vec::new();
            for (partition, rows) in parts {
                let base = self.ends[*partition];
                self.ends[*partition] += u64::from(*rows);
                slices.push(Slice {
                    section: 0,
                    topic: 1,
                    partition: u32::try_from(*partition).expect("few"),
                    first_row: 0,
                    rows: *rows,
                    bytes: *rows,
                    base,
                });
            }
            let mut told = Vec::new();
            let undelivered = &self.undelivered;
            if undelivered.takes(&slices) {
                undelivered.publish(&frame, slices, |number| {
                    if self.partitions[number as usize].has_to_tell(seq) {
                        told.push(number as usize);
                    }
                });
            } else {
                for slice in &slices {
                    let number = slice.partition as usize;
                    self.partitions[number]
                        .lock()
                        .push(Chunk::new(&frame, slice));
                    if self.partitions[number].has_to_tell(seq) {
                        told.push(number);
                    }
                }
            }
            for number in told {
                self.partitions[number].lock().wake();
            }
        }

        fn check(&self, number: usize) -> Result<(), TestCaseError> {
            let partition = self.partitions[number].lock();
            prop_assert_eq!(partition.end(), self.ends[number]);
            prop_assert_eq!(partition.missing(), None);
            prop_assert_eq!(partition.unsealed_bytes(), self.ends[number]);
            Ok(())
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Publish(BTreeMap<usize, u32>),
        Look(usize),
        Watch(usize),
        Leave(usize),
        DeliverAll,
        LetGo,
    }

    fn step() -> impl Strategy<Value = Step> {
        let one = || 0..PARTITIONS;
        let parts = prop::collection::btree_map(one(), 1_u32..4, 1..PARTITIONS);
        prop_oneof![
            6 => parts.prop_map(Step::Publish),
            3 => one().prop_map(Step::Look),
            2 => one().prop_map(Step::Watch),
            1 => one().prop_map(Step::Leave),
            1 => Just(Step::DeliverAll),
            1 => Just(Step::LetGo),
        ]
    }

    proptest! {
        #[test]
        fn whoever_looks_finds_everything_in_order_and_whoever_waits_is_told(
            steps in prop::collection::vec(step(), 1..60),
        ) {
            let mut model = Model::new();
            for step in steps {
                match step {
                    Step::Publish(parts) => {
                        model.publish(&parts);
                        for (number, seen) in &model.watched {
                            prop_assert_eq!(*seen.borrow(), model.ends[*number]);
                        }
                    }
                    Step::Look(number) => model.check(number)?,
                    Step::Watch(number) => {
                        let seen = model.partitions[number].watch().expect("there");
                        prop_assert_eq!(*seen.borrow(), model.ends[number]);
                        model.watched.insert(number, seen);
                    }
                    Step::Leave(number) => drop(model.watched.remove(&number)),
                    Step::DeliverAll => {
                        let undelivered = &model.undelivered;
                        undelivered.deliver_all(&model.partitions);
                        prop_assert!(undelivered.waiting().frames.is_empty());
                    }
                    Step::LetGo => model.frames.iter().for_each(|frame| frame.let_go()),
                }
            }
            for number in 0..PARTITIONS {
                model.check(number)?;
            }
        }
    }

    #[test]
    fn nobody_misses_anything_while_all_of_it_goes_on_at_once() {
        let mut model = Model::new();
        let all: BTreeMap<usize, u32> = (0..PARTITIONS).map(|number| (number, 1)).collect();
        let (undelivered, partitions) = (model.undelivered.clone(), model.partitions.clone());
        let frames = 2_000;
        std::thread::scope(|scope| {
            let watching = partitions.clone();
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build();
                let runtime = runtime.expect("a runtime");
                // One that waits for each end in turn, subscribing anew each time.
                for end in 1..=frames {
                    let mut seen = watching[7].watch().expect("there");
                    while *seen.borrow_and_update() < end {
                        runtime.block_on(seen.changed()).expect("not closed");
                    }
                }
            });
            for number in 0..3 {
                let (undelivered, partitions) = (&undelivered, &partitions);
                scope.spawn(move || {
                    let mut end = 0;
                    while end < frames {
                        if number == 0 {
                            undelivered.deliver_all(partitions);
                        }
                        let now = partitions[number].lock().end();
                        assert!(now >= end, "an end moves on");
                        end = now;
                        std::thread::yield_now();
                    }
                });
            }
            for _ in 0..frames {
                model.publish(&all);
            }
        });
        for number in 0..PARTITIONS {
            model.check(number).expect("all is there");
        }
    }
}
