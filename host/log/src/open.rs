//! From what lies on disk and in storage to a running shard.

mod rehearse;

pub(crate) use rehearse::rehearse;

use crate::frame::{Head, Kind};
use crate::journal::{self, Found, Pool};
use crate::manifest::Manifest;
use crate::marks::{self, Marks};
use crate::meters::Meters;
use crate::sequencer::{Facts, Sequenced, Sequencer, TopicChange, TopicEnds, Truncation};
use crate::shard::{Shard, Start, TopicPartitions, Used, apply_topic};
use crate::tail::{Partition, Place};
use crate::{Recovery, Settings, wire};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use tidemill_env::files::{Files, Lock};
use tidemill_env::{Clock, Random};
use tidemill_types::{CommitSeq, Error, PartitionId, Result, TopicId};

/// When the journal is gone and the manifest isn't, sequence numbers go on this far behind what the
/// manifest knows: nothing that the lost journal gave out may be given out again.
const JUMP: u64 = 1 << 32;

/// What opening needs from outside.
pub(crate) struct Parts {
    pub(crate) settings: Settings,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) meters: Meters,
}

/// A shard just opened.
pub(crate) struct Opened {
    pub(crate) shard: Shard,
    /// The manifest it goes on from; changed when the journal was lost.
    pub(crate) manifest: Manifest,
}

/// Takes the data directory for this process.
///
/// # Errors
/// `directory-in-use` when another process has it.
pub(crate) fn take_directory(files: &dyn Files, dir: &Path) -> Result<Lock> {
    files
        .create_folder(dir)
        .map_err(|e| journal::disk_error(dir, "can't be created", &e))?;
    files.lock(&dir.join("lock")).map_err(|e| match e.kind() {
        std::io::ErrorKind::WouldBlock => Error::conflict(
            "directory-in-use",
            format!(
                "the data directory {} is used by another running process: stop that one, or choose another directory",
                dir.display()
            ),
        ),
        _ => journal::disk_error(dir, "can't be locked", &e),
    })
}

/// Replays the journal over a manifest and the marks that it names.
///
/// # Errors
/// `Corrupt` where journal and manifest aren't what was written; whatever disk and `recovery` say.
pub(crate) async fn open(
    parts: Parts,
    manifest: Option<Manifest>,
    mut marks: marks::Saved,
    recovery: &mut dyn Recovery,
) -> Result<Opened> {
    let fresh = manifest.is_none();
    let mut manifest = manifest.unwrap_or_else(|| empty_manifest(&parts.random));
    let state_from = recovery.begin(manifest.snapshot.as_ref()).await?;
    let dir = parts.settings.dir.join("journal");
    journal::check_size(parts.settings.journal_file_bytes.0)?;
    parts
        .files
        .create_folder(&dir)
        .map_err(|e| journal::disk_error(&dir, "can't be created", &e))?;
    let marks_from = marks.commit;
    marks.keep_topics(|topic| manifest.topics.iter().any(|known| known.topic.id == topic));
    let marks = Marks::new(marks::Limits::of(&parts.settings), marks);
    let mut replay = Replay::new(&manifest, marks, marks_from, state_from, recovery);
    let base = manifest.commit.0;
    let recovered = journal::recover(&parts.files, &dir, base, |found| replay.frame(&found))?;
    let Replay {
        mut sequencer,
        mut topics,
        mut journal,
        ..
    } = replay;
    let data_id = check_data(&recovered, &mut manifest, fresh)?;
    let is_lost = recovered.last_seq.is_none() && !fresh && base > 0;
    // Frames before the first may be cut, as long as nothing of the state is in them; a journal that was lost
    // leaves a jump.
    let reach = state_from.0.saturating_add(JUMP);
    recovery.end(!is_lost && recovered.first_seq.is_none_or(|first| first < reach));
    if is_lost {
        lose_journal(&mut manifest, &mut sequencer, &mut topics);
    } else {
        check_reach(&recovered, &manifest, state_from, &topics)?;
        check_marks(&manifest, &sequencer)?;
    }
    let snapshot = manifest
        .snapshot
        .as_ref()
        .map_or(0, |snapshot| snapshot.commit.0);
    let written = journal.values().filter(|used| used.last_state > snapshot);
    let written = written.map(|used| used.bytes).sum();
    let size = parts.settings.journal_file_bytes.0;
    let pool = Pool::new(
        parts.files.clone(),
        dir,
        size,
        data_id,
        parts.random,
        recovered.next_number,
    )?;
    for file in recovered.files {
        let used = journal
            .entry(file.number)
            .or_insert_with(|| Used::new(&file));
        used.file = file;
    }
    for file in recovered.empty {
        pool.put_back(file)?;
    }
    let shard = Shard::new(Start {
        settings: parts.settings,
        files: parts.files,
        clock: parts.clock,
        pool,
        sequencer,
        topics,
        journal,
        written,
        meters: parts.meters,
    })?;
    Ok(Opened { shard, manifest })
}

