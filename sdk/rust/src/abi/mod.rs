//! The packed layouts of `wit/README.md`, as seen from inside a function.

mod answer;
mod batch;
#[cfg(not(target_arch = "wasm32"))]
mod native;
#[cfg(test)]
mod tests;

pub(crate) use answer::{Answer, Change, Emit, HasValue, Mark, outcome};
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use batch::Ttl;
pub(crate) use batch::{BatchView, Clock, HeaderBytes, Row, encode_header};
#[cfg(test)]
pub(crate) use native::pack;
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use native::{Extras, PackedEvent, Reply, ReplyCommand, ReplyStop, pack_with};

/// Version of both layouts.
const VERSION: u8 = 1;
/// Bytes of a row head and of a command head.
const HEAD: usize = 32;
/// Row flag: the event has a key.
const ROW_KEY: u32 = 1;
/// Row flag: the event has no value.
const ROW_TOMBSTONE: u32 = 2;
/// Row flag: a timer that is due.
const ROW_TIMER: u32 = 4;
/// Row flag: the timer is one in processing time.
const ROW_PROCESSING: u32 = 8;
/// Length of a state cell that holds nothing.
const NOTHING: u32 = u32::MAX;

/// Commands by number.
mod op {
    pub(super) const EMIT: u8 = 1;
    pub(super) const SET: u8 = 2;
    pub(super) const DELETE: u8 = 3;
    pub(super) const ADD: u8 = 4;
    pub(super) const PUT: u8 = 5;
    pub(super) const REMOVE: u8 = 6;
    pub(super) const SET_TIMER: u8 = 7;
    pub(super) const CANCEL_TIMER: u8 = 8;
    pub(super) const REASON: u8 = 16;
    pub(super) const STOP: u8 = 17;
}

/// Flags of an emit.
mod flag {
    pub(super) const KEY: u8 = 1;
    pub(super) const TOMBSTONE: u8 = 2;
    pub(super) const TIME: u8 = 4;
    /// Of a timer: it has a payload.
    pub(super) const PAYLOAD: u8 = 1;
}

/// Stops by number.
mod stop {
    pub(super) const RETRY: u8 = 1;
    pub(super) const FATAL: u8 = 2;
    pub(super) const TIMERS: u8 = 3;
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..at + 4)?
        .try_into()
        .ok()
        .map(u32::from_le_bytes)
}

fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..at + 8)?
        .try_into()
        .ok()
        .map(u64::from_le_bytes)
}
