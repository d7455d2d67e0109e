//! The host's side of both layouts, for tests that run natively: writing a batch, reading an answer.

use super::{
    BatchView, HEAD, HeaderBytes, NOTHING, ROW_KEY, ROW_TOMBSTONE, VERSION, flag, op, read_u32,
    read_u64,
};
use std::collections::HashMap;

/// An event as the driver keeps it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PackedEvent {
    pub(crate) time: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<u8>,
    pub(crate) offset: u64,
    pub(crate) ingest_time: i64,
}

/// Lays out a batch; `stored` gives the value of a slot for a key.
pub(crate) fn pack<'s>(
    events: &[PackedEvent],
    slots: usize,
    stored: impl Fn(Option<&[u8]>, usize) -> Option<&'s [u8]>,
) -> Vec<u8> {
    let mut payload = Vec::new();
    let mut heads = Vec::with_capacity(events.len() * HEAD);
    let mut key_numbers = Vec::with_capacity(events.len());
    let mut keys: Vec<Option<&[u8]>> = Vec::new();
    let mut numbers = HashMap::new();
    for event in events {
        let key = event.key.as_deref();
        let number = *numbers.entry(key).or_insert_with(|| {
            keys.push(key);
            narrow(keys.len() - 1)
        });
        key_numbers.push(number);
        let key_at = payload.len();
        payload.extend_from_slice(key.unwrap_or_default());
        let value_at = payload.len();
        payload.extend_from_slice(event.value.as_deref().unwrap_or_default());
        let headers_at = payload.len();
        payload.extend_from_slice(&event.headers);
        heads.extend_from_slice(&event.time.to_le_bytes());
        let flags = if key.is_some() { ROW_KEY } else { 0 }
            | if event.value.is_none() {
                ROW_TOMBSTONE
            } else {
                0
            };
        for field in [
            key_at,
            value_at - key_at,
            value_at,
            headers_at - value_at,
            event.headers.len(),
            flags as usize,
        ] {
            heads.extend_from_slice(&narrow(field).to_le_bytes());
        }
    }
    let mut cells = Vec::new();
    for key in keys.iter().take(if slots == 0 { 0 } else { keys.len() }) {
        for slot in 0..slots {
            let (at, len) = match stored(*key, slot) {
                Some(value) => (payload.len(), narrow(value.len())),
                None => (0, NOTHING),
            };
            payload.extend_from_slice(stored(*key, slot).unwrap_or_default());
            cells.extend_from_slice(&narrow(at).to_le_bytes());
            cells.extend_from_slice(&len.to_le_bytes());
        }
    }
    let column = |column: &mut dyn Iterator<Item = [u8; 8]>| column.flatten().collect::<Vec<u8>>();
    let offsets = column(&mut events.iter().map(|event| event.offset.to_le_bytes()));
    let ingest_times = column(&mut events.iter().map(|event| event.ingest_time.to_le_bytes()));
    let key_index: Vec<u8> = if slots == 0 {
        Vec::new()
    } else {
        key_numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect()
    };
    let keys = if slots == 0 { 0 } else { keys.len() };
    assemble(
        events.len(),
        slots,
        keys,
        [heads, offsets, ingest_times, key_index, cells, payload],
    )
}

/// The head, then the blocks, each at a multiple of 8.
fn assemble(events: usize, slots: usize, keys: usize, blocks: [Vec<u8>; 6]) -> Vec<u8> {
    let mut starts = [0; 6];
    let mut at: usize = 48;
    for (start, block) in starts.iter_mut().zip(&blocks) {
        at = at.next_multiple_of(8);
        *start = at;
        at += block.len();
    }
    let mut bytes = vec![VERSION, 0];
    bytes.extend_from_slice(&u16::try_from(slots).unwrap_or(u16::MAX).to_le_bytes());
    let lengths = [events, keys]
        .into_iter()
        .chain(starts)
        .chain([blocks[5].len(), 0, 0]);
    lengths.for_each(|field| bytes.extend_from_slice(&narrow(field).to_le_bytes()));
    for (start, block) in starts.into_iter().zip(&blocks) {
        bytes.resize(start, 0);
        bytes.extend_from_slice(block);
    }
    bytes
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a test's batch is far from 4 GiB"
)]
fn narrow(number: usize) -> u32 {
    number as u32
}

