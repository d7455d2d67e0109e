//! Compaction performed: segments are read, written again without what is outdated, uploaded, and
//! take the place of the old ones in one manifest. Until that is committed the old ones count; only
//! then are they deleted.

use super::next::Compacted;
use super::{Keeper, Kept, READ};
use crate::compaction::{self, Keys, Stayed, Work};
use crate::manifest::{Cleaned, Manifest};
use crate::read::in_background;
use crate::sealer::{self, Scratch};
use crate::segment::{self, ABSENT, NOT_TEXT, SegmentMeta, SegmentWriter};
use crate::shard::{Shard, lock};
use crate::{Format, Topic, paths};
use std::path::Path;
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
        let _turn = self.compacting.lock().await;
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
                Err(error) if error.code == ABSENT && pass.is_stale(shard) => Ok(()),
                done => done,
            };
            let done = done
                .map_err(|error| error.at(format!("compacting {topic:?} partition {partition}")));
            all = all.and(done);
        }
        all
    }

    async fn run(&self, shard: &Arc<Shard>, pass: &Pass) -> Result<()> {
        let keys = self.keys(shard, pass).await?;
        let mut output = Output::default();
        if let Err(error) = self.write_again(shard, pass, &keys, &mut output).await {
            // Nothing was about to name them.
            let mut kept = self.kept.lock().await;
            let uploaded = output.segments.into_iter().map(|segment| segment.path);
            kept.gone.extend(uploaded);
            self.delete_gone(&mut kept).await;
            return Err(error);
        }
        let compacted = pass.compacted(&keys, output, shard);
        let mut kept = self.kept.lock().await;
        kept.compacted.push(compacted);
        let snapshot = kept.manifest.snapshot.clone();
        self.commit(shard, &mut kept, snapshot).await
    }

    /// The keys of the dirty part.
    async fn keys(&self, shard: &Arc<Shard>, pass: &Pass) -> Result<Keys> {
        let from = pass.work.dirty_from;
        let mut keys = Keys::new(from, shard.settings.compaction_bytes.0);
        for segment in pass.segments.iter().filter(|it| it.end > from) {
            let take = |key: Option<&[u8]>, offset| keys.take(key, offset);
            if !segment::scan_keys(&self.objects, segment, from, take).await? {
                break;
            }
            keys.end = keys.end.max(segment.end);
        }
        Ok(keys)
    }

    async fn write_again(
        &self,
        shard: &Arc<Shard>,
        pass: &Pass,
        keys: &Keys,
        output: &mut Output,
    ) -> Result<()> {
        let dir = shard.settings.dir.join("sealing");
        let name = format!(
            "{}-{}-compacted.parquet",
            pass.at.topic.0, pass.at.partition
        );
        let scratch = Scratch(dir.join(name));
        std::fs::create_dir_all(&dir).map_err(|error| {
            Error::unavailable(
                "segment-not-written",
                format!("{} can't be created: {error}", dir.display()),
            )
        })?;
        let up_to = pass.segments.partition_point(|it| it.first < keys.end);
        let settings = &pass.topic.settings;
        let most = shard.settings.segment_bytes.0;
        for group in compaction::groups(&pass.segments[..up_to], settings.cleanup, most) {
            let before: u64 = group.iter().map(|segment| segment.events).sum();
            let mut stayed = output.stayed;
            let written = self
                .write_group(pass, keys, &group, &scratch.0, &mut stayed)
                .await?;
            output.stayed = stayed;
            let after = written.as_ref().map_or(0, |meta| meta.events);
            if group.len() == 1 && after == before {
                continue;
            }
            if let Some(mut meta) = written {
                let (topic, nonce) = (&pass.topic.name, self.random.nonce());
                let path = paths::segment(topic, pass.at.partition, meta.first, &nonce);
                meta.path = sealer::with_checksum(&path, &scratch.0).await?;
                output.segments.push(meta.clone());
                self.objects.upload(&meta.path, &scratch.0).await?;
            }
            output.replaced.extend(group);
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

    /// Writes what stays of some segments to a local file; `None` when nothing does.
    async fn write_group(
        &self,
        pass: &Pass,
        keys: &Keys,
        group: &[SegmentMeta],
        file: &Path,
        stayed: &mut Stayed,
    ) -> Result<Option<SegmentMeta>> {
        let mut topic = pass.topic.clone();
        let before = *stayed;
        match self.sift(&topic, pass, keys, group, file, stayed).await {
            Err(error) if error.code == NOT_TEXT => {
                *stayed = before;
                topic.settings.format = Format::Bytes;
                self.sift(&topic, pass, keys, group, file, stayed).await
            }
            written => written,
        }
    }

    async fn sift(
        &self,
        topic: &Topic,
        pass: &Pass,
        keys: &Keys,
        group: &[SegmentMeta],
        file: &Path,
        stayed: &mut Stayed,
    ) -> Result<Option<SegmentMeta>> {
        let mut writer = SegmentWriter::create(file, topic, pass.at.partition)?;
        let mut empty = true;
        for segment in group {
            let mut from = segment.first.max(pass.work.start);
            while from < segment.end {
                let batches = segment::read(&self.objects, segment, from, READ).await?;
                let Some(last) = batches.last().filter(|batch| !batch.is_empty()) else {
                    break;
                };
                from = last.offset(last.len() - 1) + 1;
                for batch in &batches {
                    let batch = compaction::sift(batch, keys, pass.work, stayed);
                    if !batch.is_empty() {
                        writer = write(writer, batch).await?;
                        empty = false;
                    }
                }
            }
        }
        if empty {
            return Ok(None);
        }
        in_background(move || writer.finish()).await.map(Some)
    }

    pub(super) fn publish_compacted(
        &self,
        shard: &Arc<Shard>,
        manifest: &Manifest,
        compacted: &[Compacted],
    ) {
        for done in compacted {
            let topic = manifest
                .topics
                .iter()
                .find(|topic| topic.topic.id == done.at.topic);
            let now = topic.and_then(|topic| topic.partitions.get(done.at.partition as usize));
            if let (Some(now), Ok(partition)) = (now, shard.partition(done.at)) {
                lock(&partition).replace_segments(&now.segments);
                shard.meters.compacted(done.events, done.bytes);
            }
        }
    }
}

impl Pass {
    /// Whether segments of it are no longer part of the partition.
    fn is_stale(&self, shard: &Shard) -> bool {
        let Ok(partition) = shard.partition(self.at) else {
            return true;
        };
        let partition = lock(&partition);
        let mut segments = self.segments.iter();
        !segments.all(|segment| partition.has_segment(&segment.path))
    }

    /// What the manifest has to say of it.
    fn compacted(&self, keys: &Keys, output: Output, shard: &Shard) -> Compacted {
        let sum = |segments: &[SegmentMeta], of: fn(&SegmentMeta) -> u64| -> u64 {
            segments.iter().map(of).sum()
        };
        let less = |of: fn(&SegmentMeta) -> u64| {
            sum(&output.replaced, of).saturating_sub(sum(&output.segments, of))
        };
        Compacted {
            at: self.at,
            events: less(|segment| segment.events),
            bytes: less(|segment| segment.bytes),
            cleaned: compaction::cleaned_after(
                &self.cleaned,
                self.work,
                keys.end,
                output.stayed.tombstones,
                self.topic.settings.retention.tombstone_age,
                shard.clock.now(),
            ),
            replaced: output.replaced.into_iter().map(|it| it.path).collect(),
            segments: output.segments,
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
            if kept.compacted.iter().any(|done| done.at == at) {
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

async fn write(mut writer: SegmentWriter, batch: Batch) -> Result<SegmentWriter> {
    in_background(move || writer.write(&batch).map(|()| writer)).await
}
