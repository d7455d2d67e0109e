//! The packed layouts of `wit/README.md`, as seen from inside a function.

mod answer;
mod batch;
#[cfg(not(target_arch = "wasm32"))]
mod native;
#[cfg(test)]
mod tests;

pub(crate) use answer::{Answer, Emit, HasValue, Mark, StateChange, outcome};
pub(crate) use batch::{BatchView, HeaderBytes, Row, encode_header};
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use native::{PackedEvent, Reply, ReplyCommand, ReplyStop, pack};

/// Version of both layouts.
const VERSION: u8 = 1;
/// Bytes of a row head and of a command head.
const HEAD: usize = 32;
/// Row flag: the event has a key.
const ROW_KEY: u32 = 1;
/// Row flag: the event has no value.
const ROW_TOMBSTONE: u32 = 2;
/// Length of a state cell that holds nothing.
const NOTHING: u32 = u32::MAX;

/// Commands by number.
mod op {
    pub(super) const EMIT: u8 = 1;
    pub(super) const SET: u8 = 2;
    pub(super) const DELETE: u8 = 3;
    pub(super) const REASON: u8 = 16;
    pub(super) const STOP: u8 = 17;
}

/// Flags of an emit.
mod flag {
    pub(super) const KEY: u8 = 1;
    pub(super) const TOMBSTONE: u8 = 2;
    pub(super) const TIME: u8 = 4;
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
