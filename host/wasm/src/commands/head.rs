//! The 32 bytes of one command.

use super::Emit;
use crate::Clock;
use tidemill_types::{Headers, Timestamp};

/// Bytes of one command head.
pub(super) const BYTES: usize = 32;

/// The emitted event has a key.
pub(super) const HAS_KEY: u8 = 1;
/// The emitted event is a tombstone.
pub(super) const TOMBSTONE: u8 = 2;
/// The emitted event has its own time.
pub(super) const HAS_TIME: u8 = 4;

/// The timer has a payload.
pub(super) const HAS_PAYLOAD: u8 = 1;

/// What a command does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Op {
    Emit,
    Set,
    Delete,
    Add,
    Put,
    Remove,
    SetTimer,
    CancelTimer,
    Reason,
    StopReason,
}

/// One decoded command head.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandHead {
    pub(super) op: u8,
    pub(super) flags: u8,
    pub(super) port: u16,
    pub(super) event: u32,
    pub(super) time: i64,
    pub(super) at: u32,
    pub(super) key_len: u32,
    pub(super) value_len: u32,
    pub(super) headers_len: u32,
}

impl CommandHead {
    #[inline]
    pub(super) fn read(bytes: &[u8; BYTES]) -> Self {
        let field = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let [.., t0, t1, t2, t3, t4, t5, t6, t7] = *bytes.first_chunk::<16>().unwrap_or(&[0; 16]);
        Self {
            op: bytes[0],
            flags: bytes[1],
            port: u16::from_le_bytes([bytes[2], bytes[3]]),
            event: field(4),
            time: i64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
            at: field(16),
            key_len: field(20),
            value_len: field(24),
            headers_len: field(28),
        }
    }

    /// `None` when there is no such operation.
    #[inline]
    pub(super) fn op(&self) -> Option<Op> {
        match self.op {
            1 => Some(Op::Emit),
            2 => Some(Op::Set),
            3 => Some(Op::Delete),
            4 => Some(Op::Add),
            5 => Some(Op::Put),
            6 => Some(Op::Remove),
            7 => Some(Op::SetTimer),
            8 => Some(Op::CancelTimer),
            16 => Some(Op::Reason),
            17 => Some(Op::StopReason),
            _ => None,
        }
    }

    /// Where its bytes end in the payload.
    #[inline]
    pub(super) fn end(&self) -> u64 {
        [self.at, self.key_len, self.value_len, self.headers_len]
            .into_iter()
            .map(u64::from)
            .sum()
    }

    /// The key's bytes.
    #[inline]
    pub(super) fn key<'a>(&self, payload: &'a [u8]) -> &'a [u8] {
        self.parts(payload).0
    }

    /// The value as a number; `None` when it isn't one.
    #[inline]
    pub(super) fn number(&self, payload: &[u8]) -> Option<i64> {
        self.value(payload).try_into().ok().map(i64::from_le_bytes)
    }

    /// The time that a timer's port stands for.
    #[inline]
    pub(super) fn clock(&self) -> Option<Clock> {
        match self.port {
            0 => Some(Clock::Event),
            1 => Some(Clock::Processing),
            _ => None,
        }
    }

    /// The value's bytes. The head has been checked against this payload, here and below.
    #[inline]
    pub(super) fn value<'a>(&self, payload: &'a [u8]) -> &'a [u8] {
        self.parts(payload).1
    }

    /// The value as text.
    pub(super) fn text<'a>(&self, payload: &'a [u8]) -> &'a str {
        std::str::from_utf8(self.value(payload)).unwrap_or_default()
    }

    /// The header bytes.
    #[inline]
    pub(super) fn headers<'a>(&self, payload: &'a [u8]) -> Headers<'a> {
        Headers(self.parts(payload).2)
    }

    /// The event it emits.
    #[inline]
    pub(super) fn emit<'a>(&self, payload: &'a [u8]) -> Emit<'a> {
        let (key, value, headers) = self.parts(payload);
        Emit {
            output: self.port,
            key: (self.flags & HAS_KEY != 0).then_some(key),
            value: (self.flags & TOMBSTONE == 0).then_some(value),
            headers: Headers(headers),
            time: (self.flags & HAS_TIME != 0).then(|| Timestamp::from_micros(self.time)),
        }
    }

    #[inline]
    fn parts<'a>(&self, payload: &'a [u8]) -> (&'a [u8], &'a [u8], &'a [u8]) {
        let rest = &payload[self.at as usize..];
        let (key, rest) = rest.split_at(self.key_len as usize);
        let (value, rest) = rest.split_at(self.value_len as usize);
        (key, value, &rest[..self.headers_len as usize])
    }
}
