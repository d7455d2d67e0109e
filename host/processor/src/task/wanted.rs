//! What a task has to know of its state before it can go on: read beside everything else, for it may wait for
//! the disk.

use super::Task;
use crate::parked;
use crate::stored::TIMERS;
use crate::usage::Kept;
use bytes::Bytes;
use std::sync::Arc;
use tidemill_state::{Missing, Scope};
use tidemill_types::Result;

/// What is wanted.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// These values in memory.
    Values(Scope, Vec<Missing>),
    /// The task's timers.
    Timers,
    /// What the task has parked.
    Parked,
    /// How much state there is, counted value by value with `again`.
    Kept { again: bool },
}

/// What was read.
pub(crate) enum Known {
    /// The values are in memory.
    Values,
    Timers(Vec<(Bytes, Bytes)>),
    Parked(Vec<(Bytes, Bytes)>),
    Kept(Kept),
}

impl Task {
    /// How to read it; that blocks.
    pub(crate) fn reading(&self, wanted: Wanted) -> impl FnOnce() -> Result<Known> + Send + use<> {
        let (state, scope) = (self.parts.state.clone(), self.scope());
        let deployment = Arc::clone(&self.deployment);
        move || match wanted {
            Wanted::Values(scope, missing) => state.load(scope, &missing).map(|()| Known::Values),
            Wanted::Timers => state
                .list(scope, TIMERS, b"", None, usize::MAX)
                .map(Known::Timers),
            Wanted::Parked => parked::stored_in(&state, parked::scope(scope)).map(Known::Parked),
            Wanted::Kept { again } => {
                Kept::read(&state, scope, &deployment.slots.numbers, again).map(Known::Kept)
            }
        }
    }

    /// Takes what was read.
    ///
    /// # Errors
    /// `Corrupt` when it isn't what a task writes.
    pub(crate) fn learned(&mut self, known: Known) -> Result<()> {
        match known {
            Known::Values => Ok(()),
            Known::Timers(stored) => self.timers_read(stored),
            Known::Parked(stored) => self.parked_read(&stored),
            Known::Kept(kept) => {
                self.measured(kept);
                Ok(())
            }
        }
    }
}
