//! Keys of maps: how they are written, so that their bytes lie in their order.

use crate::Time;
use std::borrow::Cow;

/// What can be the key of a [`StateMap`](crate::StateMap): texts, bytes, whole numbers and times. Entries lie
/// in the order of their keys: texts and bytes byte by byte, numbers and times by size.
pub trait MapKey: Sized {
    /// The bytes of a key.
    fn write(&self) -> Cow<'_, [u8]>;

    /// Reads the bytes back; `None` when they are no such key.
    fn read(bytes: &[u8]) -> Option<Self>;
}

impl MapKey for String {
    fn write(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.as_bytes())
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        String::from_utf8(bytes.to_vec()).ok()
    }
}

impl MapKey for Vec<u8> {
    fn write(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        Some(bytes.to_vec())
    }
}

macro_rules! unsigned {
    ($($number:ty),*) => {$(
        impl MapKey for $number {
            fn write(&self) -> Cow<'_, [u8]> {
                Cow::Owned(self.to_be_bytes().to_vec())
            }

            fn read(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(Self::from_be_bytes)
            }
        }
    )*};
}

// With the sign turned over, negative numbers come before the others.
macro_rules! signed {
    ($($number:ty),*) => {$(
        impl MapKey for $number {
            fn write(&self) -> Cow<'_, [u8]> {
                Cow::Owned((*self ^ Self::MIN).to_be_bytes().to_vec())
            }

            fn read(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(|bytes| Self::from_be_bytes(bytes) ^ Self::MIN)
            }
        }
    )*};
}

unsigned!(u8, u16, u32, u64);
signed!(i8, i16, i32, i64);

impl MapKey for Time {
    fn write(&self) -> Cow<'_, [u8]> {
        Cow::Owned(self.micros().write().into_owned())
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        i64::read(bytes).map(Time::from_micros)
    }
}

/// What a key can be given as: a `K`, a reference to one, or the borrowed form of a text or of bytes.
pub trait AsMapKey<K> {
    /// The bytes of the key.
    fn bytes(&self) -> Cow<'_, [u8]>;
}

impl<K: MapKey> AsMapKey<K> for K {
    fn bytes(&self) -> Cow<'_, [u8]> {
        self.write()
    }
}

impl<K: MapKey> AsMapKey<K> for &K {
    fn bytes(&self) -> Cow<'_, [u8]> {
        self.write()
    }
}

impl AsMapKey<String> for &str {
    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(str::as_bytes(self))
    }
}

impl AsMapKey<Vec<u8>> for &[u8] {
    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_lie_in_the_order_of_the_keys(a: i64, b: i64, c: u32, d: u32, e: String, f: String) {
            prop_assert_eq!(a.write().cmp(&b.write()), a.cmp(&b));
            prop_assert_eq!(c.write().cmp(&d.write()), c.cmp(&d));
            prop_assert_eq!(e.write().cmp(&f.write()), e.cmp(&f));
            prop_assert_eq!(i64::read(&a.write()), Some(a));
            prop_assert_eq!(u32::read(&c.write()), Some(c));
            prop_assert_eq!(String::read(&e.write()), Some(e));
            prop_assert_eq!(u64::read(&c.write()), None);
        }
    }
}
