//! Live values of one scope in memory: a hash table swept by a clock hand when memory runs short. Remembers absence too, and whether what isn't here can be anywhere else.

use crate::{Change, ORDERED_SLOTS};
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};
use tidemill_types::CommitSeq;

/// Memory a held value takes beside its key and value: its place in a table two thirds full, the
/// allocator's own.
const HELD_BYTES: u64 = 80;
/// Memory a key takes in the order of its slot, beside its bytes.
const ORDERED_BYTES: u64 = 48;
/// A table with fewer places isn't worth shrinking.
const LEAST_PLACES: usize = 1024;
/// Values of this many latest loads stay, so that who loaded them meets them.
const KEPT_LOADS: u8 = 2;

/// What memory knows of a slot's value for a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known<'a> {
    Value(&'a [u8]),
    Absent,
    /// Perhaps the store behind has it.
    Unknown,
}

/// Values and absences of one scope.
pub(crate) struct Cells {
    table: HashTable<Held>,
    /// What is held of ordered slots, in order.
    ordered: BTreeSet<(u16, Box<[u8]>)>,
    /// Place of the table that was looked at last.
    hand: usize,
    hasher: RandomState,
    bytes: u64,
    values: u64,
    complete: bool,
    loads: u8,
    /// Things that left memory.
    losses: u64,
    /// The newest commit of a thing that left.
    lost: CommitSeq,
    clears: u64,
}

struct Held {
    /// The key, then the value.
    bytes: Box<[u8]>,
    hash: u64,
    /// The commit that changed it last; 0 when it came from the store behind.
    commit: CommitSeq,
    key_len: u32,
    slot: u16,
    mark: Cell<Mark>,
    /// Number of the load that brought it.
    load: Cell<u8>,
}

/// Kept small: a place in the table is 40 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mark {
    /// Known to be absent; not used since the hand passed.
    Absent,
    AbsentUsed,
    /// A value; not used since the hand passed.
    Present,
    PresentUsed,
}

impl Mark {
    fn used(present: bool) -> Self {
        if present {
            Self::PresentUsed
        } else {
            Self::AbsentUsed
        }
    }

    fn is_present(self) -> bool {
        matches!(self, Self::Present | Self::PresentUsed)
    }
}

/// What a sweep did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Swept {
    pub(crate) visited: usize,
    pub(crate) removed: usize,
    /// Could have gone, but were used since the last time.
    pub(crate) spared: usize,
}

impl Held {
    fn key(&self) -> &[u8] {
        &self.bytes[..self.key_end()]
    }

    fn value(&self) -> Option<&[u8]> {
        self.is_present().then(|| &self.bytes[self.key_end()..])
    }

    fn is_present(&self) -> bool {
        self.mark.get().is_present()
    }

    fn set_used(&self) {
        self.mark.set(Mark::used(self.is_present()));
    }

    /// Takes the second chance away; false when it had none.
    fn take_used(&self) -> bool {
        let mark = self.mark.get();
        self.mark.set(if mark.is_present() {
            Mark::Present
        } else {
            Mark::Absent
        });
        mark != self.mark.get()
    }

    fn key_end(&self) -> usize {
        self.key_len as usize
    }

    fn is(&self, hash: u64, slot: u16, key: &[u8]) -> bool {
        self.hash == hash && self.slot == slot && self.key() == key
    }

    fn cost(&self) -> u64 {
        let order = if self.slot < ORDERED_SLOTS {
            0
        } else {
            u64::from(self.key_len) + ORDERED_BYTES
        };
        self.bytes.len() as u64 + HELD_BYTES + order
    }
}

impl Cells {
    /// Empty. `complete`: nothing of this scope is anywhere else.
    pub(crate) fn new(complete: bool) -> Self {
        Self {
            table: HashTable::new(),
            ordered: BTreeSet::new(),
            hand: 0,
            hasher: RandomState::default(),
            bytes: 0,
            values: 0,
            complete,
            loads: 0,
            losses: 0,
            lost: CommitSeq(0),
            clears: 0,
        }
    }

    /// Memory taken.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Values held; absences don't count.
    pub(crate) fn values(&self) -> u64 {
        self.values
    }

    /// Whether what isn't here is absent.
    pub(crate) fn complete(&self) -> bool {
        self.complete
    }

    /// Says that everything of the store behind has been brought in.
    pub(crate) fn set_complete(&mut self) {
        self.complete = true;
    }

