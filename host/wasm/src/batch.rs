//! Packing events for a guest.

use tidemill_types::Event;

/// The value of one slot for one key, as it travels with a batch.
#[derive(Clone, Copy, Debug)]
pub enum StateCell<'a> {
    /// Nothing is stored.
    Absent,
    /// This is stored.
    Value(&'a [u8]),
}

/// Lays out one batch in the packed form (`wit/README.md`). Reused from batch to batch.
#[derive(Default)]
pub struct BatchPacker {
    _private: (),
}

impl BatchPacker {
    /// Starts a batch for a function with `slots` declared slots.
    pub fn begin(&mut self, slots: usize) {
        let _ = slots;
        unimplemented!("helper")
    }
    /// Adds an event. `key_index` numbers the distinct keys of the batch from 0 in order of first
    /// appearance (ignored when the function has no slots).
    pub fn push(&mut self, event: &Event<'_>, key_index: u32) {
        let _ = (event, key_index);
        unimplemented!("helper")
    }
    /// Gives the state of the next distinct key: one cell per slot. Called once per key, in order,
    /// after all events.
    pub fn state(&mut self, cells: &[StateCell<'_>]) {
        let _ = cells;
        unimplemented!("helper")
    }
    /// The finished batch.
    pub fn finish(&mut self) -> &[u8] {
        unimplemented!("helper")
    }
    /// Bytes so far.
    pub fn bytes(&self) -> usize {
        unimplemented!("helper")
    }
}
