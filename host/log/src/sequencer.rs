//! Pure decisions: whether a transaction may be appended, which sequence number, time and offsets it
//! gets, and what is true after it. No I/O; recovery applies frames with the same code.

use crate::frame::Slice;
use crate::marks::{Earlier, Marks};
use crate::{AckMode, Advance, Once, Position, Topic, Written};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tidemill_types::{
    CommitSeq, Error, ErrorKind, PartitionId, Result, Timestamp, TopicId, TopicName,
};

/// What a transaction wants, apart from its bytes.
#[derive(Clone, Default)]
pub(crate) struct Facts {
    pub(crate) slices: Vec<Slice>,
    pub(crate) advances: Vec<Advance>,
    pub(crate) entries: Vec<(String, Option<Bytes>)>,
    pub(crate) topics: Vec<TopicChange>,
    pub(crate) truncations: Vec<Truncation>,
    /// Readers whose positions go.
    pub(crate) forgotten: Vec<u32>,
    pub(crate) has_state: bool,
    /// Which request of a topic's this is, if it must take effect once.
    pub(crate) once: Option<Box<(TopicId, Once)>>,
    /// Where partitions must end before it; decided and then forgotten.
    pub(crate) ends: Vec<(PartitionId, u64)>,
}

impl Facts {
    /// Whether all it does is to take things away, so that it may be appended to a full disk.
    pub(crate) fn makes_room(&self) -> bool {
        let deletes = |change: &TopicChange| matches!(change, TopicChange::Deleted(_));
        let takes = !self.truncations.is_empty() || !self.topics.is_empty();
        let brings = !self.slices.is_empty()
            || !self.advances.is_empty()
            || !self.entries.is_empty()
            || !self.forgotten.is_empty()
            || self.has_state;
        takes && !brings && self.topics.iter().all(deletes)
    }
}

/// A partition's events below an offset go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Truncation {
    pub(crate) at: PartitionId,
    /// Offset of the first event that stays.
    pub(crate) before: u64,
}

/// A change to the topics.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum TopicChange {
    Created(Arc<Topic>),
    Altered(Arc<Topic>),
    Deleted(TopicId),
}

/// What was decided for a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sequenced {
    pub(crate) seq: u64,
    pub(crate) time: i64,
}

/// A topic as the sequencer sees it.
#[derive(Clone, Debug)]
pub(crate) struct TopicEnds {
    pub(crate) topic: Arc<Topic>,
    /// First offset not yet given out, per partition.
    pub(crate) ends: Vec<u64>,
    /// First offset that is kept, per partition.
    pub(crate) starts: Vec<u64>,
}

/// Everything that follows from the frames so far.
#[derive(Clone)]
pub(crate) struct Sequencer {
    last_seq: u64,
    last_time: i64,
    next_topic: u32,
    topics: BTreeMap<TopicId, TopicEnds>,
    names: HashMap<TopicName, TopicId>,
    positions: HashMap<u32, BTreeMap<PartitionId, (u64, Bytes)>>,
    entries: BTreeMap<String, Bytes>,
    marks: Marks,
}

impl Sequencer {
    /// The state a manifest describes.
    pub(crate) fn new(
        last_seq: u64,
        next_topic: u32,
        topics: Vec<TopicEnds>,
        positions: Vec<Position>,
        entries: BTreeMap<String, Bytes>,
        marks: Marks,
    ) -> Self {
        let mut sequencer = Self {
            last_seq,
            last_time: marks.latest(),
            next_topic,
            topics: BTreeMap::new(),
            names: HashMap::new(),
            positions: HashMap::new(),
            entries,
            marks,
        };
        for topic in topics {
            sequencer
                .names
                .insert(topic.topic.name.clone(), topic.topic.id);
            sequencer.topics.insert(topic.topic.id, topic);
        }
        for position in positions {
            let of_reader = sequencer.positions.entry(position.reader).or_default();
            of_reader.insert(position.at, (position.offset, position.note));
        }
        sequencer
    }

    /// Whether a transaction may be appended; if it is a request that was appended before, what that
    /// was answered.
    pub(crate) fn check(&mut self, facts: &Facts, now: Timestamp) -> Result<Option<Earlier>> {
        for slice in &facts.slices {
            self.check_partition(TopicId(slice.topic), slice.partition)?;
        }
        if let Some((topic, once)) = facts.once.as_deref() {
            self.check_partition(*topic, 0)?;
            let time = self.next(now).time;
            // Before the conditions, which the request itself may have changed.
            if let Some(earlier) = self.marks.check(*topic, once, time)? {
                return Ok(Some(earlier));
            }
        }
        for (at, expected) in &facts.ends {
            self.check_partition(at.topic, at.partition)?;
            if self.end(*at) != Some(*expected) {
                return Err(tail_moved(*at, *expected));
            }
        }
        for (nth, advance) in facts.advances.iter().enumerate() {
            self.check_partition(advance.topic, advance.partition)?;
            let same = |a: &&Advance| {
                (a.reader, a.topic, a.partition)
                    == (advance.reader, advance.topic, advance.partition)
            };
            let earlier = facts.advances[..nth].iter().rfind(same);
            let position = match earlier {
                Some(earlier) => earlier.to,
                None if facts.forgotten.contains(&advance.reader) => 0,
                None => self.position(advance),
            };
            if position != advance.from {
                return Err(moved(advance, position));
            }
        }
        for truncation in &facts.truncations {
            self.check_partition(truncation.at.topic, truncation.at.partition)?;
            self.check_truncation(*truncation)?;
        }
        facts
            .topics
            .iter()
            .try_for_each(|change| self.check_topic(change))?;
        Ok(None)
    }

