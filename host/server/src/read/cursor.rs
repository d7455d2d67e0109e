//! Cursors: `0:13,1:5`, a position in each of some partitions.

use std::fmt;
use tidemill_types::{Error, Result, limits};

/// Positions by partition, in order, each partition once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cursor(pub(crate) Vec<(u32, u64)>);

impl Cursor {
    /// Reads a cursor.
    ///
    /// # Errors
    /// `invalid-cursor` with what is wrong.
    pub(crate) fn read(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            let shown: String = text.chars().take(60).collect();
            Error::invalid("invalid-cursor", format!("the cursor {shown:?} {why}"))
        };
        let mut positions = Vec::new();
        for pair in text.split(',') {
            let position = pair
                .split_once(':')
                .and_then(|(partition, offset)| Some((number(partition)?, number(offset)?)));
            let Some((partition, offset)) = position else {
                return Err(wrong(
                    "is not a list of partition:offset pairs, as in \"0:13,1:5\"",
                ));
            };
            let partition =
                u32::try_from(partition).map_err(|_| wrong("names a partition that can't be"))?;
            positions.push((partition, offset));
            if positions.len() > limits::PARTITIONS as usize {
                return Err(wrong("names more partitions than a topic can have"));
            }
        }
        positions.sort_unstable();
        if positions.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(wrong("names a partition twice"));
        }
        Ok(Self(positions))
    }
}

/// A whole number in digits only.
fn number(text: &str) -> Option<u64> {
    text.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, (partition, offset)) in self.0.iter().enumerate() {
            let comma = if nth == 0 { "" } else { "," };
            write!(f, "{comma}{partition}:{offset}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes() {
        for (text, shown) in [
            ("0:13,1:5", "0:13,1:5"),
            ("7:18446744073709551615", "7:18446744073709551615"),
            ("2:0,0:1", "0:1,2:0"),
        ] {
            assert_eq!(Cursor::read(text).unwrap().to_string(), shown);
        }
        for bad in [
            "",
            "0",
            "0:",
            ":1",
            "0:1,",
            "0:-1",
            "+0:1",
            "0:1,0:2",
            "4294967296:0",
            "0:18446744073709551616",
            "0:1;1:2",
        ] {
            assert_eq!(
                Cursor::read(bad).unwrap_err().code,
                "invalid-cursor",
                "{bad:?}"
            );
        }
    }
}
