//! What was used lately, bounded in bytes.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Values by key, up to so many bytes; what was used longest ago goes first.
pub struct Recent<K, V> {
    most: u64,
    bytes: u64,
    turn: u64,
    values: HashMap<K, Kept<V>>,
    /// Keys by the turn of their last use.
    turns: BTreeMap<u64, K>,
}

struct Kept<V> {
    value: V,
    bytes: u64,
    turn: u64,
}

impl<K: Hash + Eq + Clone, V> Recent<K, V> {
    /// With room for so many bytes.
    pub fn new(most: u64) -> Self {
        Self {
            most,
            bytes: 0,
            turn: 0,
            values: HashMap::new(),
            turns: BTreeMap::new(),
        }
    }

    /// The value of a key, which is used by that.
    pub fn get(&mut self, key: &K) -> Option<&V> {
        let kept = self.values.get_mut(key)?;
        self.turn += 1;
        if let Some(key) = self.turns.remove(&kept.turn) {
            self.turns.insert(self.turn, key);
        }
        kept.turn = self.turn;
        Some(&kept.value)
    }

    /// Whether there is a value, without using it.
    pub fn has(&self, key: &K) -> bool {
        self.values.contains_key(key)
    }

    /// Keeps a value that takes so many bytes. Answers what had to go: what was there before, and what
    /// was used longest ago. A value that is larger than all there is room for goes at once.
    pub fn put(&mut self, key: K, value: V, bytes: u64) -> Vec<V> {
        let mut gone: Vec<V> = self.remove(&key).into_iter().collect();
        if bytes > self.most {
            gone.push(value);
            return gone;
        }
        self.turn += 1;
        self.bytes += bytes;
        self.turns.insert(self.turn, key.clone());
        let turn = self.turn;
        self.values.insert(key, Kept { value, bytes, turn });
        while self.bytes > self.most {
            let Some((_, oldest)) = self.turns.pop_first() else {
                break;
            };
            if let Some(kept) = self.values.remove(&oldest) {
                self.bytes -= kept.bytes;
                gone.push(kept.value);
            }
        }
        gone
    }

    /// Takes a value out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let kept = self.values.remove(key)?;
        self.turns.remove(&kept.turn);
        self.bytes -= kept.bytes;
        Some(kept.value)
    }

    /// Takes out every value whose key is of a kind.
    pub fn remove_all(&mut self, of: impl Fn(&K) -> bool) -> Vec<V> {
        let keys: Vec<K> = self.values.keys().filter(|key| of(key)).cloned().collect();
        keys.iter().filter_map(|key| self.remove(key)).collect()
    }

    /// Bytes that are taken.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let mut recent = Recent::new(10);
        for (key, bytes) in [("a", 4), ("b", 4)] {
            assert_eq!(recent.put(key, key, bytes), Vec::<&str>::new());
        }
        assert_eq!(recent.get(&"a"), Some(&"a"));
        assert_eq!(recent.put("c", "c", 3), ["b"]);
        assert_eq!(
            (recent.bytes(), recent.has(&"a"), recent.has(&"b")),
            (7, true, false)
        );
        assert_eq!(recent.put("a", "A", 2), ["a"], "the value before");
        assert_eq!(recent.put("d", "d", 11), ["d"], "there is no room for it");
        assert_eq!(recent.put("d", "d", 10), ["c", "A"]);
        assert_eq!(
            (recent.remove(&"d"), recent.remove(&"d")),
            (Some("d"), None)
        );
        assert_eq!(recent.bytes(), 0);
        recent.put("x1", "1", 1);
        recent.put("x2", "2", 1);
        recent.put("y", "3", 1);
        assert_eq!(recent.remove_all(|key| key.starts_with('x')).len(), 2);
        assert_eq!((recent.bytes(), recent.get(&"y")), (1, Some(&"3")));
    }
}
