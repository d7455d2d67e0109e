//! Where a handler sends what it makes: an output topic.

use crate::abi::{Emit, HasValue, encode_header};
use crate::guest::Running;
use crate::{Bytes, Error, Key, Result, Shared, Time};
use serde::Serialize;
use std::marker::PhantomData;

/// An output of the function: a topic that carries `T`, as JSON by serde, or untouched as [`Bytes`].
///
/// What is emitted becomes visible together with the state changes and the input position of the
/// batch, exactly once, and only if the event goes through.
pub struct Output<'a, T> {
    running: &'a Running<'a>,
    port: u16,
    carries: PhantomData<fn(&T)>,
}

impl<'a, T> Output<'a, T> {
    #[doc(hidden)]
    pub fn new(running: &'a Running<'a>, port: u16) -> Self {
        Self {
            running,
            port,
            carries: PhantomData,
        }
    }

    /// Emits an event with the event time of the one it came from. The key is anything made of bytes,
    /// or a [`Key`] as it came; the value a `T`, by reference or not.
    ///
    /// # Errors
    /// The event becomes a dead letter when its value can't be written as JSON.
    pub fn emit(&self, key: impl EmitKey, value: impl Emittable<T>) -> Result<()> {
        self.write(key.key_bytes(), &[], None, |out| {
            value.append(out).map(|()| HasValue::Yes)
        })
    }

    /// An event with headers or a time of its own:
    /// `out.emit_with(&key, value).header("unit", "minutes").time(time).send()?`.
    pub fn emit_with<K: EmitKey, V: Emittable<T>>(
        &self,
        key: K,
        value: V,
    ) -> Emission<'_, 'a, T, K, V> {
        Emission {
            output: self,
            key,
            value,
            headers: Vec::new(),
            time: None,
            too_long: false,
        }
    }

    /// Emits a tombstone: the key is to be forgotten.
    ///
    /// # Errors
    /// None today.
    pub fn tombstone(&self, key: impl EmitKey) -> Result<()> {
        self.write(key.key_bytes(), &[], None, |_| Ok(HasValue::No))
    }

    fn write(
        &self,
        key: Option<&[u8]>,
        headers: &[u8],
        time: Option<Time>,
        append: impl FnOnce(&mut Vec<u8>) -> Result<HasValue, String>,
    ) -> Result<()> {
        let emit = Emit {
            event: self.running.index()?,
            output: self.port,
            key,
            headers,
            time: time.map(Time::micros),
        };
        self.running.answer().emit(&emit, append).map_err(|why| {
            Error::dead_letter(format!("an output's value can't be written as JSON: {why}"))
        })
    }
}

/// An event on its way out; nothing happens before [`Emission::send`].
#[must_use = "an emission leaves with `.send()`"]
pub struct Emission<'o, 'a, T, K, V> {
    output: &'o Output<'a, T>,
    key: K,
    value: V,
    headers: Vec<u8>,
    time: Option<Time>,
    too_long: bool,
}

impl<T, K: EmitKey, V: Emittable<T>> Emission<'_, '_, T, K, V> {
    /// Adds a header; names may repeat.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.too_long |= encode_header(&mut self.headers, name, value.as_ref()).is_none();
        self
    }

    /// Gives it an event time of its own.
    pub fn time(mut self, time: Time) -> Self {
        self.time = Some(time);
        self
    }

    /// Emits it.
    ///
    /// # Errors
    /// The event becomes a dead letter when its value can't be written as JSON, or a header's name has
    /// more than 65,535 bytes.
    pub fn send(self) -> Result<()> {
        if self.too_long {
            return Err(Error::dead_letter(
                "a header's name may have 65,535 bytes and its value 4 GiB",
            ));
        }
        let value = self.value;
        self.output
            .write(self.key.key_bytes(), &self.headers, self.time, |out| {
                value.append(out).map(|()| HasValue::Yes)
            })
    }
}

/// What can be the key of an emitted event: anything made of bytes, or a [`Key`] (which may be null).
pub trait EmitKey {
    /// The bytes; `None` = null.
    fn key_bytes(&self) -> Option<&[u8]>;
}

impl<K: AsRef<[u8]>> EmitKey for K {
    fn key_bytes(&self) -> Option<&[u8]> {
        Some(self.as_ref())
    }
}

impl EmitKey for Key<'_> {
    fn key_bytes(&self) -> Option<&[u8]> {
        self.bytes()
    }
}

/// What can be emitted to an `Output<T>`: a `T`, a reference to one, or the value of a slot.
#[diagnostic::on_unimplemented(
    message = "this output carries `{T}`, not `{Self}`",
    label = "can't be emitted to an `Output<{T}>`",
    note = "emit a `{T}` or a reference to one; `{T}` must have #[derive(Serialize)]"
)]
pub trait Emittable<T> {
    /// Appends the value's bytes.
    ///
    /// # Errors
    /// Why it can't be written.
    fn append(&self, out: &mut Vec<u8>) -> Result<(), String>;
}

/// Writes JSON. What the fast writer declines serde_json writes, and finds the words for what is wrong.
pub(crate) fn append_json<T: Serialize + ?Sized>(
    value: &T,
    out: &mut Vec<u8>,
) -> Result<(), serde_json::Error> {
    tidemill_json::append(value, out).or_else(|_| serde_json::to_writer(out, value))
}

impl<T: Serialize> Emittable<T> for T {
    fn append(&self, out: &mut Vec<u8>) -> Result<(), String> {
        append_json(self, out).map_err(|why| why.to_string())
    }
}

impl<T: Serialize> Emittable<T> for &T {
    fn append(&self, out: &mut Vec<u8>) -> Result<(), String> {
        append_json(*self, out).map_err(|why| why.to_string())
    }
}

impl<T: Serialize> Emittable<T> for Shared<T> {
    fn append(&self, out: &mut Vec<u8>) -> Result<(), String> {
        append_json(&**self, out).map_err(|why| why.to_string())
    }
}

impl<'b> Emittable<Bytes<'b>> for Bytes<'_> {
    fn append(&self, out: &mut Vec<u8>) -> Result<(), String> {
        out.extend_from_slice(self.0);
        Ok(())
    }
}
