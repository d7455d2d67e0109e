//! Marks as an object beside the manifests.
//!
//! All numbers are little endian.
//!
//! ```text
//!    0  4  "TMMK"
//!    4  u8   version      1
//!    5  3  zero
//!    8  u64  commit       all marks up to it are in here
//!   16  u32  producers
//!   20  u32  keys
//!   producers, in the order of their last use
//!        u64 epoch, u64 sequence, common part, u32 length of the id, id
//!   keys, in the order of acceptance
//!        u128 key, u128 digest of the request, common part
//!   u32  crc32c over all before it
//! ```
//! The common part is: u32 topic, u64 commit, i64 ingest time in µs, u32 count, and as often as that
//! u32 topic, u32 partition, u64 first offset, u64 last offset.

use super::{Key, Mark, Producer, Saved, Step};
use crate::Written;
use crate::wire::{take_u32, take_u64, take_u128};
use std::sync::Arc;
use tidemill_types::{CommitSeq, Error, ErrorKind, PartitionId, Result, TopicId};

const MAGIC: [u8; 4] = *b"TMMK";
const VERSION: u8 = 1;

/// Bytes of marks.
pub(crate) fn encode(saved: &Saved) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + 96 * (saved.producers.len() + saved.keys.len()));
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[VERSION, 0, 0, 0]);
    out.extend_from_slice(&saved.commit.0.to_le_bytes());
    put_count(&mut out, saved.producers.len());
    put_count(&mut out, saved.keys.len());
    for producer in &saved.producers {
        out.extend_from_slice(&producer.says.epoch.to_le_bytes());
        out.extend_from_slice(&producer.says.seq.to_le_bytes());
        put_common(&mut out, producer);
        put_count(&mut out, producer.name.len());
        out.extend_from_slice(producer.name.as_bytes());
    }
    for key in &saved.keys {
        out.extend_from_slice(&key.name.to_le_bytes());
        out.extend_from_slice(&key.says.to_le_bytes());
        put_common(&mut out, key);
    }
    let crc = crc_fast::crc32_iscsi(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

/// Marks from their bytes.
///
/// # Errors
/// `format-too-new` when a later version of the program wrote them; `Corrupt` when they aren't what was
/// written.
pub(crate) fn decode(bytes: &[u8]) -> Result<Saved> {
    let corrupt = || Error::corrupt("it isn't what was written");
    let (content, crc) = bytes.split_last_chunk::<4>().ok_or_else(corrupt)?;
    if crc_fast::crc32_iscsi(content) != u32::from_le_bytes(*crc) {
        return Err(corrupt());
    }
    let head = content.strip_prefix(&MAGIC).ok_or_else(corrupt)?;
    let (version, rest) = head.split_first_chunk::<4>().ok_or_else(corrupt)?;
    if version[0] > VERSION {
        let detail = format!(
            "it has format {} and this program knows formats up to {VERSION}: start the newer program that wrote it",
            version[0]
        );
        return Err(Error::new(ErrorKind::Invalid, "format-too-new", detail));
    }
    read(rest).ok_or_else(corrupt)
}

fn read(mut bytes: &[u8]) -> Option<Saved> {
    let commit = CommitSeq(take_u64(&mut bytes)?);
    let (producers, keys) = (take_u32(&mut bytes)?, take_u32(&mut bytes)?);
    let mut saved = Saved {
        commit,
        ..Saved::default()
    };
    for _ in 0..producers {
        let producer = read_producer(&mut bytes)?;
        saved.producers.push(Arc::new(producer));
    }
    for _ in 0..keys {
        let key = read_key(&mut bytes)?;
        saved.keys.push(Arc::new(key));
    }
    bytes.is_empty().then_some(saved)
}

fn read_producer(bytes: &mut &[u8]) -> Option<Producer> {
    let says = Step {
        epoch: take_u64(bytes)?,
        seq: take_u64(bytes)?,
    };
    let common = read_common(bytes)?;
    let len = take_u32(bytes)? as usize;
    let (id, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    let name = Arc::from(std::str::from_utf8(id).ok()?);
    Some(common.into_mark(name, says))
}

fn read_key(bytes: &mut &[u8]) -> Option<Key> {
    let (key, digest) = (take_u128(bytes)?, take_u128(bytes)?);
    Some(read_common(bytes)?.into_mark(key, digest))
}

struct Common {
    topic: TopicId,
    commit: u64,
    time: i64,
    written: Box<[Written]>,
}

impl Common {
    fn into_mark<N, S>(self, name: N, says: S) -> Mark<N, S> {
        let Self {
            topic,
            commit,
            time,
            written,
        } = self;
        Mark {
            topic,
            name,
            says,
            commit,
            time,
            written,
        }
    }
}

fn put_common<N, S>(out: &mut Vec<u8>, mark: &Mark<N, S>) {
    out.extend_from_slice(&mark.topic.0.to_le_bytes());
    out.extend_from_slice(&mark.commit.to_le_bytes());
    out.extend_from_slice(&mark.time.to_le_bytes());
    put_count(out, mark.written.len());
    for written in &mark.written {
        out.extend_from_slice(&written.at.topic.0.to_le_bytes());
        out.extend_from_slice(&written.at.partition.to_le_bytes());
        out.extend_from_slice(&written.first.to_le_bytes());
        out.extend_from_slice(&written.last.to_le_bytes());
    }
}

fn read_common(bytes: &mut &[u8]) -> Option<Common> {
    let topic = TopicId(take_u32(bytes)?);
    let (commit, time) = (take_u64(bytes)?, take_u64(bytes)?.cast_signed());
    let count = take_u32(bytes)?;
    let mut written = Vec::new();
    for _ in 0..count {
        let at = PartitionId {
            topic: TopicId(take_u32(bytes)?),
            partition: take_u32(bytes)?,
        };
        let (first, last) = (take_u64(bytes)?, take_u64(bytes)?);
        written.push(Written { at, first, last });
    }
    Some(Common {
        topic,
        commit,
        time,
        written: written.into(),
    })
}

/// The bounds on memory keep every count far below 2^32.
fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    out.extend_from_slice(&count.to_le_bytes());
}
