//! Instants in microseconds since 1970 and durations as settings write them.

use crate::{Error, Result};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// An instant: microseconds since 1970-01-01T00:00:00Z, negative before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From microseconds since 1970.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }
    /// Microseconds since 1970.
    pub const fn micros(self) -> i64 {
        self.0
    }
    /// The UTC day, counted from 1970-01-01 = 0.
    pub const fn utc_day(self) -> i64 {
        self.0.div_euclid(86_400_000_000)
    }
}

impl FromStr for Timestamp {
    type Err = Error;
    /// RFC 3339 with any offset; digits beyond the microsecond are cut off.
    fn from_str(text: &str) -> Result<Self> {
        let instant: jiff::Timestamp = text.parse().map_err(|_| {
            let shown: String = text.chars().take(60).collect();
            Error::invalid(
                "invalid-time",
                format!("{shown:?} is not an RFC 3339 time such as \"2013-01-01T10:15:00Z\""),
            )
        })?;
        Ok(Self(
            instant
                .as_nanosecond()
                .div_euclid(1000)
                .try_into()
                .unwrap_or(i64::MAX),
        ))
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with as many of six decimals as needed; outside the years -9999 to 9999 the
    /// nearest time inside is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instant = jiff::Timestamp::from_microsecond(self.0).unwrap_or(if self.0 < 0 {
            jiff::Timestamp::MIN
        } else {
            jiff::Timestamp::MAX
        });
        instant.fmt(f)
    }
}

const UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
    ("µs", 1),
];

/// Reads a duration of one unit: `30d`, `1h`, `5m`, `1s`, `250ms`, `50us`.
///
/// # Errors
/// `invalid-duration` with what would be right.
pub fn parse_duration(text: &str) -> Result<Duration> {
    let wrong = || {
        Error::invalid(
            "invalid-duration",
            format!(
                "{text:?} is not a duration: write a whole number and one of d, h, m, s, ms, us, as in \"250ms\""
            ),
        )
    };
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit = text[digits..].trim();
    let (_, factor) = UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(wrong)?;
    number
        .checked_mul(*factor)
        .map(Duration::from_micros)
        .ok_or_else(wrong)
}

/// Writes a duration in the largest unit that divides it, as [`parse_duration`] reads it.
pub fn format_duration(duration: Duration) -> String {
    let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    if micros == 0 {
        return "0ms".into();
    }
    let (name, factor) = UNITS
        .iter()
        .find(|(_, factor)| micros.is_multiple_of(*factor))
        .unwrap_or(&("us", 1));
    format!("{}{name}", micros / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_round_trip() {
        for (text, micros, shown) in [
            (
                "2013-01-01T10:15:00Z",
                1_357_035_300_000_000,
                "2013-01-01T10:15:00Z",
            ),
            (
                "1969-12-31T23:59:59.999999Z",
                -1,
                "1969-12-31T23:59:59.999999Z",
            ),
            (
                "1970-01-01T01:00:00.0000005+01:00",
                0,
                "1970-01-01T00:00:00Z",
            ),
        ] {
            let time: Timestamp = text.parse().expect(text);
            assert_eq!((time.micros(), time.to_string().as_str()), (micros, shown));
        }
        assert!("yesterday".parse::<Timestamp>().is_err());
        assert_eq!(Timestamp::from_micros(-1).utc_day(), -1);
    }

    #[test]
    fn durations_round_trip() {
        for text in ["30d", "1h", "5m", "1s", "250ms", "50us", "90m", "0ms"] {
            assert_eq!(format_duration(parse_duration(text).expect(text)), text);
        }
        for bad in ["", "s", "1.5s", "1 fortnight", "-1s"] {
            assert!(parse_duration(bad).is_err(), "{bad:?}");
        }
    }
}
