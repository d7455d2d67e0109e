//! Members of objects, elements of arrays.

use super::{Declined, Reader};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

/// Where one is among members or elements.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ahead {
    /// At one.
    One,
    /// Behind one.
    Behind,
    /// Behind the closing bracket.
    Nothing,
}

impl Ahead {
    fn of(inside: bool) -> Self {
        match inside {
            true => Self::One,
            false => Self::Nothing,
        }
    }

    /// Whether there is one more; then it is next.
    #[inline]
    fn advance(&mut self, reader: &mut Reader<'_>, close: u8) -> Result<bool, Declined> {
        if *self == Self::Behind {
            *self = Self::of(reader.at.another(close)?);
        }
        let more = *self == Self::One;
        if more {
            *self = Self::Behind;
        }
        Ok(more)
    }

    fn end(&mut self, reader: &mut Reader<'_>, close: u8) -> Result<(), Declined> {
        match self.advance(reader, close)? {
            true => Err(Declined),
            false => Ok(()),
        }
    }
}

/// The members of an object.
pub(super) struct Members<'r, 'de> {
    reader: &'r mut Reader<'de>,
    ahead: Ahead,
}

impl<'r, 'de> Members<'r, 'de> {
    pub(super) fn of(reader: &'r mut Reader<'de>, inside: bool) -> Self {
        let ahead = Ahead::of(inside);
        Self { reader, ahead }
    }

    /// That none is left.
    pub(super) fn end(mut self) -> Result<(), Declined> {
        self.ahead.end(self.reader, b'}')
    }
}

impl<'de> MapAccess<'de> for &mut Members<'_, 'de> {
    type Error = Declined;

    #[inline]
    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Declined> {
        let more = self.ahead.advance(self.reader, b'}');
        if !self.reader.note(more)? {
            return Ok(None);
        }
        let key = seed.deserialize(Key(self.reader)).map(Some);
        self.reader.note(key)
    }

    #[inline]
    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Declined> {
        let value = self.reader.at.expect(b':');
        let value = value.and_then(|()| seed.deserialize(&mut *self.reader));
        self.reader.note(value)
    }
}

/// The elements of an array.
pub(super) struct Elements<'r, 'de> {
    reader: &'r mut Reader<'de>,
    ahead: Ahead,
}

impl<'r, 'de> Elements<'r, 'de> {
    pub(super) fn of(reader: &'r mut Reader<'de>, inside: bool) -> Self {
        let ahead = Ahead::of(inside);
        Self { reader, ahead }
    }

    /// That none is left.
    pub(super) fn end(mut self) -> Result<(), Declined> {
        self.ahead.end(self.reader, b']')
    }
}

impl<'de> SeqAccess<'de> for &mut Elements<'_, 'de> {
    type Error = Declined;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Declined> {
        let more = self.ahead.advance(self.reader, b']');
        if !self.reader.note(more)? {
            return Ok(None);
        }
        let element = seed.deserialize(&mut *self.reader).map(Some);
        self.reader.note(element)
    }
}

macro_rules! declines {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Declined> {
            Err(Declined)
        }
    )*};
}

/// A member's name. Names that are numbers for their type are left to a complete parser.
struct Key<'r, 'de>(&'r mut Reader<'de>);

impl<'de> Deserializer<'de> for Key<'_, 'de> {
    type Error = Declined;

    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Declined> {
        self.0.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Declined> {
        self.0.deserialize_bytes(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Declined> {
        self.0.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Declined> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Declined> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Declined> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        char str string unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }

    declines! {
        deserialize_bool deserialize_f32 deserialize_f64
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
    }
}
