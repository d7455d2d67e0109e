//! What must be true, kept in the plainest way.

use std::collections::{BTreeMap, BTreeSet};
use tidemill_types::{PartitionId, Timestamp, TopicId};

/// One transaction as the model remembers it.
#[derive(Clone, Debug, Default)]
pub(super) struct Commit {
    pub(super) seq: u64,
    pub(super) events: Vec<(PartitionId, u64, Fact)>,
    pub(super) advance: Option<(u32, PartitionId, u64)>,
    pub(super) entry: Option<(String, Option<String>)>,
    pub(super) state: Option<String>,
    pub(super) truncation: Option<(PartitionId, u64)>,
    pub(super) deleted: Option<TopicId>,
}

/// An event as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fact {
    pub(super) key: Option<&'static str>,
    pub(super) value: Option<String>,
    /// When it was committed.
    pub(super) time: Timestamp,
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

    /// Events of a partition in offset order.
    pub(super) fn facts(&self, at: PartitionId) -> Vec<(u64, Fact)> {
        let events = self.commits.iter().flat_map(|commit| &commit.events);
        events
            .filter(|(place, ..)| *place == at)
            .map(|(_, offset, v)| (*offset, v.clone()))
            .collect()
    }

    /// Where a partition starts once a commit is durable.
    pub(super) fn start(&self, at: PartitionId, durable: u64) -> u64 {
        let commits = self.commits.iter().filter(|commit| commit.seq <= durable);
        let starts = commits.filter_map(|commit| commit.truncation);
        starts
            .filter(|(place, _)| *place == at)
            .map(|(_, before)| before)
            .max()
            .unwrap_or(0)
    }

    pub(super) fn positions(&self) -> BTreeMap<(u32, PartitionId), u64> {
        let mut positions = BTreeMap::new();
        for commit in &self.commits {
            if let Some((reader, at, to)) = commit.advance {
                positions.insert((reader, at), to);
            }
            if let Some(topic) = commit.deleted {
                positions.retain(|(_, at), _| at.topic != topic);
            }
        }
        positions
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