    fn check_truncation(&self, truncation: Truncation) -> Result<()> {
        let (start, end) = (self.start(truncation.at), self.end(truncation.at));
        match end.is_some_and(|end| truncation.before <= end) {
            true => Ok(()),
            false => Err(out_of_range(
                truncation.before,
                start.unwrap_or_default(),
                end.unwrap_or_default(),
            )),
        }
    }

    fn check_partition(&self, topic: TopicId, partition: u32) -> Result<()> {
        let known = self
            .topics
            .get(&topic)
            .ok_or_else(|| topic_not_found(topic))?;
        if partition as usize >= known.ends.len() {
            return Err(partition_not_found(PartitionId { topic, partition }));
        }
        Ok(())
    }

    fn check_topic(&self, change: &TopicChange) -> Result<()> {
        match change {
            TopicChange::Created(topic) if self.names.contains_key(&topic.name) => {
                Err(Error::conflict(
                    "topic-exists",
                    format!("there is a topic {:?} already", topic.name),
                ))
            }
            TopicChange::Created(topic) if topic.id.0 != self.next_topic => Err(Error::internal(
                format!("topic {:?} was given a number out of turn", topic.name),
            )),
            TopicChange::Created(_) => Ok(()),
            TopicChange::Altered(topic) => self.check_partition(topic.id, 0),
            TopicChange::Deleted(topic) => self.check_partition(*topic, 0),
        }
    }

    fn position(&self, advance: &Advance) -> u64 {
        let at = PartitionId {
            topic: advance.topic,
            partition: advance.partition,
        };
        let of_reader = self.positions.get(&advance.reader);
        of_reader
            .and_then(|all| all.get(&at))
            .map_or(0, |(offset, _)| *offset)
    }

    /// Sequence number and ingest time of the next frame.
    pub(crate) fn next(&self, now: Timestamp) -> Sequenced {
        Sequenced {
            seq: self.last_seq + 1,
            time: now.micros().max(self.last_time),
        }
    }

    /// Gives a checked transaction its offsets and makes what it says true.
    pub(crate) fn apply(&mut self, sequenced: Sequenced, facts: &mut Facts) {
        self.last_seq = sequenced.seq;
        self.last_time = sequenced.time;
        for slice in &mut facts.slices {
            let topic = self.topics.get_mut(&TopicId(slice.topic));
            let end = topic.and_then(|topic| topic.ends.get_mut(slice.partition as usize));
            if let Some(end) = end {
                slice.base = *end;
                *end += u64::from(slice.rows);
            }
        }
        for reader in facts.forgotten.drain(..) {
            self.positions.remove(&reader);
        }
        for advance in facts.advances.drain(..) {
            let at = PartitionId {
                topic: advance.topic,
                partition: advance.partition,
            };
            let of_reader = self.positions.entry(advance.reader).or_default();
            of_reader.insert(at, (advance.to, advance.note));
        }
        for (key, value) in facts.entries.drain(..) {
            match value {
                Some(value) => self.entries.insert(key, value),
                None => self.entries.remove(&key),
            };
        }
        for truncation in &facts.truncations {
            self.truncate(*truncation);
        }
        for change in &facts.topics {
            self.apply_topic(change);
        }
        self.mark(sequenced, facts);
    }

    /// Marks a request whose events have their offsets.
    pub(crate) fn mark(&mut self, sequenced: Sequenced, facts: &mut Facts) {
        if let Some(once) = facts.once.take() {
            let (topic, once) = *once;
            if self.topics.contains_key(&topic) {
                let written = written(&facts.slices);
                self.marks.note(topic, once, sequenced, written);
            }
        }
    }

    fn truncate(&mut self, truncation: Truncation) {
        let topic = self.topics.get_mut(&truncation.at.topic);
        let starts = topic.map(|topic| &mut topic.starts);
        if let Some(start) =
            starts.and_then(|starts| starts.get_mut(truncation.at.partition as usize))
        {
            *start = truncation.before.max(*start);
        }
    }

