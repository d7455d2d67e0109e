//! What is sequenced, for those who follow it ahead of the disk.

use super::Shard;
use super::local::batch_of;
use crate::draft::Body;
use crate::journal::Filling;
use crate::sequencer::Sequenced;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidemill_types::TopicId;

/// A group waits for followers as long as a sync takes, within these bounds.
const HOLD_MICROS: std::ops::RangeInclusive<u64> = 50..=2_000;
/// From groups of this many bytes on, writing a file with zeros first costs more than it saves.
const LARGE_GROUP: u64 = 512 << 10;

impl Shard {
    /// Hands a frame's events to those who follow their partitions. Frames must come in order.
    pub(super) fn append_ahead(&self, body: &mut Body, sequenced: Sequenced) {
        if self.followers.load(Ordering::Acquire) == 0 {
            return;
        }
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        for slice in &body.slices {
            let topic = topics.get(&TopicId(slice.topic));
            let partition = topic.and_then(|it| it.partitions.get(slice.partition as usize));
            let (Some(partition), Some(section)) =
                (partition, body.sections.get(slice.section as usize))
            else {
                continue;
            };
            let mut partition = partition.lock();
            if partition.is_followed() {
                let bytes = body.bytes.share(&self.buffers);
                let batch = batch_of(&bytes, section, slice, sequenced.seq, sequenced.time);
                partition.append(batch, &self.hold);
            }
        }
    }

    /// Waits a little for followers that were woken by what is queued.
    pub(crate) fn wait_for_followers(&self) {
        let most = self.sync_micros.load(Ordering::Relaxed);
        let most = most.clamp(*HOLD_MICROS.start(), *HOLD_MICROS.end());
        self.hold.wait(Duration::from_micros(most));
    }

    /// Takes note of how long a group's write and sync took.
    pub(super) fn note_sync(&self, took: Duration, bytes: u64) {
        let took = u64::try_from(took.as_micros())
            .unwrap_or(u64::MAX)
            .min(1_000_000);
        self.busy_micros.fetch_add(took, Ordering::Relaxed);
        note(&self.sync_micros, took);
        note(&self.group_bytes, bytes);
    }

    /// How journal files are best made for groups as large as the last ones.
    pub(super) fn filling(&self) -> Filling {
        match self.group_bytes.load(Ordering::Relaxed) >= LARGE_GROUP {
            true => Filling::Reserved,
            false => Filling::Zeros,
        }
    }
}

/// Adds one to an average of the last ones.
fn note(average: &AtomicU64, one: u64) {
    let before = average.load(Ordering::Relaxed);
    let now = match before {
        0 => one,
        before => (before * 7 + one) / 8,
    };
    average.store(now, Ordering::Relaxed);
}
