//! State as it was at one moment, read at leisure.

use crate::behind::{Failure, View};
use crate::{Scope, keys};
use bytes::Bytes;
use std::ops::{Bound, ControlFlow};
use std::sync::Mutex;
use tidemill_types::{CommitSeq, Error, ErrorKind, Result};

/// All state as of a commit. It takes disk space while it is kept, for what is overwritten meanwhile.
pub struct Frozen {
    view: Mutex<Box<dyn View>>,
    commit: CommitSeq,
}

/// A value of a frozen state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrozenValue {
    /// Where it lies among others: to go on behind it.
    pub place: Bytes,
    /// Its slot.
    pub slot: u16,
    /// Its key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
}

impl Frozen {
    pub(crate) fn new(view: Box<dyn View>, commit: CommitSeq) -> Self {
        Self {
            view: Mutex::new(view),
            commit,
        }
    }

    /// The commit it is as of.
    pub fn commit(&self) -> CommitSeq {
        self.commit
    }

    /// Values of a scope by slot and key, behind a place, `limit` at most. Blocks.
    ///
    /// # Errors
    /// `Unavailable` when the store can't be read.
    pub fn page(
        &self,
        scope: Scope,
        behind: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<FrozenValue>> {
        let prefix = keys::scope_prefix(scope);
        let from = behind.map_or(Bound::Included(&prefix[..]), Bound::Excluded);
        let mut page = Vec::new();
        let view = self
            .view
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let scanned = view.scan(from, keys::behind(&prefix).as_deref(), &mut |key, value| {
            if let Some(stored) = keys::decode(key, value) {
                page.push(FrozenValue {
                    place: Bytes::copy_from_slice(key),
                    slot: stored.slot,
                    key: Bytes::copy_from_slice(stored.key),
                    value: Bytes::copy_from_slice(stored.value),
                });
            }
            if page.len() < limit {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        scanned.map_err(|failure: Failure| {
            Error::new(
                ErrorKind::Unavailable,
                "state-unavailable",
                format!("the state store can't be read: {failure}"),
            )
        })?;
        Ok(page)
    }
}
