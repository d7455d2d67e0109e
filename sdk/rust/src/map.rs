//! Maps: a slot with many entries for each key, looked up one by one and in order.

use crate::guest::{Entries, Running};
use crate::map_key::{AsMapKey, MapKey};
use crate::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

/// A slot that holds a map for each key, for as many entries as there is disk: each is read when it is
/// asked for and written when it is changed, stored as JSON.
///
/// Entries lie in the order of their keys ([`MapKey`]). Where the slot has a time-to-live, it counts for
/// each entry from its own last write.
///
/// ```
/// use tidemill::prelude::*;
///
/// /// What is in each cart, dearest shelf first.
/// #[tidemill::function(input = "cart", output = "carts")]
/// fn cart(item: Event<(String, i64)>, items: StateMap<String, i64>, out: Output<Vec<String>>) -> Result<()> {
///     let (name, count) = &item.value;
///     match items.get(name)?.unwrap_or(0) + count {
///         0 => items.remove(name)?,
///         left => items.insert(name, left)?,
///     }
///     let fruit: Result<Vec<_>> = items.prefix("fruit/").map(|entry| Ok(entry?.0)).collect();
///     out.emit(item.key, fruit?)
/// }
///
/// # #[cfg(not(target_arch = "wasm32"))]
/// # fn main() {
/// let mut t = Driver::of(cart);
/// for item in [("fruit/pear", 2), ("tea", 1), ("fruit/apple", 1), ("fruit/pear", -2)] {
///     t.send("Ann", item);
/// }
/// let carts = t.output::<Vec<String>>("carts");
/// assert_eq!(carts[2].value, ["fruit/apple", "fruit/pear"]);
/// assert_eq!(carts[3].value, ["fruit/apple"]);
/// # }
/// ```
pub struct StateMap<'a, K, T> {
    running: &'a Running<'a>,
    slot: u16,
    holds: PhantomData<fn(K) -> T>,
}

impl<'a, K: MapKey, T: Serialize + DeserializeOwned> StateMap<'a, K, T> {
    #[doc(hidden)]
    pub fn new(running: &'a Running<'a>, slot: u16) -> Self {
        Self {
            running,
            slot,
            holds: PhantomData,
        }
    }

    /// The value under a key.
    ///
    /// # Errors
    /// When it doesn't read as `T`, or the event has no key.
    pub fn get(&self, key: impl AsMapKey<K>) -> Result<Option<T>> {
        let place = self.running.place(self.slot)?;
        let found = self.running.entry(&place, &key.bytes());
        found.map(|bytes| read(&bytes)).transpose()
    }

    /// Whether there is something under a key.
    ///
    /// # Errors
    /// When the event has no key.
    pub fn contains(&self, key: impl AsMapKey<K>) -> Result<bool> {
        let place = self.running.place(self.slot)?;
        Ok(self.running.entry(&place, &key.bytes()).is_some())
    }

    /// Puts a value under a key, in place of what was there.
    ///
    /// # Errors
    /// When the event has no key. The event becomes a dead letter when the value can't be written as JSON.
    pub fn insert(&self, key: impl AsMapKey<K>, value: T) -> Result<()> {
        let place = self.running.place(self.slot)?;
        let bytes = serde_json::to_vec(&value).map_err(|why| {
            Error::dead_letter(format!("a map's value can't be written as JSON: {why}"))
        })?;
        self.running.put_entry(&place, &key.bytes(), Some(bytes))
    }

    /// Takes what is under a key away.
    ///
    /// # Errors
    /// When the event has no key.
    pub fn remove(&self, key: impl AsMapKey<K>) -> Result<()> {
        let place = self.running.place(self.slot)?;
        self.running.put_entry(&place, &key.bytes(), None)
    }

    /// All entries in order of their keys. Changes made on the way are seen where they lie ahead.
    pub fn iter(&self) -> MapIter<'a, K, T> {
        self.entries(Vec::new(), Bound::Unbounded, Bound::Unbounded)
    }

    /// The entries whose keys begin with a text (or bytes), in order.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> MapIter<'a, K, T> {
        let prefix = prefix.as_ref().to_vec();
        self.entries(prefix, Bound::Unbounded, Bound::Unbounded)
    }

    /// The entries with keys in a range, in order: `seen.range(from..to)`.
    pub fn range(&self, range: impl RangeBounds<K>) -> MapIter<'a, K, T> {
        let bound = |bound: Bound<&K>| bound.map(|key| key.write().into_owned());
        self.entries(
            Vec::new(),
            bound(range.start_bound()),
            bound(range.end_bound()),
        )
    }

    fn entries(
        &self,
        prefix: Vec<u8>,
        from: Bound<Vec<u8>>,
        to: Bound<Vec<u8>>,
    ) -> MapIter<'a, K, T> {
        let entries = self
            .running
            .place(self.slot)
            .map(|place| Entries::new(place, prefix, from, to));
        MapIter {
            running: self.running,
            entries: entries.map_err(Some),
            holds: PhantomData,
        }
    }
}

/// Entries of a [`StateMap`] in order; an item is an error where one doesn't read as the map's types, or
/// the event has no key.
pub struct MapIter<'a, K, T> {
    running: &'a Running<'a>,
    entries: Result<Entries, Option<Error>>,
    holds: PhantomData<fn(K) -> T>,
}

impl<K: MapKey, T: DeserializeOwned> Iterator for MapIter<'_, K, T> {
    type Item = Result<(K, T)>;

    fn next(&mut self) -> Option<Self::Item> {
        let entries = match &mut self.entries {
            Ok(entries) => entries,
            Err(error) => return error.take().map(Err),
        };
        let (key, value) = entries.next(self.running)?;
        let key = K::read(&key).ok_or_else(|| {
            Error::retry(format!(
                "the key {:?} of a stored entry doesn't read as {}",
                String::from_utf8_lossy(&key),
                std::any::type_name::<K>()
            ))
        });
        Some(key.and_then(|key| Ok((key, read(&value)?))))
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    crate::event::read_json(bytes).map_err(|why| {
        Error::retry(format!(
            "the stored entry doesn't read as {}: {why}",
            std::any::type_name::<T>()
        ))
    })
}
