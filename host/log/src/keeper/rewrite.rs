//! Segments written again as one, by compaction and merging alike: read piece by piece, sifted, written
//! to a local file, uploaded. They take the place of the old ones in one manifest; until that is
//! committed the old ones count, and only then are they deleted.

use super::Keeper;
use super::next::Replacement;
use crate::sealer::Scratch;
use crate::segment::{Finished, Kind, NOT_TEXT, SegmentMeta, SegmentWriter, Segments};
use crate::shard::Shard;
use crate::{Format, ReadLimit, Topic, paths};
use std::path::Path;
use std::sync::Arc;
use tidemill_env::Shutdown;
use tidemill_types::{Batch, Error, PartitionId, Result};

/// Most memory for what is read while segments are written again: each event is read once, so it is neither
/// kept in the way of readers nor on the disk.
const MEMORY: u64 = 16 << 20;
/// Read at a time.
const READ: ReadLimit = ReadLimit {
    events: 1 << 16,
    bytes: 4 << 20,
};

/// Says which events stay.
pub(super) trait Sift: Send + 'static {
    /// The same events come once more, from the first.
    fn begin_again(&mut self);
    /// What stays of some events.
    fn sift(&mut self, batch: &Batch) -> Batch;
}

impl Keeper {
    /// A local file for one segment of a partition at a time.
    pub(super) fn scratch(shard: &Shard, at: PartitionId) -> Result<Scratch> {
        let dir = shard.settings.dir.join("sealing");
        std::fs::create_dir_all(&dir).map_err(|error| {
            Error::unavailable(
                "segment-not-written",
                format!("{} can't be created: {error}", dir.display()),
            )
        })?;
        let name = format!("{}-{}-again.parquet", at.topic.0, at.partition);
        Ok(Scratch(dir.join(name)))
    }

    /// Writes what stays of some segments to a local file; without a segment when nothing does.
    pub(super) async fn write_again<S: Sift>(
        &self,
        shard: &Arc<Shard>,
        topic: &Topic,
        group: &[SegmentMeta],
        file: &Path,
        sift: S,
    ) -> Result<(Option<Finished>, S)> {
        let unwanted = Shutdown::new();
        // Nobody waits any more when the log is closed.
        let _wanted = unwanted.clone().drop_guard();
        // As much as one segment that is sealed.
        let memory = shard.settings.sealing_bytes;
        let work = Work {
            kind: Kind::within(&self.objects, memory),
            segments: Segments::new(self.objects.clone(), memory.0.min(MEMORY), None),
            topic: topic.clone(),
            group: group.to_vec(),
            file: file.to_owned(),
            unwanted,
            shard: Arc::clone(shard),
        };
        let runtime = tokio::runtime::Handle::current();
        let run = move || runtime.block_on(work.run(sift));
        tidemill_env::in_background("rewriting", shard.urgency(), run).await
    }

    /// Uploads a segment that was written; nothing names it yet. It is added to `about_to_be` before.
    pub(super) async fn upload(
        &self,
        topic: &Topic,
        written: Finished,
        file: &Path,
        about_to_be: &mut Vec<SegmentMeta>,
    ) -> Result<()> {
        let (nonce, mut meta) = (self.random.nonce(), written.meta);
        let path = paths::segment(&topic.name, meta.partition, meta.first, &nonce);
        meta.path = paths::with_checksum(&path, written.checksum);
        about_to_be.push(meta.clone());
        self.objects.upload(&meta.path, file).await
    }

    /// Deletes what was uploaded and that nothing was about to name.
    pub(super) async fn take_back(&self, uploaded: Vec<SegmentMeta>) {
        let mut kept = self.kept.lock().await;
        kept.gone.extend(uploaded.into_iter().map(|it| it.path));
        self.delete_gone(&mut kept).await;
    }

    /// Commits a manifest in which some segments have taken the place of others.
    pub(super) async fn replace(
        &self,
        shard: &Arc<Shard>,
        replacements: Vec<Replacement>,
    ) -> Result<()> {
        let mut kept = self.kept.lock().await;
        kept.replacements.extend(replacements);
        let snapshot = kept.manifest.snapshot.clone();
        self.commit(shard, &mut kept, snapshot).await
    }
}

/// Whether segments are no longer part of their partition.
pub(super) fn are_stale(shard: &Shard, at: PartitionId, segments: &[SegmentMeta]) -> bool {
    let Ok(partition) = shard.partition(at) else {
        return true;
    };
    let partition = partition.lock();
    let mut segments = segments.iter();
    !segments.all(|segment| partition.has_segment(&segment.path))
}

struct Work {
    kind: Kind,
    segments: Segments,
    topic: Topic,
    group: Vec<SegmentMeta>,
    file: std::path::PathBuf,
    unwanted: Shutdown,
    shard: Arc<Shard>,
}

impl Work {
    async fn run<S: Sift>(mut self, mut sift: S) -> Result<(Option<Finished>, S)> {
        let written = match self.write(&mut sift).await {
            Err(error) if error.code == NOT_TEXT => {
                sift.begin_again();
                self.topic.settings.format = Format::Bytes;
                self.write(&mut sift).await
            }
            written => written,
        };
        written.map(|meta| (meta, sift))
    }

    async fn write(&self, sift: &mut impl Sift) -> Result<Option<Finished>> {
        let partition = self.group.first().map_or(0, |segment| segment.partition);
        let mut writer = SegmentWriter::create(&self.kind, &self.file, &self.topic, partition)?;
        let mut stint = self.shard.begin_stint();
        let mut empty = true;
        for segment in &self.group {
            let mut from = segment.first;
            while from < segment.end {
                if self.unwanted.is_cancelled() {
                    return Err(Error::unavailable("stopping", "the log is being closed"));
                }
                self.shard.rest(&mut stint);
                let batches = self.segments.read(segment, from, READ).await?;
                let Some(last) = batches.last().filter(|batch| !batch.is_empty()) else {
                    break;
                };
                from = last.offset(last.len() - 1) + 1;
                for batch in &batches {
                    let batch = sift.sift(batch);
                    if !batch.is_empty() {
                        writer.write(&batch)?;
                        empty = false;
                    }
                }
            }
        }
        match empty {
            true => Ok(None),
            false => writer.finish().map(Some),
        }
    }
}
