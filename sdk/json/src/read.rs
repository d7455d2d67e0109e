//! Values of any type, by serde.

mod members;
mod strings;
mod variants;

use crate::cursor::{Cursor, Declined};
use crate::number::{self, Number};
use members::{Elements, Members};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::fmt::{self, Display};
use variants::Variant;

/// Deepest nesting of what is read into values. serde_json refuses from 128 on.
const DEPTH: u8 = 100;

/// Reads a value.
///
/// # Errors
/// When it declines, also because `T` doesn't accept what is there: read it with a complete parser.
pub fn from_str<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, Declined> {
    let mut reader = Reader {
        at: Cursor::new(text),
        scratch: String::new(),
        depth: 0,
        declined: false,
    };
    let value = T::deserialize(&mut reader)?;
    reader.at.end()?;
    // A type may swallow an error and go on. What it would have seen of a complete parser isn't known.
    match reader.declined {
        false => Ok(value),
        true => Err(Declined),
    }
}

impl std::error::Error for Declined {}

impl Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("to be read by a complete parser")
    }
}

impl Error for Declined {
    fn custom<T: Display>(_: T) -> Self {
        Self
    }

    fn invalid_type(_: serde::de::Unexpected<'_>, _: &dyn serde::de::Expected) -> Self {
        Self
    }
}

/// Reads one text from its beginning to its end.
struct Reader<'de> {
    at: Cursor<'de>,
    /// Strings with escapes, without them.
    scratch: String,
    depth: u8,
    /// Whether it declined at some point.
    declined: bool,
}

impl<'de> Reader<'de> {
    /// Remembers that something was declined.
    #[inline]
    fn note<T>(&mut self, result: Result<T, Declined>) -> Result<T, Declined> {
        self.declined |= result.is_err();
        result
    }

    fn deeper(&mut self) -> Result<(), Declined> {
        self.depth += 1;
        match self.depth < DEPTH {
            true => Ok(()),
            false => Err(Declined),
        }
    }

    fn any<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Declined> {
        match self.at.token()? {
            b'"' => self.string(visitor),
            b'{' => self.object(visitor),
            b'[' => self.array(visitor),
            b't' => self.at.word("true").and_then(|()| visitor.visit_bool(true)),
            b'f' => self
                .at
                .word("false")
                .and_then(|()| visitor.visit_bool(false)),
            b'n' => self.at.word("null").and_then(|()| visitor.visit_unit()),
            _ => number::read(&mut self.at).and_then(|number| tell(number, visitor)),
        }
    }

    #[inline]
    fn number<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Declined> {
        self.at.token()?;
        number::read(&mut self.at).and_then(|number| tell(number, visitor))
    }

    fn object<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Declined> {
        let inside = self.at.enter(b'{')?;
        self.deeper()?;
        let mut members = Members::of(self, inside);
        let value = visitor.visit_map(&mut members)?;
        members.end()?;
        self.depth -= 1;
        Ok(value)
    }

    fn array<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Declined> {
        let inside = self.at.enter(b'[')?;
        self.deeper()?;
        let mut elements = Elements::of(self, inside);
        let value = visitor.visit_seq(&mut elements)?;
        elements.end()?;
        self.depth -= 1;
        Ok(value)
    }

    fn option<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Declined> {
        match self.at.token()? {
            b'n' => self.at.word("null").and_then(|()| visitor.visit_none()),
            _ => visitor.visit_some(self),
        }
    }

    /// Only what begins with one of these bytes: types that ask for something of their own get an error
    /// from serde_json when something else is there.
    #[inline]
    fn only(&mut self, first: &[u8]) -> Result<(), Declined> {
        let byte = self.at.token()?;
        match first.contains(&byte) {
            true => Ok(()),
            false => Err(Declined),
        }
    }
}

fn tell<'de, V: Visitor<'de>>(number: Number, visitor: V) -> Result<V::Value, Declined> {
    match number {
        Number::Positive(number) => visitor.visit_u64(number),
        Number::Negative(number) => visitor.visit_i64(number),
        Number::Float(number) => visitor.visit_f64(number),
    }
}

/// A method that reads what begins with one of these bytes, in this way.
macro_rules! reads {
    ($($method:ident: $first:literal, $way:ident;)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Declined> {
            let result = self.only($first).and_then(|()| self.$way(visitor));
            self.note(result)
        }
    )*};
}

/// Methods that read a number.
macro_rules! numbers {
    ($($method:ident)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Declined> {
            let result = self.number(visitor);
            self.note(result)
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Declined;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Declined> {
        let result = self.any(visitor);
        self.note(result)
    }

    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f64
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Declined> {
        let number = self.at.token().and_then(|_| number::read_f32(&mut self.at));
        let result = number.and_then(|number| tell(number, visitor));
        self.note(result)
    }

    reads! {
        deserialize_bool: b"tf", any;
        deserialize_str: b"\"", string;
        deserialize_string: b"\"", string;
        deserialize_char: b"\"", string;
        deserialize_identifier: b"\"", string;
        deserialize_unit: b"n", any;
        deserialize_seq: b"[", array;
        deserialize_map: b"{", object;
        deserialize_bytes: b"\"[", bytes;
        deserialize_byte_buf: b"\"[", bytes;
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Declined> {
        let result = self.option(visitor);
        self.note(result)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Declined> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Declined> {
        // serde_json knows its own types by such names (`RawValue`).
        let result = match name.starts_with('$') {
            true => Err(Declined),
            false => visitor.visit_newtype_struct(&mut *self),
        };
        self.note(result)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Declined> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Declined> {
        self.deserialize_seq(visitor)
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Declined> {
        let result = match self.at.token() {
            Ok(b'{') if !name.starts_with('$') => self.object(visitor),
            Ok(b'[') if !name.starts_with('$') => self.array(visitor),
            _ => Err(Declined),
        };
        self.note(result)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Declined> {
        let result = Variant::read(self, visitor);
        self.note(result)
    }

    #[inline]
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Declined> {
        let result = self.at.skip().and_then(|()| visitor.visit_unit());
        self.note(result)
    }
}
