//! Which moments are looked at, so that nothing goes that is seen there.

use lsm_tree::{SeqNo, SequenceNumberCounter};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All that are open: how many of each number.
#[derive(Clone, Default)]
pub(super) struct Views(Arc<Mutex<BTreeMap<SeqNo, usize>>>);

/// One of them, until it is dropped.
pub(super) struct Open {
    views: Views,
    number: SeqNo,
}

impl Views {
    /// Opens one on what can be seen now.
    pub(super) fn open(&self, visible: &SequenceNumberCounter) -> Open {
        let mut views = self.lock();
        let number = visible.get();
        *views.entry(number).or_default() += 1;
        drop(views);
        Open {
            views: self.clone(),
            number,
        }
    }

    /// The oldest one's number; that of one opened now where there is none.
    pub(super) fn oldest(&self, visible: &SequenceNumberCounter) -> SeqNo {
        let views = self.lock();
        let oldest = views.keys().next().copied();
        oldest.unwrap_or_else(|| visible.get())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SeqNo, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Changes with lower numbers are seen.
    pub(super) fn number(&self) -> SeqNo {
        self.number
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut views = self.views.lock();
        if let Some(count) = views.get_mut(&self.number) {
            *count -= 1;
            if *count == 0 {
                views.remove(&self.number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_is_open_counts() {
        let (views, visible) = (Views::default(), SequenceNumberCounter::new(3));
        assert_eq!(views.oldest(&visible), 3);
        let first = views.open(&visible);
        let again = views.open(&visible);
        visible.fetch_max(7);
        let second = views.open(&visible);
        drop(first);
        assert_eq!(
            (views.oldest(&visible), again.number(), second.number()),
            (3, 3, 7)
        );
        drop(again);
        assert_eq!(views.oldest(&visible), 7);
        drop(second);
        visible.fetch_max(9);
        assert_eq!(views.oldest(&visible), 9);
    }
}
