//! Compaction performed: segments are written again without what is outdated.

use super::next::Replacement;
use super::rewrite::{Sift, are_stale};
use super::{Keeper, Kept};
use crate::Topic;
use crate::compaction::{self, Keys, Stayed, Work};
use crate::manifest::Cleaned;
use crate::segment::{ABSENT, SegmentMeta};
use crate::shard::Shard;
use std::sync::Arc;
use tidemill_types::{Batch, Error, PartitionId, Result};

/// A pass over one partition.
struct Pass {
    at: PartitionId,
    topic: Topic,
    work: Work,
    cleaned: Vec<Cleaned>,
    segments: Vec<SegmentMeta>,
}

/// What a pass has written so far.
#[derive(Default)]
struct Output {
    replaced: Vec<SegmentMeta>,
    segments: Vec<SegmentMeta>,
    stayed: Stayed,
}

impl Keeper {
    /// Compacts what is due, one partition after the other. Sealing and reading go on meanwhile.
    ///
    /// # Errors
    /// The first failure, after the other partitions had their turn. A partition that failed is as it
    /// was, to be tried again.
    pub(crate) async fn compact(&self, shard: &Arc<Shard>) -> Result<()> {
        let _turn = self.rewriting.lock().await;
        let passes = passes(shard, &*self.kept.lock().await);
        let mut all = Ok(());
        for pass in passes {
            let (topic, partition) = (pass.topic.name.as_str(), pass.at.partition);
            let started = shard.clock.elapsed();
            let done = self.run(shard, &pass).await;
            let took = shard.clock.elapsed().saturating_sub(started);
            shard.meters.compaction(took);
            let done = match done {
                // They were taken away meanwhile; what is left has its turn the next time.
                Err(error) if error.code == ABSENT && are_stale(shard, pass.at, &pass.segments) => {
                    Ok(())
                }
                done => done,
            };
            let done = done
                .map_err(|error| error.at(format!("compacting {topic:?} partition {partition}")));
            all = all.and(done);
        }
        all
    }

    async fn run(&self, shard: &Arc<Shard>, pass: &Pass) -> Result<()> {
        let keys = Arc::new(self.keys(shard, pass).await?);
        let mut output = Output::default();
        if let Err(error) = self.rewrite(shard, pass, &keys, &mut output).await {
            self.take_back(output.segments).await;
            return Err(error);
        }
        let (events, bytes) = output.less();
        self.replace(shard, vec![pass.replacement(&keys, output, shard)])
            .await?;
        shard.meters.compacted(events, bytes);
        Ok(())
    }

    /// The keys of the dirty part.
    async fn keys(&self, shard: &Arc<Shard>, pass: &Pass) -> Result<Keys> {
        let from = pass.work.dirty_from;
        let mut keys = Keys::new(from, shard.settings.compaction_bytes.0);
        for segment in pass.segments.iter().filter(|it| it.end > from) {
            let take = |key: Option<&[u8]>, offset| keys.take(key, offset);
            if !self.segments.scan_keys(segment, from, take).await? {
                break;
            }
            keys.end = keys.end.max(segment.end);
        }
        Ok(keys)
    }

    async fn rewrite(
        &self,
        shard: &Arc<Shard>,
        pass: &Pass,
        keys: &Arc<Keys>,
        output: &mut Output,
    ) -> Result<()> {
        let scratch = Self::scratch(shard, pass.at)?;
        let up_to = pass.segments.partition_point(|it| it.first < keys.end);
        let settings = &pass.topic.settings;
        let most = shard.settings.segment_bytes.0;
        for group in compaction::groups(&pass.segments[..up_to], settings.cleanup, most) {
            let before: u64 = group.iter().map(|segment| segment.events).sum();
            let sieve = Sieve {
                keys: keys.clone(),
                work: pass.work,
                before: output.stayed,
                stayed: output.stayed,
            };
            let (written, sieve) = self
                .write_again(shard, &pass.topic, group, &scratch.0, sieve)
                .await?;
            output.stayed = sieve.stayed;
            let after = written.as_ref().map_or(0, |written| written.meta.events);
            if group.len() == 1 && after == before {
                continue;
            }
            if let Some(meta) = written {
                self.upload(&pass.topic, meta, &scratch.0, &mut output.segments)
                    .await?;
            }
            output.replaced.extend_from_slice(group);
        }
        // Every key of the dirty part still has exactly its last event there.
        match output.stayed.keyed == keys.len() {
            true => Ok(()),
            false => Err(Error::internal(format!(
                "compaction would leave {} events of {} keys; nothing was changed",
                output.stayed.keyed,
                keys.len()
            ))),
        }
    }
}

/// What isn't outdated stays.
struct Sieve {
    keys: Arc<Keys>,
    work: Work,
    before: Stayed,
    stayed: Stayed,
}

impl Sift for Sieve {
    fn begin_again(&mut self) {
        self.stayed = self.before;
    }

    fn sift(&mut self, batch: &Batch) -> Batch {
        compaction::sift(batch, &self.keys, self.work, &mut self.stayed)
    }
}

impl Output {
    /// How many events and bytes less there are.
    fn less(&self) -> (u64, u64) {
        let sum = |segments: &[SegmentMeta], of: fn(&SegmentMeta) -> u64| -> u64 {
            segments.iter().map(of).sum()
        };
        let less = |of| sum(&self.replaced, of).saturating_sub(sum(&self.segments, of));
        (
            less(|segment| segment.events),
            less(|segment| segment.bytes),
        )
    }
}

impl Pass {
    /// What the manifest has to say of it.
    fn replacement(&self, keys: &Keys, output: Output, shard: &Shard) -> Replacement {
        let cleaned = compaction::cleaned_after(
            &self.cleaned,
            self.work,
            keys.end,
            output.stayed.tombstones,
            self.topic.settings.retention.tombstone_age,
            shard.clock.now(),
        );
        Replacement {
            at: self.at,
            replaced: output.replaced.into_iter().map(|it| it.path).collect(),
            segments: output.segments,
            cleaned: Some(cleaned),
        }
    }
}

/// The partitions that are due.
fn passes(shard: &Arc<Shard>, kept: &Kept) -> Vec<Pass> {
    let now = shard.clock.now();
    let mut passes = Vec::new();
    for known in &kept.manifest.topics {
        // Deleted meanwhile.
        let Ok(topic) = shard.topic(known.topic.id) else {
            continue;
        };
        let topic = &topic.topic;
        if !topic.settings.cleanup.compacts() {
            continue;
        }
        for (number, partition) in (0..).zip(&known.partitions) {
            let at = PartitionId {
                topic: topic.id,
                partition: number,
            };
            // What was done before has to be committed first.
            if kept.replacements.iter().any(|done| done.at == at) {
                continue;
            }
            let (percent, age) = (
                shard.settings.compaction_percent,
                topic.settings.retention.tombstone_age,
            );
            if let Some(work) = compaction::due(partition, percent, age, now) {
                passes.push(Pass {
                    at,
                    topic: topic.clone(),
                    work,
                    cleaned: partition.cleaned.clone(),
                    segments: partition.segments.clone(),
                });
            }
        }
    }
    passes
}
