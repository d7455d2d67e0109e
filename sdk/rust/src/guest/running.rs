//! The event being handled, and what surrounds it.

use super::maps::MapPage;
use super::{Call, Overlay};
use crate::abi::{Answer, BatchView, Clock, Row};
use crate::error::Kind;
use crate::event::{Event, Payload};
use crate::function::Slot;
use crate::{Error, HttpAnswer, HttpError, HttpRequest, Result, Shared, Time};
use serde::de::DeserializeOwned;
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;

/// What an instance can ask its host for.
pub(crate) trait Surroundings {
    /// Configuration as JSON text.
    fn config(&self) -> String;
    /// Topic of an input.
    fn input_topic(&self, input: u32) -> String;
    /// The committed entry of a map, packed; empty: none.
    fn map_get(&self, slot: u32, key: &[u8], entry: &[u8]) -> Vec<u8>;
    /// Committed entries of a map, packed; empty: none left.
    fn map_scan(&self, slot: u32, key: &[u8], page: &MapPage<'_>) -> Vec<u8>;
    /// The value of a secret, or why there is none.
    #[cfg(not(target_arch = "wasm32"))]
    fn secret(&self, name: &str) -> Result<Vec<u8>, String>;
    /// What a call came to that an event of the batch makes.
    #[cfg(not(target_arch = "wasm32"))]
    fn http(&self, event: u32, request: &HttpRequest) -> Result<HttpAnswer, HttpError>;
}

/// One live copy of a function: what it keeps from batch to batch, none of it an author's.
pub(crate) struct Instance {
    surroundings: Box<dyn Surroundings>,
    topic: RefCell<Option<(u32, Rc<str>)>>,
    config_text: OnceCell<String>,
    config: RefCell<Option<Rc<dyn Any>>>,
    pub(super) answer: RefCell<Answer>,
}

impl Instance {
    pub(crate) fn new(surroundings: Box<dyn Surroundings>) -> Self {
        Self {
            surroundings,
            topic: RefCell::default(),
            config_text: OnceCell::new(),
            config: RefCell::default(),
            answer: RefCell::default(),
        }
    }

    /// Topic of an input, asked for once.
    pub(super) fn topic(&self, input: u32) -> Rc<str> {
        let mut known = self.topic.borrow_mut();
        match &*known {
            Some((number, topic)) if *number == input => Rc::clone(topic),
            _ => {
                let topic: Rc<str> = self.surroundings.input_topic(input).into();
                *known = Some((input, Rc::clone(&topic)));
                topic
            }
        }
    }

    /// The configuration as `T`, parsed once.
    fn config<T: DeserializeOwned + 'static>(&self) -> Result<Shared<T>> {
        let mut known = self.config.borrow_mut();
        if let Some(config) = known
            .as_ref()
            .and_then(|config| Rc::clone(config).downcast().ok())
        {
            return Ok(Shared(config));
        }
        let text = self.config_text.get_or_init(|| self.surroundings.config());
        let config: Rc<T> = serde_json::from_str(text).map(Rc::new).map_err(|error| {
            Error::retry(format!(
                "the function's configuration can't be read: {error}"
            ))
        })?;
        *known = Some(Rc::clone(&config) as Rc<dyn Any>);
        Ok(Shared(config))
    }
}

/// A batch being handled, and which of its events. The parameters of a function are made from it.
pub struct Running<'a> {
    pub(super) batch: &'a BatchView<'a>,
    pub(super) call: &'a Call,
    pub(super) topic: &'a str,
    pub(super) instance: &'a Instance,
    pub(super) overlay: &'a RefCell<Overlay>,
    pub(super) slots: &'static [Slot],
    pub(super) outputs: &'static [(&'static str, &'static str)],
    /// The event being handled.
    pub(super) at: Cell<Option<u32>>,
    pub(super) pass: PassState,
}

/// How far a pass over a batch has come.
#[derive(Default)]
pub(super) struct PassState {
    /// The first event without an outcome.
    pub(super) next: Cell<u32>,
    /// An event stopped the batch.
    pub(super) stopped: Cell<bool>,
    /// An event could not be undone: the batch is to be run again, carefully.
    pub(super) broken: Cell<bool>,
    /// Events of a whole batch whose values don't parse, with the parser's words.
    pub(super) undecodable: RefCell<BTreeMap<u32, String>>,
}

impl<'a> Running<'a> {
    /// The event, its value read.
    ///
    /// # Errors
    /// When the value doesn't parse: the event becomes a dead letter.
    pub fn event<T: Payload<'a>>(&self) -> Result<Event<'a, T>> {
        let row = self.row(self.index()?)?;
        self.read(&row)
            .map_err(|why| Error::new(Kind::Undecodable, why))
    }

