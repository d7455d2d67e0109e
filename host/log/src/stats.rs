//! Figures about one topic.

use crate::Range;
use crate::flow::Rate;
use crate::segment::{ABSENT, Segments};
use crate::shard::Shard;
use std::sync::Arc;
use tidemill_types::{Result, TopicId};

/// Segments whose footers are read to tell how well they are compressed.
const SAMPLED: usize = 8;

/// What there is of a partition, and how much comes in.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PartitionStats {
    /// Its offsets.
    pub range: Range,
    /// Its segments.
    pub segments: u64,
    /// Events in them.
    pub segment_events: u64,
    /// Their bytes, as stored.
    pub segment_bytes: u64,
    /// Key, value and header bytes of events that are only in the journal.
    pub journal_bytes: u64,
    /// Of those, what is in memory too.
    pub memory_bytes: u64,
    /// How much comes in, as of the last minute or so.
    pub rate: Rate,
}

/// How well segments are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compression {
    /// Segments that were looked at: the newest of each partition.
    pub segments: usize,
    /// Their bytes, as stored.
    pub stored: u64,
    /// The same pages unpacked.
    pub unpacked: u64,
}

pub(crate) fn partitions(shard: &Shard, topic: TopicId) -> Result<Vec<PartitionStats>> {
    let topic = shard.topic(topic)?;
    let stats = (0..).zip(topic.all()).map(|(number, partition)| {
        let partition = partition.lock();
        let segments = partition.segments();
        PartitionStats {
            range: partition.range(number),
            segments: segments.len() as u64,
            segment_events: segments.iter().map(|it| it.events).sum(),
            segment_bytes: segments.iter().map(|it| it.bytes).sum(),
            journal_bytes: partition.unsealed_bytes(),
            memory_bytes: partition.memory_bytes(),
            rate: partition.flow.rate(),
        }
    });
    Ok(stats.collect())
}

pub(crate) async fn compression(
    shard: &Shard,
    stored: &Segments,
    topic: TopicId,
) -> Result<Compression> {
    let topic = shard.topic(topic)?;
    let newest = topic.all().iter();
    let newest = newest.filter_map(|partition| partition.lock().segments().last().map(Arc::clone));
    let newest: Vec<_> = newest.take(SAMPLED).collect();
    let mut all = Compression::default();
    for meta in newest {
        match stored.unpacked_bytes(&meta).await {
            Ok(unpacked) => {
                all.segments += 1;
                all.stored += meta.bytes;
                all.unpacked += unpacked;
            }
            // Compaction or retention took it away meanwhile.
            Err(error) if error.code == ABSENT => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}
