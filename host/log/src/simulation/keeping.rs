//! Steps that take away: truncation, retention, compaction, each perhaps cut short by the end of the
//! process.

use super::model::Commit;
use super::world::{PARTITIONS, World};
use crate::draft::Draft;
use crate::sequencer::{TopicChange, Truncation};
use crate::{Cleanup, Retention, TopicSettings};
use std::time::Duration;
use tidemill_env::Random;
use tidemill_types::{ByteSize, ErrorKind, PartitionId};

/// How the topic of a run is kept.
pub(super) fn topic_settings(random: &Random) -> TopicSettings {
    let cleanups = [
        Cleanup::Delete,
        Cleanup::Delete,
        Cleanup::Compact,
        Cleanup::CompactDelete,
    ];
    let ages = [
        None,
        None,
        Some(Duration::from_millis(4)),
        Some(Duration::from_millis(12)),
    ];
    let sizes = [None, None, None, Some(ByteSize(0)), Some(ByteSize(6000))];
    let pick = |choices: u64| usize::try_from(random.below(choices)).expect("small");
    let retention = Retention {
        age: ages[pick(4)],
        bytes: sizes[pick(5)],
        hold_for: ages[pick(4)],
        tombstone_age: Duration::from_millis([0, 5, 1000][pick(3)]),
    };
    TopicSettings {
        partitions: PARTITIONS,
        cleanup: cleanups[pick(4)],
        retention,
        ..TopicSettings::default()
    }
}

/// What went in a run, so that a test can tell that something did.
#[derive(Clone, Copy, Default)]
pub(super) struct Taken {
    pub(super) compacted: u64,
    pub(super) retained: u64,
    /// Segments less by merging.
    pub(super) merged: usize,
}

impl World {
    fn partitions(&self) -> Vec<PartitionId> {
        let topic = self.topic.into_iter();
        topic
            .flat_map(|topic| {
                (0..PARTITIONS).map(move |partition| PartitionId { topic, partition })
            })
            .collect()
    }

    /// Somebody asks for events to go.
    pub(super) fn truncate(&mut self) -> Result<(), String> {
        let partitions = self.partitions();
        if partitions.is_empty() {
            return Ok(());
        }
        let at = partitions[self.pick(partitions.len())];
        let bounds = |shard: &crate::shard::Shard| {
            shard.with_sequencer(|s| (s.start(at).unwrap_or(0), s.end(at).unwrap_or(0)))
        };
        let (start, end) = bounds(&self.shard());
        let before = start.saturating_sub(1) + self.random.below(end - start + 4);
        match self.shard().truncate(Truncation { at, before }) {
            Ok(_) if before > end => Err(format!("{at:?} was truncated at {before} above {end}")),
            Ok(ticket) => {
                self.trace.push(format!("truncate {at:?} before {before}"));
                self.model.committed(Commit {
                    seq: ticket.commit.0,
                    truncation: Some((at, before)),
                    ..Commit::default()
                });
                self.tickets.push(ticket);
                Ok(())
            }
            Err(error) => {
                self.trace.push(format!("truncate: {}", error.code));
                match error.code {
                    "offset-out-of-range" if before > end => Ok(()),
                    "busy" | "journal-failed" => Ok(()),
                    _ => Err(format!("truncating: {error}")),
                }
            }
        }
    }

    /// The topic goes; the next event finds another of the same name.
    pub(super) fn delete_topic(&mut self) -> Result<(), String> {
        let Some(topic) = self.topic else {
            return Ok(());
        };
        let mut draft = Draft::new();
        draft.topic_change(TopicChange::Deleted(topic));
        if let Ok(ticket) = self.shard().commit(draft) {
            self.trace.push(format!("delete topic {topic:?}"));
            self.model.committed(Commit {
                seq: ticket.commit.0,
                deleted: Some(topic),
                ..Commit::default()
            });
            self.tickets.push(ticket);
            self.topic = None;
        }
        Ok(())
    }

