//! What must be true, kept in the plainest way.

use crate::Once;
use std::collections::{BTreeMap, BTreeSet};
use tidemill_types::{PartitionId, Timestamp, TopicId};

/// How long an idempotency key counts, in µs.
pub(super) const KEY_WINDOW: i64 = 8000;

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
    pub(super) once: Option<(Once, i64)>,
}

/// An event as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fact {
    pub(super) key: Option<&'static str>,
    pub(super) value: Option<String>,
    /// When it was committed.
    pub(super) time: Timestamp,
    /// How often the clock had moved by then.
    pub(super) shown: usize,
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

    /// What a request that must take effect once is to be answered: the commit that it repeats, nothing
    /// if it is new, or a code.
    pub(super) fn expected(
        &self,
        topic: TopicId,
        once: &Once,
        time: i64,
    ) -> Result<Option<u64>, &'static str> {
        let to_topic = |commit: &&Commit| commit.events.iter().any(|(at, ..)| at.topic == topic);
        let mut before = self.commits.iter().rev().filter(to_topic);
        match once {
            Once::Producer { id, epoch, seq } => {
                let last = before.find_map(|commit| match &commit.once {
                    Some((
                        Once::Producer {
                            id: known,
                            epoch,
                            seq,
                        },
                        _,
                    )) if known == id => Some((*epoch, *seq, commit.seq)),
                    _ => None,
                });
                match last {
                    Some((current, ..)) if *epoch < current => Err("producer-fenced"),
                    Some((current, last, commit)) if *epoch == current && *seq <= last => {
                        Ok(Some(commit))
                    }
                    Some((current, last, _)) if *epoch == current && *seq == last + 1 => Ok(None),
                    Some((current, ..)) if *epoch > current && *seq > 0 => {
                        Err("invalid-producer-epoch")
                    }
                    _ if *seq == 0 => Ok(None),
                    _ => Err("out-of-order-sequence"),
                }
            }
            Once::Key { key, digest } => {
                let first = before.find_map(|commit| match &commit.once {
                    Some((Once::Key { key: known, digest }, accepted)) if known == key => {
                        Some((*digest, *accepted, commit.seq))
                    }
                    _ => None,
                });
                match first.filter(|(_, accepted, _)| accepted + KEY_WINDOW > time) {
                    Some((known, _, commit)) if known == *digest => Ok(Some(commit)),
                    Some(_) => Err("idempotency-key-reused"),
                    None => Ok(None),
                }
            }
        }
    }

    /// When the last event was committed.
    pub(super) fn latest(&self) -> Timestamp {
        let events = self.commits.iter().rev().flat_map(|commit| &commit.events);
        let last = events.map(|(_, _, fact)| fact.time).next();
        last.unwrap_or(Timestamp::from_micros(i64::MIN))
    }

    /// Where the events of a commit are.
    pub(super) fn events(&self, seq: u64) -> Vec<(PartitionId, u64, Fact)> {
        let found = self.commits.iter().find(|commit| commit.seq == seq);
        found
            .map(|commit| commit.events.clone())
            .unwrap_or_default()
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