fn empty_manifest(random: &Random) -> Manifest {
    Manifest {
        number: 0,
        owner: String::new(),
        data_id: random.nonce(),
        commit: CommitSeq(0),
        next_topic: 1,
        topics: Vec::new(),
        positions: Vec::new(),
        entries: BTreeMap::new(),
        snapshot: None,
        marks: None,
        marked: CommitSeq(0),
    }
}

/// Journal and storage must belong together; gives the number that says so in the journal.
fn check_data(recovered: &journal::Recovered, manifest: &mut Manifest, fresh: bool) -> Result<u64> {
    let of_storage = u64::from_str_radix(&manifest.data_id, 16)
        .map_err(|_| Error::corrupt(format!("manifest {} has no data id", manifest.number)))?;
    match recovered.data_id {
        // The first start was cut short before its first manifest.
        Some(of_journal) if fresh => {
            manifest.data_id = format!("{of_journal:016x}");
            Ok(of_journal)
        }
        Some(of_journal) if of_journal != of_storage => Err(Error::corrupt(format!(
            "the journal belongs to other data (id {of_journal:016x}) than the storage (id {}): check the settings of the data directory and of the storage",
            manifest.data_id
        ))),
        _ => Ok(of_storage),
    }
}

/// Whether the journal has all that the manifest and the state don't.
fn check_reach(
    recovered: &journal::Recovered,
    manifest: &Manifest,
    state_from: CommitSeq,
    topics: &HashMap<TopicId, Arc<TopicPartitions>>,
) -> Result<()> {
    let base = manifest.commit.0;
    if recovered.last_seq.unwrap_or(0) < base {
        return Err(Error::corrupt(format!(
            "the journal ends at frame {} although frame {base} was durable when manifest {} was written: restore the journal from a copy of the disk, or move it away to go on from object storage alone",
            recovered.last_seq.unwrap_or(0),
            manifest.number
        )));
    }
    let needed = match &manifest.snapshot {
        // State that is older than the snapshot needs frames that may have been cut.
        Some(snapshot) if state_from < snapshot.commit => base.min(state_from.0),
        _ => base,
    };
    if let Some(first) = recovered.first_seq.filter(|first| *first > needed + 1) {
        return Err(Error::corrupt(format!(
            "the journal begins at frame {first} and frames from {} on are needed: restore the older journal files from a copy of the disk, or move the journal away to go on from object storage alone",
            needed + 1
        )));
    }
    for topic in topics.values() {
        for (number, partition) in topic.all().iter().enumerate() {
            if let Some(offset) = partition.lock().missing() {
                return Err(Error::corrupt(format!(
                    "offset {offset} of topic {:?}, partition {number}, is neither in a segment nor in the journal: restore the journal from a copy of the disk, or move it away to go on from object storage alone",
                    topic.topic.name.as_str()
                )));
            }
        }
    }
    Ok(())
}

/// Whether all marks that counted when the manifest was written have been found.
fn check_marks(manifest: &Manifest, sequencer: &Sequencer) -> Result<()> {
    if sequencer.marks().known_to() >= manifest.marked {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "the mark of frame {} is neither in object storage nor in the journal, so that its request could be appended twice: restore the journal from a copy of the disk, or move it away to go on from object storage alone",
        manifest.marked
    )))
}

