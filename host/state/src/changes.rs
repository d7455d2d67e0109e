//! Changes of one transaction, as they lie in a frame's state section.
//!
//! ```text
//! section: u8 version = 1, 3 bytes 0, u32 function, u32 partition, u32 count, then count changes:
//!   u16 slot, u8 op (1 set, 2 delete, 3 delete the whole scope), u8 0, u32 key_len, u32 value_len, key, value
//! ```

use tidemill_types::{FunctionId, Result};

/// Whose state: a function's on one partition of its input.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Scope {
    /// The function.
    pub function: FunctionId,
    /// The input's partition.
    pub partition: u32,
}

/// One change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change<'a> {
    /// The slot of this key has this value now.
    Set {
        /// The slot.
        slot: u16,
        /// The event key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// The slot of this key is empty now.
    Delete {
        /// The slot.
        slot: u16,
        /// The event key.
        key: &'a [u8],
    },
    /// Everything of the scope is gone.
    Clear,
}

/// Changes of one scope in the making.
pub struct Changes {
    _bytes: Vec<u8>,
}

impl Changes {
    /// None yet.
    pub fn new(scope: Scope) -> Self {
        let _ = scope;
        unimplemented!("helper")
    }
    /// Adds one.
    pub fn push(&mut self, change: Change<'_>) {
        let _ = change;
        unimplemented!("helper")
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        unimplemented!("helper")
    }
    /// The section's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        unimplemented!("helper")
    }
}

/// Reads a section.
pub struct ChangesReader<'a> {
    _rest: &'a [u8],
}

impl<'a> ChangesReader<'a> {
    /// Checks the whole section.
    ///
    /// # Errors
    /// `Corrupt` with the byte position.
    pub fn new(section: &'a [u8]) -> Result<Self> {
        let _ = section;
        unimplemented!("helper")
    }
    /// Whose changes.
    pub fn scope(&self) -> Scope {
        unimplemented!("helper")
    }
}

impl<'a> Iterator for ChangesReader<'a> {
    type Item = Change<'a>;
    fn next(&mut self) -> Option<Self::Item> {
        unimplemented!("helper")
    }
}
