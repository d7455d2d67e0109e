//! Instants in microseconds since 1970 and durations as settings write them.

use crate::{Error, Result};
use std::fmt;
use std::io::Write;
use std::str::FromStr;
use std::time::Duration;

/// An instant: microseconds since 1970-01-01T00:00:00Z, negative before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From microseconds since 1970.
    #[inline]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }
    /// Microseconds since 1970.
    #[inline]
    pub const fn micros(self) -> i64 {
        self.0
    }
    /// The UTC day, counted from 1970-01-01 = 0.
    #[inline]
    pub const fn utc_day(self) -> i64 {
        self.0.div_euclid(86_400_000_000)
    }
}

/// Bytes of the longest time of the years 0 to 9999.
const TEXT_BYTES: usize = "2013-01-01T10:15:00.123456Z".len();
const MICROS_A_DAY: i64 = 86_400_000_000;

impl Timestamp {
    /// Appends what [`Display`](fmt::Display) shows; quicker, where many times are written.
    pub fn write_to(self, out: &mut Vec<u8>) {
        match self.text() {
            Some((text, len)) => out.extend_from_slice(&text[..len]),
            // Writing to memory can't fail.
            None => drop(write!(out, "{self}")),
        }
    }

    /// The text of a time of the years 0 to 9999, and its length.
    fn text(self) -> Option<([u8; TEXT_BYTES], usize)> {
        let (year, month, day) = date(self.utc_day());
        let year = u32::try_from(year).ok().filter(|year| *year <= 9999)?;
        let in_day = self.0.rem_euclid(MICROS_A_DAY);
        let (seconds, micros) = (in_day / 1_000_000, in_day % 1_000_000);
        let [seconds, micros] = [seconds, micros].map(|n| u32::try_from(n).unwrap_or_default());
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        digits(&mut text[0..4], year);
        digits(&mut text[5..7], month);
        digits(&mut text[8..10], day);
        digits(&mut text[11..13], seconds / 3600);
        digits(&mut text[14..16], seconds / 60 % 60);
        digits(&mut text[17..19], seconds % 60);
        if micros == 0 {
            text[19] = b'Z';
            return Some((text, 20));
        }
        digits(&mut text[20..26], micros);
        let mut end = 26;
        while text[end - 1] == b'0' {
            end -= 1;
        }
        text[end] = b'Z';
        Some((text, end + 1))
    }
}

/// Fills a field with a number's last digits.
fn digits(field: &mut [u8], mut number: u32) {
    for digit in field.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
    }
}

/// Year, month and day of the proleptic Gregorian calendar, of a day counted from 1970-01-01. Years are
/// counted from March on, so that the day that some have more comes last; 400 of them have 146,097 days.
fn date(day: i64) -> (i64, u32, u32) {
    let from_march = day + 719_468;
    let (era, of_era) = (
        from_march.div_euclid(146_097),
        from_march.rem_euclid(146_097),
    );
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let (month, next_year) = if from_march < 10 {
        (from_march + 3, 0)
    } else {
        (from_march - 9, 1)
    };
    let small = |n: i64| u32::try_from(n).unwrap_or_default();
    (era * 400 + year + next_year, small(month), small(day))
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
        if let Some((text, len)) = self.text() {
            return f.write_str(std::str::from_utf8(&text[..len]).unwrap_or_default());
        }
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
    fn times_are_written_as_another_calendar_writes_them() {
        let day = 86_400_000_000;
        let first = "-000001-12-30T00:00:00Z".parse::<jiff::Timestamp>();
        let first = first.expect("a time").as_microsecond();
        let last = "9999-12-30T00:00:00Z".parse::<jiff::Timestamp>();
        let last = last.expect("a time").as_microsecond();
        let same = |micros: i64| {
            let Ok(other) = jiff::Timestamp::from_microsecond(micros) else {
                return;
            };
            let mut text = Vec::new();
            Timestamp::from_micros(micros).write_to(&mut text);
            assert_eq!(
                String::from_utf8_lossy(&text),
                other.to_string(),
                "{micros}"
            );
        };
        // Every day, and now and then other times of it with other numbers of decimals.
        let days = (first..last + 3 * day).step_by(usize::try_from(day).expect("small"));
        for (nth, start) in (0_i64..).zip(days) {
            same(start);
            if nth % 17 == 0 {
                let of_day = nth * 7_919_000_003 % day;
                same(start + of_day);
                same(start + of_day / 1000 * 1000);
                same(start - 1);
            }
        }
        for micros in [i64::MIN, i64::MIN + 1, i64::MAX] {
            let mut text = Vec::new();
            Timestamp::from_micros(micros).write_to(&mut text);
            let shown = Timestamp::from_micros(micros).to_string();
            assert_eq!(String::from_utf8_lossy(&text), shown);
        }
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
