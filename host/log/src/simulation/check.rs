//! What can be read is what must be true.

use super::model::Fact;
use super::world::{MUCH, World};
use crate::shard::Shard;
use crate::{ReadLimit, read};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidemill_types::{ErrorKind, PartitionId};

/// An event as it was read.
type Seen = (u64, Option<String>, Option<String>);

impl World {
    pub(super) fn check(&mut self) -> Result<(), String> {
        let Some(running) = &self.running else {
            return Ok(());
        };
        let shard = running.shard.clone();
        let durable = shard.durable().borrow().0;
        let partitions = self.topic.and_then(|topic| shard.topic(topic).ok());
        let partitions = partitions.map_or(Vec::new(), |topic| topic.all().to_vec());
        for (number, partition) in (0..).zip(partitions) {
            let at = PartitionId {
                topic: self.topic.expect("checked"),
                partition: number,
            };
            let range = partition.lock().range(number);
            self.check_partition(&shard, at, range, durable)?;
        }
        let positions = shard.with_sequencer(|s| s.positions());
        let positions = positions
            .iter()
            .map(|p| ((p.reader, p.at), p.offset))
            .collect();
        if self.model.positions() != positions {
            return Err(format!("positions are {positions:?}"));
        }
        let entries = shard.with_sequencer(|s| s.entries().clone());
        let text = |bytes: Bytes| String::from_utf8_lossy(&bytes).into_owned();
        let entries = entries
            .into_iter()
            .map(|(key, value)| (key, text(value)))
            .collect();
        if self.model.entries() != entries {
            return Err(format!("entries are {entries:?}"));
        }
        self.trace.push(format!("checked at {durable}"));
        Ok(())
    }

    fn check_partition(
        &mut self,
        shard: &Arc<Shard>,
        at: PartitionId,
        range: crate::Range,
        durable: u64,
    ) -> Result<(), String> {
        let start = self.model.start(at, durable);
        if range.start != start {
            return Err(format!(
                "{at:?} starts at {} instead of {start}",
                range.start
            ));
        }
        if !(start..=range.end).contains(&range.archived_end) {
            return Err(format!("{at:?} is archived up to nowhere: {range:?}"));
        }
        if let Some(below) = start.checked_sub(1) {
            let segments = self.segments();
            let reading = read::read(shard, &segments, at, below, MUCH, u64::MAX);
            match self.runtime.block_on(reading) {
                Err(error) if error.kind == ErrorKind::OutOfRange => {}
                other => return Err(format!("{at:?} below its start {start}: {other:?}")),
            }
        }
        let mut expected = self.model.facts(at);
        expected.retain(|(offset, _)| (start..range.end).contains(offset));
        let limit = [
            MUCH,
            ReadLimit {
                events: 3,
                bytes: 100,
            },
        ][self.pick(2)];
        let seen = self.read_all(shard, at, start, limit)?;
        let compared = match self.settings.cleanup.compacts() {
            false => same(&seen, &expected),
            true => self.compacted(&seen, &expected, range.archived_end),
        };
        compared.map_err(|wrong| {
            format!("{at:?} from {start} up to {durable}: {wrong}: {seen:?} of {expected:?}")
        })
    }

    /// What compaction may have left of events.
    fn compacted(
        &self,
        seen: &[Seen],
        expected: &[(u64, Fact)],
        archived_end: u64,
    ) -> Result<(), String> {
        if !seen.is_sorted_by(|one, next| one.0 < next.0) {
            return Err("the order is another".into());
        }
        let all: BTreeMap<u64, &Fact> = expected.iter().map(|(offset, it)| (*offset, it)).collect();
        for event in seen {
            if all
                .get(&event.0)
                .is_none_or(|fact| shown(event.0, fact) != *event)
            {
                return Err(format!("{event:?} is not what was written"));
            }
        }
        let there: BTreeSet<u64> = seen.iter().map(|(offset, ..)| *offset).collect();
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        for (offset, fact) in &all {
            if let Some(key) = fact.key {
                last.insert(key, *offset);
            }
            if (fact.key.is_none() || *offset >= archived_end) && !there.contains(offset) {
                return Err(format!("event {offset} may not go"));
            }
        }
        let age = i64::try_from(self.settings.retention.tombstone_age.as_micros()).expect("short");
        for (key, offset) in last {
            let fact = all[&offset];
            // Between two passes behind it, by what the clock showed at each.
            let may_go = fact.value.is_none() && self.most_passed(fact.shown) >= age;
            if there.contains(&offset) {
                continue;
            }
            if !may_go {
                return Err(format!("key {key:?} lost its last event {offset}"));
            }
            if seen
                .iter()
                .any(|(_, other, _)| other.as_deref() == Some(key))
            {
                return Err(format!("key {key:?} came back without its tombstone"));
            }
        }
        Ok(())
    }

