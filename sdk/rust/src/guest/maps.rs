//! Entries of maps during one batch: what was changed, over what the host has, with a way back for an
//! event that doesn't go through.

use super::Running;
use crate::abi::Change;
use crate::{Error, Result};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::rc::Rc;

/// Longest event key that maps are kept by; the host's limit.
const KEY_BYTES: usize = 16 << 10;
/// Entries asked for at once.
const PAGE: u32 = 256;

/// What is known of an entry in this batch.
#[derive(Clone)]
struct Entry {
    value: Option<Rc<[u8]>>,
    expires: i64,
    /// The last event that changed it; `None`: it was only read.
    changed_by: Option<u32>,
}

/// Which map: of which slot and key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    slot: u16,
    cell: usize,
    /// An event of the batch with that key.
    event: u32,
}

type Key = Rc<[u8]>;

/// Entries of all maps that were looked at.
#[derive(Default)]
pub(crate) struct Maps {
    maps: BTreeMap<(usize, u16), BTreeMap<Key, Entry>>,
    /// What the running event changed, as it was before.
    undo: Vec<((usize, u16), Key, Option<Entry>)>,
}

impl Maps {
    pub(super) fn is_touched(&self) -> bool {
        !self.undo.is_empty()
    }

    pub(super) fn keep(&mut self) {
        self.undo.clear();
    }

    pub(super) fn undo(&mut self) {
        while let Some((map, key, before)) = self.undo.pop() {
            let map = self.maps.entry(map).or_default();
            match before {
                Some(entry) => map.insert(key, entry),
                None => map.remove(&key),
            };
        }
    }

    /// What changed, with the last event that did.
    pub(super) fn changes(&self) -> impl Iterator<Item = (u32, Change<'_>)> {
        self.maps.iter().flat_map(|((_, slot), map)| {
            map.iter().filter_map(|(key, entry)| {
                let slot = *slot;
                let change = match &entry.value {
                    Some(value) => Change::Put {
                        slot,
                        entry: key,
                        value,
                    },
                    None => Change::Remove { slot, entry: key },
                };
                Some((entry.changed_by?, change))
            })
        })
    }

    fn get(&self, place: &Place, key: &[u8]) -> Option<&Entry> {
        self.maps.get(&(place.cell, place.slot))?.get(key)
    }

    /// The first entry from a bound on that is there at `now`.
    fn first(&self, place: &Place, from: Bound<&[u8]>, now: i64) -> Option<(Key, Rc<[u8]>)> {
        let map = self.maps.get(&(place.cell, place.slot))?;
        map.range::<[u8], _>((from, Bound::Unbounded))
            .filter(|(_, entry)| entry.expires > now)
            .find_map(|(key, entry)| Some((Rc::clone(key), Rc::clone(entry.value.as_ref()?))))
    }

    fn put(&mut self, place: &Place, key: &[u8], entry: Entry, changes: bool) {
        let map = (place.cell, place.slot);
        let key: Key = key.into();
        let before = self
            .maps
            .entry(map)
            .or_default()
            .insert(Rc::clone(&key), entry);
        if changes {
            self.undo.push((map, key, before));
        }
    }
}

/// An entry as the host packs it.
pub(crate) struct Sent {
    pub(crate) expires: i64,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// Reads entries as the host packs them.
pub(crate) fn unpack(mut bytes: &[u8]) -> Option<Vec<Sent>> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let (expires, rest) = bytes.split_first_chunk::<8>()?;
        let (key_len, rest) = rest.split_first_chunk::<4>()?;
        let (value_len, rest) = rest.split_first_chunk::<4>()?;
        let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*key_len) as usize)?;
        let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value_len) as usize)?;
        entries.push(Sent {
            expires: i64::from_le_bytes(*expires),
            key: key.to_vec(),
            value: value.to_vec(),
        });
        bytes = rest;
    }
    Some(entries)
}

impl Running<'_> {
    /// The map of a slot for the event's key.
    pub(crate) fn place(&self, slot: u16) -> Result<Place> {
        let (cell, event) = (self.cell(slot)?, self.index()?);
        let len = self.key_of(event).len();
        if len > KEY_BYTES {
            return Err(Error::dead_letter(format!(
                "the event's key has {len} bytes; a map is kept by keys of {KEY_BYTES} bytes at most"
            )));
        }
        Ok(Place { slot, cell, event })
    }

    /// An entry's bytes, if it is there for the running event.
    pub(crate) fn entry(&self, place: &Place, key: &[u8]) -> Option<Rc<[u8]>> {
        let now = self.map_now(place);
        if let Some(entry) = self.overlay.borrow().maps.get(place, key) {
            return entry.value.clone().filter(|_| entry.expires > now);
        }
        let sent =
            self.surroundings()
                .map_get(u32::from(place.slot), self.key_of(place.event), key);
        let found = unpack(&sent).and_then(|entries| entries.into_iter().next());
        let entry = Entry {
            expires: found.as_ref().map_or(i64::MAX, |sent| sent.expires),
            value: found.map(|sent| sent.value.into()),
            changed_by: None,
        };
        let value = entry.value.clone().filter(|_| entry.expires > now);
        self.overlay.borrow_mut().maps.put(place, key, entry, false);
        value
    }

    /// Sets an entry, or removes it.
    pub(crate) fn put_entry(
        &self,
        place: &Place,
        key: &[u8],
        value: Option<Vec<u8>>,
    ) -> Result<()> {
        let entry = Entry {
            value: value.map(Into::into),
            expires: self
                .lasting(usize::from(place.slot))
                .map_or(i64::MAX, |(now, ttl)| now.saturating_add(ttl)),
            changed_by: Some(self.index()?),
        };
        self.overlay.borrow_mut().maps.put(place, key, entry, true);
        Ok(())
    }

    /// The running event's now in the time of a map, or the least time where nothing expires.
    fn map_now(&self, place: &Place) -> i64 {
        self.lasting(usize::from(place.slot))
            .map_or(i64::MIN, |(now, _)| now)
    }
}

