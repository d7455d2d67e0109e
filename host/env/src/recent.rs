//! What was used lately, bounded in bytes.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Values by key, up to so many bytes; what was used up goes first, then what was used longest ago.
pub struct Recent<K, V> {
    most: u64,
    bytes: u64,
    turn: u64,
    values: HashMap<K, Kept<V>>,
    /// Keys in the order in which they go.
    turns: BTreeMap<Turn, K>,
}

struct Kept<V> {
    value: V,
    bytes: u64,
    turn: Turn,
}

/// What was used up comes before what wasn't, each by its last use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    UsedUp(u64),
    Used(u64),
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
        self.turn += 1;
        self.take_turn(key, Turn::Used(self.turn))
    }

    /// Who used a value doesn't need it any more: it goes before others, unless somebody else uses it.
    pub fn use_up(&mut self, key: &K) {
        self.turn += 1;
        self.take_turn(key, Turn::UsedUp(self.turn));
    }

    fn take_turn(&mut self, key: &K, turn: Turn) -> Option<&V> {
        let kept = self.values.get_mut(key)?;
        if let Some(key) = self.turns.remove(&kept.turn) {
            self.turns.insert(turn, key);
        }
        kept.turn = turn;
        Some(&kept.value)
    }

    /// The keys of values that weren't used up.
    pub fn in_use(&self) -> impl Iterator<Item = &K> {
        let used = self.turns.range(Turn::Used(0)..);
        used.map(|(_, key)| key)
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
        let turn = Turn::Used(self.turn);
        self.turns.insert(turn, key.clone());
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
        for key in ["p", "q", "r"] {
            recent.put(key, key, 3);
        }
        recent.use_up(&"r");
        recent.use_up(&"q");
        assert_eq!(recent.in_use().collect::<Vec<_>>(), [&"p"]);
        assert_eq!(recent.get(&"r"), Some(&"r"), "somebody else uses it");
        assert_eq!(recent.put("s", "s", 3), ["q"], "used up");
        assert_eq!(recent.put("t", "t", 3), ["p"], "used longest ago");
        assert_eq!(recent.remove_all(|_| true).len(), 3);
        recent.put("x1", "1", 1);
        recent.put("x2", "2", 1);
        recent.put("y", "3", 1);
        assert_eq!(recent.remove_all(|key| key.starts_with('x')).len(), 2);
        assert_eq!((recent.bytes(), recent.get(&"y")), (1, Some(&"3")));
    }
}
