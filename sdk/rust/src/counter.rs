//! Counters and lists: slots with a shape of their own.

use crate::guest::Running;
use crate::{Error, Result, Shared, State};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A slot that counts: one whole number for each key.
///
/// ```
/// use tidemill::prelude::*;
///
/// #[tidemill::function(input = "clicks", output = "tenths")]
/// fn tenths(click: Event<Value>, clicks: Counter, out: Output<i64>) -> Result<()> {
///     match clicks.add(1)? {
///         count if count % 10 == 0 => out.emit(click.key, count),
///         _ => Ok(()),
///     }
/// }
///
/// # #[cfg(not(target_arch = "wasm32"))]
/// # fn main() {
/// let mut t = Driver::of(tenths);
/// (0..25).for_each(|n| t.send("a", n));
/// assert_eq!(t.output::<i64>("tenths").iter().map(|event| event.value).collect::<Vec<_>>(), [10, 20]);
/// # }
/// ```
pub struct Counter<'a> {
    running: &'a Running<'a>,
    slot: u16,
}

impl<'a> Counter<'a> {
    #[doc(hidden)]
    pub fn new(running: &'a Running<'a>, slot: u16) -> Self {
        Self { running, slot }
    }

    /// The count; 0 when nothing was counted.
    ///
    /// # Errors
    /// As [`State::get`].
    pub fn get(&self) -> Result<i64> {
        let cell = self.running.cell(self.slot)?;
        self.running.overlay().count(cell)
    }

    /// Counts up, or down by a negative number; gives the new count.
    ///
    /// # Errors
    /// As [`State::get`]. The event becomes a dead letter where the count would leave the 64 bits it has.
    pub fn add(&self, by: i64) -> Result<i64> {
        let cell = self.running.cell(self.slot)?;
        let mut overlay = self.running.overlay();
        let count = overlay.count(cell)?.checked_add(by).ok_or_else(|| {
            Error::dead_letter(format!("a counter can't take {by} more: it has 64 bits"))
        })?;
        overlay.set_count(cell, self.running.index()?, count)?;
        Ok(count)
    }

    /// Begins again at 0.
    ///
    /// # Errors
    /// As [`State::clear`].
    pub fn clear(&self) -> Result<()> {
        let cell = self.running.cell(self.slot)?;
        self.running
            .overlay()
            .put(cell, self.running.index()?, None::<std::rc::Rc<i64>>)
    }
}

/// A slot that holds a list for each key.
///
/// A list is kept as one value: it is read and written as a whole. For more than some hundreds of
/// elements, or where few of them are looked at, take a [`StateMap`](crate::StateMap).
///
/// ```
/// use tidemill::prelude::*;
///
/// /// The last three values of each key.
/// #[tidemill::function(input = "values", output = "latest")]
/// fn latest(value: Event<i64>, last: StateList<i64>, out: Output<Vec<i64>>) -> Result<()> {
///     last.push(value.value)?;
///     if last.len()? > 3 {
///         last.pop_front()?;
///     }
///     out.emit(value.key, last.all()?)
/// }
///
/// # #[cfg(not(target_arch = "wasm32"))]
/// # fn main() {
/// let mut t = Driver::of(latest);
/// (0..5).for_each(|n| t.send("a", n));
/// assert_eq!(t.output::<Vec<i64>>("latest").last().unwrap().value, [2, 3, 4]);
/// # }
/// ```
pub struct StateList<'a, T>(State<'a, Vec<T>>);

impl<'a, T: Serialize + DeserializeOwned + 'static> StateList<'a, T> {
    #[doc(hidden)]
    pub fn new(running: &'a Running<'a>, slot: u16) -> Self {
        Self(State::new(running, slot))
    }

    /// The elements in order.
    ///
    /// # Errors
    /// As [`State::get`].
    pub fn all(&self) -> Result<Shared<Vec<T>>> {
        self.0.get_or_default()
    }

    /// Number of elements.
    ///
    /// # Errors
    /// As [`State::get`].
    pub fn len(&self) -> Result<usize> {
        Ok(self.0.get()?.map_or(0, |list| list.len()))
    }

    /// Whether there are none.
    ///
    /// # Errors
    /// As [`State::get`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Appends an element.
    ///
    /// # Errors
    /// As [`State::get`].
    pub fn push(&self, element: T) -> Result<()> {
        self.update(|list| list.push(element)).map(drop)
    }

    /// Takes the last element away.
    ///
    /// # Errors
    /// As [`State::get`].
    pub fn pop(&self) -> Result<Option<T>> {
        let mut popped = None;
        self.update(|list| popped = list.pop())?;
        Ok(popped)
    }

    /// Takes the first element away.
    ///
    /// # Errors
    /// As [`State::get`].
    pub fn pop_front(&self) -> Result<Option<T>> {
        let mut popped = None;
        self.update(|list| {
            if !list.is_empty() {
                popped = Some(list.remove(0));
            }
        })?;
        Ok(popped)
    }

    /// Changes the list in place; gives it as it is then. An empty list takes no space.
    ///
    /// # Errors
    /// As [`State::get`].
    pub fn update(&self, change: impl FnOnce(&mut Vec<T>)) -> Result<Shared<Vec<T>>> {
        let list = self.0.update(change)?;
        if list.is_empty() {
            self.0.clear()?;
        }
        Ok(list)
    }

    /// Forgets all elements.
    ///
    /// # Errors
    /// As [`State::clear`].
    pub fn clear(&self) -> Result<()> {
        self.0.clear()
    }
}
