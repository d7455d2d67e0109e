//! Hash maps of the standard library list their entries in an order that goes by keys, and each map takes
//! the next ones. How many maps were made before depends on where batches end; so the standard library's
//! count is set back before each event, and what an event sees doesn't depend on those before it.
//!
//! The count lies in a static of the standard library that nothing public reaches, in memory that is the
//! component's own: it is looked for once, by what it must hold, and proved by making another map's keys.

#![expect(unsafe_code, reason = "the keys lie in a static that can't be named")]

use std::cell::Cell;
use std::hash::RandomState;
use std::hint::black_box;
use std::ptr::{
    read_volatile, with_exposed_provenance, with_exposed_provenance_mut, write_volatile,
};

/// The keys that each event begins with: those of no other use.
const FIRST: [u64; 2] = [0x7469_6465_6d69_6c6c, 0x6861_7368_206d_6170];

unsafe extern "C" {
    /// Where the linker puts the component's statics.
    static __global_base: u8;
    /// Where they end.
    static __data_end: u8;
}

/// Where the keys of the next map lie.
#[derive(Clone, Copy)]
enum Place {
    Unknown,
    /// Addresses of the key that counts and of the other one.
    At(usize, usize),
    NotFound,
}

thread_local! {
    static PLACE: Cell<Place> = const { Cell::new(Place::Unknown) };
}

/// Sets the standard library's keys back. Says whether that can't be done, once.
pub(crate) fn set_back() -> Result<(), &'static str> {
    match PLACE.get() {
        Place::At(counting, other) => {
            put(counting, other);
            Ok(())
        }
        Place::NotFound => Ok(()),
        Place::Unknown => match find() {
            Some((counting, other)) => {
                PLACE.set(Place::At(counting, other));
                put(counting, other);
                Ok(())
            }
            None => {
                PLACE.set(Place::NotFound);
                Err(
                    "the order of std's hash maps depends on earlier events: this compiler's standard library keeps their keys in another way",
                )
            }
        },
    }
}

/// The keys of a new map.
fn keys() -> [u64; 2] {
    const { assert!(size_of::<RandomState>() == 16) }
    // SAFETY: both have sixteen bytes, and any bytes are two numbers.
    unsafe { std::mem::transmute::<RandomState, [u64; 2]>(RandomState::new()) }
}

/// Finds the one place that holds what the next map will be given, and counts.
fn find() -> Option<(usize, usize)> {
    let (one, two) = (keys(), keys());
    let counts = |at: usize| two[at] == one[at].wrapping_add(1);
    let (count, other) = match (counts(0) && one[1] == two[1], counts(1) && one[0] == two[0]) {
        (true, false) => (two[0], two[1]),
        (false, true) => (two[1], two[0]),
        _ => return None,
    };
    let next = count.wrapping_add(1);
    let (begin, end) = statics();
    let mut found = None;
    for at in (begin..end.saturating_sub(15)).step_by(8) {
        let pair = [get(at), get(at + 8)];
        let place = match pair {
            [a, b] if a == next && b == other => (at, at + 8),
            [a, b] if a == other && b == next => (at + 8, at),
            _ => continue,
        };
        if found.replace(place).is_some() {
            return None;
        }
    }
    let (counting, fixed) = found?;
    black_box(keys());
    (get(counting) == next.wrapping_add(1) && get(fixed) == other).then_some((counting, fixed))
}

fn statics() -> (usize, usize) {
    let begin = (&raw const __global_base).expose_provenance();
    let end = (&raw const __data_end).expose_provenance();
    (begin.next_multiple_of(8), end)
}

fn get(at: usize) -> u64 {
    // SAFETY: aligned, and within the component's statics, which are memory for as long as it lives.
    unsafe { read_volatile(with_exposed_provenance::<u64>(at)) }
}

fn put(counting: usize, other: usize) {
    // The compiler must neither keep the keys in registers over this nor take the writes for unseen.
    black_box(());
    // SAFETY: proved to be the two words of the standard library's `Cell<(u64, u64)>`; any bytes are two
    // numbers, and there is one thread.
    unsafe {
        write_volatile(with_exposed_provenance_mut::<u64>(counting), FIRST[0]);
        write_volatile(with_exposed_provenance_mut::<u64>(other), FIRST[1]);
    }
    black_box(());
}
