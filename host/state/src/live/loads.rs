//! Bringing values of the store behind into memory while changes go on.

use super::Live;
use crate::cells::Known;
use crate::{Missing, Scope};
use bytes::Bytes;
use std::sync::atomic::Ordering;
use tidemill_types::CommitSeq;

/// A scope up to this size (and a quarter of the memory) is brought in as a whole at its first miss
/// after a start: from then on the store behind isn't asked for it any more. It holds up that first event, so
/// it is no more than can be read in some hundredths of a second.
const WHOLE_BYTES: u64 = 4 << 20;

/// What a load has to read, and what tells afterwards whether it may be taken in.
pub(crate) struct Load {
    /// Slot and key.
    pub(crate) keys: Vec<(u16, Bytes)>,
    /// The whole scope may be read instead if it isn't larger than this: it was not tried before.
    pub(crate) whole: Option<u64>,
    last: CommitSeq,
    losses: (u64, CommitSeq, u64),
}

impl Live {
    /// Begins to bring missing values in: says what to read, `None` when all is known already. What is
    /// in memory or was written back before now is as the store behind has it from now on, unless it
    /// changes; [`Live::finish_load`] notices that.
    pub(crate) fn begin_load(&self, scope: Scope, missing: &[Missing]) -> Option<Load> {
        let whole = WHOLE_BYTES.min(self.memory / 4);
        let fits = whole > 0 && self.live_bytes.load(Ordering::Acquire) + whole <= self.memory / 2;
        self.change(scope, |part| {
            part.cells.begin_load();
            let unknown =
                |missing: &&Missing| part.cells.get(missing.slot, &missing.key) == Known::Unknown;
            let mut keys: Vec<_> = missing
                .iter()
                .filter(unknown)
                .map(|missing| (missing.slot, missing.key.clone()))
                .collect();
            if keys.is_empty() {
                return None;
            }
            keys.sort_unstable();
            keys.dedup();
            let whole = (fits && !std::mem::replace(&mut part.warmed, true)).then_some(whole);
            Some(Load {
                keys,
                whole,
                last: part.last,
                losses: part.cells.losses(),
            })
        })
    }

    /// Takes in what a load has read of single keys. False: something newer came and went meanwhile,
    /// read again.
    pub(crate) fn finish_load(&self, scope: Scope, load: &Load, values: &[Option<Bytes>]) -> bool {
        let taken = self.change(scope, |part| {
            let (_, lost, clears) = part.cells.losses();
            let left = part.cells.losses() != load.losses && lost >= load.last;
            if left || clears != load.losses.2 {
                return false;
            }
            for ((slot, key), value) in load.keys.iter().zip(values) {
                part.cells.take_in(*slot, key, value.as_deref());
            }
            true
        });
        self.futile.store(u64::MAX, Ordering::Release);
        self.relieve();
        taken
    }

    /// Takes in a whole scope as the store behind has it; from now on what isn't in memory is absent.
    /// False: something left memory meanwhile, read the single keys.
    pub(crate) fn finish_whole(
        &self,
        scope: Scope,
        load: &Load,
        values: &[(u16, Bytes, Bytes)],
    ) -> bool {
        self.change(scope, |part| {
            if part.cells.losses() != load.losses {
                return false;
            }
            for (slot, key, value) in values {
                part.cells.take_in(*slot, key, Some(value));
            }
            part.cells.set_complete();
            true
        })
    }
}
