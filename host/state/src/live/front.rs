//! How far the journal is durable, and which transactions are between being sequenced and applied.

use std::collections::BTreeMap;
use tidemill_types::CommitSeq;

/// Facts about the journal's end.
pub(super) struct Front {
    durable: CommitSeq,
    /// Durable commits at which intents were taken, and how many of each are open.
    intents: BTreeMap<CommitSeq, usize>,
}

impl Front {
    pub(super) fn new(durable: CommitSeq) -> Self {
        Self {
            durable,
            intents: BTreeMap::new(),
        }
    }

    /// The journal is durable up to this commit.
    pub(super) fn durable(&mut self, commit: CommitSeq) {
        self.durable = self.durable.max(commit);
    }

    /// The journal starts over at a commit.
    pub(super) fn restart(&mut self, commit: CommitSeq) {
        self.durable = commit;
    }

    /// A transaction is about to be sequenced: its commit comes after everything durable now.
    pub(super) fn intend(&mut self) -> CommitSeq {
        *self.intents.entry(self.durable).or_default() += 1;
        self.durable
    }

    /// The transaction has been applied or was refused.
    pub(super) fn settle(&mut self, bound: CommitSeq) {
        if let Some(count) = self.intents.get_mut(&bound) {
            *count -= 1;
            if *count == 0 {
                self.intents.remove(&bound);
            }
        }
    }

    /// Up to where everything is durable and nothing is still on its way.
    pub(super) fn writable(&self) -> CommitSeq {
        self.intents
            .keys()
            .next()
            .map_or(self.durable, |bound| self.durable.min(*bound))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_intent_holds_back() {
        let mut front = Front::new(CommitSeq(3));
        let first = front.intend();
        front.durable(CommitSeq(5));
        let (second, third) = (front.intend(), front.intend());
        front.durable(CommitSeq(4));
        front.durable(CommitSeq(9));
        assert_eq!(front.writable(), CommitSeq(3));
        front.settle(first);
        assert_eq!(front.writable(), CommitSeq(5));
        front.settle(second);
        assert_eq!(front.writable(), CommitSeq(5));
        front.settle(third);
        assert_eq!(front.writable(), CommitSeq(9));
    }
}
