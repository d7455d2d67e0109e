//! One simulated run: the parts, the steps, the checks.

mod once;

use super::broken::Faulty;
use super::keeping::{Taken, topic_settings};
use super::model::{Commit, Fact, KEY_WINDOW, Model};
use crate::draft::{Advance, Draft};
use crate::keeper::Keeper;
use crate::meters::Meters;
use crate::open::{self, Parts};
use crate::shard::{Flushed, Shard};
use crate::{ReadLimit, Recovery, Settings, SnapshotRef, Ticket, Topic, TopicSettings};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tidemill_env::files::{Lock, SimDisk};
use tidemill_env::metrics::Metrics;
use tidemill_env::objects::{Faults, MemoryObjects, Objects, Patience};
use tidemill_env::{Clock, Random};
use tidemill_types::{
    ByteSize, CommitSeq, ErrorKind, PackedRows, PartitionId, Result, Timestamp, TopicId,
};
use tokio::sync::oneshot::error::TryRecvError;

pub(super) const PARTITIONS: u32 = 3;
const STEPS: u64 = 40;
const DISK_BYTES: u64 = 1 << 20;
pub(super) const MUCH: ReadLimit = ReadLimit {
    events: usize::MAX,
    bytes: usize::MAX,
};

pub(super) struct World {
    pub(super) faulty: Faulty,
    pub(super) random: Random,
    pub(super) disk: SimDisk,
    pub(super) bucket: Arc<MemoryObjects>,
    pub(super) objects: Objects,
    pub(super) clock: Clock,
    /// What the clock has shown, from the beginning on.
    pub(super) shown: Vec<Timestamp>,
    pub(super) runtime: tokio::runtime::Runtime,
    dir: tempfile::TempDir,
    pub(super) running: Option<Running>,
    pub(super) model: Model,
    pub(super) topic: Option<TopicId>,
    pub(super) settings: TopicSettings,
    pub(super) tickets: Vec<Ticket>,
    pub(super) trace: Vec<String>,
    pub(super) taken: Taken,
    counter: u64,
}

pub(super) struct Running {
    pub(super) shard: Arc<Shard>,
    pub(super) keeper: Keeper,
    _held: Lock,
}

/// Collects state sections from the snapshot on.
#[derive(Default)]
struct States {
    from: u64,
    sections: Vec<(u64, String)>,
}

#[async_trait::async_trait]
impl Recovery for States {
    async fn begin(&mut self, snapshot: Option<&SnapshotRef>) -> Result<CommitSeq> {
        self.from = snapshot.map_or(0, |snapshot| snapshot.commit.0);
        Ok(CommitSeq(self.from))
    }
    fn state(&mut self, commit: CommitSeq, section: &[u8]) -> Result<()> {
        self.sections
            .push((commit.0, String::from_utf8_lossy(section).into_owned()));
        Ok(())
    }
}

/// Where segments are written before they are uploaded: in memory, where there is such a place.
fn scratch() -> tempfile::TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    in_memory.or_else(|_| tempfile::tempdir()).expect("dir")
}

impl World {
    pub(super) fn new(seed: u64, faulty: Faulty) -> Self {
        let random = Random::seeded(seed);
        let disk = SimDisk::new(Random::seeded(seed ^ 0xd15c), DISK_BYTES);
        faulty.disk(&disk);
        let bucket = Arc::new(faulty.bucket(Random::seeded(seed ^ 0xb0c4e7)));
        let start = Timestamp::from_micros(1_700_000_000_000_000);
        let clock = Clock::manual(start);
        let patience = Patience {
            attempts: [1, 3][usize::from(seed.is_multiple_of(2))],
            ..Patience::NONE
        };
        let backend = faulty.backend(bucket.clone(), Random::seeded(seed));
        let objects = Objects::patient(backend, patience, &clock, &random, &Metrics::default());
        Self {
            faulty,
            disk,
            objects,
            bucket,
            settings: topic_settings(&random),
            clock,
            shown: vec![start],
            runtime: tokio::runtime::Builder::new_current_thread()
                .build()
                .expect("runtime"),
            dir: scratch(),
            running: None,
            model: Model::default(),
            topic: None,
            tickets: Vec::new(),
            trace: Vec::new(),
            taken: Taken::default(),
            counter: 0,
            random,
        }
    }

    pub(super) fn trace(self) -> Vec<String> {
        self.trace
    }

    pub(super) fn run(&mut self) -> Result<(), String> {
        self.start()?;
        for _ in 0..STEPS {
            self.step()?;
        }
        self.bucket.set_faults(Faults::default());
        self.bucket.settle();
        self.disk.set_capacity(DISK_BYTES);
        self.crash()?;
        self.check()?;
        self.check_bucket()
    }

