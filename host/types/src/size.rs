//! Sizes with a unit, as settings write them: `64MiB`.

use crate::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// A number of bytes, written `512`, `512B`, `64KiB`, `64MiB`, `10GiB` (or `kB`, `MB`, `GB` in powers of ten).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ByteSize(pub u64);

const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

impl ByteSize {
    /// `n` MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
    /// As a `usize`, as large as it goes.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for ByteSize {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(
                "invalid-size",
                format!("{text:?} is not a size: write a whole number and a unit, as in \"64MiB\""),
            )
        };
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
        let unit = text[digits..].trim();
        let factor = if unit.is_empty() {
            1
        } else {
            UNITS
                .iter()
                .find(|(name, _)| *name == unit)
                .ok_or_else(wrong)?
                .1
        };
        number.checked_mul(factor).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for ByteSize {
    /// The largest binary unit that divides it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, factor) in &UNITS[..4] {
            if self.0 != 0 && self.0.is_multiple_of(*factor) {
                return write!(f, "{}{name}", self.0 / factor);
            }
        }
        write!(f, "{}B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes() {
        for (text, bytes, shown) in [
            ("64MiB", 64 << 20, "64MiB"),
            ("0", 0, "0B"),
            ("1 kB", 1000, "1000B"),
            ("2048", 2048, "2KiB"),
        ] {
            let size: ByteSize = text.parse().expect(text);
            assert_eq!((size.0, size.to_string().as_str()), (bytes, shown));
        }
        for bad in ["", "MiB", "-1", "1.5MiB", "1XB", "99999999999TiB"] {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad:?}");
        }
    }
}
