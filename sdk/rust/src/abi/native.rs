//! The host's side of both layouts, for tests that run natively: writing a batch, reading an answer.

use super::{
    BatchView, Clock, HEAD, HeaderBytes, NOTHING, ROW_KEY, ROW_PROCESSING, ROW_TIMER,
    ROW_TOMBSTONE, Ttl, VERSION, flag, op, read_u32, read_u64,
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

/// Lays out a batch of a function without timers whose state has no end; `stored` gives the value of a slot
/// for a key.
#[cfg(test)]
pub(crate) fn pack<'s>(
    events: &[PackedEvent],
    slots: usize,
    stored: impl Fn(Option<&[u8]>, usize) -> Option<&'s [u8]>,
) -> Vec<u8> {
    let stored = |key: Option<&[u8]>, slot: usize| Some((i64::MAX, stored(key, slot)?));
    pack_with(events, slots, stored, &Extras::default())
}

/// What only some batches have.
#[derive(Default)]
pub(crate) struct Extras<'e> {
    /// Watermarks at the events' turns.
    pub(crate) clock: Vec<i64>,
    /// By slot; empty: nothing ends.
    pub(crate) ttls: &'e [Option<Ttl>],
    /// The rows are timers of this time.
    pub(crate) timers: Option<Clock>,
}

/// Lays out a batch; `stored` gives the value of a slot for a key and when it expires.
pub(crate) fn pack_with<'s>(
    events: &[PackedEvent],
    slots: usize,
    stored: impl Fn(Option<&[u8]>, usize) -> Option<(i64, &'s [u8])>,
    extras: &Extras<'_>,
) -> Vec<u8> {
    let timer_flags = match extras.timers {
        None => 0,
        Some(Clock::Event) => ROW_TIMER,
        Some(Clock::Processing) => ROW_TIMER | ROW_PROCESSING,
    };
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
            }
            | timer_flags;
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
                Some((expires, value)) => {
                    if extras.ttls.get(slot).is_some_and(Option::is_some) {
                        payload.extend_from_slice(&expires.to_le_bytes());
                    }
                    let at = payload.len();
                    payload.extend_from_slice(value);
                    (at, narrow(value.len()))
                }
                None => (0, NOTHING),
            };
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
    let clock = column(&mut extras.clock.iter().map(|time| time.to_le_bytes()));
    let ttls = extras.ttls.iter().flat_map(|ttl| {
        let (clock, micros) = match ttl {
            None => (0, 0),
            Some(ttl) => (1 + u64::from(ttl.clock == Clock::Processing), ttl.micros),
        };
        [clock.to_le_bytes(), micros.to_le_bytes()].concat()
    });
    let ttls = ttls.collect();
    assemble(
        events.len(),
        slots,
        keys,
        [
            heads,
            offsets,
            ingest_times,
            clock,
            ttls,
            key_index,
            cells,
            payload,
        ],
    )
}

/// The head, then the blocks, each at a multiple of 8.
fn assemble(events: usize, slots: usize, keys: usize, blocks: [Vec<u8>; 8]) -> Vec<u8> {
    let mut starts = [0; 8];
    let mut at: usize = 48;
    for (start, block) in starts.iter_mut().zip(&blocks) {
        at = at.next_multiple_of(8);
        *start = at;
        at += block.len();
    }
    let [
        heads,
        offsets,
        ingest_times,
        clock,
        ttls,
        key_index,
        cells,
        payload,
    ] = starts;
    let sent = |block: usize, at| if blocks[block].is_empty() { 0 } else { at };
    let mut bytes = vec![VERSION, 0];
    bytes.extend_from_slice(&u16::try_from(slots).unwrap_or(u16::MAX).to_le_bytes());
    for field in [
        events,
        keys,
        heads,
        offsets,
        ingest_times,
        if slots == 0 { 0 } else { key_index },
        if slots == 0 { 0 } else { cells },
        payload,
        blocks[7].len(),
        sent(3, clock),
        sent(4, ttls),
    ] {
        bytes.extend_from_slice(&narrow(field).to_le_bytes());
    }
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
    Timers,
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
    Add {
        slot: u16,
        by: i64,
    },
    Put {
        slot: u16,
        entry: &'a [u8],
        value: &'a [u8],
    },
    Remove {
        slot: u16,
        entry: &'a [u8],
    },
    SetTimer {
        clock: Clock,
        due: i64,
        tag: &'a [u8],
        payload: Option<&'a [u8]>,
    },
    CancelTimer {
        tag: &'a [u8],
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
            (3, None) => Some(ReplyStop::Timers),
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
        op::ADD => ReplyCommand::Add {
            slot: port,
            by: read_u64(value, 0)?.cast_signed(),
        },
        op::PUT => ReplyCommand::Put {
            slot: port,
            entry: key,
            value,
        },
        op::REMOVE => ReplyCommand::Remove {
            slot: port,
            entry: key,
        },
        op::SET_TIMER => ReplyCommand::SetTimer {
            clock: [Clock::Event, Clock::Processing][usize::from(port)],
            due: read_u64(head, 8)?.cast_signed(),
            tag: key,
            payload: (flags & flag::PAYLOAD != 0).then_some(value),
        },
        op::CANCEL_TIMER => ReplyCommand::CancelTimer { tag: key },
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
