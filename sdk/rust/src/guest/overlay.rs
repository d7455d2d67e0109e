//! State during one batch: typed values over the bytes that came with it, with a savepoint per event.
//!
//! A hot key is parsed once and written once per batch. To undo an event that did not go through, the
//! bytes of the batch are enough for cells that no earlier event changed. For others the value before
//! the event would have to be written down at every event; that is only done once it has proved
//! necessary ([`Overlay::careful`]): the batch is then run again from its start.

use super::maps::Maps;
use super::running::View;
use super::timers::TimerChanges;
use crate::abi::{Answer, BatchView, Change};
use crate::event::read_json;
use crate::function::Slot;
use crate::output::append_json;
use crate::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::Any;
use std::rc::Rc;

/// A value of a slot, whatever its type.
pub(crate) trait SlotValue: Any {
    /// Appends its stored form.
    fn append(&self, out: &mut Vec<u8>) -> serde_json::Result<()>;
}

impl<T: Serialize + Any> SlotValue for T {
    fn append(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        append_json(self, out)
    }
}

/// State of all keys and slots of a batch.
pub(crate) struct Overlay {
    cells: Vec<Cell>,
    /// Cells that the running event changed.
    touched: Vec<usize>,
    careful: bool,
    pub(super) maps: Maps,
    pub(super) timers: TimerChanges,
}

#[derive(Default)]
struct Cell {
    content: Content,
    /// The last event that changed it.
    changed_by: Option<u32>,
    /// When what a change put there expires.
    expires: Option<i64>,
    /// What to go back to if the running event doesn't go through.
    before: Option<Before>,
}

#[derive(Clone, Default)]
enum Content {
    /// As the batch brought it.
    #[default]
    Unread,
    Absent,
    Value(Rc<dyn SlotValue>),
    Count(Count),
    /// Written down, to be read again when asked for.
    Written(Rc<[u8]>),
    /// The author's code is changing it right now.
    Taken,
}

/// What a counter holds: nothing has to be made or parsed to count on.
#[derive(Clone, Copy)]
struct Count {
    now: i64,
    /// What came with the batch; `None`: something else than a number.
    stored: Option<i64>,
}

struct Before {
    /// `None`: not written down.
    content: Option<Content>,
    changed_by: Option<u32>,
    expires: Option<i64>,
}

/// An event can't be undone from what was written down: run the batch again, carefully.
pub(super) struct NotWrittenDown;

impl Overlay {
    pub(super) fn new(batch: &BatchView<'_>, careful: bool) -> Self {
        let mut cells = Vec::new();
        cells.resize_with(
            batch.keys() as usize * usize::from(batch.slots()),
            Cell::default,
        );
        Self {
            cells,
            touched: Vec::new(),
            careful,
            maps: Maps::default(),
            timers: TimerChanges::default(),
        }
    }

    /// Whether the running event changed anything.
    pub(super) fn is_touched(&self) -> bool {
        !self.touched.is_empty() || self.maps.is_touched() || self.timers.is_touched()
    }

    /// The running event went through: its changes stay.
    pub(super) fn keep(&mut self) {
        for cell in self.touched.drain(..) {
            self.cells[cell].before = None;
        }
        self.maps.keep();
        self.timers.keep();
    }

    /// The running event didn't go through: everything is as before it.
    pub(super) fn undo(&mut self) -> Result<(), NotWrittenDown> {
        self.maps.undo();
        self.timers.undo();
        for index in self.touched.drain(..) {
            let cell = &mut self.cells[index];
            if let Some(before) = cell.before.take() {
                cell.content = before.content.ok_or(NotWrittenDown)?;
                cell.changed_by = before.changed_by;
                cell.expires = before.expires;
            }
        }
        Ok(())
    }

    /// Tells an answer what all changed cells, entries and timers come to.
    pub(super) fn tell(
        &self,
        batch: &BatchView<'_>,
        slots: &[Slot],
        answer: &mut Answer,
    ) -> Result<(), String> {
        for (index, cell) in self.cells.iter().enumerate() {
            if let Some(event) = cell.changed_by {
                tell_cell(batch, slots, index, &cell.content, event, answer)?;
            }
        }
        for (event, change) in self.maps.changes().chain(self.timers.changes()) {
            answer.change(event, &change);
        }
        Ok(())
    }

