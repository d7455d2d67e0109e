//! A transaction in the making: the frame's body is laid out here, outside any lock; the sequencer
//! later only fills in what it decides (sequence number, offsets, ingest time).

mod inside;

use crate::frame::{self, Kind, SECTION_BYTES, Section, Slice};
use crate::sequencer::{Facts, TopicChange, Truncation};
use crate::{Once, wire};
use bytes::Bytes;
use tidemill_env::Buffers;
use tidemill_types::{
    Error, ErrorKind, PackedRows, PartitionId, ROW_HEAD_BYTES, Result, RowHead, TopicId, limits,
};

/// A reader's step over one partition: refused unless its position still is `from`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advance {
    /// Who reads, e.g. a function's task; the empty position of an unknown reader is 0.
    pub reader: u32,
    /// What is read.
    pub topic: TopicId,
    /// Which partition.
    pub partition: u32,
    /// The position this transaction started from.
    pub from: u64,
    /// The position after it: offset of the next event to read.
    pub to: u64,
    /// Kept with the position, given back at recovery (a task's counters).
    pub note: Bytes,
}

/// One transaction, all or nothing.
#[derive(Default)]
pub struct Draft {
    /// The buffer of [`Draft::payload`] until it is appended.
    pending: Option<Vec<u8>>,
    /// The sections' bytes, and behind them the directory once laid out.
    body: Vec<u8>,
    sections: Vec<Section>,
    facts: Facts,
    laid_out: Option<LaidOut>,
    buffers: Option<Buffers>,
}

#[derive(Clone, Copy)]
struct LaidOut {
    sections_end: usize,
    crc: u32,
}

/// A draft that is ready for the sequencer.
pub(crate) struct Body {
    pub(crate) bytes: BodyBytes,
    pub(crate) crc: u32,
    pub(crate) sections: Vec<Section>,
    pub(crate) slices: Vec<Slice>,
}

/// A body's bytes: those of one owner, until somebody reads them before they are on the disk.
pub(crate) enum BodyBytes {
    Own(Vec<u8>),
    Shared(Bytes),
}

impl BodyBytes {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }

    /// The memory of bytes that have been copied, to be used again.
    pub(crate) fn give_back(&mut self, buffers: &Buffers) {
        if let Self::Own(bytes) = self {
            buffers.give_back(std::mem::take(bytes));
        }
    }

    /// The bytes, from now on with several owners.
    pub(crate) fn share(&mut self, buffers: &Buffers) -> Bytes {
        let bytes = match self {
            Self::Own(bytes) => buffers.lend(std::mem::take(bytes)),
            Self::Shared(bytes) => bytes.clone(),
        };
        *self = Self::Shared(bytes.clone());
        bytes
    }
}

impl Draft {
    /// An empty draft.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty draft whose sections go into this buffer.
    pub(crate) fn in_buffer(buffer: Vec<u8>) -> Self {
        Self {
            body: buffer,
            ..Self::default()
        }
    }

    /// An empty draft whose payload takes the memory of an earlier one's.
    pub(crate) fn with_buffers(buffers: Buffers) -> Self {
        Self {
            buffers: Some(buffers),
            ..Self::default()
        }
    }

    /// An empty buffer with room for `expected` bytes and the row heads that will follow them: read a
    /// request body straight into it, then call [`Draft::append_in_place`], whose heads count from the
    /// buffer's first byte. Asked for again before that, it is the same buffer as it stands.
    pub fn payload(&mut self, expected: usize) -> &mut Vec<u8> {
        let room = (expected + expected / 4 + 256).min(limits::FRAME_BYTES);
        let buffers = &self.buffers;
        let buffer = self.pending.get_or_insert_with(|| {
            let buffers = buffers.as_ref();
            buffers.map_or_else(Vec::new, |buffers| buffers.take(room))
        });
        buffer.reserve(room.saturating_sub(buffer.len()));
        buffer
    }

