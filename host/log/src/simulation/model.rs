//! What must be true, kept in the plainest way.

use std::collections::{BTreeMap, BTreeSet};
use tidemill_types::PartitionId;

/// One transaction as the model remembers it.
#[derive(Clone, Debug, Default)]
pub(super) struct Commit {
    pub(super) seq: u64,
    pub(super) events: Vec<(PartitionId, u64, String)>,
    pub(super) advance: Option<(u32, PartitionId, u64)>,
    pub(super) entry: Option<(String, Option<String>)>,
    pub(super) state: Option<String>,
}

/// All transactions, and which of them were acknowledged.
#[derive(Default)]
pub(super) struct Model {
    commits: Vec<Commit>,
    acknowledged: BTreeSet<u64>,
}

impl Model {
    pub(super) fn committed(&mut self, commit: Commit) {
        self.commits.push(commit);
    }

    pub(super) fn acknowledged(&mut self, seq: u64) {
        self.acknowledged.insert(seq);
    }

    /// A start found frames up to `last`: what lies behind never happened, and none of it was acknowledged.
    pub(super) fn recovered(&mut self, last: u64) -> Result<(), String> {
        if let Some(lost) = self.acknowledged.last().filter(|seq| **seq > last) {
            return Err(format!(
                "commit {lost} was acknowledged and the journal ends at {last}"
            ));
        }
        self.commits.retain(|commit| commit.seq <= last);
        Ok(())
    }

    /// Values of a partition in offset order.
    pub(super) fn values(&self, at: PartitionId) -> Vec<(u64, String)> {
        let events = self.commits.iter().flat_map(|commit| &commit.events);
        events
            .filter(|(place, ..)| *place == at)
            .map(|(_, offset, v)| (*offset, v.clone()))
            .collect()
    }

    pub(super) fn positions(&self) -> BTreeMap<(u32, PartitionId), u64> {
        let advances = self.commits.iter().filter_map(|commit| commit.advance);
        advances
            .map(|(reader, at, to)| ((reader, at), to))
            .collect()
    }

    pub(super) fn entries(&self) -> BTreeMap<String, String> {
        let mut entries = BTreeMap::new();
        for (key, value) in self
            .commits
            .iter()
            .filter_map(|commit| commit.entry.clone())
        {
            match value {
                Some(value) => entries.insert(key, value),
                None => entries.remove(&key),
            };
        }
        entries
    }

    /// State sections after a commit.
    pub(super) fn states(&self, from: u64) -> Vec<(u64, String)> {
        let later = self.commits.iter().filter(|commit| commit.seq > from);
        later
            .filter_map(|commit| Some((commit.seq, commit.state.clone()?)))
            .collect()
    }
}
