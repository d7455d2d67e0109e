//! Moving events to the internal topic by key: the same events, keyed by a value inside them, each
//! with a first header that says where it came from, and how far event time is in all partitions of the input.
//! Partitions of the internal topic that get no event are told so by a mark, now and then.

use super::firing::Turned;
use super::transaction::{Prepared, Then};
use super::{Slice, Task, moved_from};
use crate::effects::{Effects, Refusal, partition_of};
use crate::origin::{HEADER, Moved, Origin};
use crate::sources::{NONE, Tale};
use std::ops::Range;
use std::sync::Arc;
use tidemill_log::{Draft, ReadLimit, Topic};
use tidemill_types::{PackedRows, Result, Timestamp};

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
        let (Some(pending), Some(pointer), Some(topic), Some(sources)) =
            (&self.pending, &self.pointer, self.moves_to(), &self.sources)
        else {
            return Ok(effects);
        };
        let now = self.parts.clock.now().micros();
        let beside = sources.beside(self.partition(), now);
        let count = topic.settings.partitions;
        let (mut rows, mut partitions) = (PackedRows::default(), Vec::with_capacity(run.len()));
        let (mut header, mut reached) = (Vec::new(), NONE);
        let mut told: Vec<Option<i64>> = vec![None; count as usize];
        for row in run.clone() {
            let event = pending.raw(row);
            let key = event.row.value.and_then(|value| pointer.scalar(value));
            self.desk().read(&mut effects, pending, row);
            let seen = effects.note.seen.map_or(NONE, Timestamp::micros);
            reached = seen.min(beside);
            Origin {
                partition: self.partition(),
                offset: event.offset,
                key: event.row.key,
                moved: Moved::Event,
                reached: Some(reached),
            }
            .encode(&mut header);
            let headers = std::iter::once((HEADER, header.as_slice())).chain(event.row.headers);
            rows.push(event.row.time, key.as_deref(), event.row.value, headers)?;
            let to = partition_of(key.as_deref(), self.partition(), count);
            partitions.push(to);
            if let Some(told) = told.get_mut(to as usize) {
                *told = Some(reached);
            }
        }
        effects.note.counts.effective += run.len() as u64;
        effects.note.counts.emitted += run.len() as u64;
        effects.rows = run.len();
        let told = (0..).zip(told);
        let mut told: Vec<(u32, i64)> = told.filter_map(|(to, told)| Some((to, told?))).collect();
        let marks = sources.to_tell(&told, reached, now);
        let time = pending.times(run.end.saturating_sub(1)).0;
        self.mark(&marks, (Moved::Mark, reached), time, &mut rows)?;
        partitions.extend(&marks);
        told.extend(marks.into_iter().map(|to| (to, reached)));
        effects.tale = Tale { told, at: now };
        effects.outputs = vec![(rows, partitions)];
        Ok(effects)
    }

    /// There is nothing to move. Partitions of the internal topic that don't know how far time is since a source
    /// partition fell idle, or since it was left to later, are told in a transaction of their own.
    pub(super) fn tell_of_time(&mut self) -> Option<Turned> {
        let tale = self.untold()?;
        let laid_out = self.lay_out_marks(&tale).transpose()?;
        match laid_out {
            Ok(draft) => {
                self.prepared = Some(Prepared {
                    draft,
                    sections: Vec::new(),
                    note: self.note,
                    kept: None,
                    timers: Vec::new(),
                    parked: Vec::new(),
                    position: self.position.clone(),
                    tale,
                    future: 0,
                    rows: 0,
                    then: Then::Go,
                });
                Some(Turned::InFront)
            }
            Err(error) => Some(Turned::Wait(Slice::Fault(error))),
        }
    }

    fn untold(&self) -> Option<Tale> {
        let sources = self.sources.as_ref()?;
        let now = self.parts.clock.now().micros();
        sources.is_quiet(self.partition(), now)
    }

    fn lay_out_marks(&self, tale: &Tale) -> Result<Option<Draft>> {
        let Some(topic) = self.moves_to() else {
            return Ok(None);
        };
        let (mut rows, mut draft) = (PackedRows::default(), Draft::new());
        let partitions: Vec<u32> = tale.told.iter().map(|(to, _)| *to).collect();
        let reached = tale.told.first().map_or(NONE, |(_, reached)| *reached);
        let time = Timestamp::from_micros(reached);
        self.mark(&partitions, (Moved::Silence, reached), time, &mut rows)?;
        self.advance(&self.position, &self.note, &mut draft);
        draft.append(topic.id, &rows, &partitions)?;
        Ok(Some(draft))
    }

    /// Adds a mark for each of some partitions.
    fn mark(
        &self,
        partitions: &[u32],
        (moved, reached): (Moved, i64),
        time: Timestamp,
        rows: &mut PackedRows,
    ) -> Result<()> {
        if partitions.is_empty() {
            return Ok(());
        }
        let mut header = Vec::new();
        Origin {
            partition: self.partition(),
            offset: self.position.first(),
            key: None,
            moved,
            reached: Some(reached),
        }
        .encode(&mut header);
        for _ in partitions {
            rows.push(time, None, None, [(HEADER, header.as_slice())])?;
        }
        Ok(())
    }
}