    /// Appends the rows that lie in the buffer of [`Draft::payload`]: `heads` point into it,
    /// `partitions` says for each row where it goes. Order is kept within each partition. The buffer
    /// becomes the frame without being copied when this is the draft's first append.
    ///
    /// # Errors
    /// `too-large` beyond the frame limit; `invalid-rows` if a head points outside the payload. The
    /// draft is as it was before.
    pub fn append_in_place(
        &mut self,
        topic: TopicId,
        heads: &[RowHead],
        partitions: &[u32],
    ) -> Result<()> {
        self.reopen();
        let payload = self.pending.take().unwrap_or_default();
        let refused = self
            .check_room(payload.len() + heads.len() * ROW_HEAD_BYTES)
            .and_then(|()| check_rows(heads, partitions, payload.len()));
        if let Err(error) = refused {
            self.pending = Some(payload);
            return Err(error);
        }
        if heads.is_empty() {
            return Ok(());
        }
        let (at, payload_len) = (self.body.len(), payload.len());
        if self.body.is_empty() {
            self.body = payload;
        } else {
            self.body.extend_from_slice(&payload);
        }
        self.append_heads(topic, at, payload_len, heads, partitions)
    }

    /// Appends packed rows to a topic; `partitions` says for each row where it goes. Several appends
    /// to several topics may be in one draft.
    ///
    /// # Errors
    /// `too-large` beyond the frame limit; `invalid-rows` if a head points outside the payload. The
    /// draft is as it was before.
    pub fn append(&mut self, topic: TopicId, rows: &PackedRows, partitions: &[u32]) -> Result<()> {
        self.reopen();
        self.check_room(rows.payload.len() + rows.heads.len() * ROW_HEAD_BYTES)?;
        check_rows(&rows.heads, partitions, rows.payload.len())?;
        if rows.is_empty() {
            return Ok(());
        }
        let at = self.body.len();
        self.body.extend_from_slice(&rows.payload);
        self.append_heads(topic, at, rows.payload.len(), &rows.heads, partitions)
    }

    /// Advances a reader.
    pub fn advance(&mut self, advance: Advance) {
        self.section(Kind::Advance, 0, &wire::advance_bytes(&advance));
        self.facts.advances.push(advance);
    }

    /// Forgets all positions of a reader, as they are before this transaction's steps: it will not come
    /// back, and holds nothing back.
    pub fn forget(&mut self, reader: u32) {
        self.section(Kind::Forgotten, 0, &reader.to_le_bytes());
        self.facts.forgotten.push(reader);
    }

    /// Changes of state, opaque to the log; given back at recovery in commit order. A draft may carry
    /// several sections (of several scopes); they come back one by one in the order they were added.
    pub fn state(&mut self, section: &[u8]) {
        self.section(Kind::State, 0, section);
        self.facts.has_state = true;
    }

    /// Sets (or with `None` removes) an entry of the registry, a small map that is part of every
    /// manifest: deployments live there.
    pub fn entry(&mut self, key: &str, value: Option<&[u8]>) {
        self.section(Kind::Entry, 0, &wire::entry_bytes(key, value));
        self.facts
            .entries
            .push((key.to_owned(), value.map(Bytes::copy_from_slice)));
    }

    /// Makes this draft a request that takes effect once: if it was committed before, the ticket is the
    /// one of then. A draft is one request at most: the first call counts.
    pub fn once(&mut self, topic: TopicId, once: &Once) {
        if self.facts.once.is_some() {
            return;
        }
        let kind = match once {
            Once::Producer { .. } => Kind::Producer,
            Once::Key { .. } => Kind::IdempotencyKey,
        };
        self.section(kind, topic.0, &wire::once_bytes(once));
        self.facts.once = Some(Box::new((topic, once.clone())));
    }

    /// Makes this draft conditional: refused as `tail-moved` unless the partition ends at `end` before it.
    pub fn expect_end(&mut self, at: PartitionId, end: u64) {
        self.facts.ends.push((at, end));
    }