    /// The most that has gone by between any two moments from one on, by a clock that is set.
    fn most_passed(&self, from: usize) -> i64 {
        let (mut least, mut most) = (i64::MAX, 0);
        for shown in &self.shown[from..] {
            least = least.min(shown.micros());
            most = most.max(shown.micros() - least);
        }
        most
    }

    /// Retention took only what is old enough, unless it goes by bytes.
    pub(super) fn check_retention(
        &self,
        shard: &Shard,
        at: PartitionId,
        start: u64,
    ) -> Result<(), String> {
        let retention = self.settings.retention;
        if !self.settings.cleanup.deletes() {
            return Err(format!("{at:?} is not for retention"));
        }
        let (Some(age), None) = (retention.age, retention.bytes) else {
            return Ok(());
        };
        let reader = shard.with_sequencer(|s| s.least_position(at));
        let held = reader.is_some_and(|position| position < start);
        let held = held.then_some(retention.hold_for).flatten();
        let least = age + held.unwrap_or_default();
        let least = i64::try_from(least.as_micros()).expect("short");
        let old = |fact: &Fact| fact.time.micros() + least <= self.clock.now().micros();
        let facts = self.model.facts(at);
        match facts.iter().rfind(|(offset, _)| *offset < start) {
            Some((offset, fact)) if !old(fact) => {
                Err(format!("{at:?}: event {offset} is too young to go"))
            }
            _ => Ok(()),
        }
    }

    /// After a good start the bucket holds the segments that are needed, and no others.
    pub(super) fn check_bucket(&self) -> Result<(), String> {
        let Some(running) = &self.running else {
            return Ok(());
        };
        let topics = running.shard.all_topics();
        let partitions = topics.iter().flat_map(|topic| topic.all());
        let named: BTreeSet<String> = partitions
            .flat_map(|partition| partition.lock().segments().to_vec())
            .map(|segment| segment.path.clone())
            .collect();
        let there: BTreeSet<String> = self
            .bucket
            .paths()
            .into_iter()
            .filter(|path| path.starts_with(crate::paths::TOPICS))
            .collect();
        match named == there {
            true => Ok(()),
            false => Err(format!("the bucket has {there:?} and {named:?} are needed")),
        }
    }

    fn read_all(
        &self,
        shard: &Arc<Shard>,
        at: PartitionId,
        start: u64,
        limit: ReadLimit,
    ) -> Result<Vec<Seen>, String> {
        let (mut from, mut all) = (start, Vec::new());
        let segments = self.segments();
        loop {
            let reading = read::read(shard, &segments, at, from, limit, u64::MAX);
            let read = match self.runtime.block_on(reading) {
                Ok(read) => read,
                // No answer from the bucket: ask again.
                Err(error) if error.kind == ErrorKind::Unavailable => continue,
                Err(error) => return Err(format!("reading {at:?} from {from}: {error}")),
            };
            for event in read.batches.iter().flat_map(|batch| batch.iter()) {
                let text =
                    |bytes: Option<&[u8]>| bytes.map(|it| String::from_utf8_lossy(it).into_owned());
                all.push((event.offset, text(event.row.key), text(event.row.value)));
            }
            if read.next >= read.end {
                return Ok(all);
            }
            if read.next == from {
                return Err(format!("reading {at:?} from {from} doesn't get on"));
            }
            from = read.next;
        }
    }
}

fn shown(offset: u64, fact: &Fact) -> Seen {
    (offset, fact.key.map(str::to_owned), fact.value.clone())
}

fn same(seen: &[Seen], expected: &[(u64, Fact)]) -> Result<(), String> {
    let expected = expected.iter().map(|(offset, fact)| shown(*offset, fact));
    match expected.eq(seen.iter().cloned()) {
        true => Ok(()),
        false => Err("these are other events".into()),
    }
}
