//! Timers set and cancelled during one batch, with a way back for an event that doesn't go through.

use super::Running;
use crate::abi::{Change, Clock};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::rc::Rc;

/// When a timer is due, and whose it is: the order in which timers of one time go.
type Due = (i64, Rc<[u8]>, Rc<[u8]>);

/// In which time a timer is due, when, and what it brings along.
type Set = (Clock, i64, Option<Rc<[u8]>>);

/// What a timer comes to.
#[derive(Clone)]
struct Entry {
    /// `None`: cancelled.
    set: Option<Set>,
    changed_by: u32,
}

type Name = (Rc<[u8]>, Rc<[u8]>);

/// Timers that this batch changed, by key and tag.
#[derive(Default)]
pub(crate) struct TimerChanges {
    timers: BTreeMap<Name, Entry>,
    undo: Vec<(Name, Option<Entry>)>,
    /// The first that is due of those set so far, in each time. One that was cancelled since may be among
    /// them: then the batch only ends earlier than it would have to.
    soonest: [Option<Due>; 2],
}

impl TimerChanges {
    pub(super) fn is_touched(&self) -> bool {
        !self.undo.is_empty()
    }

    pub(super) fn keep(&mut self) {
        for (name, _) in self.undo.drain(..) {
            let Some((clock, due, _)) = self.timers.get(&name).and_then(|entry| entry.set.clone())
            else {
                continue;
            };
            let soonest = &mut self.soonest[clock as usize];
            let due = (due, name.0, name.1);
            if soonest.as_ref().is_none_or(|soonest| due < *soonest) {
                *soonest = Some(due);
            }
        }
    }

    pub(super) fn undo(&mut self) {
        while let Some((name, before)) = self.undo.pop() {
            match before {
                Some(entry) => self.timers.insert(name, entry),
                None => self.timers.remove(&name),
            };
        }
    }

    /// What changed, with the last event that did.
    pub(super) fn changes(&self) -> impl Iterator<Item = (u32, Change<'_>)> {
        self.timers.iter().map(|((_, tag), entry)| {
            let change = match &entry.set {
                Some((clock, due, payload)) => Change::SetTimer {
                    clock: *clock,
                    due: *due,
                    tag,
                    payload: payload.as_deref(),
                },
                None => Change::CancelTimer { tag },
            };
            (entry.changed_by, change)
        })
    }

    /// Whether a timer of this time set so far is due by a moment.
    fn is_due(&self, clock: Clock, by: i64) -> bool {
        let soonest = &self.soonest[clock as usize];
        soonest.as_ref().is_some_and(|(due, ..)| *due <= by)
    }

    /// Whether a timer of this time set so far goes before another one.
    fn goes_before(&self, clock: Clock, other: (i64, &[u8], &[u8])) -> bool {
        let soonest = &self.soonest[clock as usize];
        soonest
            .as_ref()
            .is_some_and(|(due, key, tag)| (*due, &**key, &**tag) < other)
    }
}

impl Running<'_> {
    /// Sets a timer of the event's key, or cancels it.
    pub(crate) fn set_timer(
        &self,
        tag: &str,
        set: Option<(Clock, i64, Option<Vec<u8>>)>,
    ) -> Result<()> {
        let index = self.index()?;
        let Some(key) = self.row(index)?.key else {
            return Err(Error::dead_letter(
                "the event has no key, so there is nothing to keep a timer by",
            ));
        };
        let name: Name = (key.into(), tag.as_bytes().into());
        let entry = Entry {
            set: set.map(|(clock, due, payload)| (clock, due, payload.map(Into::into))),
            changed_by: index,
        };
        let timers = &mut self.overlay.borrow_mut().timers;
        let before = timers.timers.insert(name.clone(), entry);
        timers.undo.push((name, before));
        Ok(())
    }

    /// Whether timers that this batch set take their turn before event `index`.
    pub(super) fn timers_first(&self, index: u32) -> bool {
        let overlay = self.overlay.borrow();
        let timers = &overlay.timers;
        if timers.soonest.iter().all(Option::is_none) {
            return false;
        }
        let Ok(row) = self.row(index) else {
            return false;
        };
        let watermark = self.watermark_at(index);
        let tag = row.headers.last().map_or(&[][..], |(_, tag)| tag);
        let this = (row.time, row.key.unwrap_or_default(), tag);
        match self.batch.timer(index) {
            None => {
                timers.is_due(Clock::Event, watermark)
                    || timers.is_due(Clock::Processing, row.ingest_time)
            }
            Some(Clock::Event) => timers.goes_before(Clock::Event, this),
            Some(Clock::Processing) => {
                timers.is_due(Clock::Event, watermark)
                    || timers.goes_before(Clock::Processing, this)
            }
        }
    }
}
