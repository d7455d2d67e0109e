//! Snapshots: state at a commit as sorted objects of our own format, independent of the store behind; and the
//! index that names the objects of one.
//!
//! ```text
//! object, little endian:
//!   0  8 bytes  magic "tmstate" and a zero byte
//!   8  u16  version = 2 (1: without removals)
//!  10  u16  nonce_len
//!  12  u32  blocks
//!  16  u64  commit
//!  24  u64  entries
//!  32  u64  raw bytes of all blocks together
//!  40  nonce, then u32 crc32c of everything before it
//! block, repeated:
//!   u32 bytes, u32 raw_bytes, u32 entries, u32 crc32c of the 12 bytes before and the body
//!   body: `bytes` bytes, zstd; unpacked `raw_bytes` bytes
//! unpacked block: `entries` entries, all of the object in rising order of their stored keys:
//!   u32 key_len, u32 value_len (2^32 - 1: it was removed), key, value   as they lie in the store (see `keys`)
//! ```

mod index;

pub(crate) use index::{Index, Part, Run};

use crate::behind::{Each, Failure, Pass, View};
use crate::engine::Keys;
use crate::keys;
use bytes::Bytes;
use std::ops::{Bound, ControlFlow};
use tidemill_types::{CommitSeq, Error, Result};

const MAGIC: &[u8; 8] = b"tmstate\0";
const VERSION: u16 = 2;
/// `value_len` of what was removed.
const REMOVED: u32 = u32::MAX;
const HEADER_BYTES: usize = 40;
const BLOCK_HEAD_BYTES: usize = 16;
/// A block is closed once it holds this much.
const BLOCK_BYTES: usize = 1 << 20;
/// Nothing we write is larger unpacked: the largest entry fits in a frame.
const LARGEST_BLOCK: u32 = 128 << 20;
const LEVEL: i32 = 1;

/// The state that a snapshot is made of, as of one moment.
pub(crate) enum Shown {
    /// To look single keys up.
    View(Box<dyn View>),
    /// To be gone through.
    Pass(Pass),
}

/// Writes what is shown of some keys, in order, or everything; hands out each object as it is done, of about
/// `object_bytes`.
pub(crate) fn write(
    shown: Shown,
    keys: Option<Keys<'_>>,
    (commit, nonce): (CommitSeq, &str),
    object_bytes: usize,
    sink: &mut dyn FnMut(Bytes) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut objects = Packer {
        writer: Writer::new(nonce, object_bytes),
        object_bytes,
        commit,
        nonce,
        sink,
    };
    match (shown, keys) {
        (Shown::View(view), Some(keys)) => look_up(&*view, keys, &mut objects)?,
        (Shown::View(view), None) => {
            let first = [0; keys::PREFIX_BYTES];
            all(
                |each| view.scan(Bound::Included(&first), None, each),
                |key, value| objects.push(key, Some(value)).map(|()| true),
            )?;
        }
        (Shown::Pass(pass), None) => all(pass, |key, value| {
            objects.push(key, Some(value)).map(|()| true)
        })?,
        (Shown::Pass(pass), Some(keys)) => pick(pass, keys, &mut objects)?,
    }
    objects.close()
}

/// Looks each key up.
fn look_up(view: &dyn View, mut keys: Keys<'_>, objects: &mut Packer<'_>) -> Result<(), Failure> {
    while let Some(key) = keys.key() {
        objects.push(key, view.value(key)?.as_deref())?;
        keys.advance();
    }
    Ok(())
}

/// Goes through everything, and takes what belongs to one of the keys.
fn pick(pass: Pass, mut keys: Keys<'_>, objects: &mut Packer<'_>) -> Result<(), Failure> {
    all(pass, |key, value| {
        while let Some(next) = keys.key().filter(|next| *next <= key) {
            objects.push(next, (next == key).then_some(value))?;
            keys.advance();
        }
        Ok(keys.key().is_some())
    })?;
    while let Some(key) = keys.key() {
        objects.push(key, None)?;
        keys.advance();
    }
    Ok(())
}

/// Goes through everything until told that it is enough or something fails.
fn all(
    pass: impl FnOnce(&mut Each<'_>) -> Result<(), Failure>,
    mut take: impl FnMut(&[u8], &[u8]) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let mut taken = Ok(true);
    pass(&mut |key, value| {
        taken = take(key, value);
        match taken {
            Ok(true) => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    })?;
    taken.map(drop)
}

/// Packs entries into objects.
struct Packer<'p> {
    writer: Writer,
    object_bytes: usize,
    commit: CommitSeq,
    nonce: &'p str,
    sink: &'p mut dyn FnMut(Bytes) -> Result<(), Failure>,
}

impl Packer<'_> {
    fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), Failure> {
        self.writer
            .push(key, value)
            .map_err(|error| broken(&error))?;
        if self.writer.out.len() >= self.object_bytes {
            return self.close();
        }
        Ok(())
    }

    /// Closes an object, if it has anything.
    fn close(&mut self) -> Result<(), Failure> {
        if self.writer.entries == 0 && self.writer.block_entries == 0 {
            return Ok(());
        }
        let next = Writer::new(self.nonce, self.object_bytes);
        let writer = std::mem::replace(&mut self.writer, next);
        let object = writer.finish(self.commit, self.nonce);
        (self.sink)(object.map_err(|error| broken(&error))?)
    }
}

