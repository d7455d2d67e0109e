//! When committed events become a segment, and the steps from there to a named object.

use crate::manifest::Manifest;
use crate::segment::{Finished, Kind, NOT_TEXT, ROW_GROUP_BYTES, SegmentMeta, SegmentWriter};
use crate::{Format, Topic, paths};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidemill_env::Urgency;
use tidemill_env::objects::Objects;
use tidemill_types::{Batch, ByteSize, CommitSeq, Error, PartitionId, Result, Timestamp};

/// What is known of a partition's events that no segment holds yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PartitionFacts {
    /// The partition.
    pub(crate) at: PartitionId,
    /// First offset that is not in a segment.
    pub(crate) archived_end: u64,
    /// Durable end.
    pub(crate) end: u64,
    /// Bytes of keys, values and headers between the two.
    pub(crate) bytes: u64,
    /// Ingest time of the first event that is not in a segment.
    pub(crate) oldest: Timestamp,
}

/// When to seal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SealSettings {
    /// With this much unsealed.
    pub(crate) bytes: ByteSize,
    /// When the oldest unsealed event was committed this long ago.
    pub(crate) age: Duration,
}

/// One segment to write. It may end before `to`: at the end of a UTC day of ingest time, or when it
/// has grown to `max_bytes`; what is left is sealed by the next order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SealOrder {
    /// Of which partition.
    pub(crate) at: PartitionId,
    /// First offset.
    pub(crate) from: u64,
    /// Offset behind the last.
    pub(crate) to: u64,
    /// Key, value and header bytes after which the segment ends.
    pub(crate) max_bytes: u64,
}

/// Which partitions are to be sealed now: those with enough bytes, with an old event, or with events
/// of a UTC day that is over.
pub(crate) fn due(
    facts: &[PartitionFacts],
    now: Timestamp,
    settings: SealSettings,
) -> Vec<SealOrder> {
    let is_due = |facts: &&PartitionFacts| {
        let age = now.micros().saturating_sub(facts.oldest.micros());
        let old = u128::try_from(age).is_ok_and(|age| age >= settings.age.as_micros());
        let day_is_over = now.utc_day() > facts.oldest.utc_day();
        facts.end > facts.archived_end && (facts.bytes >= settings.bytes.0 || old || day_is_over)
    };
    facts
        .iter()
        .filter(is_due)
        .map(|facts| order(facts, settings))
        .collect()
}

/// The order to seal all that a partition has, or as much as one segment takes.
pub(crate) fn order(facts: &PartitionFacts, settings: SealSettings) -> SealOrder {
    SealOrder {
        at: facts.at,
        from: facts.archived_end,
        to: facts.end,
        max_bytes: settings.bytes.0,
    }
}

/// A segment to write, and what it is called.
pub(crate) struct Job {
    pub(crate) topic: Topic,
    pub(crate) order: SealOrder,
    /// Makes the object's name unlike all others.
    pub(crate) nonce: String,
}

/// Most segments that are written at once.
const AT_ONCE: u64 = 8;

/// How many segments are written at once in so much memory: each holds a row group.
pub(crate) fn at_once(memory: ByteSize) -> usize {
    ByteSize((memory.0 / ROW_GROUP_BYTES as u64).clamp(1, AT_ONCE)).as_usize()
}