/// A walk over a map's entries in order.
pub(crate) struct Entries {
    place: Place,
    prefix: Vec<u8>,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    /// What the host sent and wasn't passed yet.
    sent: VecDeque<Sent>,
    /// The host has no more.
    drained: bool,
}

impl Entries {
    pub(crate) fn new(
        place: Place,
        prefix: Vec<u8>,
        from: Bound<Vec<u8>>,
        to: Bound<Vec<u8>>,
    ) -> Self {
        let from = match from {
            Bound::Unbounded => Bound::Included(prefix.clone()),
            from => from,
        };
        Self {
            place,
            prefix,
            from,
            to,
            sent: VecDeque::new(),
            drained: false,
        }
    }

    /// The next entry. Looks at what the batch changed anew each time, so that changes ahead are seen,
    /// wherever the host's pages end.
    pub(crate) fn next(&mut self, running: &Running<'_>) -> Option<(Key, Rc<[u8]>)> {
        let now = running.map_now(&self.place);
        self.fill(running, now);
        let changed = {
            let overlay = running.overlay.borrow();
            let from = self.from.as_ref().map(Vec::as_slice);
            overlay.maps.first(&self.place, from, now)
        };
        let stored = self.sent.front().map(|sent| sent.key.as_slice());
        let first = match (changed, stored) {
            (Some(changed), Some(stored)) if *stored < *changed.0 => None,
            (Some(changed), _) => Some(changed),
            (None, _) => None,
        };
        let (key, value) = match first {
            Some(changed) => changed,
            None => {
                let sent = self.sent.pop_front()?;
                (sent.key.into(), sent.value.into())
            }
        };
        let ended = match &self.to {
            Bound::Included(to) => *key > **to,
            Bound::Excluded(to) => *key >= **to,
            Bound::Unbounded => false,
        };
        if ended || !key.starts_with(&self.prefix) {
            return None;
        }
        self.from = Bound::Excluded(key.to_vec());
        Some((key, value))
    }

    /// Has the next entry that the host has, and that the batch knows nothing of, in front.
    fn fill(&mut self, running: &Running<'_>, now: i64) {
        loop {
            while let Some(sent) = self.sent.front() {
                let behind = match &self.from {
                    Bound::Included(from) => sent.key < *from,
                    Bound::Excluded(from) => sent.key <= *from,
                    Bound::Unbounded => false,
                };
                let overlay = running.overlay.borrow();
                let known = overlay.maps.get(&self.place, &sent.key).is_some();
                if !behind && !known && sent.expires > now {
                    return;
                }
                drop(overlay);
                let passed = self.sent.pop_front();
                // All of a page may be hidden: what comes next lies behind its last entry.
                if self.sent.is_empty()
                    && let Some(sent) = passed
                    && self.page(running, Bound::Excluded(sent.key))
                {
                    return;
                }
            }
            if self.drained || self.page(running, self.from.clone()) {
                return;
            }
        }
    }

    /// Asks for the next entries; true when there are none left.
    fn page(&mut self, running: &Running<'_>, from: Bound<Vec<u8>>) -> bool {
        let (from, behind) = match &from {
            Bound::Included(from) => (from.as_slice(), false),
            Bound::Excluded(from) => (from.as_slice(), true),
            Bound::Unbounded => (&[][..], false),
        };
        let sent = running.surroundings().map_scan(
            u32::from(self.place.slot),
            running.key_of(self.place.event),
            &MapPage {
                prefix: &self.prefix,
                from,
                behind,
                limit: PAGE,
            },
        );
        self.sent = unpack(&sent).unwrap_or_default().into();
        self.drained = self.sent.is_empty();
        self.drained
    }
}

/// Which entries are asked for.
pub(crate) struct MapPage<'a> {
    pub(crate) prefix: &'a [u8],
    pub(crate) from: &'a [u8],
    pub(crate) behind: bool,
    pub(crate) limit: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_from_golden_bytes() {
        let golden = [
            &[
                2, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, b'a', b'1', b'7',
            ][..],
            &[
                255, 255, 255, 255, 255, 255, 255, 127, 0, 0, 0, 0, 0, 0, 0, 0,
            ],
        ]
        .concat();
        let entries = unpack(&golden).expect("whole");
        let shown: Vec<_> = entries
            .iter()
            .map(|sent| (sent.expires, sent.key.as_slice(), sent.value.as_slice()))
            .collect();
        assert_eq!(
            shown,
            [(0x0102, &b"a"[..], &b"17"[..]), (i64::MAX, b"", b"")]
        );
        for end in (1..golden.len()).filter(|end| *end != 19) {
            assert!(unpack(&golden[..end]).is_none(), "cut at {end}");
        }
    }
}
