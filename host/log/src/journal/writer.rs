//! Groups of frames into the current file.

use super::{FILE_HEAD, Filling, JournalFile, Pool, disk_error};
use crate::draft::Body;
use crate::frame::{self, Stamp};
use crate::meters::Took;
use crate::sequencer::{Sequenced, Truncation};
use bytes::Bytes;
use std::sync::Arc;
use tidemill_env::Buffers;
use tidemill_env::Clock;
use tidemill_types::Result;
use tokio::sync::oneshot;

/// Frames below this are copied together into one buffer: one allocation and one part of the write
/// for many; larger ones are written from where they are.
const COPIED: usize = 32 << 10;

/// A sequenced frame on its way to the disk.
pub(crate) struct Queued {
    pub(crate) sequenced: Sequenced,
    pub(crate) body: Body,
    /// Bytes of the whole frame.
    pub(crate) bytes: usize,
    pub(crate) has_state: bool,
    /// Partitions that start later from now on.
    pub(crate) truncations: Vec<Truncation>,
    /// Who waits for it.
    pub(crate) waiting: Option<oneshot::Sender<Result<()>>>,
}

/// Where a frame came to lie, and its body in memory.
pub(crate) struct Placed {
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) body: Bytes,
}

/// The end of the journal.
pub(crate) struct Writer {
    file: Arc<JournalFile>,
    at: u64,
    end: u64,
}

enum Part {
    Buffer(std::ops::Range<usize>),
    Body(usize),
}

impl Writer {
    /// Begins a new file.
    ///
    /// # Errors
    /// As [`Pool::take`].
    pub(crate) fn begin(pool: &Pool, filling: Filling) -> Result<Self> {
        let file = pool.take(filling)?;
        let end = FILE_HEAD + pool.room();
        Ok(Self {
            file,
            at: FILE_HEAD,
            end,
        })
    }

    pub(crate) fn file(&self) -> &Arc<JournalFile> {
        &self.file
    }

    /// Bytes left in the current file.
    pub(crate) fn room(&self) -> u64 {
        self.end - self.at
    }

    /// Bytes used in the current file.
    pub(crate) fn used(&self) -> u64 {
        self.at - FILE_HEAD
    }

    /// Writes a group that fits and syncs it. `durable` is the last durable sequence number.
    ///
    /// # Errors
    /// Final: what was written may be there or not, and nothing may be written behind it.
    pub(crate) fn write(
        &mut self,
        group: &mut [Queued],
        durable: u64,
        buffers: &Buffers,
        clock: &Clock,
    ) -> Result<(Vec<Placed>, Took)> {
        let copied = |q: &Queued| {
            if q.bytes < COPIED {
                q.bytes
            } else {
                q.bytes - q.body.bytes.as_slice().len()
            }
        };
        let mut buffer = buffers.take(group.iter().map(copied).sum());
        let mut parts: Vec<Part> = Vec::new();
        // Per frame: where its body lies in the buffer, if it was copied there.
        let mut bodies = Vec::with_capacity(group.len());
        for (nth, queued) in group.iter().enumerate() {
            let start = buffer.len();
            write_head(&mut buffer, queued, self.file.nonce, durable);
            if queued.bytes < COPIED {
                let body_at = buffer.len();
                buffer.extend_from_slice(queued.body.bytes.as_slice());
                bodies.push(Some(body_at..buffer.len()));
                buffer.resize(start + queued.bytes, 0);
                push_buffer(&mut parts, start..buffer.len());
            } else {
                push_buffer(&mut parts, start..buffer.len());
                parts.push(Part::Body(nth));
                let body = queued.body.bytes.as_slice().len();
                let padding = queued.bytes - (buffer.len() - start) - body;
                let padding_at = buffer.len();
                buffer.resize(padding_at + padding, 0);
                push_buffer(&mut parts, padding_at..buffer.len());
                bodies.push(None);
            }
        }
        let parts: Vec<&[u8]> = parts
            .iter()
            .map(|part| match part {
                Part::Buffer(range) => &buffer[range.clone()],
                Part::Body(nth) => group[*nth].body.bytes.as_slice(),
            })
            .collect();
        let file = &self.file;
        let started = clock.elapsed();
        file.file
            .write_at(self.at, &parts)
            .map_err(|e| disk_error(&file.path, "write failed", &e))?;
        let written = clock.elapsed();
        file.file
            .sync_data()
            .map_err(|e| disk_error(&file.path, "sync failed", &e))?;
        drop(parts);
        let took = Took {
            write: written.saturating_sub(started),
            sync: clock.elapsed().saturating_sub(written),
        };
        let placed = self.place(group, buffers.lend(buffer), bodies, buffers);
        Ok((placed, took))
    }

    fn place(
        &mut self,
        group: &mut [Queued],
        buffer: Bytes,
        bodies: Vec<Option<std::ops::Range<usize>>>,
        buffers: &Buffers,
    ) -> Vec<Placed> {
        let mut placed = Vec::with_capacity(group.len());
        for (queued, copied) in group.iter_mut().zip(bodies) {
            let body = match copied {
                Some(range) => {
                    queued.body.bytes.give_back(buffers);
                    buffer.slice(range)
                }
                None => queued.body.bytes.share(buffers),
            };
            let (at, len) = (self.at, queued.bytes as u64);
            placed.push(Placed { at, len, body });
            self.at += len;
        }
        placed
    }
}

fn push_buffer(parts: &mut Vec<Part>, range: std::ops::Range<usize>) {
    match parts.last_mut() {
        Some(Part::Buffer(last)) if last.end == range.start => last.end = range.end,
        _ => parts.push(Part::Buffer(range)),
    }
}

fn write_head(out: &mut Vec<u8>, queued: &Queued, nonce: u64, durable: u64) {
    let body = &queued.body;
    let stamp = Stamp {
        seq: queued.sequenced.seq,
        durable,
        time: queued.sequenced.time,
    };
    // A frame is bounded far below 4 GiB.
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let (sections, len) = (
        count(body.sections.len()),
        count(body.bytes.as_slice().len()),
    );
    frame::write_head(out, nonce, stamp, sections, &body.slices, len, body.crc);
}
