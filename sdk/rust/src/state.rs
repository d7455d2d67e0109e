//! What a function remembers: one slot per key.

use crate::Result;
use crate::guest::{Running, SlotValue};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::rc::Rc;

/// A slot: one value of `T` for each key, kept by the host from event to event, stored as JSON.
///
/// A parameter `total: State<Delays>` is the slot `total` of the event's key. Changes take effect
/// together with the outputs and the input position, exactly once, and only if the event goes through.
/// The value must write and read back the same: no `HashMap` (its order is accidental; `BTreeMap` is
/// fine), no skipped fields, no NaN.
pub struct State<'a, T> {
    running: &'a Running<'a>,
    slot: u16,
    holds: PhantomData<T>,
}

impl<'a, T: Serialize + DeserializeOwned + 'static> State<'a, T> {
    #[doc(hidden)]
    pub fn new(running: &'a Running<'a>, slot: u16) -> Self {
        Self {
            running,
            slot,
            holds: PhantomData,
        }
    }

    /// The value; `None` when nothing is stored.
    ///
    /// # Errors
    /// When the stored value doesn't read as `T` (an earlier version of the function wrote another
    /// shape), or the event has no key.
    pub fn get(&self) -> Result<Option<Shared<T>>> {
        let cell = self.running.cell(self.slot)?;
        self.running
            .overlay()
            .get(cell)
            .map(|value| value.map(Shared))
    }

    /// The value, or the default when nothing is stored.
    ///
    /// # Errors
    /// As [`State::get`].
    pub fn get_or_default(&self) -> Result<Shared<T>>
    where
        T: Default,
    {
        Ok(self.get()?.unwrap_or_else(|| Shared(Rc::new(T::default()))))
    }

    /// Stores a value.
    ///
    /// # Errors
    /// When the event has no key.
    pub fn set(&self, value: T) -> Result<()> {
        let cell = self.running.cell(self.slot)?;
        self.running
            .overlay()
            .put(cell, self.running.index()?, Some(Rc::new(value)))
    }

    /// Changes the value in place, starting from the default when nothing is stored; gives the changed
    /// value, ready to be emitted.
    ///
    /// # Errors
    /// As [`State::get`].
    pub fn update(&self, change: impl FnOnce(&mut T)) -> Result<Shared<T>>
    where
        T: Default,
    {
        let cell = self.running.cell(self.slot)?;
        // Taken out while the author's code runs, so that it may use other slots meanwhile.
        let mut value: Rc<T> = match self.running.overlay().take(cell, self.running.index()?)? {
            Some(value) => value,
            None => Rc::new(T::default()),
        };
        let changed = unshared(&mut value).map(change);
        self.running
            .overlay()
            .give_back(cell, Rc::clone(&value) as Rc<dyn SlotValue>);
        changed.map(|()| Shared(value))
    }

    /// Forgets the value.
    ///
    /// # Errors
    /// When the event has no key.
    pub fn clear(&self) -> Result<()> {
        let cell = self.running.cell(self.slot)?;
        self.running
            .overlay()
            .put(cell, self.running.index()?, None::<Rc<T>>)
    }
}

/// The value itself if nobody else holds it, or a copy of it in its place.
fn unshared<T: Serialize + DeserializeOwned>(value: &mut Rc<T>) -> Result<&mut T> {
    if Rc::get_mut(value).is_none() {
        *value = Rc::new(serde_json::from_str(&serde_json::to_string(&**value)?)?);
    }
    Rc::get_mut(value).ok_or_else(|| crate::Error::retry("a fresh value is held twice"))
}

/// A value that the SDK holds too: reads like `&T`.
pub struct Shared<T>(pub(crate) Rc<T>);

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> AsRef<T> for Shared<T> {
    fn as_ref(&self) -> &T {
        &self.0
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
