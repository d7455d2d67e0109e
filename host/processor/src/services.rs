//! What an instance may ask for during a call.

use crate::deployment::Deployment;
use crate::manifest::SlotKind;
use crate::stored::{Opened, Slot, Slots, entry_key, entry_prefix};
use std::ops::Bound;
use std::sync::{Mutex, PoisonError};
use tidemill_state::{Scope, Store};
use tidemill_types::{Error, limits};
use tidemill_wasm::{HostServices, MapScan};

/// Answers for one task.
pub(crate) struct Services {
    state: Store,
    scope: Scope,
    slots: Slots,
    config: String,
    inputs: Vec<String>,
    /// Why state couldn't be read during the last call.
    unreadable: Mutex<Option<Error>>,
}

impl Services {
    /// For a task of a deployment.
    pub(crate) fn new(deployment: &Deployment, partition: u32, state: Store) -> Self {
        Self {
            state,
            scope: Scope {
                function: deployment.function,
                partition,
            },
            slots: deployment.slots.clone(),
            config: deployment.manifest.config.clone(),
            inputs: deployment
                .inputs
                .iter()
                .map(|input| input.topic.name.to_string())
                .collect(),
            unreadable: Mutex::default(),
        }
    }

    /// Why state couldn't be read since this was last asked, if it couldn't: the function isn't to blame.
    pub(crate) fn take_unreadable(&self) -> Option<Error> {
        self.unreadable
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    fn unreadable(&self, error: Error) -> String {
        let words = error.to_string();
        *self
            .unreadable
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(error);
        words
    }

    fn slot(&self, number: u32, is_map: bool) -> Result<&Slot, String> {
        let slot = usize::try_from(number)
            .ok()
            .and_then(|number| self.slots.list.get(number));
        slot.filter(|slot| (slot.kind == SlotKind::Map) == is_map)
            .ok_or_else(|| {
                let what = if is_map { "map" } else { "slot with one value" };
                format!("the function has no {what} of number {number}")
            })
    }

    fn read(&self, number: u16, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        loop {
            match self.state.get(self.scope, number, key) {
                Ok(found) => return Ok(found.map(|value| value.to_vec())),
                Err(missing) => self
                    .state
                    .load(self.scope, &[missing])
                    .map_err(|error| self.unreadable(error))?,
            }
        }
    }
}

impl HostServices for Services {
    fn state_get(&self, slot: u32, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let slot = self.slot(slot, false)?;
        let stored = self.read(slot.number, key)?;
        Ok(stored.map(|stored| self.slots.open(slot, &stored).value.to_vec()))
    }

    fn map_get(&self, slot: u32, key: &[u8], entry: &[u8]) -> Result<Vec<u8>, String> {
        let slot = self.slot(slot, true)?;
        if entry.len() > limits::ENTRY_KEY_BYTES || key.len() > limits::STATE_KEY_BYTES {
            return Ok(Vec::new());
        }
        let mut out = Vec::new();
        if let Some(stored) = self.read(slot.number, &entry_key(key, entry))? {
            pack(&mut out, b"", self.slots.open(slot, &stored));
        }
        Ok(out)
    }

    fn map_scan(&self, slot: u32, key: &[u8], wanted: &MapScan<'_>) -> Result<Vec<u8>, String> {
        let slot = self.slot(slot, true)?;
        let mut out = Vec::new();
        if key.len() > limits::STATE_KEY_BYTES {
            return Ok(out);
        }
        let skipped = entry_prefix(key).len();
        let (prefix, from) = (entry_key(key, wanted.prefix), entry_key(key, wanted.from));
        let mut from = if wanted.behind {
            Bound::Excluded(from)
        } else {
            Bound::Included(from)
        };
        let mut left = usize::try_from(wanted.limit).unwrap_or(usize::MAX).max(1);
        // Few at a time, for entries may be large.
        while left > 0 && out.len() < limits::SCAN_BYTES {
            let asked = left.min(SCANNED);
            let bound = from.as_ref().map(Vec::as_slice);
            let found = self
                .state
                .scan(self.scope, slot.number, &prefix, bound, asked);
            let found = found.map_err(|error| self.unreadable(error))?;
            for (place, stored) in &found {
                pack(&mut out, &place[skipped..], self.slots.open(slot, stored));
            }
            match found.last() {
                Some((last, _)) if found.len() == asked => from = Bound::Excluded(last.to_vec()),
                _ => break,
            }
            left -= asked;
        }
        Ok(out)
    }

    fn config(&self) -> &str {
        &self.config
    }

    fn input_topic(&self, input: u32) -> Option<&str> {
        let input = usize::try_from(input).ok()?;
        self.inputs.get(input).map(String::as_str)
    }
}

/// Entries of a map that are read at once.
const SCANNED: usize = 64;

/// An entry as `wit/README.md` has it.
fn pack(out: &mut Vec<u8>, key: &[u8], opened: Opened<'_>) {
    let length = |part: &[u8]| u32::try_from(part.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&opened.expires.to_le_bytes());
    out.extend_from_slice(&length(key).to_le_bytes());
    out.extend_from_slice(&length(opened.value).to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(opened.value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_golden_bytes() {
        let mut out = Vec::new();
        let opened = |expires, value| Opened { expires, value };
        pack(&mut out, b"a", opened(0x0102, b"17"));
        pack(&mut out, b"", opened(i64::MAX, b""));
        let golden = [
            &[
                2, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, b'a', b'1', b'7',
            ][..],
            &[
                255, 255, 255, 255, 255, 255, 255, 127, 0, 0, 0, 0, 0, 0, 0, 0,
            ],
        ];
        assert_eq!(out, golden.concat());
    }
}
