//! The way to the store behind: opened, mended after a failure, given up.

use super::{Engine, Writing, unavailable};
use crate::behind::{Behind, Failure, Marker};
use crate::{Scope, keys};
use std::collections::BTreeSet;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use tidemill_types::{CommitSeq, Error, Result};

/// Reads that fail one after the other before the store is given up.
const FAILED_READS: u32 = 3;

/// Where the store behind lies.
pub(crate) trait Place: Send + Sync {
    /// Opens or creates it.
    fn open(&self) -> Result<Arc<dyn Behind>, Failure>;
    /// Removes all of it.
    fn wipe(&self) -> Result<(), Failure>;
}

/// The way to the store behind.
pub(super) enum Link {
    Open(Arc<dyn Behind>),
    /// It failed and is to be opened again.
    Shut,
    /// It was given up until the next start.
    Lost,
    /// We let go of it.
    Closed,
}

impl Engine {
    /// The commit the store behind shows; 0 when there is none any more.
    pub(crate) fn reflects(&self) -> CommitSeq {
        let lost = matches!(
            *self.link.read().unwrap_or_else(PoisonError::into_inner),
            Link::Lost
        );
        if lost {
            CommitSeq(0)
        } else {
            self.live.written()
        }
    }

    /// Takes note that the store behind can't be read, and gives it up when that happens again and again. It isn't
    /// opened again for it: what isn't in its files yet would be gone.
    pub(crate) fn failed_read(&self, failure: &Failure) -> Error {
        let _writing = self.writing();
        if self.failed_reads.fetch_add(1, Ordering::AcqRel) + 1 >= FAILED_READS {
            self.lose();
        }
        unavailable(format!("the state store can't be read: {failure}"))
    }

    pub(super) fn failed(&self, failure: &Failure) -> Error {
        self.shut(failure);
        unavailable(format!("the state store can't be used: {failure}"))
    }

    /// Lets go of a store that failed, unless it only can't be written at the moment.
    pub(super) fn shut(&self, failure: &Failure) {
        if let Failure::Unwritable(reason) = failure {
            tracing::warn!(
                reason,
                "the state store can't be written at the moment; what changed waits in memory"
            );
            return;
        }
        let mut link = self.link.write().unwrap_or_else(PoisonError::into_inner);
        if let Link::Open(_) = *link {
            tracing::warn!(reason = %failure, "the state store failed; it is opened again, values in memory go on");
            *link = Link::Shut;
        }
    }

    /// Whether it waits to be mended.
    pub(crate) fn is_shut(&self) -> bool {
        matches!(
            *self.link.read().unwrap_or_else(PoisonError::into_inner),
            Link::Shut
        )
    }

    /// Opens the store behind again. Goes on with it only if it has exactly what it should.
    pub(super) fn mend(&self, writing: &mut Writing) {
        if !self.is_shut() {
            return;
        }
        let found = self
            .place
            .open()
            .and_then(|behind| behind.marker().map(|marker| (behind, marker)));
        let written = self.live.written();
        match found {
            // Somebody still reads from it, or the disk is full: later.
            Err(Failure::InUse | Failure::Unwritable(_)) => {}
            Err(Failure::Broken(reason)) => {
                tracing::warn!(reason, "the state store can't be opened again");
                self.lose();
            }
            Ok((behind, marker)) => {
                let exact = match marker {
                    Marker::Exact(commit) => {
                        (commit == written || Some(commit) == writing.attempted).then_some(commit)
                    }
                    Marker::Empty => (written == CommitSeq(0)).then_some(written),
                    Marker::Torn => None,
                };
                let Some(commit) = exact else {
                    drop(behind);
                    return self.lose();
                };
                *self.link.write().unwrap_or_else(PoisonError::into_inner) = Link::Open(behind);
                self.live.set_written(commit);
            }
        }
    }

    /// Gives the store up. What is in memory stays; a restart rebuilds the rest.
    fn lose(&self) {
        *self.link.write().unwrap_or_else(PoisonError::into_inner) = Link::Lost;
        self.live.stand_alone();
        self.figures.resets.inc();
        if let Err(failure) = self.place.wipe() {
            tracing::warn!(reason = %failure, "the state store can't be removed");
        }
        tracing::error!(
            "the state store is lost: values in memory go on, others and snapshots are unavailable until a restart rebuilds it from the snapshot and the journal"
        );
    }

    pub(crate) fn behind(&self) -> Result<Arc<dyn Behind>> {
        match &*self.link.read().unwrap_or_else(PoisonError::into_inner) {
            Link::Open(behind) => Ok(behind.clone()),
            Link::Shut => Err(unavailable("the state store is being opened again; try again".into())),
            Link::Closed => Err(unavailable("the state store is closed".into())),
            Link::Lost => Err(unavailable("the state store is lost: restart the host, then it is rebuilt from the snapshot and the journal".into())),
        }
    }
}

pub(super) type Opened = (Arc<dyn Behind>, CommitSeq, BTreeSet<Scope>);

/// Opens a store that knows what it has.
pub(super) fn open_exact(place: &dyn Place) -> Result<Opened, Failure> {
    let behind = place.open()?;
    let written = match behind.marker()? {
        Marker::Empty => CommitSeq(0),
        Marker::Exact(commit) => commit,
        Marker::Torn => {
            return Err(Failure::Broken(
                "it was left in the middle of a change".into(),
            ));
        }
    };
    let stored = stored_scopes(&*behind)?;
    Ok((behind, written, stored))
}

/// Scopes of which the store has something: one look per scope.
pub(super) fn stored_scopes(behind: &dyn Behind) -> Result<BTreeSet<Scope>, Failure> {
    let mut scopes = BTreeSet::new();
    let mut from = Some(vec![0; keys::PREFIX_BYTES]);
    let view = behind.view()?;
    while let Some(start) = from.take() {
        view.scan(Bound::Included(&start), None, &mut |key, value| {
            match keys::decode(key, value) {
                Some(stored) => {
                    scopes.insert(stored.scope);
                    from = keys::behind(&keys::scope_prefix(stored.scope));
                }
                None => from = Some([key, &[0]].concat()),
            }
            ControlFlow::Break(())
        })?;
    }
    Ok(scopes)
}