    /// Notes what a cell held before its first change by the running event.
    fn savepoint(&mut self, index: usize, event: u32, replaces: bool) -> Result<()> {
        let careful = self.careful;
        let cell = &mut self.cells[index];
        if cell.before.is_none() {
            let content = match &cell.content {
                Content::Value(_) if cell.changed_by.is_none() => Some(Content::Unread),
                // A replaced value stays as it is, only a value changed in place is gone.
                Content::Value(value) if !replaces && careful => {
                    let mut written = Vec::new();
                    value.append(&mut written)?;
                    Some(Content::Written(written.into()))
                }
                Content::Value(_) if !replaces => None,
                Content::Count(_) if cell.changed_by.is_none() => Some(Content::Unread),
                other => Some(other.clone()),
            };
            cell.before = Some(Before {
                content,
                changed_by: cell.changed_by,
                expires: cell.expires,
            });
            self.touched.push(index);
        }
        cell.changed_by = Some(event);
        Ok(())
    }
}

impl View<'_> {
    /// The value of a cell.
    pub(crate) fn get<T: Serialize + DeserializeOwned + 'static>(
        &mut self,
        index: usize,
    ) -> Result<Option<Rc<T>>> {
        if self.is_expired(index)? {
            return Ok(None);
        }
        self.load::<T>(index)?;
        match &self.cell(index)?.content {
            Content::Value(value) => typed(Rc::clone(value)).map(Some),
            Content::Taken => Err(busy()),
            _ => Ok(None),
        }
    }

    /// What a counter holds.
    pub(crate) fn count(&mut self, index: usize) -> Result<i64> {
        if self.is_expired(index)? {
            return Ok(0);
        }
        let count = match self.cell(index)?.content {
            Content::Count(count) => return Ok(count.now),
            Content::Unread => self.stored_count(index).map_err(unreadable::<i64>)?,
            Content::Absent => return Ok(0),
            Content::Value(_) | Content::Written(_) | Content::Taken => return Err(two_types()),
        };
        let (now, stored) = (count, Some(count));
        self.cell(index)?.content = Content::Count(Count { now, stored });
        Ok(now)
    }

    /// Puts another count in its place.
    pub(crate) fn set_count(&mut self, index: usize, event: u32, now: i64) -> Result<()> {
        let stored = match self.cell(index)?.content {
            Content::Count(count) => count.stored,
            _ => self.stored_count(index).ok(),
        };
        self.overlay.savepoint(index, event, true)?;
        self.renew(index)?;
        self.cell(index)?.content = Content::Count(Count { now, stored });
        Ok(())
    }

    /// The count that came with the batch.
    fn stored_count(&self, index: usize) -> Result<i64, String> {
        self.batch.state(index).map_or(Ok(0), read_json)
    }

    /// Puts another value, or none, in its place.
    pub(crate) fn put<T: Serialize + 'static>(
        &mut self,
        index: usize,
        event: u32,
        value: Option<Rc<T>>,
    ) -> Result<()> {
        if matches!(self.cell(index)?.content, Content::Taken) {
            return Err(busy());
        }
        self.overlay.savepoint(index, event, true)?;
        self.renew(index)?;
        self.cell(index)?.content = value.map_or(Content::Absent, |value| Content::Value(value));
        Ok(())
    }

    /// Takes the value out to change it; [`View::give_back`] follows.
    pub(crate) fn take<T: Serialize + DeserializeOwned + 'static>(
        &mut self,
        index: usize,
        event: u32,
    ) -> Result<Option<Rc<T>>> {
        let expired = self.is_expired(index)?;
        if !expired {
            self.load::<T>(index)?;
        }
        if matches!(self.cell(index)?.content, Content::Taken) {
            return Err(busy());
        }
        self.overlay.savepoint(index, event, expired)?;
        self.renew(index)?;
        match std::mem::replace(&mut self.cell(index)?.content, Content::Taken) {
            Content::Value(value) if !expired => typed(value).map(Some),
            _ => Ok(None),
        }
    }

    /// Puts a changed value back.
    pub(crate) fn give_back(&mut self, index: usize, value: Rc<dyn SlotValue>) {
        if let Some(cell) = self.overlay.cells.get_mut(index) {
            cell.content = Content::Value(value);
        }
    }

    /// Whether what is in a cell isn't there any more for the running event.
    fn is_expired(&mut self, index: usize) -> Result<bool> {
        let slots = usize::from(self.batch.slots().max(1));
        let Some((now, _)) = self.running.lasting(index % slots) else {
            return Ok(false);
        };
        let expires = self.cell(index)?.expires;
        let expires = expires.or_else(|| self.batch.expires(index));
        Ok(expires.is_some_and(|expires| expires <= now))
    }

    /// What the running event puts into a cell lasts from now on.
    fn renew(&mut self, index: usize) -> Result<()> {
        let slots = usize::from(self.batch.slots().max(1));
        if let Some((now, ttl)) = self.running.lasting(index % slots) {
            self.cell(index)?.expires = Some(now.saturating_add(ttl));
        }
        Ok(())
    }

    /// Reads the stored bytes if that hasn't happened yet.
    fn load<T: Serialize + DeserializeOwned + 'static>(&mut self, index: usize) -> Result<()> {
        let written;
        let bytes = match &self.cell(index)?.content {
            Content::Unread => self.batch.state(index),
            Content::Written(bytes) => {
                written = Rc::clone(bytes);
                Some(&*written)
            }
            _ => return Ok(()),
        };
        let content = match bytes {
            None => Content::Absent,
            Some(bytes) => {
                let value = read_json::<T>(bytes).map_err(unreadable::<T>)?;
                Content::Value(Rc::new(value))
            }
        };
        self.cell(index)?.content = content;
        Ok(())
    }

    fn cell(&mut self, index: usize) -> Result<&mut Cell> {
        self.overlay
            .cells
            .get_mut(index)
            .ok_or_else(|| Error::retry("the host sent no state for a declared slot"))
    }
}