    /// Retention decides what goes.
    pub(super) fn retain(&mut self) -> Result<(), String> {
        let Some(running) = &self.running else {
            return Ok(());
        };
        let partitions = self.partitions();
        let look = || {
            running.shard.with_sequencer(|s| {
                let starts = partitions.iter().map(|at| s.start(*at).unwrap_or(0));
                (s.last().0, starts.collect::<Vec<_>>())
            })
        };
        let (mut seq, before) = look();
        running.keeper.retain(&running.shard);
        let (_, after) = look();
        let shard = running.shard.clone();
        for ((at, before), after) in partitions.into_iter().zip(before).zip(after) {
            if before == after {
                continue;
            }
            // Each partition has a frame of its own, in order.
            seq += 1;
            self.trace
                .push(format!("retention: {at:?} starts at {after}"));
            self.taken.retained += after - before;
            self.check_retention(&shard, at, after)?;
            self.model.committed(Commit {
                seq,
                truncation: Some((at, after)),
                ..Commit::default()
            });
        }
        Ok(())
    }

    /// Seals what is due and commits what is to be committed, as the host does now and then.
    pub(super) fn keep(&mut self) -> Result<(), String> {
        if !self.flush_all()? {
            return Ok(());
        }
        let dies = self.perhaps_dies();
        if let Some(running) = &self.running {
            self.runtime.block_on(running.keeper.keep(&running.shard));
        }
        self.trace.push("keep".into());
        self.after(dies)
    }

    pub(super) fn compact(&mut self) -> Result<(), String> {
        if !self.flush_all()? {
            return Ok(());
        }
        if self.pick(2) == 0
            && let Some(running) = &self.running
        {
            // What is sealed can be compacted; whether that works doesn't matter here.
            let _ = self
                .runtime
                .block_on(running.keeper.seal_all(&running.shard));
        }
        let dies = self.perhaps_dies();
        let before = self.sealed_events();
        if let Some(running) = &self.running {
            let done = self
                .runtime
                .block_on(running.keeper.compact(&running.shard));
            match done {
                Err(error) if error.kind != ErrorKind::Unavailable => {
                    return Err(error.to_string());
                }
                _ => {}
            }
        }
        let taken = before.saturating_sub(self.sealed_events());
        self.taken.compacted += taken;
        self.trace.push(format!("compact: {taken} events"));
        self.after(dies)
    }

    pub(super) fn merge(&mut self) -> Result<(), String> {
        if self.pick(2) == 0 {
            // The day is over.
            self.clock.advance(86_400_000_000);
        }
        if !self.flush_all()? {
            return Ok(());
        }
        let dies = self.perhaps_dies();
        let mut before = 0;
        if let Some(running) = &self.running {
            // What is sealed can be merged; whether that works doesn't matter here.
            let _ = self
                .runtime
                .block_on(running.keeper.seal_all(&running.shard));
            before = self.segment_count();
            let done = self.runtime.block_on(running.keeper.merge(&running.shard));
            match done {
                Err(error) if error.kind != ErrorKind::Unavailable => {
                    return Err(error.to_string());
                }
                _ => {}
            }
        }
        let less = before.saturating_sub(self.segment_count());
        self.taken.merged += less;
        self.trace.push(format!("merge: {less} segments less"));
        self.after(dies)
    }

    fn segment_count(&self) -> usize {
        let topics = self.shard().all_topics();
        let partitions = topics.iter().flat_map(|topic| topic.all());
        partitions
            .map(|partition| partition.lock().segments().len())
            .sum()
    }

    fn sealed_events(&self) -> u64 {
        let topics = self.shard().all_topics();
        let partitions = topics.iter().flat_map(|topic| topic.all());
        let segments = partitions.flat_map(|partition| partition.lock().segments().to_vec());
        segments.map(|segment| segment.events).sum()
    }

    fn perhaps_dies(&self) -> bool {
        let dies = self.pick(2) == 0;
        if dies {
            let most = [4, 12, 40][self.pick(3)];
            self.bucket.die_after(Some(self.random.below(most)));
        }
        dies
    }

    fn after(&mut self, dies: bool) -> Result<(), String> {
        match dies {
            true if self.pick(2) == 0 => self.crash(),
            true => self.kill(),
            false => self.check(),
        }
    }
}