/// Writes segments below `dir`, each within so much `memory`, uploads them and gives back what the manifest has to
/// name. Until then the objects are orphans. `next` gives events of a partition from an offset on, at least one, on a
/// thread that may block; a segment may be begun twice. The segments grow side by side in commit order,
/// so that a frame with events of several partitions is read once.
///
/// # Errors
/// Per job `StorageFull`, `Unavailable`, `Corrupt`, and whatever `next` says; nothing is named by then,
/// so the same order may be given again.
pub(crate) async fn write_segments(
    objects: &Objects,
    dir: &Path,
    (jobs, memory): (Vec<Job>, ByteSize),
    urgency: Urgency,
    next: impl FnMut(PartitionId, u64) -> Result<Vec<Batch>> + Send + 'static,
) -> Vec<(SealOrder, Result<SegmentMeta>)> {
    let files: Vec<PathBuf> = jobs.iter().map(|job| job.file(dir)).collect();
    let scratch: Vec<Scratch> = files.iter().cloned().map(Scratch).collect();
    let orders: Vec<SealOrder> = jobs.iter().map(|job| job.order).collect();
    let paths: Vec<_> = jobs
        .iter()
        .map(|job| (job.topic.name.clone(), job.nonce.clone()))
        .collect();
    let folder = dir.to_owned();
    let kind = Kind::within(objects, memory);
    let work = move || {
        std::fs::create_dir_all(&folder).map_err(|error| {
            Error::unavailable(
                "segment-not-written",
                format!("{} can't be created: {error}", folder.display()),
            )
        })?;
        let begun = jobs.into_iter().zip(files);
        Ok(write_files(
            begun
                .map(|(job, file)| Writing::begin(&kind, job.topic, job.order, file))
                .collect(),
            next,
        ))
    };
    let written = match tidemill_env::in_background("sealing", urgency, work).await {
        Ok(written) => written,
        Err(error) => orders.iter().map(|_| Err(error.clone())).collect(),
    };
    let mut done = Vec::with_capacity(orders.len());
    for (((order, written), (name, nonce)), scratch) in
        orders.into_iter().zip(written).zip(paths).zip(scratch)
    {
        let uploaded = match written {
            Err(error) => Err(error.at(format!(
                "sealing {:?} partition {}",
                name.as_str(),
                order.at.partition
            ))),
            Ok(Finished { meta, checksum }) => {
                let path = paths::segment(&name, order.at.partition, meta.first, &nonce);
                let path = paths::with_checksum(&path, checksum);
                let uploaded = objects.upload(&path, &scratch.0).await;
                uploaded.map(|()| SegmentMeta { path, ..meta })
            }
        };
        done.push((order, uploaded));
    }
    done
}

impl Job {
    fn file(&self, dir: &Path) -> PathBuf {
        let PartitionId { topic, partition } = self.order.at;
        dir.join(format!("{}-{partition}.parquet", topic.0))
    }
}

/// A file that goes when it is no longer needed; the object may be another name of it.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // A file that stays is replaced by the next segment of the partition.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A segment that grows.
struct Writing {
    kind: Kind,
    topic: Topic,
    order: SealOrder,
    file: PathBuf,
    writer: Option<SegmentWriter>,
    /// Next offset to write.
    at: u64,
    /// Event bytes so far.
    bytes: u64,
    /// The UTC day of its events' ingest.
    day: Option<i64>,
    /// Commit of the last event, for the order among segments.
    commit: CommitSeq,
    complete: bool,
}

fn write_files(
    begun: Vec<Result<Writing>>,
    mut next: impl FnMut(PartitionId, u64) -> Result<Vec<Batch>>,
) -> Vec<Result<Finished>> {
    let mut all = begun;
    loop {
        let growing = all
            .iter_mut()
            .filter(|writing| writing.as_ref().is_ok_and(|writing| !writing.complete));
        let hindmost =
            growing.min_by_key(|writing| writing.as_ref().map_or(CommitSeq(0), |w| w.commit));
        let Some(slot) = hindmost else { break };
        if let Ok(writing) = slot
            && let Err(error) = writing.grow(&mut next)
        {
            *slot = Err(error);
        }
    }
    all.into_iter()
        .map(|writing| writing.and_then(Writing::finish))
        .collect()
}

impl Writing {
    fn begin(kind: &Kind, topic: Topic, order: SealOrder, file: PathBuf) -> Result<Self> {
        let writer = SegmentWriter::create(kind, &file, &topic, order.at.partition)?;
        Ok(Self {
            kind: kind.clone(),
            topic,
            order,
            file,
            writer: Some(writer),
            at: order.from,
            bytes: 0,
            day: None,
            commit: CommitSeq(0),
            complete: order.from >= order.to,
        })
    }

