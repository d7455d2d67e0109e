//! Bringing values of the store behind into memory while changes go on.

use super::{Live, Part};
use crate::cells::Known;
use crate::{Missing, Scope};
use bytes::Bytes;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidemill_types::{ByteSize, CommitSeq};

/// A scope up to this size (and a quarter of the memory) is brought in as a whole at its first miss
/// after a start: from then on the store behind isn't asked for it any more. It holds up that first event, so
/// it is no more than can be read in some hundredths of a second.
const WHOLE_BYTES: u64 = 4 << 20;

/// Of the memory of live values, what is read ahead and wasn't used yet takes no more than this part.
const AHEAD_PART: u64 = 4;
/// Most values that are read ahead for one scope.
const AHEAD: u64 = 4096;

/// How a load goes on.
pub(crate) enum Begun {
    /// All is known.
    Known,
    /// All that isn't known is being read ahead: look again once this many answers have come.
    Awaited(u64),
    /// This is to be read.
    Load(Load),
}

/// Values that are read before anybody has to wait for them.
pub(crate) struct Ahead {
    pub(crate) load: Load,
    part: Arc<Mutex<Part>>,
}

/// What a load has to read, and what tells afterwards whether it may be taken in.
pub(crate) struct Load {
    /// Slot and key.
    pub(crate) keys: Vec<(u16, Bytes)>,
    /// The whole scope may be read instead if it isn't larger than this: it was not tried before.
    pub(crate) whole: Option<u64>,
    /// Some of what was missing is being read ahead.
    pub(crate) awaits_others: bool,
    last: CommitSeq,
    losses: (u64, CommitSeq, u64),
}

impl Load {
    /// Whether what it read may be old by now: something newer may have come and gone since it began.
    fn is_old(&self, part: &Part) -> bool {
        let (_, lost, clears) = part.cells.losses();
        let left = part.cells.losses() != self.losses && lost >= self.last;
        left || clears != self.losses.2
    }
}

impl Live {
    /// Begins to bring missing values in: says what to read. What is
    /// in memory or was written back before now is as the store behind has it from now on, unless it
    /// changes; [`Live::finish_load`] notices that.
    pub(crate) fn begin_load(&self, scope: Scope, missing: &[Missing]) -> Begun {
        let answers = *self.answers();
        let whole = WHOLE_BYTES.min(self.memory / 4);
        let fits = whole > 0 && self.live_bytes.load(Ordering::Acquire) + whole <= self.memory / 2;
        self.change(scope, |part| {
            let unknown =
                |missing: &&Missing| part.cells.get(missing.slot, &missing.key) == Known::Unknown;
            let mut keys: Vec<_> = missing
                .iter()
                .filter(unknown)
                .map(|missing| (missing.slot, missing.key.clone()))
                .collect();
            let unknown = keys.len();
            keys.retain(|asked| !part.asked.contains(asked));
            let awaits_others = keys.len() < unknown;
            match (keys.is_empty(), awaits_others) {
                (true, false) => return Begun::Known,
                (true, true) => return Begun::Awaited(answers + 1),
                (false, _) => part.cells.begin_load(),
            }
            keys.sort_unstable();
            keys.dedup();
            let whole = (fits && !std::mem::replace(&mut part.warmed, true)).then_some(whole);
            Begun::Load(Load {
                keys,
                whole,
                awaits_others,
                last: part.last,
                losses: part.cells.losses(),
            })
        })
    }

    /// How many values may be read ahead for each scope, so that they are still there when they are used.
    pub(crate) fn window(&self) -> usize {
        let scopes = self.scopes.read().unwrap_or_else(PoisonError::into_inner);
        let (open, values) = (
            scopes.open.len() as u64,
            self.values.load(Ordering::Acquire),
        );
        let each = self.live_bytes.load(Ordering::Acquire) / values.max(1);
        let room = self.memory / AHEAD_PART / each.max(1) / open.max(1);
        ByteSize(room.min(AHEAD)).as_usize()
    }

    /// Begins to read ahead of those keys what isn't known and isn't being read; [`Live::answer`] is to follow.
    pub(crate) fn ask<'k>(
        &self,
        scope: Scope,
        slots: &[u16],
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Option<Ahead> {
        if self.is_alone() {
            return None;
        }
        let part = self.part(scope);
        let load = self.change_part(&part, |part| {
            let mut wanted = Vec::new();
            for key in keys {
                for slot in slots {
                    if part.cells.is_unknown(*slot, key) {
                        let asked = (*slot, Bytes::copy_from_slice(key));
                        if part.asked.insert(asked.clone()) {
                            wanted.push(asked);
                        }
                    }
                }
            }
            wanted.sort_unstable();
            Load {
                keys: wanted,
                whole: None,
                awaits_others: false,
                last: part.last,
                losses: part.cells.losses(),
            }
        });
        (!load.keys.is_empty()).then_some(Ahead { load, part })
    }

    /// Takes in values that were read ahead, unless something newer came and went meanwhile. `None`: they
    /// couldn't be read. Who waits for them looks again.
    pub(crate) fn answer(
        &self,
        ahead: &Ahead,
        read: Range<usize>,
        values: Option<&[Option<Bytes>]>,
    ) {
        self.change_part(&ahead.part, |part| {
            let keys = &ahead.load.keys[read];
            for asked in keys {
                part.asked.remove(asked);
            }
            let Some(values) = values.filter(|_| !part.gone && !ahead.load.is_old(part)) else {
                return;
            };
            for ((slot, key), value) in keys.iter().zip(values) {
                part.cells.take_in_ahead(*slot, key, value.as_deref());
            }
        });
        *self.answers() += 1;
        self.answered.notify_all();
        self.futile.store(u64::MAX, Ordering::Release);
        self.relieve();
    }

    /// Waits until so many answers have come.
    pub(crate) fn until_answered(&self, answers: u64) {
        let waited = self
            .answered
            .wait_while(self.answers(), |come| *come < answers);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn answers(&self) -> MutexGuard<'_, u64> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what a load has read of single keys. False: something newer came and went meanwhile,
    /// read again.
    pub(crate) fn finish_load(&self, scope: Scope, load: &Load, values: &[Option<Bytes>]) -> bool {
        let taken = self.change(scope, |part| {
            if load.is_old(part) {
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
