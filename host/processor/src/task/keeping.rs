//! Counting what a task's changes add to its function's state, and refusing what would be too much.

use super::Task;
use crate::effects::{Effects, Refusal};
use crate::record::Role;
use crate::usage::{Growth, Kept, Usage, growth};
use std::collections::BTreeMap;
use tidemill_types::ByteSize;

/// What there is to say of effects that pass the function's `state_bytes`.
pub(super) enum Full {
    /// Perhaps they don't: count again.
    Doubtful,
    /// These events want too much.
    Refused(BTreeMap<usize, String>),
}

impl Task {
    /// Whether it changes state.
    pub(super) fn keeps(&self) -> bool {
        self.role == Role::Main && self.deployment.slots.keyed()
    }

    /// What all partitions of the function keep.
    pub(super) fn usage(&self) -> &Usage {
        &self.deployment.usage
    }

    /// Takes what was counted.
    pub(super) fn measured(&mut self, kept: Kept) {
        self.deployment.usage.set(self.partition(), kept.bytes);
        self.kept = Some(kept);
    }

    /// Counts what effects add, and adds the account to their changes.
    pub(super) fn account(
        &self,
        effects: &mut Effects,
    ) -> std::result::Result<Option<Kept>, Refusal> {
        let Some(kept) = self.kept.filter(|_| !effects.changes.is_empty()) else {
            return Ok(None);
        };
        let growth = match effects.growth {
            Some(growth) => growth,
            None => self.growth_of(effects, |_, _| {})?,
        };
        let after = kept.after(&growth);
        after.write(&mut effects.changes);
        Ok(Some(after))
    }

    /// Which of a run's events can't be accepted because the function would keep too much; `None`: all can.
    pub(super) fn too_much(
        &self,
        effects: &mut Effects,
    ) -> std::result::Result<Option<Full>, Refusal> {
        let Some(kept) = self.kept.filter(|_| !effects.changes.is_empty()) else {
            return Ok(None);
        };
        let (limit, usage) = (
            self.deployment.manifest.limits.state_bytes,
            &self.deployment.usage,
        );
        let before = i128::from(usage.total());
        let grown = match effects.growth {
            Some(grown) => grown,
            None => self.growth_of(effects, |_, _| {})?,
        };
        effects.growth = Some(grown);
        // What shrinks is welcome, however much there is.
        if grown.bytes <= 0 || before + i128::from(grown.bytes) <= i128::from(limit.0) {
            return Ok(None);
        }
        if usage.is_doubtful(kept, limit) {
            return Ok(Some(Full::Doubtful));
        }
        let mut wanted: BTreeMap<Option<usize>, i64> = BTreeMap::new();
        self.growth_of(effects, |number, bytes| {
            let owner = number.checked_sub(effects.turns);
            let owner = owner.and_then(|at| effects.owners.get(at).copied());
            *wanted.entry(owner).or_default() += bytes;
        })?;
        let mut running = before;
        let mut refused = BTreeMap::new();
        for (owner, bytes) in wanted {
            let sum = running + i128::from(bytes);
            match owner {
                Some(event) if bytes > 0 && sum > i128::from(limit.0) => {
                    let has = ByteSize(u64::try_from(running).unwrap_or_default());
                    refused.insert(
                        event,
                        format!("state_bytes limit of {limit}: the function keeps {has}, and this event would add {bytes} bytes"),
                    );
                }
                _ => running = sum,
            }
        }
        Ok(Some(Full::Refused(refused)))
    }

    fn growth_of(
        &self,
        effects: &Effects,
        mut each: impl FnMut(usize, i64),
    ) -> std::result::Result<Growth, Refusal> {
        let mut sum = Growth::default();
        self.parts.state.read(self.scope(), |reader| {
            growth(effects.changes.as_bytes(), reader, |number, one| {
                sum.bytes += one.bytes;
                sum.uncertain += one.uncertain;
                each(number, one.bytes);
            })
        })?;
        Ok(sum)
    }
}