fn broken(error: &std::io::Error) -> Failure {
    Failure::Broken(format!("packing a snapshot: {error}"))
}

struct Writer {
    out: Vec<u8>,
    block: Vec<u8>,
    block_entries: u32,
    blocks: u32,
    entries: u64,
    raw_bytes: u64,
}

impl Writer {
    /// Nothing yet, with room for an object.
    fn new(nonce: &str, object_bytes: usize) -> Self {
        // What it grew by would be there twice while it grows.
        let mut out = Vec::with_capacity(object_bytes + BLOCK_BYTES);
        out.resize(HEADER_BYTES + nonce.len() + 4, 0);
        Self {
            out,
            block: Vec::new(),
            block_entries: 0,
            blocks: 0,
            entries: 0,
            raw_bytes: 0,
        }
    }

    fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> std::io::Result<()> {
        let value_len = value.map_or(Ok(REMOVED), length)?;
        self.block.extend(length(key)?.to_le_bytes());
        self.block.extend(value_len.to_le_bytes());
        self.block.extend(key);
        self.block.extend(value.unwrap_or_default());
        self.block_entries += 1;
        if self.block.len() >= BLOCK_BYTES {
            self.close_block()
        } else {
            Ok(())
        }
    }

    fn close_block(&mut self) -> std::io::Result<()> {
        if self.block_entries == 0 {
            return Ok(());
        }
        let body = zstd::bulk::compress(&self.block, LEVEL)?;
        let head = [length(&body)?, length(&self.block)?, self.block_entries]
            .map(u32::to_le_bytes)
            .concat();
        self.out.extend(&head);
        self.out.extend(checksum(&[&head, &body]).to_le_bytes());
        self.out.extend(body);
        self.blocks += 1;
        self.entries += u64::from(self.block_entries);
        self.raw_bytes += self.block.len() as u64;
        self.block.clear();
        self.block_entries = 0;
        Ok(())
    }

    fn finish(mut self, commit: CommitSeq, nonce: &str) -> std::io::Result<Bytes> {
        self.close_block()?;
        let nonce_len = u16::try_from(nonce.len()).map_err(std::io::Error::other)?;
        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend(nonce_len.to_le_bytes());
        header.extend(self.blocks.to_le_bytes());
        header.extend(commit.0.to_le_bytes());
        header.extend(self.entries.to_le_bytes());
        header.extend(self.raw_bytes.to_le_bytes());
        header.extend(nonce.as_bytes());
        header.extend(checksum(&[&header]).to_le_bytes());
        self.out[..header.len()].copy_from_slice(&header);
        Ok(self.out.into())
    }
}

/// An object of a snapshot whose header and checksums are right.
pub(crate) struct Reader {
    bytes: Bytes,
    /// Where the first block starts.
    start: usize,
    blocks: u32,
    commit: CommitSeq,
    entries: u64,
    raw_bytes: u64,
}

impl Reader {
    /// Checks the header and every block's checksum, before anything is thrown away for it.
    ///
    /// # Errors
    /// `Corrupt` with the byte position.
    pub(crate) fn new(bytes: Bytes) -> Result<Self> {
        let header = bytes
            .first_chunk::<HEADER_BYTES>()
            .ok_or_else(|| wrong(0, "it ends inside the header"))?;
        if &header[..8] != MAGIC {
            return Err(wrong(0, "it isn't an object of a snapshot"));
        }
        let version = u16::from_le_bytes([header[8], header[9]]);
        if !(1..=VERSION).contains(&version) {
            return Err(wrong(
                8,
                format!("version {version} is not one this program can read"),
            ));
        }
        let checked = HEADER_BYTES + usize::from(u16::from_le_bytes([header[10], header[11]]));
        if bytes.len() < checked + 4 || checksum(&[&bytes[..checked]]) != u32_at(&bytes, checked) {
            return Err(wrong(0, "the header's checksum is wrong"));
        }
        let reader = Self {
            start: checked + 4,
            blocks: u32_at(header, 12),
            commit: CommitSeq(u64_at(header, 16)),
            entries: u64_at(header, 24),
            raw_bytes: u64_at(header, 32),
            bytes: bytes.clone(),
        };
        reader.check_blocks()?;
        Ok(reader)
    }