    fn step(&mut self) -> Result<(), String> {
        self.move_clock(1000);
        match self.random.below(42) {
            0..=9 => self.commit(),
            31..=34 => self.once(),
            35 => self.outlive(),
            36..=37 => {
                self.set_clock();
                Ok(())
            }
            10..=14 => self.flush(),
            15 => self.seal(),
            16 => self.snapshot(),
            17 => self.crash(),
            18 => self.kill(),
            19 => self.close(),
            20 => {
                self.disk.fail_syncs(1);
                self.flush()
            }
            21 => {
                let capacity = [DISK_BYTES, 20 << 10][self.pick(2)];
                self.disk.set_capacity(capacity);
                self.shard().check_space();
                Ok(())
            }
            22 => {
                self.set_faults();
                Ok(())
            }
            23 => self.truncate(),
            24 => self.retain(),
            25..=27 => self.compact(),
            38..=41 => self.merge(),
            28 => self.keep(),
            29 if self.pick(3) == 0 => self.delete_topic(),
            _ => {
                if self.shard().half_used_file().is_some() {
                    self.shard().prepare_file();
                }
                self.check()
            }
        }
    }

    pub(super) fn journal(&self) -> std::path::PathBuf {
        self.dir.path().join("journal")
    }

    pub(super) fn start(&mut self) -> Result<(), String> {
        self.bucket.die_after(None);
        if self.pick(4) == 0 {
            self.rehearse()?;
        }
        let settings = Settings {
            dir: self.dir.path().to_owned(),
            journal_file_bytes: ByteSize(16 << 10),
            tail_bytes: ByteSize([0, 2000, 1 << 20][self.pick(3)]),
            in_flight_bytes: ByteSize(8 << 10),
            segment_bytes: ByteSize(1500),
            segment_age: Duration::from_secs(1),
            snapshot_bytes: ByteSize(4 << 10),
            merge_bytes: ByteSize([0, 6000, 1 << 20][self.pick(3)]),
            compaction_interval: Duration::from_secs(1),
            compaction_percent: [0, 30, 100][self.pick(3)],
            compaction_bytes: ByteSize([0, 200, 1 << 20][self.pick(3)]),
            reading_bytes: ByteSize([0, 1 << 20][self.pick(2)]),
            reserve_bytes: ByteSize(4 << 10),
            idempotency_window: Duration::from_micros(KEY_WINDOW.unsigned_abs()),
            ..Settings::default()
        };
        let mut states = States::default();
        let objects = self.objects.clone();
        let opening = async {
            let held = open::take_directory(&self.disk, &settings.dir)?;
            let mut found = Keeper::find(objects, &self.random).await?;
            let marks = std::mem::take(&mut found.marks);
            let parts = Parts {
                settings,
                files: Arc::new(self.disk.clone()),
                clock: self.clock.clone(),
                random: self.random.clone(),
                meters: Meters::new(&Metrics::default()),
            };
            let opened = open::open(parts, found.manifest.clone(), marks, &mut states).await?;
            let shard = Arc::new(opened.shard);
            let keeper = Keeper::begin(found, opened.manifest, &shard, self.random.clone()).await?;
            Ok::<_, tidemill_types::Error>(Running {
                shard,
                keeper,
                _held: held,
            })
        };
        let running = match self.runtime.block_on(opening) {
            Ok(running) => running,
            // The storage or the disk is in a bad mood; a person would start the host again.
            // A manifest of the owner before may have been on its way.
            Err(error)
                if matches!(
                    error.kind,
                    ErrorKind::Unavailable | ErrorKind::StorageFull | ErrorKind::Fenced
                ) =>
            {
                self.trace.push(format!("start failed: {}", error.code));
                self.bucket.set_faults(Faults::default());
                self.bucket.settle();
                self.disk.set_capacity(DISK_BYTES);
                self.disk.kill();
                return self.start();
            }
            Err(error) => return Err(format!("the start failed: {error}")),
        };
        let last = running.shard.with_sequencer(|s| s.last()).0;
        self.trace.push(format!("started at {last}"));
        self.model.recovered(last)?;
        self.running = Some(running);
        if states.sections != self.model.states(states.from) {
            return Err(format!(
                "state sections from {} on are {:?}",
                states.from, states.sections
            ));
        }
        self.begin_topic()?;
        self.check()
    }

