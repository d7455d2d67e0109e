//! Marks by topic and name, and in the order of their commits, with the memory that they take.

use super::Mark;
use crate::Written;
use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use tidemill_types::TopicId;

/// What a mark takes beside its name and where its events landed: about 110 bytes itself, up to 75 and
/// 30 in the two maps with the room that they keep free, and what the allocator adds.
const MARK_BYTES: u64 = 256;

/// What a mark's name takes on the heap.
pub(super) trait Name: Clone + Eq + Hash {
    fn heap_bytes(&self) -> usize;
}

impl Name for Arc<str> {
    fn heap_bytes(&self) -> usize {
        self.len()
    }
}

impl Name for u128 {
    fn heap_bytes(&self) -> usize {
        0
    }
}

#[derive(Clone)]
pub(super) struct Shelf<N, S> {
    /// Commits by topic and name.
    names: HashMap<TopicId, HashMap<N, u64>>,
    /// By commit, each of which brings one mark at most.
    marks: BTreeMap<u64, Arc<Mark<N, S>>>,
    bytes: u64,
}

impl<N, S> Default for Shelf<N, S> {
    fn default() -> Self {
        Self {
            names: HashMap::new(),
            marks: BTreeMap::new(),
            bytes: 0,
        }
    }
}

impl<N: Name, S> Shelf<N, S> {
    pub(super) fn get<Q>(&self, topic: TopicId, name: &Q) -> Option<&Mark<N, S>>
    where
        N: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let commit = self.names.get(&topic)?.get(name)?;
        self.marks.get(commit).map(|mark| &**mark)
    }

    /// Puts a mark whose name isn't there.
    pub(super) fn put(&mut self, mark: Arc<Mark<N, S>>) {
        self.bytes += bytes(&mark);
        let of_topic = self.names.entry(mark.topic).or_default();
        of_topic.insert(mark.name.clone(), mark.commit);
        self.marks.insert(mark.commit, mark);
    }

    pub(super) fn remove<Q>(&mut self, topic: TopicId, name: &Q)
    where
        N: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let commit = self.names.get(&topic).and_then(|names| names.get(name));
        if let Some(commit) = commit.copied() {
            self.remove_commit(commit);
        }
    }

    pub(super) fn remove_oldest(&mut self) {
        if let Some(commit) = self.marks.keys().next().copied() {
            self.remove_commit(commit);
        }
    }

    fn remove_commit(&mut self, commit: u64) {
        let Some(mark) = self.marks.remove(&commit) else {
            return;
        };
        self.bytes -= bytes(&mark);
        if let Some(of_topic) = self.names.get_mut(&mark.topic) {
            of_topic.remove(&mark.name);
            if of_topic.is_empty() {
                self.names.remove(&mark.topic);
            }
        }
    }

    pub(super) fn remove_topic(&mut self, topic: TopicId) {
        for commit in self.names.remove(&topic).unwrap_or_default().values() {
            if let Some(mark) = self.marks.remove(commit) {
                self.bytes -= bytes(&mark);
            }
        }
    }

    pub(super) fn oldest(&self) -> Option<&Mark<N, S>> {
        self.marks.values().next().map(|mark| &**mark)
    }

    pub(super) fn newest(&self) -> Option<&Mark<N, S>> {
        self.marks.values().next_back().map(|mark| &**mark)
    }

    /// The first mark of a later commit.
    pub(super) fn first_after(&self, commit: u64) -> Option<u64> {
        let later = self.marks.range(commit.saturating_add(1)..);
        later.map(|(commit, _)| *commit).next()
    }

    pub(super) fn all(&self) -> Vec<Arc<Mark<N, S>>> {
        self.marks.values().cloned().collect()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.marks.len()
    }
}

fn bytes<N: Name, S>(mark: &Mark<N, S>) -> u64 {
    let heap = mark.name.heap_bytes() + mark.written.len() * size_of::<Written>();
    MARK_BYTES + heap as u64
}
