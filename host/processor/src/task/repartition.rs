//! Moving events to the internal topic by key: the same events, keyed by a value inside them, each
//! with a first header that says where it came from.

use super::transaction::Then;
use super::{Slice, Task, moved_from};
use crate::effects::{Effects, Refusal, partition_of};
use crate::origin::{HEADER, Origin};
use std::ops::Range;
use std::sync::Arc;
use tidemill_log::{ReadLimit, Topic};
use tidemill_types::{PackedRows, Result};

/// How much is moved at once.
pub(super) const LIMIT: ReadLimit = ReadLimit {
    events: 1024,
    bytes: 1 << 20,
};

impl Task {
    pub(super) fn repartition(&mut self, rows: Range<usize>) -> Option<Slice> {
        let effects = self.moved(rows.clone()).map_err(Refusal::from);
        self.prepare(effects, rows, Then::Go)
    }

    /// The internal topic that it fills.
    pub(super) fn moves_to(&self) -> Option<&Arc<Topic>> {
        let input = moved_from(&self.deployment, self.inputs[0])?;
        self.deployment.inputs[input].by_key.as_ref()
    }

    fn moved(&self, run: Range<usize>) -> Result<Effects> {
        let mut effects = self.desk().empty();
        let (Some(pending), Some(pointer), Some(topic)) =
            (&self.pending, &self.pointer, self.moves_to())
        else {
            return Ok(effects);
        };
        let (mut rows, mut partitions) = (PackedRows::default(), Vec::with_capacity(run.len()));
        let mut header = Vec::new();
        for row in run.clone() {
            let event = pending.raw(row);
            let key = event.row.value.and_then(|value| pointer.scalar(value));
            Origin {
                partition: self.partition(),
                offset: event.offset,
                key: event.row.key,
            }
            .encode(&mut header);
            let headers = std::iter::once((HEADER, header.as_slice())).chain(event.row.headers);
            rows.push(event.row.time, key.as_deref(), event.row.value, headers)?;
            partitions.push(partition_of(
                key.as_deref(),
                self.partition(),
                topic.settings.partitions,
            ));
            self.desk().read(&mut effects, pending, row);
        }
        effects.note.counts.effective += run.len() as u64;
        effects.note.counts.emitted += run.len() as u64;
        effects.outputs = vec![(rows, partitions)];
        effects.rows = run.len();
        Ok(effects)
    }
}