    /// Bytes of the frame so far.
    pub fn bytes(&self) -> usize {
        let directory = match self.laid_out {
            Some(_) => 0,
            None => self.sections.len() * SECTION_BYTES,
        };
        frame::frame_bytes(self.facts.slices.len(), self.body.len() + directory)
    }

    pub(crate) fn topic_change(&mut self, change: TopicChange) {
        let (kind, topic, bytes) = match &change {
            TopicChange::Created(topic) => (Kind::TopicCreated, topic.id, wire::topic_bytes(topic)),
            TopicChange::Altered(topic) => (Kind::TopicAltered, topic.id, wire::topic_bytes(topic)),
            TopicChange::Deleted(topic) => (Kind::TopicDeleted, *topic, Vec::new()),
        };
        self.section(kind, topic.0, &bytes);
        self.facts.topics.push(change);
    }

    /// Takes away a partition's events below an offset.
    pub(crate) fn truncate(&mut self, truncation: Truncation) {
        self.section(Kind::Truncated, 0, &wire::truncation_bytes(truncation));
        self.facts.truncations.push(truncation);
    }

    /// Says that the log is closed in order.
    pub(crate) fn closed(&mut self) {
        self.section(Kind::Closed, 0, &[]);
    }

    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Completes the body and its checksum; done once, outside any lock.
    ///
    /// # Errors
    /// `too-large` beyond the frame limit.
    pub(crate) fn lay_out(&mut self, most_frame_bytes: usize) -> Result<()> {
        if self.laid_out.is_some() {
            return Ok(());
        }
        let bytes = self.bytes();
        if bytes > most_frame_bytes || self.body.len() > limits::FRAME_BYTES {
            let most = most_frame_bytes.min(limits::FRAME_BYTES);
            return Err(too_large(format!(
                "this transaction has {bytes} bytes and one may have {most}: send it in parts"
            )));
        }
        let sections_end = self.body.len();
        for section in &self.sections {
            section.write(&mut self.body);
        }
        let crc = frame::body_crc(&self.body);
        self.laid_out = Some(LaidOut { sections_end, crc });
        Ok(())
    }

    /// The laid-out body and what it says.
    pub(crate) fn into_parts(self) -> (Body, Facts) {
        let body = Body {
            bytes: BodyBytes::Own(self.body),
            crc: self.laid_out.map_or(0, |laid_out| laid_out.crc),
            sections: self.sections,
            slices: Vec::new(),
        };
        (body, self.facts)
    }

    /// Something is added after a refused commit: the directory has to move.
    fn reopen(&mut self) {
        if let Some(laid_out) = self.laid_out.take() {
            self.body.truncate(laid_out.sections_end);
        }
    }

    fn check_room(&self, more: usize) -> Result<()> {
        if self.body.len() + more > limits::FRAME_BYTES {
            return Err(too_large(format!(
                "one transaction may carry {} bytes: send it in parts",
                limits::FRAME_BYTES
            )));
        }
        Ok(())
    }

    fn section(&mut self, kind: Kind, topic: u32, bytes: &[u8]) {
        self.reopen();
        // Beyond the frame limit these numbers are never used: laying out refuses first.
        let at = u32::try_from(self.body.len()).unwrap_or(u32::MAX);
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.body.extend_from_slice(bytes);
        let (payload, rows) = (0, 0);
        self.sections.push(Section {
            kind,
            at,
            len,
            topic,
            payload,
            rows,
        });
    }

    /// The payload lies at `at`; the heads go behind it, sorted by partition.
    fn append_heads(
        &mut self,
        topic: TopicId,
        at: usize,
        payload_len: usize,
        heads: &[RowHead],
        partitions: &[u32],
    ) -> Result<()> {
        let number = |n: usize| u32::try_from(n).map_err(|_| Error::internal("frame above 4 GiB"));
        let section = number(self.sections.len())?;
        let slices = &mut self.facts.slices;
        sort_by_partition(&mut self.body, slices, section, topic, heads, partitions);
        self.sections.push(Section {
            kind: Kind::Append,
            at: number(at)?,
            len: number(self.body.len() - at)?,
            topic: topic.0,
            payload: number(payload_len)?,
            rows: number(heads.len())?,
        });
        Ok(())
    }
}