fn tell_cell(
    batch: &BatchView<'_>,
    slots: &[Slot],
    index: usize,
    content: &Content,
    event: u32,
    answer: &mut Answer,
) -> Result<(), String> {
    let slot = u16::try_from(index % slots.len()).unwrap_or_default();
    let unwritable = |why| {
        format!(
            "the value of slot {slot} that event {event} of the batch left can't be written as JSON: {why}"
        )
    };
    match content {
        // Only by how much it differs is written, so that counts add up; but one that expires begins anew.
        Content::Count(Count { now, stored }) => {
            let lasts = batch.ttl(usize::from(slot)).is_none();
            let by = stored.and_then(|stored| now.checked_sub(stored));
            match by.filter(|_| lasts) {
                Some(by) => {
                    let by = by.to_le_bytes();
                    answer.change(event, &Change::Add { slot, by });
                    Ok(())
                }
                None => {
                    let set = answer.set(event, slot, |out| append_json(now, out));
                    set.map_err(unwritable)
                }
            }
        }
        Content::Value(value) => {
            let set = answer.set(event, slot, |out| value.append(out));
            set.map_err(unwritable)
        }
        Content::Written(bytes) => put_as_it_is(answer, event, slot, bytes),
        Content::Unread | Content::Absent | Content::Taken => {
            answer.change(event, &Change::Delete { slot });
            Ok(())
        }
    }
}

fn put_as_it_is(answer: &mut Answer, event: u32, slot: u16, bytes: &[u8]) -> Result<(), String> {
    answer.set(event, slot, |out| {
        out.extend_from_slice(bytes);
        Ok(())
    })
}

fn unreadable<T>(why: String) -> Error {
    let wanted = std::any::type_name::<T>();
    Error::retry(format!("the stored state doesn't read as {wanted}: {why}"))
}

fn typed<T: 'static>(value: Rc<dyn SlotValue>) -> Result<Rc<T>> {
    let value: Rc<dyn Any> = value;
    value.downcast().map_err(|_| two_types())
}

fn two_types() -> Error {
    Error::retry("a slot is used with two types")
}

fn busy() -> Error {
    Error::retry(
        "a slot is used inside the closure that updates it: use the closure's argument instead",
    )
}