    fn begin_topic(&mut self) -> Result<(), String> {
        let name = "t".parse().expect("name");
        let known = self
            .shard()
            .with_sequencer(|s| s.topic_named(&name).map(|topic| topic.id));
        self.topic = known;
        if known.is_none() {
            let id = TopicId(self.shard().with_sequencer(|s| s.next_topic()));
            let settings = self.settings.clone();
            let mut draft = Draft::new();
            let topic = Arc::new(Topic { id, name, settings });
            draft.topic_change(crate::sequencer::TopicChange::Created(topic));
            if let Ok(ticket) = self.shard().commit(draft) {
                self.topic = Some(id);
                self.model.committed(Commit {
                    seq: ticket.commit.0,
                    ..Commit::default()
                });
                self.tickets.push(ticket);
            }
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), String> {
        let Some(topic) = self.topic else {
            return self.begin_topic();
        };
        let mut draft = Draft::new();
        let mut commit = Commit::default();
        let mut values: Vec<(u32, Fact)> = Vec::new();
        for _ in 0..self.random.below(3) {
            let (rows, partitions) = self.rows(&mut values);
            draft
                .append(topic, &rows, &partitions)
                .map_err(|e| e.to_string())?;
        }
        let at = PartitionId {
            topic,
            partition: 0,
        };
        let position = self
            .shard()
            .with_sequencer(|s| s.positions_of(1))
            .first()
            .map_or(0, |p| p.offset);
        let wrong = self.random.below(10) == 0;
        if self.random.below(3) == 0 {
            let to = position + self.random.below(5);
            let from = position + u64::from(wrong);
            let note = Bytes::from_static(b"note");
            draft.advance(Advance {
                reader: 1,
                topic,
                partition: 0,
                from,
                to,
                note,
            });
            commit.advance = Some((1, at, to));
        }
        if self.random.below(3) == 0 {
            let key = format!("key {}", self.random.below(4));
            let value = (self.random.below(4) > 0).then(|| self.word());
            draft.entry(&key, value.as_deref().map(str::as_bytes));
            commit.entry = Some((key, value));
        }
        if self.random.below(3) == 0 {
            let state = self.word();
            draft.state(state.as_bytes());
            commit.state = Some(state);
        }
        match self.shard().commit(draft) {
            Ok(_) if wrong && commit.advance.is_some() => {
                Err("a wrong position was accepted".into())
            }
            Ok(ticket) if ticket.time < self.model.latest() => Err(format!(
                "commit {} lies before the one before",
                ticket.commit
            )),
            Ok(ticket) => {
                commit.seq = ticket.commit.0;
                commit.events = placed(&ticket, values)?;
                self.trace.push(format!("commit {}", commit.seq));
                self.model.committed(commit);
                self.tickets.push(ticket);
                Ok(())
            }
            Err((error, _)) => {
                self.trace.push(format!("refused: {}", error.code));
                let expected = ["position-moved", "busy", "storage-full", "journal-failed"];
                match expected.contains(&error.code) {
                    true => Ok(()),
                    false => Err(format!("refused: {error}")),
                }
            }
        }
    }

    fn rows(&mut self, values: &mut Vec<(u32, Fact)>) -> (PackedRows, Vec<u32>) {
        let (mut rows, mut partitions) = (PackedRows::default(), Vec::new());
        for _ in 0..=self.random.below(6) {
            let value = self.word();
            let partition = u32::try_from(self.pick(PARTITIONS as usize)).expect("small");
            let time = self.clock.now();
            let key = [None, Some("a"), Some("b"), Some("c"), Some("")][self.pick(5)];
            let value = (self.random.below(4) > 0).then_some(value);
            rows.push(
                time,
                key.map(str::as_bytes),
                value.as_deref().map(str::as_bytes),
                [],
            )
            .expect("fits");
            partitions.push(partition);
            let fact = Fact {
                key,
                value,
                time,
                shown: self.shown.len() - 1,
            };
            values.push((partition, fact));
        }
        (rows, partitions)
    }

    pub(super) fn flush(&mut self) -> Result<(), String> {
        let flushed = self.shard().flush();
        self.trace.push(format!("flush: {flushed:?}"));
        let waiting = std::mem::take(&mut self.tickets);
        for mut ticket in waiting {
            if let Some(durable) = &ticket.earlier {
                let reached = *durable.borrow() >= ticket.commit;
                match reached {
                    true => self.model.acknowledged(ticket.commit.0),
                    false if flushed == Flushed::Failed => {}
                    false => self.tickets.push(ticket),
                }
                continue;
            }
            match ticket.durable.as_mut().map(|durable| durable.try_recv()) {
                None | Some(Ok(Ok(()))) => self.model.acknowledged(ticket.commit.0),
                Some(Err(TryRecvError::Empty)) => self.tickets.push(ticket),
                Some(Ok(Err(_)) | Err(TryRecvError::Closed)) if flushed == Flushed::Failed => {}
                Some(_) => return Err(format!("commit {} failed without a reason", ticket.commit)),
            }
        }
        match flushed {
            Flushed::Failed => self.kill(),
            _ => Ok(()),
        }
    }

    /// Flushes all there is; false if the log has no space or was started again.
    pub(super) fn flush_all(&mut self) -> Result<bool, String> {
        loop {
            let before = self.trace.len();
            self.flush()?;
            match self.trace[before].as_str() {
                "flush: Group" => {}
                "flush: Nothing" => return Ok(true),
                _ => return Ok(false),
            }
        }
    }

    fn seal(&mut self) -> Result<(), String> {
        if !self.flush_all()? {
            return Ok(());
        }
        let Some(running) = &self.running else {
            return Ok(());
        };
        let sealed = self
            .runtime
            .block_on(running.keeper.seal_all(&running.shard));
        self.trace.push(format!(
            "seal: {:?}",
            sealed.as_ref().err().map(|error| error.code)
        ));
        match sealed {
            Err(error) if error.kind != ErrorKind::Unavailable => Err(format!("sealing: {error}")),
            _ => self.check(),
        }
    }

    fn snapshot(&mut self) -> Result<(), String> {
        if !self.flush_all()? {
            return Ok(());
        }
        let commit = self.shard().durable().borrow().0;
        let commit = CommitSeq(commit - self.random.below(commit.min(4) + 1));
        let snapshot = SnapshotRef {
            path: format!("snapshot {commit}"),
            commit,
        };
        let Some(running) = &self.running else {
            return Ok(());
        };
        let taken = self
            .runtime
            .block_on(running.keeper.snapshot_taken(&running.shard, snapshot));
        self.trace.push(format!(
            "snapshot: {:?}",
            taken.as_ref().err().map(|error| error.code)
        ));
        match taken {
            Err(error) if error.kind != ErrorKind::Unavailable => Err(format!("snapshot: {error}")),
            _ => Ok(()),
        }
    }

    /// The power goes.
    pub(super) fn crash(&mut self) -> Result<(), String> {
        self.trace.push("crash".into());
        self.forget();
        self.disk.crash();
        self.start()
    }

    /// The process dies.
    pub(super) fn kill(&mut self) -> Result<(), String> {
        self.trace.push("kill".into());
        self.forget();
        self.disk.kill();
        self.start()
    }

    fn forget(&mut self) {
        self.running = None;
        self.tickets.clear();
    }

    fn close(&mut self) -> Result<(), String> {
        self.shard().begin_close(true);
        if !self.flush_all()? {
            return self.kill();
        }
        if let Some(open) = self.tickets.first() {
            return Err(format!(
                "commit {} wasn't acknowledged by an orderly close",
                open.commit
            ));
        }
        self.trace.push("closed".into());
        self.forget();
        self.start()
    }

    pub(super) fn shard(&self) -> Arc<Shard> {
        self.running
            .as_ref()
            .expect("running between steps")
            .shard
            .clone()
    }

    pub(super) fn segments(&self) -> crate::segment::Segments {
        let running = self.running.as_ref().expect("running between steps");
        running.keeper.segments().clone()
    }

    pub(super) fn pick(&self, choices: usize) -> usize {
        usize::try_from(self.random.below(choices as u64)).expect("small")
    }

    /// Text that comes only once, of any length up to a few sectors.
    fn word(&mut self) -> String {
        self.counter += 1;
        let most = [20, 20, 20, 1500][self.pick(4)];
        format!("{}:{}", self.counter, "x".repeat(self.pick(most)))
    }
}

/// Where a commit's values landed, by what its ticket says.
fn placed(
    ticket: &Ticket,
    values: Vec<(u32, Fact)>,
) -> Result<Vec<(PartitionId, u64, Fact)>, String> {
    let mut events = Vec::new();
    for written in &ticket.written {
        let ours = values
            .iter()
            .filter(|(partition, _)| *partition == written.at.partition);
        let before = events.len();
        events.extend((written.first..).zip(ours).map(|(offset, (_, fact))| {
            let fact = Fact {
                time: ticket.time,
                ..fact.clone()
            };
            (written.at, offset, fact)
        }));
        if (events.len() - before) as u64 != written.last + 1 - written.first {
            return Err(format!("{written:?} doesn't hold what was appended"));
        }
    }
    match events.len() == values.len() {
        true => Ok(events),
        false => Err(format!(
            "{} of {} events have a place",
            events.len(),
            values.len()
        )),
    }
}
