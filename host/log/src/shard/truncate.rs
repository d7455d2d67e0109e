//! Where partitions start: moved by a frame, seen by readers once it is durable.

use super::{Shard, TopicPartitions};
use crate::Ticket;
use crate::draft::Draft;
use crate::sequencer::Truncation;
use std::collections::HashMap;
use std::sync::Arc;
use tidemill_types::{Error, Result, TopicId};

impl Shard {
    /// Sequences a truncation; readers see it when the frame is durable.
    ///
    /// # Errors
    /// `OutOfRange` above the end; as [`Shard::commit`].
    pub(crate) fn truncate(&self, truncation: Truncation) -> Result<Ticket> {
        let mut draft = Draft::new();
        draft.truncate(truncation);
        self.commit(draft)
            .map_err(|(error, _): (Error, Draft)| error)
    }

    pub(super) fn publish_truncations(
        &self,
        topics: &HashMap<TopicId, Arc<TopicPartitions>>,
        truncations: &[Truncation],
    ) {
        for truncation in truncations {
            let topic = topics.get(&truncation.at.topic);
            let partition =
                topic.and_then(|topic| topic.partitions.get(truncation.at.partition as usize));
            if let Some(partition) = partition {
                let (events, bytes) = partition.lock().truncate(truncation.before);
                self.meters.truncated(events, bytes);
            }
        }
    }
}
