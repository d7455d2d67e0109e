//! The bytes of a frame, the journal's unit: one transaction.
//!
//! All numbers are little endian. A frame starts at a multiple of 8 and is padded with zeros to one.
//!
//! ```text
//! head, 64 bytes
//!    0  4  "TMFR"
//!    4  u32  head crc     crc32c over the file's nonce (u64), bytes 8.. of the head, the slice table
//!    8  u8   version      1
//!    9  3  zero
//!   12  u32  sections     entries of the section directory
//!   16  u32  slices       entries of the slice table
//!   20  u32  body length
//!   24  u32  body crc     crc32c over the body
//!   28  u32  zero
//!   32  u64  sequence     commit sequence number
//!   40  u64  durable      last durable sequence number when this frame was handed to the disk
//!   48  i64  time         ingest time, µs since 1970
//!   56  u64  zero
//! slice table, 32 bytes per (append section, partition)
//!    0  u32  section      index into the directory
//!    4  u32  topic
//!    8  u32  partition
//!   12  u32  first row    in the section's heads
//!   16  u32  rows
//!   20  u32  bytes        of keys, values and headers
//!   24  u64  base         offset of the first row
//! body
//!   the sections' bytes, in order
//!   section directory, 24 bytes per section
//!    0  u16  kind
//!    2  u16  zero
//!    4  u32  at           offset in the body
//!    8  u32  length
//!   12  u32  topic        append, topic-deleted, producer, idempotency-key; else 0
//!   16  u32  payload      append: bytes of payload, the row heads follow it; else 0
//!   20  u32  rows         append; else 0
//! ```
//!
//! What the sequencer decides (sequence, time, bases) lies in head and slice table, so that the body
//! and its crc are made outside the lock. The nonce that proves which use of a recycled file a frame
//! belongs to enters the head crc only, computed when the frame is handed to a file.

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};
use tidemill_types::{Error, Result};

pub(crate) const HEAD_BYTES: usize = 64;
pub(crate) const SLICE_BYTES: usize = 32;
pub(crate) const SECTION_BYTES: usize = 24;
/// Frames start at multiples of this.
pub(crate) const ALIGN: usize = 8;
const MAGIC: [u8; 4] = *b"TMFR";
const VERSION: u8 = 1;

/// What a section is. Numbers are never used for something else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub(crate) enum Kind {
    /// Rows: payload, then row heads sorted by partition.
    Append = 1,
    /// One reader's step over one partition.
    Advance = 2,
    /// Opaque changes of state.
    State = 3,
    /// A registry entry set or removed.
    Entry = 4,
    /// A topic's number, name and settings as JSON.
    TopicCreated = 5,
    /// The same, with what was altered.
    TopicAltered = 6,
    /// Nothing but the topic's number in the directory.
    TopicDeleted = 7,
    /// Nothing: the log was closed in order.
    Closed = 8,
    /// The step of a producer that this frame is.
    Producer = 10,
    /// Where a partition starts from now on.
    Truncated = 12,
    /// All positions of a reader go.
    Forgotten = 13,
    /// The idempotency key of the request that this frame is.
    IdempotencyKey = 14,
    // Reserved: 9 timers, 11 outbox entries.
}

impl Kind {
    /// What people call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::Advance => "advance",
            Self::State => "state",
            Self::Entry => "entry",
            Self::TopicCreated => "topic-created",
            Self::TopicAltered => "topic-altered",
            Self::TopicDeleted => "topic-deleted",
            Self::Closed => "closed",
            Self::Producer => "producer",
            Self::Truncated => "truncated",
            Self::Forgotten => "forgotten",
            Self::IdempotencyKey => "idempotency-key",
        }
    }

    fn of(number: u16) -> Option<Self> {
        [
            Self::Append,
            Self::Advance,
            Self::State,
            Self::Entry,
            Self::TopicCreated,
            Self::TopicAltered,
            Self::TopicDeleted,
            Self::Closed,
            Self::Producer,
            Self::Truncated,
            Self::Forgotten,
            Self::IdempotencyKey,
        ]
        .into_iter()
        .find(|kind| *kind as u16 == number)
    }
}

/// One entry of the section directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Section {
    pub(crate) kind: Kind,
    pub(crate) at: u32,
    pub(crate) len: u32,
    pub(crate) topic: u32,
    pub(crate) payload: u32,
    pub(crate) rows: u32,
}

impl Section {
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.kind as u16).to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        for field in [self.at, self.len, self.topic, self.payload, self.rows] {
            out.extend_from_slice(&field.to_le_bytes());
        }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            kind: Kind::of(u16::from_le_bytes([bytes[0], bytes[1]]))?,
            at: u32_at(bytes, 4),
            len: u32_at(bytes, 8),
            topic: u32_at(bytes, 12),
            payload: u32_at(bytes, 16),
            rows: u32_at(bytes, 20),
        })
    }
}

/// One entry of the slice table: rows of one append that go to one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slice {
    pub(crate) section: u32,
    pub(crate) topic: u32,
    pub(crate) partition: u32,
    pub(crate) first_row: u32,
    pub(crate) rows: u32,
    pub(crate) bytes: u32,
    pub(crate) base: u64,
}

