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

/// Places in order, as they are kept: in blocks, each of one journal file.
#[derive(Default)]
pub(super) struct Places(VecDeque<Block>);

/// Places of one journal file, and what they count from.
struct Block {
    first: u64,
    time: i64,
    file: u64,
    notes: Vec<Note>,
    /// So many of them are gone.
    gone: usize,
}

/// A place, its offset and time counted from those of its block. A journal file has less than 4 GiB.
#[derive(Clone, Copy)]
struct Note {
    first: u32,
    time: u32,
    rows: u32,
    bytes: u32,
    at: u32,
    len: u32,
}

/// A block has so many notes at most. The first of a journal file grows to that, for a partition may have few.
const BLOCK: usize = 64;

impl Block {
    /// A block that begins with a place and has room for so many.
    fn new(place: Place, room: usize) -> Self {
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let note = Note {
            first: 0,
            time: 0,
            rows: small(place.end - place.first),
            bytes: small(place.bytes),
            at: small(place.at),
            len: small(place.len),
        };
        let mut notes = Vec::with_capacity(room);
        notes.push(note);
        Self {
            first: place.first,
            time: place.time,
            file: place.file,
            notes,
            gone: 0,
        }
    }

    /// The place as it is noted here, if it is one of this block's.
    fn note(&self, place: Place) -> Option<Note> {
        let small = |number: u64| u32::try_from(number).ok();
        let is_one = place.file == self.file && self.notes.len() < BLOCK;
        Some(Note {
            first: small(place.first.checked_sub(self.first)?)?,
            time: u32::try_from(place.time.checked_sub(self.time)?).ok()?,
            rows: small(place.end - place.first)?,
            bytes: small(place.bytes)?,
            at: small(place.at)?,
            len: small(place.len)?,
        })
        .filter(|_| is_one)
    }

    fn place(&self, note: Note) -> Place {
        let first = self.first + u64::from(note.first);
        Place {
            first,
            end: first + u64::from(note.rows),
            bytes: note.bytes.into(),
            time: self.time + i64::from(note.time),
            file: self.file,
            at: note.at.into(),
            len: note.len.into(),
        }
    }

    /// Adds a neighbour to the last one, if one read has both.
    fn join(&mut self, place: Place) -> bool {
        let Some(last) = self.notes.last().map(|last| self.place(*last)) else {
            return false;
        };
        let len = (place.at + place.len).saturating_sub(last.at);
        let is_behind = last.file == place.file && last.at <= place.at;
        if !is_behind || last.end != place.first || len > PLACE_BYTES {
            return false;
        }
        let both = Place {
            end: place.end,
            bytes: last.bytes + place.bytes,
            len,
            ..last
        };
        // It is in the place of the last one, so that the block has room for it.
        let last = self.notes.pop();
        let joined = self.note(both);
        self.notes.extend(joined.or(last));
        joined.is_some()
    }

    fn left(&self) -> &[Note] {
        self.notes.get(self.gone..).unwrap_or_default()
    }

    fn places(&self) -> impl Iterator<Item = Place> {
        self.left().iter().map(|note| self.place(*note))
    }

    fn end(&self) -> u64 {
        self.notes.last().map_or(0, |last| self.place(*last).end)
    }
}

impl Places {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Memory of them.
    pub(super) fn memory(&self) -> usize {
        let notes: usize = self.0.iter().map(|block| block.notes.capacity()).sum();
        self.0.len() * size_of::<Block>() + notes * size_of::<Note>()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Place> {
        self.0.iter().flat_map(Block::places)
    }

    /// Adds one behind the others.
    pub(super) fn push(&mut self, place: Place) {
        if let Some(block) = self.0.back_mut()
            && block.join(place)
        {
            return;
        }
        let note = self.0.back().and_then(|block| block.note(place));
        match (self.0.back_mut(), note) {
            (Some(block), Some(note)) => block.notes.push(note),
            (before, _) => {
                let is_full = before.is_some_and(|block| block.notes.len() == BLOCK);
                let room = if is_full { BLOCK } else { 1 };
                self.0.push_back(Block::new(place, room));
            }
        }
    }

    /// Forgets those that end before an offset.
    pub(super) fn let_go(&mut self, archived_end: u64) {
        while self
            .0
            .pop_front_if(|block| block.end() <= archived_end)
            .is_some()
        {}
        if let Some(block) = self.0.front_mut() {
            let gone = block.places().take_while(|it| it.end <= archived_end);
            block.gone += gone.count();
        }
    }

    /// The first few that have events from an offset on.
    pub(super) fn some_from(&self, from: u64) -> Vec<Place> {
        let nth = self.0.partition_point(|block| block.end() <= from);
        let blocks = self.0.range(nth..);
        let places = blocks.flat_map(|block| {
            let ends = |note: &Note| block.place(*note).end <= from;
            let before = block.left().partition_point(ends);
            block.places().skip(before)
        });
        places.take(SOME).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        assert_eq!(places.some_from(19), [two(0), two(2)]);
        assert_eq!(places.some_from(20), [two(2)]);
        places.let_go(20);
        assert_eq!(places.iter().collect::<Vec<_>>(), [two(2)]);
    }

    /// Places whose offsets, times and files jump, also too far for one block.
    fn jumping() -> impl Strategy<Value = Vec<Place>> {
        let jump = prop_oneof![6 => 0_u64..3, 1 => Just(1 << 33)];
        let one = (jump, 1_u64..5, -1_i64..3, 0_u64..2, 0_u64..(1 << 30));
        prop::collection::vec(one, 1..600).prop_map(|jumps| {
            let (mut next, mut time, mut file) = (0, 0, 1 << 40);
            let places = jumps.into_iter().map(|(jump, rows, later, files, at)| {
                let first = next + jump;
                next = first + rows;
                time += later << 31;
                file += files;
                Place {
                    first,
                    end: next,
                    bytes: rows * 7,
                    time,
                    file,
                    at,
                    len: 300 << 10,
                }
            });
            places.collect()
        })
    }

    proptest! {
        #[test]
        fn what_is_kept_is_what_was_noted(noted in jumping(), from in 0_u64..1000, gone in 0_u64..1000) {
            let mut places = Places::default();
            noted.iter().for_each(|place| places.push(*place));
            prop_assert_eq!(places.iter().collect::<Vec<_>>(), noted.clone());
            let left = |from: u64| noted.iter().copied().filter(move |place| place.end > from);
            prop_assert_eq!(places.some_from(from), left(from).take(SOME).collect::<Vec<_>>());
            places.let_go(gone);
            prop_assert_eq!(places.iter().collect::<Vec<_>>(), left(gone).collect::<Vec<_>>());
            let both = from.max(gone);
            prop_assert_eq!(places.some_from(both), left(both).take(SOME).collect::<Vec<_>>());
        }
    }

    #[test]
    fn many_notes_take_little_memory() {
        let mut places = Places::default();
        for nth in 0..100_000_u64 {
            let (first, end) = (nth, nth + 1);
            let at = nth * 700;
            places.push(Place {
                first,
                end,
                bytes: 200,
                time: 5,
                file: 1 + nth / 100,
                at,
                len: 300 << 10,
            });
        }
        let each = places.memory() / 100_000;
        assert!(each < 32, "{each} bytes");
    }
}