/// The journal is gone: what was only in it is lost, and its numbers are not given out again.
fn lose_journal(
    manifest: &mut Manifest,
    sequencer: &mut Sequencer,
    topics: &mut HashMap<TopicId, Arc<TopicPartitions>>,
) {
    let mut lost = 0;
    for topic in &mut manifest.topics {
        for partition in &mut topic.partitions {
            lost += partition.end - partition.archived_end;
            partition.archived_end = partition.end;
        }
    }
    manifest.commit = CommitSeq(manifest.commit.0 + JUMP);
    sequencer.jump(manifest.commit.0);
    *topics = partitions_of(manifest);
    tracing::error!(
        manifest = manifest.number,
        lost_events = lost,
        commit = manifest.commit.0,
        "THE JOURNAL IS GONE: going on from the manifest in object storage; events, state and positions that were only in the journal are lost"
    );
}

fn partitions_of(manifest: &Manifest) -> HashMap<TopicId, Arc<TopicPartitions>> {
    let mut topics = HashMap::new();
    for known in &manifest.topics {
        let partition = |p: &crate::manifest::PartitionManifest| {
            // The end moves as the journal is read; until then nothing behind the segments is there.
            Partition::new(p.start, p.archived_end, p.end, p.segments.clone())
        };
        let partitions = known.partitions.iter().map(partition);
        let topic = TopicPartitions::new(known.topic.clone(), partitions);
        topics.insert(known.topic.id, Arc::new(topic));
    }
    topics
}

/// What follows from the frames seen so far.
struct Replay<'r> {
    base: u64,
    marks_from: u64,
    state_from: u64,
    recovery: &'r mut dyn Recovery,
    sequencer: Sequencer,
    topics: HashMap<TopicId, Arc<TopicPartitions>>,
    journal: BTreeMap<u64, Used>,
}

impl<'r> Replay<'r> {
    fn new(
        manifest: &Manifest,
        marks: Marks,
        marks_from: CommitSeq,
        state_from: CommitSeq,
        recovery: &'r mut dyn Recovery,
    ) -> Self {
        let ends = |known: &crate::manifest::TopicManifest| TopicEnds {
            topic: Arc::new(known.topic.clone()),
            ends: known
                .partitions
                .iter()
                .map(|partition| partition.end)
                .collect(),
            starts: known
                .partitions
                .iter()
                .map(|partition| partition.start)
                .collect(),
        };
        Self {
            base: manifest.commit.0,
            marks_from: marks_from.0,
            state_from: state_from.0,
            recovery,
            sequencer: Sequencer::new(
                manifest.commit.0,
                manifest.next_topic,
                manifest.topics.iter().map(ends).collect(),
                manifest.positions.clone(),
                manifest.entries.clone(),
                marks,
            ),
            topics: partitions_of(manifest),
            journal: BTreeMap::new(),
        }
    }

    fn frame(&mut self, found: &Found<'_>) -> Result<()> {
        let stamp = found.head.stamp;
        let (mut facts, states) = facts_of(&found.head, found.body)?;
        self.sequencer.not_before(stamp.time);
        if stamp.seq > self.base {
            self.apply(stamp.seq, stamp.time, &mut facts)?;
        } else if stamp.seq > self.marks_from {
            let (seq, time) = (stamp.seq, stamp.time);
            self.sequencer.mark(Sequenced { seq, time }, &mut facts);
        }
        for slice in &found.head.slices {
            self.place(found, slice);
        }
        if stamp.seq > self.base {
            facts.truncations.iter().for_each(|it| self.truncate(*it));
        }
        let used = self
            .journal
            .entry(found.file.number)
            .or_insert_with(|| Used::new(found.file));
        used.bytes += found.head.frame_bytes() as u64;
        used.last_seq = stamp.seq;
        if !states.is_empty() {
            used.last_state = stamp.seq;
        }
        if stamp.seq > self.state_from {
            self.recovery.durable(CommitSeq(stamp.durable));
            for state in states {
                self.recovery.state(CommitSeq(stamp.seq), state)?;
            }
        }
        Ok(())
    }