impl Slice {
    fn write(self, out: &mut Vec<u8>) {
        for field in [
            self.section,
            self.topic,
            self.partition,
            self.first_row,
            self.rows,
            self.bytes,
        ] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&self.base.to_le_bytes());
    }

    fn read(bytes: &[u8]) -> Self {
        Self {
            section: u32_at(bytes, 0),
            topic: u32_at(bytes, 4),
            partition: u32_at(bytes, 8),
            first_row: u32_at(bytes, 12),
            rows: u32_at(bytes, 16),
            bytes: u32_at(bytes, 20),
            base: u64_at(bytes, 24),
        }
    }
}

/// What the sequencer and the flusher fill in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    pub(crate) seq: u64,
    pub(crate) durable: u64,
    pub(crate) time: i64,
}

/// Writes head and slice table of a frame into `out`.
pub(crate) fn write_head(
    out: &mut Vec<u8>,
    nonce: u64,
    stamp: Stamp,
    sections: u32,
    slices: &[Slice],
    body_len: u32,
    body_crc: u32,
) {
    let start = out.len();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&[VERSION, 0, 0, 0]);
    let slice_count = u32::try_from(slices.len()).unwrap_or(u32::MAX);
    for field in [sections, slice_count, body_len, body_crc, 0] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(&stamp.seq.to_le_bytes());
    out.extend_from_slice(&stamp.durable.to_le_bytes());
    out.extend_from_slice(&stamp.time.to_le_bytes());
    out.extend_from_slice(&[0; 8]);
    for slice in slices {
        slice.write(out);
    }
    let crc = head_crc(nonce, &out[start..]);
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
}

pub(crate) fn body_crc(body: &[u8]) -> u32 {
    crc32_iscsi(body)
}

fn head_crc(nonce: u64, head: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&nonce.to_le_bytes());
    digest.update(&head[8..]);
    u32::try_from(digest.finalize()).unwrap_or(u32::MAX)
}

/// Bytes of a frame with its padding.
pub(crate) fn frame_bytes(slices: usize, body: usize) -> usize {
    (HEAD_BYTES + slices * SLICE_BYTES + body).next_multiple_of(ALIGN)
}

/// A checked head: where its frame's parts lie.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) stamp: Stamp,
    pub(crate) slices: Vec<Slice>,
    sections: u32,
    body_at: usize,
    body_len: usize,
    body_crc: u32,
}

impl Head {
    /// The head at the start of `bytes` if there is one of this use of the file, complete and unharmed.
    pub(crate) fn read(bytes: &[u8], nonce: u64) -> Option<Self> {
        if bytes.len() < HEAD_BYTES || bytes[..4] != MAGIC || bytes[8] != VERSION {
            return None;
        }
        let slices = u32_at(bytes, 16) as usize;
        let body_at = HEAD_BYTES.checked_add(slices.checked_mul(SLICE_BYTES)?)?;
        let head = bytes.get(..body_at)?;
        if head_crc(nonce, head) != u32_at(bytes, 4) {
            return None;
        }
        Some(Self {
            stamp: Stamp {
                seq: u64_at(bytes, 32),
                durable: u64_at(bytes, 40),
                time: u64_at(bytes, 48).cast_signed(),
            },
            slices: head[HEAD_BYTES..]
                .chunks_exact(SLICE_BYTES)
                .map(Slice::read)
                .collect(),
            sections: u32_at(bytes, 12),
            body_at,
            body_len: u32_at(bytes, 20) as usize,
            body_crc: u32_at(bytes, 24),
        })
    }

    /// Bytes of the whole frame with padding.
    pub(crate) fn frame_bytes(&self) -> usize {
        (self.body_at + self.body_len).next_multiple_of(ALIGN)
    }

    /// Where in the frame the body lies.
    pub(crate) fn body(&self) -> std::ops::Range<usize> {
        self.body_at..self.body_at + self.body_len
    }

    /// Whether `bytes`, which start with this head, hold the whole body unharmed.
    pub(crate) fn body_is_whole(&self, bytes: &[u8]) -> bool {
        bytes
            .get(self.body())
            .is_some_and(|body| crc32_iscsi(body) == self.body_crc)
    }

    /// The section directory of a checked body.
    ///
    /// # Errors
    /// `Corrupt` when it makes no sense although its checksum is right.
    pub(crate) fn sections(&self, body: &[u8]) -> Result<Vec<Section>> {
        let wrong = || {
            Error::corrupt(format!(
                "frame {} has a section directory that makes no sense; it may come from a newer version",
                self.stamp.seq
            ))
        };
        let size = self.sections as usize * SECTION_BYTES;
        let at = body.len().checked_sub(size).ok_or_else(wrong)?;
        let fits = |s: &Section| {
            s.at as usize + s.len as usize <= at
                && (s.kind != Kind::Append
                    || s.payload as u64 + u64::from(s.rows) * 32 == u64::from(s.len))
        };
        let entries = body[at..].chunks_exact(SECTION_BYTES);
        let sections = entries.map(|entry| Section::read(entry).filter(fits).ok_or_else(wrong));
        let sections: Vec<Section> = sections.collect::<Result<_>>()?;
        let within = |slice: &Slice| {
            let section = sections.get(slice.section as usize);
            section.is_some_and(|section| {
                let end = u64::from(slice.first_row) + u64::from(slice.rows);
                section.kind == Kind::Append && end <= u64::from(section.rows)
            })
        };
        match self.slices.iter().all(within) {
            true => Ok(sections),
            false => Err(Error::corrupt(format!(
                "frame {} has a slice table that makes no sense; it may come from a newer version",
                self.stamp.seq
            ))),
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests;