    /// What has left memory so far: things, the newest of their commits, clears. Tells a load whether
    /// what it read from the store behind may be old by now.
    pub(crate) fn losses(&self) -> (u64, CommitSeq, u64) {
        (self.losses, self.lost, self.clears)
    }

    pub(crate) fn get(&self, slot: u16, key: &[u8]) -> Known<'_> {
        match self.find(slot, key) {
            Some(held) => {
                held.set_used();
                held.value().map_or(Known::Absent, Known::Value)
            }
            None if self.complete => Known::Absent,
            None => Known::Unknown,
        }
    }

    /// Applies a change of a commit.
    pub(crate) fn apply(&mut self, commit: CommitSeq, change: Change<'_>) {
        match change {
            Change::Set { slot, key, value } => self.put(slot, key, Some(value), commit),
            Change::Delete { slot, key } => self.put(slot, key, None, commit),
            Change::Clear => self.clear(),
        }
    }

    fn put(&mut self, slot: u16, key: &[u8], value: Option<&[u8]>, commit: CommitSeq) {
        let hash = hash(&self.hasher, slot, key);
        let Some(held) = self.table.find_mut(hash, |held| held.is(hash, slot, key)) else {
            // In a complete scope a key that isn't here is absent already.
            if value.is_some() || !self.complete {
                self.insert(hash, slot, key, value, commit);
            }
            return;
        };
        self.bytes -= held.cost();
        self.values -= u64::from(held.is_present());
        match value {
            Some(value) if held.bytes.len() == key.len() + value.len() => {
                held.bytes[key.len()..].copy_from_slice(value)
            }
            _ => held.bytes = joined(key, value.unwrap_or_default()),
        }
        held.mark.set(Mark::used(value.is_some()));
        held.commit = commit;
        self.values += u64::from(value.is_some());
        self.bytes += held.cost();
    }

    fn insert(
        &mut self,
        hash: u64,
        slot: u16,
        key: &[u8],
        value: Option<&[u8]>,
        commit: CommitSeq,
    ) -> &Held {
        let held = Held {
            bytes: joined(key, value.unwrap_or_default()),
            hash,
            commit,
            key_len: u32::try_from(key.len()).unwrap_or(u32::MAX),
            slot,
            mark: Cell::new(Mark::used(value.is_some())),
            load: Cell::new(0),
        };
        self.bytes += held.cost();
        self.values += u64::from(held.is_present());
        if slot >= ORDERED_SLOTS {
            self.ordered.insert((slot, key.into()));
        }
        self.table
            .insert_unique(hash, held, |held| held.hash)
            .into_mut()
    }

    /// Everything goes; nothing of the scope is anywhere any more once its commit is written back.
    fn clear(&mut self) {
        let emptied = Self::new(true);
        *self = Self {
            loads: self.loads,
            losses: self.losses + 1,
            lost: self.lost,
            clears: self.clears + 1,
            ..emptied
        };
    }

    /// Begins a load: what it brings stays until the load after the next begins.
    pub(crate) fn begin_load(&mut self) {
        self.loads = self.loads.checked_add(1).unwrap_or(1);
    }

    /// Takes in what the store behind has, unless something newer is here.
    pub(crate) fn take_in(&mut self, slot: u16, key: &[u8], value: Option<&[u8]>) {
        let load = self.loads;
        if let Some(held) = self.find(slot, key) {
            held.load.set(load);
        } else if value.is_some() || !self.complete {
            let hash = hash(&self.hasher, slot, key);
            self.insert(hash, slot, key, value, CommitSeq(0))
                .load
                .set(load);
        }
    }

    /// As [`Cells::take_in`], for somebody who comes later.
    pub(crate) fn take_in_ahead(&mut self, slot: u16, key: &[u8], value: Option<&[u8]>) {
        if self.is_unknown(slot, key) {
            let hash = hash(&self.hasher, slot, key);
            self.insert(hash, slot, key, value, CommitSeq(0));
        }
    }

    /// Whether only the store behind knows; looking isn't using.
    pub(crate) fn is_unknown(&self, slot: u16, key: &[u8]) -> bool {
        !self.complete && self.find(slot, key).is_none()
    }

    /// Lets the hand pass over at most `visits` places and drops what is written back (up to
    /// `written`) and was not used since the last time, until `enough` bytes are free.
    pub(crate) fn sweep(&mut self, written: CommitSeq, visits: usize, enough: u64) -> Swept {
        let mut swept = Swept::default();
        let (before, places) = (self.bytes, self.table.num_buckets());
        while swept.visited < visits.min(places) && before - self.bytes < enough {
            swept.visited += 1;
            self.hand = (self.hand + 1) % places;
            let Ok(place) = self.table.get_bucket_entry(self.hand) else {
                continue;
            };
            let held = place.get();
            if held.commit > written || is_kept(held, self.loads) {
                continue;
            }
            if held.take_used() {
                swept.spared += 1;
                continue;
            }
            let (held, _) = place.remove();
            swept.removed += 1;
            self.complete &= !held.is_present();
            self.left(&held);
        }
        self.shrink();
        swept
    }

    /// Takes note that something left memory.
    fn left(&mut self, held: &Held) {
        self.losses += 1;
        self.lost = self.lost.max(held.commit);
        self.bytes -= held.cost();
        self.values -= u64::from(held.is_present());
        self.unorder(held);
    }

    fn unorder(&mut self, held: &Held) {
        if held.slot >= ORDERED_SLOTS {
            self.ordered.remove(&(held.slot, held.key().into()));
        }
    }

    /// Drops values of a slot that are of no use to anybody any more, as far as they are written back.
    /// Looks at `places` of the table from `from` on; gives where to go on, `None` at its end.
    pub(crate) fn drop_dead(
        &mut self,
        slot: u16,
        written: CommitSeq,
        from: usize,
        places: usize,
        dead: &dyn Fn(&[u8]) -> bool,
    ) -> Option<usize> {
        let end = self.table.num_buckets();
        for at in from..end.min(from.saturating_add(places)) {
            let Ok(place) = self.table.get_bucket_entry(at) else {
                continue;
            };
            let held = place.get();
            if held.slot == slot && held.commit <= written && held.value().is_some_and(dead) {
                let (held, _) = place.remove();
                self.left(&held);
            }
        }
        let next = from.saturating_add(places);
        (next < end).then_some(next)
    }

    /// Gives memory back once most places are empty.
    fn shrink(&mut self) {
        let places = self.table.num_buckets();
        if places > LEAST_PLACES && self.table.len() < places / 8 {
            self.table.shrink_to(self.table.len() * 2, |held| held.hash);
        }
    }

    /// Drops a remembered absence that has been written back and says nothing in a complete scope.
    pub(crate) fn drop_absence(&mut self, slot: u16, key: &[u8], written: CommitSeq) {
        if !self.complete {
            return;
        }
        let hash = hash(&self.hasher, slot, key);
        let is_done =
            |held: &Held| !held.is_present() && held.commit <= written && held.is(hash, slot, key);
        if let Ok(place) = self.table.find_entry(hash, is_done) {
            let (held, _) = place.remove();
            self.bytes -= held.cost();
            self.unorder(&held);
        }
    }

    /// What is held of an ordered slot from a key on, in order: key, value or absence.
    pub(crate) fn ordered(
        &self,
        slot: u16,
        from: &[u8],
    ) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let from = (slot, Box::from(from));
        self.ordered
            .range(from..)
            .take_while(move |(other, _)| *other == slot)
            .filter_map(move |(_, key)| {
                let held = self.find(slot, key)?;
                Some((held.key(), held.value()))
            })
    }

    /// Everything held: slot, key, value or absence.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, &[u8], Option<&[u8]>)> {
        self.table
            .iter()
            .map(|held| (held.slot, held.key(), held.value()))
    }

    /// Loads what values of these keys lie in, one after the other without waiting for any.
    pub(crate) fn touch<'k>(&self, slot: u16, keys: impl Iterator<Item = &'k [u8]>) {
        let mut all = 0;
        for key in keys {
            let hash = hash(&self.hasher, slot, key);
            let held = self.table.find(hash, |held| held.hash == hash);
            all ^= held
                .and_then(|held| held.bytes.first())
                .copied()
                .unwrap_or_default();
        }
        std::hint::black_box(all);
    }

    fn find(&self, slot: u16, key: &[u8]) -> Option<&Held> {
        let hash = hash(&self.hasher, slot, key);
        self.table.find(hash, |held| held.is(hash, slot, key))
    }
}

fn is_kept(held: &Held, loads: u8) -> bool {
    held.load.get() != 0 && loads.wrapping_sub(held.load.get()) < KEPT_LOADS
}

fn hash(hasher: &RandomState, slot: u16, key: &[u8]) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write_u16(slot);
    hasher.write(key);
    hasher.finish()
}

fn joined(key: &[u8], value: &[u8]) -> Box<[u8]> {
    [key, value].concat().into()
}

#[cfg(test)]
mod tests;
