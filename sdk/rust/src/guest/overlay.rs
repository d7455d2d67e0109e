//! State during one batch: typed values over the bytes that came with it, with a savepoint per event.
//!
//! A hot key is parsed once and written once per batch. To undo an event that did not go through, the
//! bytes of the batch are enough for cells that no earlier event changed. For others the value before
//! the event would have to be written down at every event; that is only done once it has proved
//! necessary ([`Overlay::careful`]): the batch is then run again from its start.

use super::running::View;
use crate::abi::{BatchView, StateChange};
use crate::event::read_json;
use crate::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::Any;
use std::rc::Rc;

/// A value of a slot, whatever its type.
pub(crate) trait SlotValue: Any {
    /// Its stored form.
    fn encode(&self) -> serde_json::Result<Vec<u8>>;
}

impl<T: Serialize + Any> SlotValue for T {
    fn encode(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }
}

/// State of all keys and slots of a batch.
pub(crate) struct Overlay {
    cells: Vec<Cell>,
    /// Cells that the running event changed.
    touched: Vec<usize>,
    careful: bool,
}

#[derive(Default)]
struct Cell {
    content: Content,
    /// The last event that changed it.
    changed_by: Option<u32>,
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
    /// Written down, to be read again when asked for.
    Written(Rc<[u8]>),
    /// The author's code is changing it right now.
    Taken,
}

struct Before {
    /// `None`: not written down.
    content: Option<Content>,
    changed_by: Option<u32>,
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
        }
    }

    /// Whether the running event changed anything.
    pub(super) fn is_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// The running event went through: its changes stay.
    pub(super) fn keep(&mut self) {
        for cell in self.touched.drain(..) {
            self.cells[cell].before = None;
        }
    }

    /// The running event didn't go through: everything is as before it.
    pub(super) fn undo(&mut self) -> Result<(), NotWrittenDown> {
        for index in self.touched.drain(..) {
            let cell = &mut self.cells[index];
            if let Some(before) = cell.before.take() {
                cell.content = before.content.ok_or(NotWrittenDown)?;
                cell.changed_by = before.changed_by;
            }
        }
        Ok(())
    }

    /// The final values of all changed cells, by event.
    pub(super) fn changes(&self, slots: u16) -> Result<Vec<StateChange>, String> {
        let mut changes = Vec::new();
        for (index, cell) in self.cells.iter().enumerate() {
            let Some(event) = cell.changed_by else {
                continue;
            };
            let slot = u16::try_from(index % usize::from(slots)).unwrap_or_default();
            let value = match &cell.content {
                Content::Value(value) => Some(value.encode().map_err(|why| {
                    format!("the value of slot {slot} that event {event} of the batch left can't be written as JSON: {why}")
                })?),
                Content::Written(bytes) => Some(bytes.to_vec()),
                Content::Unread | Content::Absent | Content::Taken => None,
            };
            changes.push(StateChange { event, slot, value });
        }
        changes.sort_unstable_by_key(|change| (change.event, change.slot));
        Ok(changes)
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
                    Some(Content::Written(value.encode()?.into()))
                }
                Content::Value(_) if !replaces => None,
                other => Some(other.clone()),
            };
            cell.before = Some(Before {
                content,
                changed_by: cell.changed_by,
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
        self.load::<T>(index)?;
        match &self.cell(index)?.content {
            Content::Value(value) => typed(Rc::clone(value)).map(Some),
            Content::Taken => Err(busy()),
            _ => Ok(None),
        }
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
        self.cell(index)?.content = value.map_or(Content::Absent, |value| Content::Value(value));
        Ok(())
    }

    /// Takes the value out to change it; [`View::give_back`] follows.
    pub(crate) fn take<T: Serialize + DeserializeOwned + 'static>(
        &mut self,
        index: usize,
        event: u32,
    ) -> Result<Option<Rc<T>>> {
        self.load::<T>(index)?;
        if matches!(self.cell(index)?.content, Content::Taken) {
            return Err(busy());
        }
        self.overlay.savepoint(index, event, false)?;
        match std::mem::replace(&mut self.cell(index)?.content, Content::Taken) {
            Content::Value(value) => typed(value).map(Some),
            _ => Ok(None),
        }
    }

    /// Puts a changed value back.
    pub(crate) fn give_back(&mut self, index: usize, value: Rc<dyn SlotValue>) {
        if let Some(cell) = self.overlay.cells.get_mut(index) {
            cell.content = Content::Value(value);
        }
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
            Some(bytes) => Content::Value(Rc::new(read_json::<T>(bytes).map_err(|why| {
                Error::retry(format!(
                    "the stored state doesn't read as {}: {why}",
                    std::any::type_name::<T>()
                ))
            })?)),
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

fn typed<T: 'static>(value: Rc<dyn SlotValue>) -> Result<Rc<T>> {
    let value: Rc<dyn Any> = value;
    value
        .downcast()
        .map_err(|_| Error::retry("a slot is used with two types"))
}

fn busy() -> Error {
    Error::retry(
        "a slot is used inside the closure that updates it: use the closure's argument instead",
    )
}
