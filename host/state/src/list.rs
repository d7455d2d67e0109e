//! Entries of a slot in key order, memory and the store behind merged as of one moment.

use crate::behind::{Failure, View};
use crate::engine::Engine;
use crate::live::Part;
use crate::{ORDERED_SLOTS, Scope, keys};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use tidemill_types::Result;

/// What is looked for.
pub(crate) struct Query<'a> {
    pub(crate) scope: Scope,
    pub(crate) slot: u16,
    pub(crate) prefix: &'a [u8],
    /// Where to start within it.
    pub(crate) from: Bound<&'a [u8]>,
    pub(crate) limit: usize,
}

/// What memory says; keys it knows to be absent hide what the store behind has.
type Overlay = BTreeMap<Bytes, Option<Bytes>>;

/// Entries in key order.
///
/// # Errors
/// `Unavailable` when the store behind is needed and can't be read.
pub(crate) fn list(engine: &Engine, query: &Query<'_>) -> Result<Vec<(Bytes, Bytes)>> {
    // The view is opened under the scope's lock: what isn't in memory then is in the view as it is.
    let looked = engine.live.read(query.scope, |part| {
        let Some(part) = part else {
            return Ok((Overlay::new(), None));
        };
        let overlay = query.overlay(part);
        let behind = if part.cells.complete() {
            None
        } else {
            Some(engine.behind()?)
        };
        Ok((overlay, behind.map(|behind| behind.view())))
    });
    let (overlay, view) = looked?;
    let entries = match view {
        None => Ok(BTreeMap::new()),
        Some(view) => view.and_then(|view| query.scan(&*view, &overlay)),
    };
    let mut entries = entries.map_err(|failure| engine.failed_read(&failure))?;
    entries.extend(
        overlay
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?))),
    );
    Ok(entries.into_iter().take(query.limit).collect())
}

impl Query<'_> {
    fn wants(&self, key: &[u8]) -> bool {
        let started = match self.from {
            Bound::Unbounded => true,
            Bound::Included(from) => key >= from,
            Bound::Excluded(after) => key > after,
        };
        started && key.starts_with(self.prefix)
    }

    /// No key that is wanted lies before this one.
    fn start(&self) -> &[u8] {
        match self.from {
            Bound::Included(from) | Bound::Excluded(from) => from.max(self.prefix),
            Bound::Unbounded => self.prefix,
        }
    }

    /// As [`Query::overlay`], of a slot that is in order.
    fn ordered(&self, part: &Part) -> Overlay {
        let mut values = 0;
        let held = part.cells.ordered(self.slot, self.start());
        held.take_while(|(key, _)| key.starts_with(self.prefix))
            .filter(|(key, _)| self.wants(key))
            .take_while(|(_, value)| {
                values += usize::from(value.is_some());
                values <= self.limit
            })
            .map(|(key, value)| {
                let value = value.map(Bytes::copy_from_slice);
                (Bytes::copy_from_slice(key), value)
            })
            .collect()
    }

    /// The first values in memory, as many as are asked for, and the absences among them.
    fn overlay(&self, part: &Part) -> Overlay {
        if self.slot >= ORDERED_SLOTS {
            return self.ordered(part);
        }
        let wanted = |slot, key| slot == self.slot && self.wants(key);
        let held = || {
            part.cells
                .iter()
                .filter(|(slot, key, _)| wanted(*slot, key))
        };
        let mut values: Vec<(&[u8], &[u8])> = held()
            .filter_map(|(_, key, value)| Some((key, value?)))
            .collect();
        if self.limit < values.len() {
            values.select_nth_unstable(self.limit);
            values.truncate(self.limit);
        }
        let last = values
            .iter()
            .map(|(key, _)| *key)
            .max()
            .filter(|_| values.len() == self.limit);
        let mut overlay: Overlay = values
            .iter()
            .map(|(key, value)| {
                (
                    Bytes::copy_from_slice(key),
                    Some(Bytes::copy_from_slice(value)),
                )
            })
            .collect();
        if !part.cells.complete() {
            let absent = held()
                .filter(|(_, key, value)| value.is_none() && last.is_none_or(|last| *key <= last));
            overlay.extend(absent.map(|(_, key, _)| (Bytes::copy_from_slice(key), None)));
        }
        overlay
    }

    /// The first entries of the store behind of which memory says nothing.
    fn scan(&self, view: &dyn View, overlay: &Overlay) -> Result<BTreeMap<Bytes, Bytes>, Failure> {
        let from = keys::encode_start(self.scope, self.slot, self.start());
        let to = keys::behind(&keys::encode_start(self.scope, self.slot, self.prefix));
        let mut found = BTreeMap::new();
        view.scan(Bound::Included(&from), to.as_deref(), &mut |key, value| {
            if let Some(stored) = keys::decode(key, value)
                && self.wants(stored.key)
                && !overlay.contains_key(stored.key)
            {
                found.insert(
                    Bytes::copy_from_slice(stored.key),
                    Bytes::copy_from_slice(stored.value),
                );
            }
            // Very long keys with the same beginning don't lie in order.
            if found.len() < self.limit || keys::is_long(key) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        Ok(found)
    }
}