    fn apply(&mut self, seq: u64, time: i64, facts: &mut Facts) -> Result<()> {
        let last = self.sequencer.last().0;
        if seq != last + 1 {
            return Err(Error::corrupt(format!(
                "frame {seq} follows frame {last}: frames between are missing"
            )));
        }
        for slice in &facts.slices {
            let at = PartitionId {
                topic: TopicId(slice.topic),
                partition: slice.partition,
            };
            let end = self.sequencer.end(at);
            // Several slices of one frame may go to one partition: only the first continues the end.
            if end.is_none_or(|end| slice.base < end) {
                return Err(Error::corrupt(format!(
                    "frame {seq} has offset {} for topic {}, partition {}, which ends at {end:?}",
                    slice.base, slice.topic, slice.partition
                )));
            }
        }
        let said: Vec<u64> = facts.slices.iter().map(|slice| slice.base).collect();
        self.sequencer.apply(Sequenced { seq, time }, facts);
        if facts.slices.iter().map(|slice| slice.base).ne(said) {
            return Err(Error::corrupt(format!(
                "frame {seq} doesn't continue the offsets before it"
            )));
        }
        for change in &facts.topics {
            apply_topic(&mut self.topics, change);
        }
        Ok(())
    }

    fn truncate(&self, truncation: Truncation) {
        let topic = self.topics.get(&truncation.at.topic);
        let partition = topic.and_then(|topic| topic.partition(truncation.at.partition));
        if let Some(partition) = partition {
            partition.lock().truncate(truncation.before);
        }
    }

    fn place(&mut self, found: &Found<'_>, slice: &crate::frame::Slice) {
        let end = slice.base + u64::from(slice.rows);
        let topic = self.topics.get(&TopicId(slice.topic));
        let partition = topic.and_then(|topic| topic.partition(slice.partition));
        let Some(partition) = partition else { return };
        let mut partition = partition.lock();
        if end > partition.archived_end() {
            partition.push_place(Place {
                first: slice.base,
                end,
                bytes: u64::from(slice.bytes),
                time: found.head.stamp.time,
                file: found.file.number,
                at: found.at,
                len: found.head.frame_bytes() as u64,
            });
        }
    }
}

/// What a frame says, and its state sections.
pub(crate) fn facts_of<'b>(head: &Head, body: &'b [u8]) -> Result<(Facts, Vec<&'b [u8]>)> {
    let mut facts = Facts {
        slices: head.slices.clone(),
        ..Facts::default()
    };
    let mut states = Vec::new();
    for section in head.sections(body)? {
        let bytes = &body[section.at as usize..(section.at + section.len) as usize];
        let wrong = || {
            Error::corrupt(format!(
                "a section of frame {} makes no sense",
                head.stamp.seq
            ))
        };
        match section.kind {
            Kind::Append | Kind::Closed => {}
            Kind::Advance => facts
                .advances
                .push(wire::read_advance(bytes).ok_or_else(wrong)?),
            Kind::Forgotten => facts
                .forgotten
                .push(wire::read_forgotten(bytes).ok_or_else(wrong)?),
            Kind::Truncated => facts
                .truncations
                .push(wire::read_truncation(bytes).ok_or_else(wrong)?),
            Kind::State => states.push(bytes),
            Kind::Entry => facts
                .entries
                .push(wire::read_entry(bytes).ok_or_else(wrong)?),
            Kind::Producer | Kind::IdempotencyKey => {
                let once = match section.kind {
                    Kind::Producer => wire::read_producer(bytes),
                    _ => wire::read_key(bytes),
                };
                let once = (TopicId(section.topic), once.ok_or_else(wrong)?);
                facts.once = Some(Box::new(once));
            }
            Kind::TopicCreated => {
                facts
                    .topics
                    .push(TopicChange::Created(Arc::new(wire::read_topic(bytes)?)));
            }
            Kind::TopicAltered => {
                facts
                    .topics
                    .push(TopicChange::Altered(Arc::new(wire::read_topic(bytes)?)));
            }
            Kind::TopicDeleted => facts
                .topics
                .push(TopicChange::Deleted(TopicId(section.topic))),
        }
    }
    facts.has_state = !states.is_empty();
    Ok((facts, states))
}

impl Used {
    fn new(file: &Arc<journal::JournalFile>) -> Self {
        Self {
            file: file.clone(),
            bytes: 0,
            last_seq: 0,
            last_state: 0,
        }
    }
}
