//! Which functions have metrics of their own: so many as the settings allow, in the order in which they came to
//! work. What the others do is counted together, so that a host with a thousand functions is still looked at with
//! a page of text.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use tidemill_types::FunctionName;

/// The label of all that have none of their own. A function that is called so is counted among them.
pub(super) const OTHERS: &str = "_other";
/// Versions of a function that have metrics of their own, the newest.
const VERSIONS: usize = 3;

/// The functions that have some.
pub(crate) struct Named {
    most: usize,
    /// With their versions.
    names: Mutex<BTreeMap<FunctionName, BTreeSet<u32>>>,
}

impl Named {
    /// None yet, `most` at most.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            names: Mutex::default(),
        }
    }

    /// A function's label; the function has metrics of its own from now on if there is room.
    pub(super) fn label(&self, function: &FunctionName) -> String {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if !names.contains_key(function) {
            if names.len() >= self.most || function.as_str() == OTHERS {
                return OTHERS.to_owned();
            }
            names.insert(function.clone(), BTreeSet::new());
        }
        function.to_string()
    }

    /// A function's label as it is: what is only looked at doesn't take a place.
    pub(super) fn shown(&self, function: &FunctionName) -> String {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        match names.contains_key(function) {
            true => function.to_string(),
            false => OTHERS.to_owned(),
        }
    }

    /// A version is at work; answers those whose metrics go, of a function that has its own.
    pub(super) fn version(&self, function: &FunctionName, version: u32) -> Vec<u32> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(versions) = names.get_mut(function) else {
            return Vec::new();
        };
        versions.insert(version);
        let many = versions.len().saturating_sub(VERSIONS);
        let oldest: Vec<u32> = versions.iter().take(many).copied().collect();
        versions.retain(|version| !oldest.contains(version));
        oldest
    }

    /// A function is gone, and leaves its place; answers the versions that had metrics. `None`: it had none of its
    /// own.
    pub(super) fn forget(&self, function: &FunctionName) -> Option<BTreeSet<u32>> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.remove(function)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_have_their_own_and_leave_their_place() {
        let named = Named::new(2);
        let name = |name: &str| name.parse::<FunctionName>().expect("a name");
        let (a, b, c) = (name("a"), name("b"), name("c"));
        let labels = |named: &Named| [&a, &b, &c, &a].map(|name| named.label(name));
        assert_eq!(labels(&named), ["a", "b", OTHERS, "a"]);
        assert_eq!(named.version(&c, 1), [0; 0]);
        let oldest: Vec<_> = (1..=5).map(|n| named.version(&a, n)).collect();
        assert_eq!(oldest, [vec![], vec![], vec![], vec![1], vec![2]]);
        assert_eq!(named.forget(&c), None);
        assert_eq!(named.forget(&a), Some(BTreeSet::from([3, 4, 5])));
        assert_eq!(
            (named.shown(&b), named.shown(&c)),
            ("b".into(), OTHERS.into())
        );
        assert_eq!(named.label(&c), "c");
    }
}
