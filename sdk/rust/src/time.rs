//! Instants in microseconds since 1970.

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::Duration;

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

/// An instant: microseconds since 1970-01-01T00:00:00Z, negative before it.
///
/// ```
/// let time: tidemill::Time = "2013-01-01T10:15:00+01:00".parse()?;
/// assert_eq!(time.to_string(), "2013-01-01T09:15:00Z");
/// # Ok::<(), tidemill::InvalidTime>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(i64);

/// A text that is no RFC 3339 time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvalidTime(String);

impl Time {
    /// From microseconds since 1970.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970.
    pub const fn micros(self) -> i64 {
        self.0
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// So much later; the last time there is where it would pass it.
    fn add(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(micros))
    }
}

impl Sub<Duration> for Time {
    type Output = Self;

    /// So much earlier; the first time there is where it would pass it.
    fn sub(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_sub(micros))
    }
}

impl fmt::Display for InvalidTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not an RFC 3339 time such as \"2013-01-01T10:15:00Z\"",
            self.0
        )
    }
}

impl std::error::Error for InvalidTime {}

impl FromStr for Time {
    type Err = InvalidTime;

    /// RFC 3339 with any offset; digits beyond the microsecond are cut off.
    fn from_str(text: &str) -> Result<Self, InvalidTime> {
        parse(text.as_bytes())
            .map(Self)
            .ok_or_else(|| InvalidTime(text.chars().take(60).collect()))
    }
}

impl TryFrom<&str> for Time {
    type Error = InvalidTime;

    fn try_from(text: &str) -> Result<Self, InvalidTime> {
        text.parse()
    }
}

impl fmt::Display for Time {
    /// RFC 3339 in UTC with as many of six decimals as needed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil(self.0.div_euclid(DAY));
        let rest = self.0.rem_euclid(DAY);
        let (seconds, micros) = (rest / SECOND, rest % SECOND);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}",
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60
        )?;
        if micros != 0 {
            let digits = format!("{micros:06}");
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        f.write_str("Z")
    }
}

impl Serialize for Time {
    /// As RFC 3339 text.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    /// From RFC 3339 text.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an RFC 3339 time")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Time, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

fn parse(text: &[u8]) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let (clock, rest) = rest.split_at_checked(9)?;
    let separated = date[4] == b'-'
        && date[7] == b'-'
        && matches!(clock[0], b'T' | b't' | b' ')
        && clock[3] == b':'
        && clock[6] == b':';
    if !separated {
        return None;
    }
    let (year, month, day) = (
        number(&date[..4])?,
        number(&date[5..7])?,
        number(&date[8..])?,
    );
    let (hour, minute, second) = (
        number(&clock[1..3])?,
        number(&clock[4..6])?,
        number(&clock[7..])?,
    );
    if !(1..=12).contains(&month)
        || !(1..=days_of(year, month)).contains(&day)
        || hour > 23
        || minute > 59
        || second > 60
    {
        return None;
    }
    let (micros, rest) = fraction(rest)?;
    let offset = offset_seconds(rest)?;
    // A leap second is read as the last one that clocks have.
    let seconds = hour * 3600 + minute * 60 + second.min(59) - offset;
    Some(days_from_civil(year, month, day) * DAY + seconds * SECOND + micros)
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |sum, digit| {
        digit
            .is_ascii_digit()
            .then(|| sum * 10 + i64::from(digit - b'0'))
    })
}

fn fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let Some(text) = text.strip_prefix(b".") else {
        return Some((0, text));
    };
    let digits = text.iter().take_while(|c| c.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    let kept = digits.min(6);
    let scale = [SECOND, 100_000, 10_000, 1_000, 100, 10, 1][kept];
    Some((number(&text[..kept])? * scale, &text[digits..]))
}

fn offset_seconds(text: &[u8]) -> Option<i64> {
    match text {
        b"Z" | b"z" => Some(0),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?);
            let seconds = hours * 3600 + minutes * 60;
            (hours < 24 && minutes < 60).then_some(if *sign == b'-' { -seconds } else { seconds })
        }
        _ => None,
    }
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 of a date of the proleptic Gregorian calendar, counted in eras of 400 years
/// that start in March.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The date of a day, the other way round.
fn civil(day: i64) -> (i64, i64, i64) {
    let shifted = day + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let month = (shifted_month + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted_month + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_times() {
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
            (
                "2000-02-29 23:30:00.25-00:45",
                951_869_700_250_000,
                "2000-03-01T00:15:00.25Z",
            ),
        ] {
            let time: Time = text.parse().expect(text);
            assert_eq!((time.micros(), time.to_string().as_str()), (micros, shown));
        }
    }

    #[test]
    fn impossible_times_are_refused() {
        for bad in [
            "",
            "yesterday",
            "2013-02-29T00:00:00Z",
            "2013-13-01T00:00:00Z",
            "2013-01-01T24:00:00Z",
            "2013-01-01T00:00:00",
            "2013-01-01T00:00:00.Z",
            "2013-01-01T00:00:00+1:00",
            "2013-01-00T00:00:00Z",
            "2013-1-1T00:00:00Zxx",
        ] {
            assert!(bad.parse::<Time>().is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn every_time_reads_back(micros in -62_135_596_800_000_000_i64..253_402_300_800_000_000) {
            let time = Time::from_micros(micros);
            prop_assert_eq!(time.to_string().parse::<Time>(), Ok(time));
        }
    }
}