/// An answer, read.
#[derive(Debug)]
pub(crate) struct Reply<'a> {
    pub(crate) outcomes: &'a [u8],
    pub(crate) commands: Vec<(u32, ReplyCommand<'a>)>,
    pub(crate) stop: Option<ReplyStop<'a>>,
}

/// Why a batch stopped before its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReplyStop<'a> {
    Retry(&'a str),
    Fatal(&'a str),
}

/// One command.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum ReplyCommand<'a> {
    Emit {
        output: u16,
        key: Option<&'a [u8]>,
        value: Option<&'a [u8]>,
        headers: HeaderBytes<'a>,
        time: Option<i64>,
    },
    Set {
        slot: u16,
        value: &'a [u8],
    },
    Delete {
        slot: u16,
    },
    Reason(&'a str),
}

impl<'a> Reply<'a> {
    /// Reads an answer to a batch of so many events.
    pub(crate) fn parse(bytes: &'a [u8], events: usize) -> Result<Self, String> {
        let field = |at: usize| {
            read_u32(bytes, at)
                .map(|field| field as usize)
                .ok_or("the answer is shorter than its head")
        };
        let block = |at: usize, len: usize| {
            bytes
                .get(at..at + len)
                .ok_or_else(|| format!("the block at {at} lies outside the answer"))
        };
        if bytes.first() != Some(&VERSION) {
            return Err("the answer has another version".into());
        }
        let (processed, count) = (field(4)?, field(8)?);
        let outcomes = block(field(12)?, processed)?;
        let heads = block(field(16)?, count * HEAD)?;
        let payload = block(field(20)?, field(24)?)?;
        let mut commands = Vec::new();
        let mut stop = None;
        for head in heads.chunks_exact(HEAD) {
            let event = read_u32(head, 4).unwrap_or_default();
            match read_command(head, payload).ok_or("a command's bytes lie outside the answer")? {
                Read::Command(command) => commands.push((event, command)),
                Read::Stop(reason) => stop = Some(reason),
            }
        }
        let stop = match (bytes[1], stop) {
            (0, None) => None,
            (1, reason) => Some(ReplyStop::Retry(reason.unwrap_or_default())),
            (2, reason) => Some(ReplyStop::Fatal(reason.unwrap_or_default())),
            (other, _) => return Err(format!("unknown stop {other}")),
        };
        if stop.is_none() && processed != events {
            return Err(format!("{processed} of {events} events have an outcome"));
        }
        Ok(Self {
            outcomes,
            commands,
            stop,
        })
    }
}

enum Read<'a> {
    Command(ReplyCommand<'a>),
    Stop(&'a str),
}

fn read_command<'a>(head: &[u8], payload: &'a [u8]) -> Option<Read<'a>> {
    let length = |at: usize| read_u32(head, at).map(|field| field as usize);
    let (at, key_len, value_len, headers_len) =
        (length(16)?, length(20)?, length(24)?, length(28)?);
    let part = |from: usize, len: usize| payload.get(from..from + len);
    let key = part(at, key_len)?;
    let value = part(at + key_len, value_len)?;
    let headers = part(at + key_len + value_len, headers_len)?;
    let (flags, port) = (head[1], u16::from_le_bytes([head[2], head[3]]));
    Some(Read::Command(match head[0] {
        op::EMIT => ReplyCommand::Emit {
            output: port,
            key: (flags & flag::KEY != 0).then_some(key),
            value: (flags & flag::TOMBSTONE == 0).then_some(value),
            headers: HeaderBytes(headers),
            time: (flags & flag::TIME != 0).then_some(read_u64(head, 8)?.cast_signed()),
        },
        op::SET => ReplyCommand::Set { slot: port, value },
        op::DELETE => ReplyCommand::Delete { slot: port },
        op::REASON => ReplyCommand::Reason(std::str::from_utf8(value).ok()?),
        op::STOP => return Some(Read::Stop(std::str::from_utf8(value).ok()?)),
        _ => return None,
    }))
}

impl BatchView<'_> {
    /// Reads a batch back, for tests.
    #[cfg(test)]
    pub(crate) fn events(&self) -> Vec<PackedEvent> {
        (0..self.count())
            .map(|index| self.row(index).expect("row"))
            .map(|row| PackedEvent {
                time: row.time,
                key: row.key.map(<[u8]>::to_vec),
                value: row.value.map(<[u8]>::to_vec),
                headers: row.headers.0.to_vec(),
                offset: row.offset,
                ingest_time: row.ingest_time,
            })
            .collect()
    }
}
