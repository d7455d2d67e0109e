//! Where the transactions of a replay go: their state into a store of its own, all else into a list.

use bytes::Bytes;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tidemill_log::Draft;
use tidemill_state::Store;
use tidemill_types::{Batch, CommitSeq, Error, PartitionId, Result, TopicId};

/// What a transaction would have been.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// The event it handled last, by its topic and offset; the next of the first input, if it handled timers.
    pub(crate) at: (TopicId, u64),
    /// Events it emitted, dead letters too.
    pub(crate) rows: Vec<(PartitionId, Batch)>,
    /// The task's note with it.
    pub(crate) note: Bytes,
}

/// Takes transactions.
#[derive(Default)]
pub(crate) struct Aside {
    last: AtomicU64,
    /// By partition of the task.
    frames: Mutex<HashMap<u32, Vec<Frame>>>,
}

impl Aside {
    /// Takes one: its state is applied, and durable as far as the store is concerned.
    ///
    /// # Errors
    /// `Corrupt` when a section makes no sense.
    pub(crate) fn take(&self, state: &Store, draft: Draft, sections: &[Bytes]) -> Result<()> {
        self.apply(state, sections)?;
        let steps = draft.advances();
        let none = || Error::internal("a task's transaction without a step");
        let step = steps.iter().find(|step| step.to > step.from);
        let step = step.or(steps.first()).ok_or_else(none)?;
        let noted = steps.iter().find(|step| !step.note.is_empty());
        let offset = if step.to > step.from {
            step.to - 1
        } else {
            step.to
        };
        let (partition, at) = (step.partition, (step.topic, offset));
        let note = noted.map(|step| step.note.clone()).unwrap_or_default();
        let frame = Frame {
            at,
            note,
            rows: draft.into_appended(),
        };
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        frames.entry(partition).or_default().push(frame);
        Ok(())
    }

    /// Applies sections of state alone.
    ///
    /// # Errors
    /// `Corrupt` when a section makes no sense.
    pub(crate) fn apply(&self, state: &Store, sections: &[Bytes]) -> Result<()> {
        let intent = state.intend();
        let commit = CommitSeq(self.last.fetch_add(1, Ordering::AcqRel) + 1);
        for section in sections {
            state.apply_shared(commit, section)?;
        }
        drop(intent);
        state.durable(commit);
        Ok(())
    }

    /// The transactions of a partition's task since this was last asked.
    pub(crate) fn frames(&self, partition: u32) -> Vec<Frame> {
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        frames.remove(&partition).unwrap_or_default()
    }
}
