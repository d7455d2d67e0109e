//! When committed events become a segment, and the steps from there to a named object.

use crate::manifest::Manifest;
use crate::segment::{NOT_TEXT, SegmentMeta, SegmentWriter};
use crate::{Format, Topic, paths};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidemill_env::objects::Objects;
use tidemill_types::{Batch, ByteSize, Error, PartitionId, Result, Timestamp};

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

/// Writes one segment below `dir`, uploads it and gives back what the manifest has to name. Until
/// then the object is an orphan. `next_batch` gives events from an offset on, at least one; it is
/// called on a thread that may block, perhaps twice from the order's start.
///
/// # Errors
/// `StorageFull`, `Unavailable`, `Corrupt`, and whatever `next_batch` says; nothing is named by then,
/// so the same order may be given again.
pub(crate) async fn write_segment(
    objects: &Objects,
    dir: &Path,
    topic: &Topic,
    order: SealOrder,
    nonce: &str,
    next_batch: impl FnMut(u64) -> Result<Batch> + Send + 'static,
) -> Result<SegmentMeta> {
    let file = dir.join(format!(
        "{}-{}.parquet",
        order.at.topic.0, order.at.partition
    ));
    let scratch = Scratch(file.clone());
    let owned = topic.clone();
    let written = tokio::task::spawn_blocking(move || write_file(&file, owned, order, next_batch));
    let written = written
        .await
        .map_err(|_| Error::internal("the writer of a segment stopped"))?;
    let mut meta = written.map_err(|error| {
        error.at(format!(
            "sealing {:?} partition {}",
            topic.name.as_str(),
            order.at.partition
        ))
    })?;
    meta.path = paths::segment(&topic.name, order.at.partition, meta.first, nonce);
    objects.upload(&meta.path, &scratch.0).await?;
    Ok(meta)
}

/// A file that goes when it is no longer needed; the object may be another name of it.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // A file that stays is replaced by the next segment of the partition.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn write_file(
    file: &Path,
    mut topic: Topic,
    order: SealOrder,
    mut next_batch: impl FnMut(u64) -> Result<Batch>,
) -> Result<SegmentMeta> {
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir).map_err(|error| {
            Error::unavailable(
                "segment-not-written",
                format!("{} can't be created: {error}", dir.display()),
            )
        })?;
    }
    match write_events(file, &topic, order, &mut next_batch) {
        Err(error) if error.code == NOT_TEXT => {
            tracing::warn!(
                topic = topic.name.as_str(),
                "a value is not UTF-8; this segment shows values as bytes"
            );
            topic.settings.format = Format::Bytes;
            write_events(file, &topic, order, &mut next_batch)
        }
        written => written,
    }
}

fn write_events(
    file: &Path,
    topic: &Topic,
    order: SealOrder,
    next_batch: &mut impl FnMut(u64) -> Result<Batch>,
) -> Result<SegmentMeta> {
    let mut writer = SegmentWriter::create(file, topic, order.at.partition)?;
    let (mut at, mut bytes, mut day) = (order.from, 0, None);
    while at < order.to && bytes < order.max_bytes {
        let batch = next_batch(at)?;
        if batch.is_empty() || batch.offset(0) < at {
            return Err(Error::internal(format!(
                "no events came from offset {at} on, which were committed"
            )));
        }
        let batch = batch.slice(0..batch.row_at(order.to));
        if batch.is_empty() {
            break;
        }
        let day = *day.get_or_insert_with(|| batch.ingest_time(0).utc_day());
        let rows = rows_that_fit(&batch, day, order.max_bytes - bytes);
        writer.write(&batch.slice(0..rows))?;
        bytes += (0..rows)
            .map(|row| batch.head(row).bytes() as u64)
            .sum::<u64>();
        if rows < batch.len() {
            break;
        }
        at = batch.offset(rows - 1) + 1;
    }
    writer.finish()
}

/// Rows of the same UTC day of ingest, until they have `room` bytes.
fn rows_that_fit(batch: &Batch, day: i64, room: u64) -> usize {
    let mut bytes = 0;
    (0..batch.len())
        .find(|row| {
            let full = bytes >= room;
            bytes += batch.head(*row).bytes() as u64;
            full || batch.ingest_time(*row).utc_day() != day
        })
        .unwrap_or(batch.len())
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
