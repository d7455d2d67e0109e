//! Retention performed, and what the manifest has to let go of.

use super::Keeper;
use crate::manifest::Manifest;
use crate::retention;
use crate::sealer::SealOrder;
use crate::sequencer::Truncation;
use crate::shard::Shard;
use std::sync::Arc;
use tidemill_types::PartitionId;

impl Keeper {
    /// Moves the starts of partitions as their topics' retention says; readers see it when it is
    /// durable, and the segments go with the next manifest.
    pub(crate) fn retain(&self, shard: &Shard) {
        for topic in shard.all_topics() {
            let settings = &topic.topic.settings;
            let bounds = settings.retention;
            let unbounded = bounds.age.is_none() && bounds.bytes.is_none();
            if unbounded || !settings.cleanup.deletes() {
                continue;
            }
            for (number, partition) in (0..).zip(topic.all()) {
                let at = PartitionId {
                    topic: topic.topic.id,
                    partition: number,
                };
                let segments = partition.lock().segments().to_vec();
                let (start, reader) = shard.with_sequencer(|s| (s.start(at), s.least_position(at)));
                let now = shard.clock.now();
                let before = retention::new_start(&segments, bounds, reader, now);
                let Some(before) = before.filter(|before| Some(*before) > start) else {
                    continue;
                };
                let name = topic.topic.name.as_str();
                match shard.truncate(Truncation { at, before }) {
                    Ok(_) => {
                        shard.meters.retained();
                        tracing::info!(
                            topic = name,
                            partition = number,
                            start = before,
                            "retention moved the start of a partition"
                        );
                    }
                    // The next round tries again.
                    Err(error) => tracing::warn!(
                        %error,
                        topic = name,
                        partition = number,
                        "retention can't move the start of a partition"
                    ),
                }
            }
        }
    }
}

/// Whether a manifest names topics that are deleted or segments that lie below a partition's start.
pub(super) fn names_too_much(shard: &Arc<Shard>, manifest: &Manifest) -> bool {
    manifest.topics.iter().any(|known| {
        let Ok(topic) = shard.topic(known.topic.id) else {
            return true;
        };
        let mut pairs = known.partitions.iter().zip(topic.all());
        pairs.any(|(known, partition)| {
            let first = known.segments.first();
            first.is_some_and(|segment| segment.end <= partition.lock().start())
        })
    })
}

/// Whether a partition starts behind what was to be sealed.
pub(super) fn starts_behind(shard: &Arc<Shard>, order: SealOrder) -> bool {
    let partition = shard.partition(order.at);
    partition.is_ok_and(|partition| partition.lock().start() >= order.to)
}
