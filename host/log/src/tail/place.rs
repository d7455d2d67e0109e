//! Where in the journal events of a partition lie that are not in memory. Small, for with thousands of partitions each
//! event has a place of its own.

use std::collections::VecDeque;

/// Neighbouring places are joined up to this many bytes of journal: one read, one index entry.
const PLACE_BYTES: u64 = 256 << 10;
/// Places that a reader is told of at once.
const SOME: usize = 4;

/// A stretch of a journal file whose frames hold events of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// Offset of its first event.
    pub(crate) first: u64,
    /// Offset behind its last event.
    pub(crate) end: u64,
    /// Key, value and header bytes.
    pub(crate) bytes: u64,
    /// Ingest time of the first event.
    pub(crate) time: i64,
    /// Number of the journal file.
    pub(crate) file: u64,
    /// Where its frames start there.
    pub(crate) at: u64,
    /// Bytes of those frames.
    pub(crate) len: u64,
}

/// Places in order, as they are kept.
#[derive(Default)]
pub(super) struct Places(VecDeque<Noted>);

/// A place. A journal file has less than 4 GiB, and what is joined is far smaller than that.
#[derive(Clone, Copy)]
struct Noted {
    first: u64,
    time: i64,
    file: u64,
    rows: u32,
    bytes: u32,
    at: u32,
    len: u32,
}

impl Noted {
    fn of(place: Place) -> Self {
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            first: place.first,
            time: place.time,
            file: place.file,
            rows: small(place.end - place.first),
            bytes: small(place.bytes),
            at: small(place.at),
            len: small(place.len),
        }
    }

    fn place(self) -> Place {
        Place {
            first: self.first,
            end: self.end(),
            bytes: self.bytes.into(),
            time: self.time,
            file: self.file,
            at: self.at.into(),
            len: self.len.into(),
        }
    }

    fn end(&self) -> u64 {
        self.first + u64::from(self.rows)
    }
}

impl Places {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Memory of them.
    pub(super) fn memory(&self) -> usize {
        self.0.len() * size_of::<Noted>()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Place> {
        self.0.iter().map(|noted| noted.place())
    }

    /// Adds one behind the others.
    pub(super) fn push(&mut self, place: Place) {
        if let Some(last) = self.0.back_mut() {
            let before = last.place();
            let len = (place.at + place.len).saturating_sub(before.at);
            if before.file == place.file && before.end == place.first && len <= PLACE_BYTES {
                *last = Noted::of(Place {
                    end: place.end,
                    bytes: before.bytes + place.bytes,
                    len,
                    ..before
                });
                return;
            }
        }
        self.0.push_back(Noted::of(place));
    }

    /// Forgets those that end before an offset.
    pub(super) fn let_go(&mut self, archived_end: u64) {
        while self
            .0
            .pop_front_if(|noted| noted.end() <= archived_end)
            .is_some()
        {}
    }

    /// The first few that have events from an offset on.
    pub(super) fn some_from(&self, from: u64) -> Vec<Place> {
        let nth = self.0.partition_point(|noted| noted.end() <= from);
        self.0
            .range(nth..)
            .take(SOME)
            .map(|noted| noted.place())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_joined_while_one_read_has_them_and_nothing_is_changed_by_being_kept() {
        let place = |nth: u64, len: u64| Place {
            first: nth * 10,
            end: nth * 10 + 10,
            bytes: 70,
            time: -5,
            file: 1 << 40,
            at: (3 << 30) + nth * len,
            len,
        };
        let mut places = Places::default();
        (0..4).for_each(|nth| places.push(place(nth, PLACE_BYTES / 2)));
        let two = |nth: u64| Place {
            end: nth * 10 + 20,
            bytes: 140,
            len: PLACE_BYTES,
            ..place(nth, PLACE_BYTES / 2)
        };
        assert_eq!(places.iter().collect::<Vec<_>>(), [two(0), two(2)]);
        assert_eq!(places.memory(), 80);
        assert_eq!(places.some_from(19), [two(0), two(2)]);
        assert_eq!(places.some_from(20), [two(2)]);
        places.let_go(20);
        assert_eq!(places.iter().collect::<Vec<_>>(), [two(2)]);
    }
}