    /// The commit whose state it is.
    pub(crate) fn commit(&self) -> CommitSeq {
        self.commit
    }

    fn check_blocks(&self) -> Result<()> {
        let (mut at, mut entries, mut raw_bytes) = (self.start, 0, 0);
        for _ in 0..self.blocks {
            let block = self.block(at)?;
            if checksum(&[&self.bytes[at..at + 12], block.body]) != u32_at(&self.bytes, at + 12) {
                return Err(wrong(at, "the block's checksum is wrong"));
            }
            entries += u64::from(block.entries);
            raw_bytes += u64::from(block.raw_bytes);
            at += BLOCK_HEAD_BYTES + block.body.len();
        }
        if at != self.bytes.len() {
            return Err(wrong(at, "there are bytes behind the last block"));
        }
        if (entries, raw_bytes) != (self.entries, self.raw_bytes) {
            return Err(wrong(
                24,
                "the counts of the header and of the blocks differ",
            ));
        }
        Ok(())
    }

    fn block(&self, at: usize) -> Result<Block<'_>> {
        let rest = &self.bytes[at..];
        if rest.len() < BLOCK_HEAD_BYTES {
            return Err(wrong(at, "it ends inside a block's head"));
        }
        let bytes = usize::try_from(u32_at(rest, 0)).unwrap_or(usize::MAX);
        let body = rest[BLOCK_HEAD_BYTES..]
            .get(..bytes)
            .ok_or_else(|| wrong(at, "it ends inside a block"))?;
        Ok(Block {
            body,
            raw_bytes: u32_at(rest, 4),
            entries: u32_at(rest, 8),
        })
    }

    /// Hands out the entries in order; those of a block once all of it makes sense.
    ///
    /// # Errors
    /// `Corrupt` with the byte position; whatever `take` says.
    pub(crate) fn entries(
        &self,
        mut take: impl FnMut(&[u8], Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        let mut at = self.start;
        let mut last = Vec::new();
        for _ in 0..self.blocks {
            let block = self.block(at)?;
            let raw = block.unpack().map_err(|reason| wrong(at, reason))?;
            let entries = block
                .entries(&raw)
                .ok_or_else(|| wrong(at, "the block's entries make no sense"))?;
            for (key, value) in &entries {
                let is_one = keys::decode(key, value.unwrap_or_default()).is_some();
                if *key <= last.as_slice() || (value.is_some() && !is_one) {
                    return Err(wrong(at, "the block's keys are not in order"));
                }
                last.clear();
                last.extend_from_slice(key);
            }
            for (key, value) in entries {
                take(key, value)?;
            }
            at += BLOCK_HEAD_BYTES + block.body.len();
        }
        Ok(())
    }
}

/// A key and its value; `None`: it was removed.
type Entry<'a> = (&'a [u8], Option<&'a [u8]>);

struct Block<'a> {
    body: &'a [u8],
    raw_bytes: u32,
    entries: u32,
}

impl Block<'_> {
    fn unpack(&self) -> Result<Vec<u8>, String> {
        if self.raw_bytes > LARGEST_BLOCK {
            return Err("the block is too large".into());
        }
        let size = usize::try_from(self.raw_bytes).unwrap_or(usize::MAX);
        let raw = zstd::bulk::decompress(self.body, size)
            .map_err(|error| format!("the block can't be unpacked: {error}"))?;
        if raw.len() == size {
            Ok(raw)
        } else {
            Err("the block unpacks to another size".into())
        }
    }

    fn entries<'a>(&self, mut raw: &'a [u8]) -> Option<Vec<Entry<'a>>> {
        let mut entries = Vec::new();
        while !raw.is_empty() {
            let (lens, rest) = raw.split_first_chunk::<8>()?;
            let (key, rest) = rest.split_at_checked(usize::try_from(u32_at(lens, 0)).ok()?)?;
            let (value, rest) = match u32_at(lens, 4) {
                REMOVED => (None, rest),
                len => {
                    let (value, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
                    (Some(value), rest)
                }
            };
            entries.push((key, value));
            raw = rest;
        }
        (u32::try_from(entries.len()) == Ok(self.entries)).then_some(entries)
    }
}

fn checksum(parts: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| digest.update(part));
    u32::try_from(digest.finalize()).unwrap_or(u32::MAX)
}

fn length(part: &[u8]) -> std::io::Result<u32> {
    u32::try_from(part.len()).map_err(std::io::Error::other)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

fn wrong(at: usize, reason: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("state snapshot, byte {at}: {reason}"))
}
