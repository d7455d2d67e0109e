//! Numbers the distinct keys of a batch by first appearance.

use tidemill_types::murmur2;

/// A small open hash table, kept from batch to batch. Batches are bounded, so that even keys made to
/// collide cost no more than a scan of the batch.
#[derive(Default)]
pub(crate) struct KeyNumbers {
    /// Number + 1 of the key that sits here; 0: free. A power of two long.
    table: Vec<u32>,
    hashes: Vec<u32>,
}

impl KeyNumbers {
    /// Starts a batch of at most `events` events.
    pub(crate) fn begin(&mut self, events: usize) {
        let size = (events * 2).next_power_of_two().max(16);
        self.table.clear();
        self.table.resize(size, 0);
        self.hashes.clear();
    }

    /// The number of a key and whether it is new; `known` gives the key of a number.
    pub(crate) fn number<'k>(
        &mut self,
        key: &[u8],
        known: impl Fn(u32) -> &'k [u8],
    ) -> (u32, bool) {
        let hash = murmur2(key);
        let mask = self.table.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            match self.table[at] {
                0 => {
                    let number = u32::try_from(self.hashes.len()).unwrap_or(u32::MAX);
                    self.hashes.push(hash);
                    self.table[at] = number + 1;
                    return (number, true);
                }
                taken => {
                    let number = taken - 1;
                    if self.hashes[number as usize] == hash && known(number) == key {
                        return (number, false);
                    }
                    at = (at + 1) & mask;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn counts_by_first_appearance(keys in prop::collection::vec("[a-c]{0,3}", 0..200)) {
            let mut numbers = KeyNumbers::default();
            for _ in 0..2 {
                numbers.begin(keys.len());
                let mut distinct: Vec<&[u8]> = Vec::new();
                for key in &keys {
                    let expected = distinct.iter().position(|known| *known == key.as_bytes());
                    let (number, fresh) =
                        numbers.number(key.as_bytes(), |number| distinct[number as usize]);
                    prop_assert_eq!(fresh, expected.is_none());
                    prop_assert_eq!(number as usize, expected.unwrap_or(distinct.len()));
                    if fresh {
                        distinct.push(key.as_bytes());
                    }
                }
            }
        }
    }
}
