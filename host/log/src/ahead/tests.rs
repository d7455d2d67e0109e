//! What followers see and what becomes of what they did, over a disk that loses what wasn't synced.

use super::{Follower, Hold, IDLE, Pace};
use crate::keeper::Keeper;
use crate::meters::Meters;
use crate::open::{self, Parts};
use crate::segment::Segments;
use crate::sequencer::TopicChange;
use crate::shard::{Flushed, Shard};
use crate::{Advance, Draft, Read, ReadLimit, Recovery, Settings, SnapshotRef, Topic, read};
use bytes::Bytes;
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use tidemill_env::files::{Lock, SimDisk};
use tidemill_env::metrics::Metrics;
use tidemill_env::objects::{MemoryObjects, Objects};
use tidemill_env::{Clock, Random};
use tidemill_types::{ByteSize, CommitSeq, PackedRows, PartitionId, Result, Timestamp, TopicId};

const MUCH: ReadLimit = ReadLimit {
    events: usize::MAX,
    bytes: usize::MAX,
};
/// A topic and what is made of it: each step of the chain copies one to the next.
const CHAIN: [&str; 3] = ["in", "middle", "out"];
const LONG: Duration = Duration::from_secs(60);

struct NoState;

#[async_trait::async_trait]
impl Recovery for NoState {
    async fn begin(&mut self, _: Option<&SnapshotRef>) -> Result<CommitSeq> {
        Ok(CommitSeq(0))
    }
    fn state(&mut self, _: CommitSeq, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// A shard on a simulated disk, and two steps of a chain over it.
struct World {
    disk: SimDisk,
    objects: Objects,
    runtime: tokio::runtime::Runtime,
    dir: tempfile::TempDir,
    running: Option<(Arc<Shard>, Lock)>,
    steps: Vec<(Follower, u64)>,
    appended: u64,
    acknowledged: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let bucket = Arc::new(MemoryObjects::new(Random::seeded(seed)));
        let mut world = Self {
            disk: SimDisk::new(Random::seeded(seed), 1 << 20),
            objects: Objects::new(bucket),
            runtime: tokio::runtime::Builder::new_current_thread()
                .build()
                .expect("runtime"),
            dir: tempfile::tempdir().expect("dir"),
            running: None,
            steps: Vec::new(),
            appended: 0,
            acknowledged: 0,
        };
        world.open();
        for (id, name) in (1..).zip(CHAIN) {
            let topic = Arc::new(Topic {
                id: TopicId(id),
                name: name.parse().expect("name"),
                settings: crate::TopicSettings::default(),
            });
            let mut draft = Draft::new();
            draft.topic_change(TopicChange::Created(topic));
            world.commit(draft);
        }
        assert_eq!(world.flush(), Flushed::Group);
        world.follow();
        world
    }

    fn shard(&self) -> &Arc<Shard> {
        &self.running.as_ref().expect("running").0
    }

    fn open(&mut self) {
        let settings = Settings {
            dir: self.dir.path().to_owned(),
            journal_file_bytes: ByteSize(64 << 10),
            tail_bytes: ByteSize(1 << 20),
            reserve_bytes: ByteSize(0),
            ..Settings::default()
        };
        let random = Random::seeded(1);
        let opening = async {
            let held = open::take_directory(&self.disk, &settings.dir)?;
            let mut found = Keeper::find(self.objects.clone(), &random).await?;
            let parts = Parts {
                settings,
                files: Arc::new(self.disk.clone()),
                clock: Clock::manual(Timestamp::from_micros(1)),
                random: random.clone(),
                meters: Meters::new(&Metrics::default()),
            };
            let marks = std::mem::take(&mut found.marks);
            let opened = open::open(parts, found.manifest, marks, &mut NoState).await?;
            Ok::<_, tidemill_types::Error>((Arc::new(opened.shard), held))
        };
        self.running = Some(self.runtime.block_on(opening).expect("opens"));
    }

    /// Both steps of the chain, at their committed positions.
    fn follow(&mut self) {
        let steps = (0..2).map(|nth| {
            let follower = Follower::new(self.shard(), at(nth)).expect("exists");
            (follower, self.position(nth))
        });
        self.steps = steps.collect();
    }

    fn position(&self, step: u32) -> u64 {
        let positions = self.shard().with_sequencer(|it| it.positions_of(step));
        positions.first().map_or(0, |position| position.offset)
    }

    fn commit(&self, draft: Draft) {
        let committed = self.shard().commit(draft).map_err(|(error, _)| error);
        committed.expect("taken");
    }

    fn append(&mut self, count: u64) {
        let values: Vec<String> = (self.appended..self.appended + count)
            .map(|nth| format!("event {nth}"))
            .collect();
        let mut draft = Draft::new();
        put(&mut draft, 0, &values);
        self.commit(draft);
        self.appended += count;
    }

    /// One transaction of a step: what it reads goes to the next topic.
    fn step(&mut self, nth: u32) {
        let (_, position) = self.steps[nth as usize];
        let read = self.ahead(nth, position);
        if read.next == position {
            return;
        }
        let mut draft = Draft::new();
        draft.advance(Advance {
            reader: nth,
            topic: at(nth).topic,
            partition: 0,
            from: position,
            to: read.next,
            note: Bytes::new(),
        });
        put(&mut draft, nth + 1, &values_of(&read));
        self.commit(draft);
        self.steps[nth as usize].1 = read.next;
    }

    /// As a task reads: from memory up to the appended end, or what is durable.
    fn ahead(&self, topic: u32, from: u64) -> Read {
        super::read(self.shard(), at(topic), from, MUCH).unwrap_or_else(|| self.read(topic, from))
    }

    fn durable(&self, topic: u32) -> Vec<String> {
        values_of(&self.read(topic, 0))
    }

    fn read(&self, topic: u32, from: u64) -> Read {
        let segments = Segments::new(self.objects.clone(), 0, None);
        let read = read::read(self.shard(), &segments, at(topic), from, MUCH, read::STEP);
        self.runtime.block_on(read).expect("reads")
    }

    fn flush(&mut self) -> Flushed {
        let flushed = self.shard().flush();
        if flushed == Flushed::Group {
            self.acknowledged = self.durable_end(0);
        }
        flushed
    }

    /// After a failed sync nothing is taken any more, until the next start.
    fn flush_or_fail(&mut self) {
        if self.flush() == Flushed::Failed {
            assert!(self.shard().commit(Draft::new()).is_err());
            self.disk.kill();
            self.again();
        }
    }

    fn durable_end(&self, topic: u32) -> u64 {
        let partition = self.shard().partition(at(topic));
        partition.map_or(0, |partition| partition.lock().end())
    }

    /// The host is gone; another starts on what is left.
    fn again(&mut self) {
        self.steps.clear();
        self.running = None;
        self.open();
        self.appended = self.durable_end(0);
        self.check();
        self.follow();
    }

    /// Nothing acknowledged is lost, and each topic of the chain is what was read of the one before.
    fn check(&self) {
        let chain: Vec<Vec<String>> = (0..3).map(|topic| self.durable(topic)).collect();
        assert!(chain[0].len() as u64 >= self.acknowledged);
        let all = (0..chain[0].len()).map(|nth| format!("event {nth}"));
        assert!(chain[0].iter().cloned().eq(all), "{:?}", chain[0]);
        for step in 0..2 {
            let read = usize::try_from(self.position(step)).expect("small");
            let (from, to) = (&chain[step as usize], &chain[step as usize + 1]);
            assert_eq!(from.get(..read), Some(to.as_slice()), "step {step}");
        }
    }
}

fn at(topic: u32) -> PartitionId {
    PartitionId {
        topic: TopicId(topic + 1),
        partition: 0,
    }
}

fn put(draft: &mut Draft, topic: u32, values: &[String]) {
    let mut rows = PackedRows::default();
    for value in values {
        let time = Timestamp::from_micros(0);
        rows.push(time, None, Some(value.as_bytes()), [])
            .expect("small");
    }
    draft
        .append(at(topic).topic, &rows, &vec![0; values.len()])
        .expect("fits");
}

fn values_of(read: &Read) -> Vec<String> {
    let events = read.batches.iter().flat_map(|batch| batch.iter());
    events
        .map(|event| String::from_utf8_lossy(event.row.value.unwrap_or_default()).into_owned())
        .collect()
}

#[test]
fn followers_see_what_readers_dont_yet() {
    let mut world = World::new(1);
    world.append(2);
    world.step(0);
    world.step(1);
    for topic in 0..3 {
        assert_eq!(
            values_of(&world.ahead(topic, 0)).len(),
            [2, 2, 0][topic as usize],
            "topic {topic}"
        );
        assert!(world.durable(topic).is_empty());
    }
    assert_eq!(world.flush(), Flushed::Group);
    assert_eq!(world.flush(), Flushed::Nothing, "one group has all of it");
    for topic in 0..3 {
        assert_eq!(world.durable(topic), ["event 0", "event 1"]);
    }
    world.append(1);
    assert_eq!(values_of(&world.ahead(0, 1)), ["event 1", "event 2"]);
    assert_eq!(world.ahead(0, 3).next, 3);
}

#[test]
fn who_comes_while_frames_are_on_their_way_waits_for_those() {
    let mut world = World::new(2);
    world.steps.clear();
    world.append(2);
    let mut follower = Follower::new(world.shard(), at(0)).expect("exists");
    world.append(1);
    assert_eq!(world.ahead(0, 0).next, 0, "the first two can't be had yet");
    let moved = async { tokio::time::timeout(Duration::ZERO, follower.moved(0)).await };
    let timed = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("runtime");
    assert!(timed.block_on(moved).is_err());
    assert_eq!(world.flush(), Flushed::Group);
    assert_eq!(world.runtime.block_on(follower.moved(0)).ok(), Some(3));
    world.append(1);
    assert_eq!(world.runtime.block_on(follower.moved(3)).ok(), Some(4));
    assert_eq!(world.ahead(0, 0).next, 4);
}

#[test]
fn a_deleted_topic_has_no_followers() {
    let world = World::new(3);
    let mut follower = Follower::new(world.shard(), at(1)).expect("exists");
    let mut draft = Draft::new();
    draft.topic_change(TopicChange::Deleted(at(1).topic));
    world.commit(draft);
    let error = world.runtime.block_on(follower.moved(0)).expect_err("gone");
    assert_eq!(error.code, "topic-not-found");
    assert!(Follower::new(world.shard(), at(1)).is_err());
}

#[test]
fn a_group_waits_for_who_was_idle_and_no_longer_than_allowed() {
    let hold = Arc::new(Hold::default());
    let [idle, late] = [IDLE, super::LATE].map(|state| Arc::new(Pace(state.into())));
    hold.begin(&late);
    hold.wait(LONG);
    hold.begin(&idle);
    hold.begin(&idle);
    let waiting = std::thread::spawn({
        let hold = hold.clone();
        move || hold.wait(LONG)
    });
    hold.done(&idle, IDLE);
    waiting.join().expect("ends as soon as it is done");
    // Nobody waits twice for who isn't done in time, and that it is done later changes nothing.
    hold.begin(&idle);
    hold.wait(Duration::ZERO);
    hold.wait(LONG);
    hold.begin(&late);
    hold.done(&late, IDLE);
    hold.begin(&late);
    hold.done(&idle, IDLE);
    assert_eq!(hold.awaited().followers, 1);
    hold.done(&late, super::LATE);
    hold.wait(LONG);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_chain_is_in_step_after_every_crash(seed: u64, steps in prop::collection::vec(0_u8..20, 0..60)) {
        let mut world = World::new(seed);
        for step in steps {
            match step {
                0..=4 => world.append(u64::from(step) + 1),
                5..=8 => world.step(0),
                9..=12 => world.step(1),
                13..=15 => world.flush_or_fail(),
                16 => { world.disk.crash(); world.again(); }
                17 => { world.disk.kill(); world.again(); }
                18 => world.follow(),
                _ => { world.disk.fail_syncs(1); world.flush_or_fail(); }
            }
        }
        world.disk.crash();
        world.again();
    }
}
