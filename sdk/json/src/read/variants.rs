//! Variants of enums: `"Name"`, or `{"Name": what it holds}`.

use super::{Declined, Reader};
use serde::de::{DeserializeSeed, Deserializer, EnumAccess, VariantAccess, Visitor};

pub(super) struct Variant<'r, 'de> {
    reader: &'r mut Reader<'de>,
    /// Whether it holds something.
    holds: bool,
}

impl<'de> Variant<'_, 'de> {
    pub(super) fn read<V: Visitor<'de>>(
        reader: &mut Reader<'de>,
        visitor: V,
    ) -> Result<V::Value, Declined> {
        let holds = match reader.at.token()? {
            b'"' => false,
            b'{' => true,
            _ => return Err(Declined),
        };
        if !holds {
            return visitor.visit_enum(Variant { reader, holds });
        }
        if !reader.at.enter(b'{')? {
            return Err(Declined);
        }
        reader.deeper()?;
        let value = visitor.visit_enum(Variant {
            reader: &mut *reader,
            holds,
        })?;
        reader.depth -= 1;
        match reader.at.another(b'}')? {
            true => Err(Declined),
            false => Ok(value),
        }
    }
}

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = Declined;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Declined> {
        // Another variant's name may be a string only.
        self.reader.only(b"\"")?;
        let name = seed.deserialize(&mut *self.reader)?;
        if self.holds {
            self.reader.at.expect(b':')?;
        }
        Ok((name, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = Declined;

    fn unit_variant(self) -> Result<(), Declined> {
        match self.holds {
            true => serde::Deserialize::deserialize(self.reader),
            false => Ok(()),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Declined> {
        match self.holds {
            true => seed.deserialize(self.reader),
            false => Err(Declined),
        }
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Declined> {
        match self.holds {
            true => self.reader.deserialize_seq(visitor),
            false => Err(Declined),
        }
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Declined> {
        match self.holds {
            true => self.reader.deserialize_struct("", fields, visitor),
            false => Err(Declined),
        }
    }
}
