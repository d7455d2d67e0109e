//! Randomness: for nonces and jitter, never for secrets.

use std::sync::{Arc, Mutex, PoisonError};

/// A source of random numbers; seeded ones repeat. Cheap to clone, clones share the sequence.
#[derive(Clone)]
pub struct Random(Arc<Mutex<u64>>);

impl Random {
    /// Seeded by the operating system.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that asks the system for randomness"
    )]
    pub fn system() -> Self {
        use std::hash::{BuildHasher, RandomState};
        Self::seeded(RandomState::new().hash_one(std::process::id()))
    }

    /// The same seed gives the same sequence.
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(seed)))
    }

    /// The next number (splitmix64, Steele, Lea and Flood 2014).
    pub fn next_u64(&self) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound` (0 for a bound of 0).
    pub fn below(&self, bound: u64) -> u64 {
        self.next_u64().checked_rem(bound).unwrap_or(0)
    }

    /// 16 hexadecimal digits, to tell our objects from others'.
    pub fn nonce(&self) -> String {
        format!("{:016x}", self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_repeat() {
        let (a, b) = (Random::seeded(7), Random::seeded(7));
        let draw = |r: &Random| (0..5).map(|_| r.next_u64()).collect::<Vec<_>>();
        assert_eq!(draw(&a), draw(&b));
        assert_ne!(draw(&a), draw(&Random::seeded(8)));
        assert!((0..100).all(|_| a.below(3) < 3));
    }
}
