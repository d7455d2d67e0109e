//! Values of any type to JSON, by serde.

mod compound;
#[cfg(test)]
mod tests;
mod text;

use crate::Declined;
use compound::{Compound, End};
use serde::ser::{Error, Serialize, Serializer};
use std::fmt::Display;

/// Appends a value's JSON, byte for byte as serde_json writes it.
///
/// # Errors
/// When it declines, then nothing is appended: write the value with a complete writer, which has the words
/// for what is wrong with it.
///
/// ```
/// let mut out = b"at ".to_vec();
/// tidemill_json::append(&("EWR", 12.5, Some(3)), &mut out).unwrap();
/// assert_eq!(out, br#"at ["EWR",12.5,3]"#);
/// ```
pub fn append<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) -> Result<(), Declined> {
    let start = out.len();
    let mut writer = Writer {
        out,
        declined: false,
    };
    let written = value.serialize(&mut writer);
    // A type may swallow an error and go on. What a complete writer would have told it isn't known.
    if written.is_err() || writer.declined {
        out.truncate(start);
        return Err(Declined);
    }
    Ok(())
}

impl Error for Declined {
    fn custom<T: Display>(_: T) -> Self {
        Self
    }
}

/// Writes one text from its beginning to its end.
struct Writer<'o> {
    out: &'o mut Vec<u8>,
    /// Whether it declined at some point.
    declined: bool,
}

impl<'o> Writer<'o> {
    fn decline<T>(&mut self) -> Result<T, Declined> {
        self.declined = true;
        Err(Declined)
    }

    /// What is rare and small, by serde_json.
    #[inline(never)]
    fn rare<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Declined> {
        match serde_json::to_writer(&mut *self.out, value) {
            Ok(()) => Ok(()),
            Err(_) => self.decline(),
        }
    }

    #[inline]
    fn open(&mut self, open: u8, end: End) -> Compound<'_, 'o> {
        self.out.push(open);
        Compound::new(self, end)
    }

    /// An object with one member, which comes next: `{"variant":`.
    fn variant(&mut self, variant: &str) -> Result<(), Declined> {
        self.out.push(b'{');
        variant.serialize(&mut *self)?;
        self.out.push(b':');
        Ok(())
    }
}

/// Methods that append a whole number.
macro_rules! numbers {
    ($($method:ident: $number:ty;)*) => {$(
        #[inline]
        fn $method(self, number: $number) -> Result<(), Declined> {
            text::number(self.out, number);
            Ok(())
        }
    )*};
}

/// Methods for what serde_json writes alone.
macro_rules! rare {
    ($($method:ident: $value:ty;)*) => {$(
        fn $method(self, value: $value) -> Result<(), Declined> {
            self.rare(&value)
        }
    )*};
}

impl<'w, 'o> Serializer for &'w mut Writer<'o> {
    type Ok = ();
    type Error = Declined;
    type SerializeSeq = Compound<'w, 'o>;
    type SerializeTuple = Compound<'w, 'o>;
    type SerializeTupleStruct = Compound<'w, 'o>;
    type SerializeTupleVariant = Compound<'w, 'o>;
    type SerializeMap = Compound<'w, 'o>;
    type SerializeStruct = Compound<'w, 'o>;
    type SerializeStructVariant = Compound<'w, 'o>;

    numbers! {
        serialize_i8: i8; serialize_i16: i16; serialize_i32: i32; serialize_i64: i64;
        serialize_u8: u8; serialize_u16: u16; serialize_u32: u32; serialize_u64: u64;
    }

    rare! {
        serialize_i128: i128; serialize_u128: u128; serialize_f32: f32; serialize_f64: f64;
        serialize_char: char; serialize_bytes: &[u8];
    }

    fn serialize_bool(self, value: bool) -> Result<(), Declined> {
        let word: &[u8] = if value { b"true" } else { b"false" };
        text::put(self.out, word);
        Ok(())
    }

    #[inline]
    fn serialize_str(self, text: &str) -> Result<(), Declined> {
        match text::quoted(self.out, text) {
            true => Ok(()),
            false => self.rare(text),
        }
    }

    fn serialize_none(self) -> Result<(), Declined> {
        self.serialize_unit()
    }

    #[inline]
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Declined> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Declined> {
        text::put(self.out, b"null");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Declined> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), Declined> {
        self.serialize_str(variant)
    }

    #[inline]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Declined> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Declined> {
        self.variant(variant)?;
        value.serialize(&mut *self)?;
        self.out.push(b'}');
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Compound<'w, 'o>, Declined> {
        Ok(self.open(b'[', End::Array))
    }

    fn serialize_tuple(self, _: usize) -> Result<Compound<'w, 'o>, Declined> {
        Ok(self.open(b'[', End::Array))
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Compound<'w, 'o>, Declined> {
        Ok(self.open(b'[', End::Array))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Compound<'w, 'o>, Declined> {
        self.variant(variant)?;
        Ok(self.open(b'[', End::ArrayInObject))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Compound<'w, 'o>, Declined> {
        Ok(self.open(b'{', End::Object))
    }

    #[inline]
    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Compound<'w, 'o>, Declined> {
        // serde_json knows its own types by such names (`RawValue`).
        match name.starts_with('$') {
            true => self.decline(),
            false => Ok(self.open(b'{', End::Object)),
        }
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Compound<'w, 'o>, Declined> {
        self.variant(variant)?;
        Ok(self.open(b'{', End::ObjectInObject))
    }
}