fn too_large(detail: String) -> Error {
    Error::new(ErrorKind::TooLarge, "too-large", detail)
}

fn check_rows(heads: &[RowHead], partitions: &[u32], payload_len: usize) -> Result<()> {
    if heads.len() != partitions.len() {
        return Err(Error::invalid(
            "invalid-rows",
            format!("{} rows for {} partitions", heads.len(), partitions.len()),
        ));
    }
    if let Some(row) = heads.iter().position(|head| !head.fits(payload_len)) {
        return Err(Error::invalid(
            "invalid-rows",
            format!("row {row} points outside its payload of {payload_len} bytes"),
        ));
    }
    match partitions.iter().find(|p| **p >= limits::PARTITIONS) {
        Some(partition) => Err(Error::not_found(
            "partition-not-found",
            format!("no topic has a partition {partition}"),
        )),
        None => Ok(()),
    }
}

/// The heads behind the payload, sorted by partition, and a slice for each partition touched.
fn sort_by_partition(
    body: &mut Vec<u8>,
    slices: &mut Vec<Slice>,
    section: u32,
    topic: TopicId,
    heads: &[RowHead],
    partitions: &[u32],
) {
    let most = partitions.iter().copied().max().unwrap_or_default() as usize;
    let order = match most < heads.len() * FEW_PARTITIONS {
        true => counted(partitions, most),
        false => compared(partitions),
    };
    body.reserve(heads.len() * ROW_HEAD_BYTES);
    let first = slices.len();
    slices.reserve(heads.len().min(most + 1));
    for (place, row) in (0_u32..).zip(order) {
        let (head, partition) = (heads[row as usize], partitions[row as usize]);
        let bytes = u32::try_from(head.bytes()).unwrap_or(u32::MAX);
        body.extend_from_slice(&head.to_bytes());
        match slices[first..].last_mut() {
            Some(slice) if slice.partition == partition => {
                slice.rows += 1;
                slice.bytes = slice.bytes.saturating_add(bytes);
            }
            _ => slices.push(Slice {
                section,
                topic: topic.0,
                partition,
                first_row: place,
                rows: 1,
                bytes,
                base: 0,
            }),
        }
    }
}

/// With more partitions than this many times the rows, counting the rows of each costs more than comparing
/// them.
const FEW_PARTITIONS: usize = 4;

/// Rows in the order of their partitions, by a counting sort.
fn counted(partitions: &[u32], most: usize) -> Vec<u32> {
    let mut places = vec![0_u32; most + 2];
    for partition in partitions {
        places[*partition as usize + 1] += 1;
    }
    let mut before = 0;
    for place in &mut places {
        before += *place;
        *place = before;
    }
    let mut order = vec![0; partitions.len()];
    for (row, partition) in (0..).zip(partitions) {
        let place = &mut places[*partition as usize];
        order[*place as usize] = row;
        *place += 1;
    }
    order
}

/// The same by comparisons, each of partition and row in one number.
fn compared(partitions: &[u32]) -> Vec<u32> {
    let one = |(partition, row): (&u32, u64)| u64::from(*partition) << 32 | row;
    let mut order: Vec<u64> = partitions.iter().zip(0..).map(one).collect();
    order.sort_unstable();
    let row = |one: u64| u32::try_from(one & u64::from(u32::MAX)).unwrap_or_default();
    order.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_are_in_the_order_of_their_partitions_and_of_their_own(
            partitions in prop::collection::vec(0_u32..40, 1..60),
        ) {
            let most = partitions.iter().copied().max().unwrap_or_default() as usize;
            let mut expected: Vec<u32> = (0..).take(partitions.len()).collect();
            expected.sort_by_key(|row| partitions[*row as usize]);
            prop_assert_eq!(counted(&partitions, most), expected.clone());
            prop_assert_eq!(compared(&partitions), expected);
        }
    }
}
