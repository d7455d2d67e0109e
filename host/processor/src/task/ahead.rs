//! State of the keys that come next, asked for while the function is at work on those before, so that nobody waits
//! for the disk where state is larger than memory.

use super::{FETCH, Task};
use crate::manifest::SlotKind;
use crate::record::Role;
use tidemill_log::ReadLimit;
use tidemill_types::Batch;

/// So many looks in a row that find everything in memory are enough to believe that it stays so.
const LOOKS: u8 = 8;

/// How far was looked.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Events before this offset were seen.
    upto: u64,
    /// Looks that are left, since something wasn't in memory.
    looks: u8,
}

impl Ahead {
    /// Something wasn't in memory.
    pub(super) fn missed(&mut self) {
        self.looks = LOOKS;
    }
}

impl Task {
    /// Asks for the state of keys of the events from `next` on, as far as those are at hand.
    pub(super) fn look_ahead(&mut self, next: u64) {
        if self.looked.looks == 0 || self.role != Role::Main || self.merge.is_some() {
            return;
        }
        let window = self.parts.state.window();
        let from = self.looked.upto.max(next);
        let left = (next + window as u64).saturating_sub(from);
        // Many are asked for at a time, in order.
        let events = usize::try_from(left).unwrap_or(usize::MAX);
        if events < window.div_ceil(2) {
            return;
        }
        let limit = ReadLimit {
            events,
            bytes: FETCH.bytes,
        };
        let read = match &self.ahead {
            Some(ahead) => Some(ahead.batches.clone()),
            None => {
                let read = self.parts.read_ahead(self.inputs[0], from, limit);
                read.map(|read| read.batches)
            }
        };
        let rows = |batch: &Batch| batch.row_at(from)..batch.len();
        let batches = read.unwrap_or_default();
        let all = batches
            .iter()
            .flat_map(|batch| rows(batch).map(move |row| batch.get(row)));
        let events: Vec<_> = all.take(events).collect();
        let Some(last) = events.last() else { return };
        self.looked.upto = last.offset + 1;
        let slots = self.deployment.slots.list.iter();
        let slots: Vec<u16> = slots
            .filter(|slot| slot.kind != SlotKind::Map)
            .map(|slot| slot.number)
            .collect();
        let keys = events.iter().filter_map(|event| event.row.key);
        match self.parts.state.ahead(self.scope(), &slots, keys) {
            0 => self.looked.looks -= 1,
            _ => self.looked.missed(),
        }
    }
}