    /// An event of the batch, its value read.
    pub(crate) fn read<T: Payload<'a>>(&self, row: &Row<'a>) -> Result<Event<'a, T>, String> {
        let value = T::read(row.value)?;
        Ok(Event::new(value, row, self.topic, self.call.partition))
    }

    /// An event of the batch as its bytes.
    pub(crate) fn row(&self, index: u32) -> Result<Row<'a>> {
        self.batch.row(index).map_err(Error::retry)
    }

    /// Number of events in the batch.
    pub(crate) fn count(&self) -> u32 {
        self.batch.count()
    }

    /// Which event of the batch is being handled.
    pub(crate) fn index(&self) -> Result<u32> {
        self.at.get().ok_or_else(|| {
            Error::retry(
                "no event is being handled here: state, outputs and timers belong to an event, use them inside `each`",
            )
        })
    }

    /// The event being handled, or the batch's first where none is.
    pub(crate) fn near(&self) -> u32 {
        self.at.get().unwrap_or_default()
    }

    /// Number of the slot of this name; the attribute has checked that there is one.
    pub fn slot(&self, name: &str) -> u16 {
        let place = self.slots.iter().position(|slot| slot.name == name);
        u16::try_from(place.unwrap_or_default()).unwrap_or_default()
    }

    /// Number of the output of this name; the attribute has checked that there is one.
    pub fn output(&self, name: &str) -> u16 {
        let place = self.outputs.iter().position(|(other, _)| *other == name);
        u16::try_from(place.unwrap_or_default()).unwrap_or_default()
    }

    /// The key of an event of the batch; empty where it has none.
    pub(crate) fn key_of(&self, index: u32) -> &'a [u8] {
        let row = self.batch.row(index);
        row.ok().and_then(|row| row.key).unwrap_or_default()
    }

    /// The value of a secret, or why there is none.
    pub(crate) fn secret(&self, name: &str) -> Result<Vec<u8>, String> {
        #[cfg(target_arch = "wasm32")]
        return crate::wasm::secret(name);
        #[cfg(not(target_arch = "wasm32"))]
        self.surroundings().secret(name)
    }

    /// What a call comes to that an event of the batch makes.
    pub(crate) fn http(&self, event: u32, request: &HttpRequest) -> Result<HttpAnswer, HttpError> {
        #[cfg(target_arch = "wasm32")]
        return crate::wasm::http(event, request);
        #[cfg(not(target_arch = "wasm32"))]
        self.surroundings().http(event, request)
    }

    pub(crate) fn surroundings(&self) -> &dyn Surroundings {
        &*self.instance.surroundings
    }

    /// The watermark at the turn of an event.
    pub(crate) fn watermark_at(&self, index: u32) -> i64 {
        self.batch.watermark(index).unwrap_or(self.call.watermark)
    }

    /// When the event was received, or the timer's turn came.
    pub(crate) fn processing_time(&self) -> Time {
        Time::from_micros(self.row(self.near()).map_or(0, |row| row.ingest_time))
    }

    /// The running event's now and how long a value lasts, in a slot's time; `None` where it lasts for ever.
    pub(crate) fn lasting(&self, slot: usize) -> Option<(i64, i64)> {
        let ttl = self.batch.ttl(slot)?;
        let index = self.near();
        let row = self.row(index).ok()?;
        let now = match ttl.clock {
            Clock::Event => row.time.max(self.watermark_at(index)),
            Clock::Processing => row.ingest_time,
        };
        Some((now, ttl.micros))
    }

    pub(crate) fn call(&self) -> &Call {
        self.call
    }

    pub(crate) fn offset(&self) -> u64 {
        self.row(self.near()).map_or(0, |row| row.offset)
    }

    pub(crate) fn time(&self) -> Time {
        Time::from_micros(self.row(self.near()).map_or(0, |row| row.time))
    }

    pub(crate) fn config<T: DeserializeOwned + 'static>(&self) -> Result<Shared<T>> {
        self.instance.config()
    }

    pub(crate) fn answer(&self) -> RefMut<'_, Answer> {
        self.instance.answer.borrow_mut()
    }

    pub(crate) fn overlay(&self) -> View<'_> {
        View {
            overlay: self.overlay.borrow_mut(),
            batch: self.batch,
            running: self,
        }
    }

    /// Number of the cell of a slot for the event's key.
    pub(crate) fn cell(&self, slot: u16) -> Result<usize> {
        let index = self.index()?;
        let keyed = self.batch.has_key(index);
        let Some(number) = self.batch.key_number(index).filter(|_| keyed) else {
            return Err(Error::dead_letter(
                "the event has no key, so there is nothing to keep state by",
            ));
        };
        Ok(number as usize * usize::from(self.batch.slots()) + usize::from(slot))
    }
}

/// The overlay together with the values that came with the batch.
pub(crate) struct View<'r> {
    pub(super) overlay: RefMut<'r, Overlay>,
    pub(super) batch: &'r BatchView<'r>,
    pub(super) running: &'r Running<'r>,
}