    fn apply_topic(&mut self, change: &TopicChange) {
        match change {
            TopicChange::Created(topic) => {
                self.next_topic = self.next_topic.max(topic.id.0 + 1);
                self.names.insert(topic.name.clone(), topic.id);
                let ends = vec![0; topic.settings.partitions as usize];
                let starts = ends.clone();
                self.topics.insert(
                    topic.id,
                    TopicEnds {
                        topic: topic.clone(),
                        ends,
                        starts,
                    },
                );
            }
            TopicChange::Altered(topic) => {
                if let Some(known) = self.topics.get_mut(&topic.id) {
                    known.topic = topic.clone();
                }
            }
            TopicChange::Deleted(id) => {
                if let Some(known) = self.topics.remove(id) {
                    self.names.remove(&known.topic.name);
                }
                for of_reader in self.positions.values_mut() {
                    of_reader.retain(|at, _| at.topic != *id);
                }
                self.positions.retain(|_, of_reader| !of_reader.is_empty());
                self.marks.forget_topic(*id);
            }
        }
    }

    /// Whether an acknowledgement may be given before the disk has it: all appends go to topics that
    /// ask for that.
    pub(crate) fn acks_from_memory(&self, facts: &Facts) -> bool {
        let memory = |slice: &Slice| {
            let topic = self.topics.get(&TopicId(slice.topic));
            topic.is_some_and(|known| known.topic.settings.ack == AckMode::Memory)
        };
        !facts.slices.is_empty() && facts.slices.iter().all(memory)
    }

    pub(crate) fn last(&self) -> CommitSeq {
        CommitSeq(self.last_seq)
    }

    /// Nothing up to `seq` will be given out any more.
    pub(crate) fn jump(&mut self, seq: u64) {
        self.last_seq = self.last_seq.max(seq);
    }

    /// Ingest times don't go back behind this one.
    pub(crate) fn not_before(&mut self, time: i64) {
        self.last_time = self.last_time.max(time);
    }

    pub(crate) fn next_topic(&self) -> u32 {
        self.next_topic
    }

    pub(crate) fn topic_named(&self, name: &TopicName) -> Option<&Arc<Topic>> {
        self.names
            .get(name)
            .and_then(|id| self.topics.get(id))
            .map(|known| &known.topic)
    }

    pub(crate) fn topic(&self, id: TopicId) -> Option<&Arc<Topic>> {
        self.topics.get(&id).map(|known| &known.topic)
    }

    pub(crate) fn topics(&self) -> impl Iterator<Item = &TopicEnds> {
        self.topics.values()
    }

    pub(crate) fn end(&self, at: PartitionId) -> Option<u64> {
        self.topics
            .get(&at.topic)?
            .ends
            .get(at.partition as usize)
            .copied()
    }

    pub(crate) fn start(&self, at: PartitionId) -> Option<u64> {
        self.topics
            .get(&at.topic)?
            .starts
            .get(at.partition as usize)
            .copied()
    }

    /// The position of the reader that is least far in a partition.
    pub(crate) fn least_position(&self, at: PartitionId) -> Option<u64> {
        let of_readers = self.positions.values();
        of_readers
            .filter_map(|of_reader| of_reader.get(&at))
            .map(|(offset, _)| *offset)
            .min()
    }

    pub(crate) fn positions_of(&self, reader: u32) -> Vec<Position> {
        let of_reader = self.positions.get(&reader).into_iter().flatten();
        of_reader
            .map(|(at, (offset, note))| Position {
                reader,
                at: *at,
                offset: *offset,
                note: note.clone(),
            })
            .collect()
    }

    /// All positions, by reader and partition.
    pub(crate) fn positions(&self) -> Vec<Position> {
        let mut readers: Vec<u32> = self.positions.keys().copied().collect();
        readers.sort_unstable();
        readers
            .into_iter()
            .flat_map(|reader| self.positions_of(reader))
            .collect()
    }

    pub(crate) fn entries(&self) -> &BTreeMap<String, Bytes> {
        &self.entries
    }

    pub(crate) fn marks(&self) -> &Marks {
        &self.marks
    }
}

/// Where rows landed, by topic and partition.
pub(crate) fn written(slices: &[Slice]) -> Vec<Written> {
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

fn tail_moved(at: PartitionId, expected: u64) -> Error {
    Error::conflict(
        "tail-moved",
        format!(
            "partition {} doesn't end at {expected}: read what is new, decide again, and ask with the end that it has now",
            at.partition
        ),
    )
}

fn moved(advance: &Advance, position: u64) -> Error {
    Error::conflict(
        "position-moved",
        format!(
            "reader {} is at offset {position} of topic {}, partition {}, and not at {}: read its position again",
            advance.reader, advance.topic.0, advance.partition, advance.from
        ),
    )
}

pub(crate) fn out_of_range(offset: u64, start: u64, end: u64) -> Error {
    Error::new(
        ErrorKind::OutOfRange,
        "offset-out-of-range",
        format!(
            "offset {offset} is not between the start {start} and the end {end} of the partition"
        ),
    )
}

pub(crate) fn topic_not_found(topic: TopicId) -> Error {
    Error::not_found(
        "topic-not-found",
        format!("there is no topic with number {}", topic.0),
    )
}

pub(crate) fn partition_not_found(at: PartitionId) -> Error {
    Error::not_found(
        "partition-not-found",
        format!("topic {} has no partition {}", at.topic.0, at.partition),
    )
}
