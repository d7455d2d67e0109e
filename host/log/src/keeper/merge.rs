//! Merging performed: neighbouring segments of topics that aren't compacted become one.

use super::next::Replacement;
use super::rewrite::{Sift, are_stale};
use super::{BEHIND, Keeper, Kept};
use crate::Topic;
use crate::merging::{self, Bounds};
use crate::segment::{ABSENT, SegmentMeta};
use crate::shard::Shard;
use std::sync::Arc;
use tidemill_types::{Batch, Error, PartitionId, Result, Timestamp};

/// Segments that become one.
struct Merge {
    at: PartitionId,
    topic: Topic,
    /// First offset that can be read.
    start: u64,
    group: Vec<SegmentMeta>,
}

impl Keeper {
    /// Merges what is due, once in each partition, one after the other. Sealing and reading go on
    /// meanwhile; while sealing is behind, nothing is merged. Answers whether something was, so that more
    /// may be due.
    ///
    /// # Errors
    /// The first failure, after the other partitions had their turn. A partition that failed is as it
    /// was, to be tried again.
    pub(crate) async fn merge(&self, shard: &Arc<Shard>) -> Result<bool> {
        // What sealing needs of the machine isn't for merging while it is behind.
        if shard.journal_bytes() > BEHIND {
            return Ok(false);
        }
        let _turn = self.rewriting.lock().await;
        let merges = merges(shard, &*self.kept.lock().await);
        let (mut merged, mut all) = (false, Ok(()));
        let mut waiting = Waiting::default();
        for merge in merges {
            let done = match self.run_merge(shard, &merge).await {
                // They were taken away meanwhile.
                Err(error) if error.code == ABSENT && are_stale(shard, merge.at, &merge.group) => {
                    Ok(())
                }
                done => done.map(|replacement| {
                    merged = true;
                    waiting.add(merge.group.len(), replacement);
                }),
            };
            if waiting.bytes >= shard.settings.merge_bytes.0 {
                all = all.and(self.commit_merged(shard, &mut waiting).await);
            }
            let (topic, partition) = (merge.topic.name.as_str(), merge.at.partition);
            let named = |error: Error| {
                error.at(format!(
                    "merging segments of {topic:?} partition {partition}"
                ))
            };
            all = all.and(done.map_err(named));
        }
        all = all.and(self.commit_merged(shard, &mut waiting).await);
        all.map(|()| merged)
    }

    async fn commit_merged(&self, shard: &Arc<Shard>, waiting: &mut Waiting) -> Result<()> {
        let Waiting {
            segments,
            bytes,
            replacements,
        } = std::mem::take(waiting);
        if replacements.is_empty() {
            return Ok(());
        }
        self.replace(shard, replacements).await?;
        shard.meters.merged(segments, bytes);
        Ok(())
    }

    async fn run_merge(&self, shard: &Arc<Shard>, merge: &Merge) -> Result<Replacement> {
        let (scratch, mut segments) = (Self::scratch(shard, merge.at)?, Vec::new());
        let sift = From { start: merge.start };
        let (written, _) = self
            .write_again(shard, &merge.topic, &merge.group, &scratch.0, sift)
            .await?;
        if let Some(meta) = written {
            let uploaded = self
                .upload(&merge.topic, meta, &scratch.0, &mut segments)
                .await;
            if let Err(error) = uploaded {
                self.take_back(segments).await;
                return Err(error);
            }
        }
        Ok(Replacement {
            at: merge.at,
            replaced: merge.group.iter().map(|it| it.path.clone()).collect(),
            segments,
            cleaned: None,
        })
    }
}

/// Merges that are committed together: manifests are kept for ever, so there isn't one for each of many
/// partitions whose day is over.
#[derive(Default)]
struct Waiting {
    segments: usize,
    bytes: u64,
    replacements: Vec<Replacement>,
}

impl Waiting {
    fn add(&mut self, segments: usize, replacement: Replacement) {
        self.segments += segments;
        self.bytes += replacement.segments.iter().map(|it| it.bytes).sum::<u64>();
        self.replacements.push(replacement);
    }
}

/// Everything from the start of the partition on stays.
struct From {
    start: u64,
}

impl Sift for From {
    fn begin_again(&mut self) {}

    fn sift(&mut self, batch: &Batch) -> Batch {
        batch.slice(batch.row_at(self.start)..batch.len())
    }
}

/// The next merge of each partition that has one.
fn merges(shard: &Arc<Shard>, kept: &Kept) -> Vec<Merge> {
    let now = shard.clock.now();
    let mut merges = Vec::new();
    for known in &kept.manifest.topics {
        // Deleted meanwhile.
        let Ok(topic) = shard.topic(known.topic.id) else {
            continue;
        };
        let settings = &topic.topic.settings;
        if settings.cleanup.compacts() {
            continue;
        }
        let bounds = Bounds::of(shard.settings.merge_bytes.0, &settings.retention);
        for (number, (known, partition)) in (0..).zip(known.partitions.iter().zip(topic.all())) {
            let at = PartitionId {
                topic: topic.topic.id,
                partition: number,
            };
            // What was done before has to be committed first.
            if kept.replacements.iter().any(|done| done.at == at) {
                continue;
            }
            let (start, oldest) = {
                let partition = partition.lock();
                let (_, oldest) = partition.unsealed_from(known.archived_end);
                (partition.start(), oldest)
            };
            let unsealed = oldest.map_or(now, Timestamp::from_micros);
            let there = known.segments.partition_point(|it| it.end <= start);
            let segments = &known.segments[there..];
            if let Some(group) = merging::due(segments, bounds, unsealed.utc_day()) {
                merges.push(Merge {
                    at,
                    topic: topic.topic.clone(),
                    start,
                    group: segments[group].to_vec(),
                });
            }
        }
    }
    merges
}