    /// Writes what one read brings.
    fn grow(
        &mut self,
        next: &mut impl FnMut(PartitionId, u64) -> Result<Vec<Batch>>,
    ) -> Result<()> {
        let batches = next(self.order.at, self.at)?;
        if batches.iter().all(Batch::is_empty) {
            return Err(self.missing());
        }
        for batch in batches.iter().filter(|batch| !batch.is_empty()) {
            match self.write(batch) {
                Err(error) if error.code == NOT_TEXT => {
                    tracing::warn!(
                        topic = self.topic.name.as_str(),
                        "a value is not UTF-8; this segment shows values as bytes"
                    );
                    return self.begin_again();
                }
                written => written?,
            }
            if self.complete {
                break;
            }
        }
        Ok(())
    }

    fn write(&mut self, batch: &Batch) -> Result<()> {
        if batch.offset(0) < self.at {
            return Err(self.missing());
        }
        let batch = batch.slice(0..batch.row_at(self.order.to));
        if batch.is_empty() {
            self.complete = true;
            return Ok(());
        }
        let day = *self
            .day
            .get_or_insert_with(|| batch.ingest_time(0).utc_day());
        let (rows, bytes) = rows_that_fit(&batch, day, self.order.max_bytes - self.bytes);
        if rows > 0 {
            let taken = batch.slice(0..rows);
            if let Some(writer) = &mut self.writer {
                writer.write(&taken)?;
            }
            self.bytes += bytes;
            self.at = batch.offset(rows - 1) + 1;
            self.commit = batch.commit(rows - 1);
        }
        self.complete =
            rows < batch.len() || self.at >= self.order.to || self.bytes >= self.order.max_bytes;
        Ok(())
    }

    /// From the start, with values as they are.
    fn begin_again(&mut self) -> Result<()> {
        self.writer = None;
        self.topic.settings.format = Format::Bytes;
        let (topic, file) = (self.topic.clone(), std::mem::take(&mut self.file));
        *self = Self::begin(&self.kind, topic, self.order, file)?;
        Ok(())
    }

    fn missing(&self) -> Error {
        Error::internal(format!(
            "no events came from offset {} on, which were committed",
            self.at
        ))
    }

    fn finish(self) -> Result<Finished> {
        match self.writer {
            Some(writer) => writer.finish(),
            None => Err(Error::internal(
                "a segment without a file was to be finished",
            )),
        }
    }
}

/// How many rows of the same UTC day of ingest there are until they have `room` bytes, and their bytes.
fn rows_that_fit(batch: &Batch, day: i64, room: u64) -> (usize, u64) {
    let of_day = |time: Timestamp| time.utc_day() == day;
    let same = batch.same_ingest_time().map(of_day);
    let (mut rows, mut bytes) = (0, 0);
    while rows < batch.len()
        && bytes < room
        && same.unwrap_or_else(|| of_day(batch.ingest_time(rows)))
    {
        bytes += batch.head(rows).bytes() as u64;
        rows += 1;
    }
    (rows, bytes)
}

/// Deletes segments that `manifest` doesn't name: what a crash left between upload and manifest, or
/// between manifest and deletion, so that a plain listing of a topic shows each event once. Answers how
/// many it deleted.
///
/// Only for the owner, after it committed `manifest` and before it uploads anything: an object that is
/// about to be named looks like one that nobody will name. Objects with other names than segments have
/// are left alone.
///
/// # Errors
/// `Unavailable`; what was deleted stays deleted.
pub(crate) async fn remove_orphans(objects: &Objects, manifest: &Manifest) -> Result<usize> {
    let partitions = manifest.topics.iter().flat_map(|topic| &topic.partitions);
    let named: HashSet<&str> = partitions
        .flat_map(|partition| &partition.segments)
        .map(|segment| segment.path.as_str())
        .collect();
    let mut deleted = 0;
    for path in objects.list(paths::TOPICS).await? {
        if paths::parse_segment(&path).is_some() && !named.contains(path.as_str()) {
            objects.delete(&path).await?;
            deleted += 1;
        }
    }
    Ok(deleted)
}

#[cfg(test)]
mod tests;
