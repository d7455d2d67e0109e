//! Arrays and objects.

use super::{Writer, text};
use crate::Declined;
use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// What closes it.
#[derive(Clone, Copy)]
pub(super) enum End {
    Array,
    Object,
    /// An array that is the only member of an object.
    ArrayInObject,
    /// An object that is.
    ObjectInObject,
}

/// An array or an object that is open.
pub(super) struct Compound<'w, 'o> {
    writer: &'w mut Writer<'o>,
    end: End,
    /// Whether there is something in it.
    inside: bool,
}

impl<'w, 'o> Compound<'w, 'o> {
    pub(super) fn new(writer: &'w mut Writer<'o>, end: End) -> Self {
        Self {
            writer,
            end,
            inside: false,
        }
    }

    #[inline]
    fn comma(&mut self) {
        if self.inside {
            self.writer.out.push(b',');
        }
        self.inside = true;
    }

    #[inline]
    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Declined> {
        self.comma();
        value.serialize(&mut *self.writer)
    }

    #[inline]
    fn member<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), Declined> {
        self.comma();
        self.writer.serialize_str(name)?;
        self.writer.out.push(b':');
        value.serialize(&mut *self.writer)
    }

    #[inline]
    fn close(self) -> Result<(), Declined> {
        let end: &[u8] = match self.end {
            End::Array => b"]",
            End::Object => b"}",
            End::ArrayInObject => b"]}",
            End::ObjectInObject => b"}}",
        };
        text::put(self.writer.out, end);
        Ok(())
    }
}

/// Traits of what holds elements.
macro_rules! elements {
    ($($name:ident: $method:ident;)*) => {$(
        impl $name for Compound<'_, '_> {
            type Ok = ();
            type Error = Declined;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Declined> {
                self.element(value)
            }

            fn end(self) -> Result<(), Declined> {
                self.close()
            }
        }
    )*};
}

elements! {
    SerializeSeq: serialize_element;
    SerializeTuple: serialize_element;
    SerializeTupleStruct: serialize_field;
    SerializeTupleVariant: serialize_field;
}

/// Traits of what holds fields with names.
macro_rules! members {
    ($($name:ident)*) => {$(
        impl $name for Compound<'_, '_> {
            type Ok = ();
            type Error = Declined;

            #[inline]
            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), Declined> {
                self.member(name, value)
            }

            #[inline]
            fn end(self) -> Result<(), Declined> {
                self.close()
            }
        }
    )*};
}

members! { SerializeStruct SerializeStructVariant }

impl SerializeMap for Compound<'_, '_> {
    type Ok = ();
    type Error = Declined;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Declined> {
        self.comma();
        let start = self.writer.out.len();
        key.serialize(&mut *self.writer)?;
        // Keys that aren't text are left to a complete writer, which knows which may become some.
        if self.writer.out.get(start) != Some(&b'"') {
            return self.writer.decline();
        }
        self.writer.out.push(b':');
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Declined> {
        value.serialize(&mut *self.writer)
    }

    fn end(self) -> Result<(), Declined> {
        self.close()
    }
}
