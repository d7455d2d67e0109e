//! Event times as topics' units write them.

use tidemill_log::TimeUnit;
use tidemill_types::Timestamp;

/// Reads a time; numbers may have decimals and are cut off at the microsecond, downwards.
///
/// # Errors
/// What would be right.
pub(crate) fn read_time(text: &str, unit: TimeUnit) -> Result<i64, String> {
    let shift = match unit {
        TimeUnit::Rfc3339 => {
            return plain_utc(text.as_bytes()).map_or_else(
                || {
                    text.parse()
                        .map(Timestamp::micros)
                        .map_err(|e: tidemill_types::Error| e.detail)
                },
                Ok,
            );
        }
        TimeUnit::Seconds => 6,
        TimeUnit::Millis => 3,
        TimeUnit::Micros => 0,
        TimeUnit::Nanos => -3,
    };
    scaled(text, shift).ok_or_else(|| {
        let shown: String = text.chars().take(60).collect();
        format!(
            "{shown:?} is not a number of {} since 1970",
            unit_name(unit)
        )
    })
}

fn unit_name(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Rfc3339 => "RFC 3339",
        TimeUnit::Seconds => "seconds",
        TimeUnit::Millis => "milliseconds",
        TimeUnit::Micros => "microseconds",
        TimeUnit::Nanos => "nanoseconds",
    }
}

/// `2013-01-01T10:15:00Z` and `….123456Z` without a general parser: by far the most common form, and a
/// tenth of an event's cost otherwise. Everything else, right or wrong, is left to the general one.
fn plain_utc(text: &[u8]) -> Option<i64> {
    let (head, rest) = text.split_first_chunk::<19>()?;
    let two = |at: usize| Some(i64::from(digit(head[at])? * 10 + digit(head[at + 1])?));
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if marks.iter().any(|(at, mark)| head[*at] != *mark) {
        return None;
    }
    let year = two(0)? * 100 + two(2)?;
    let (month, day, hour, minute, second) = (two(5)?, two(8)?, two(11)?, two(14)?, two(17)?);
    let fits = (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    let (b'Z', fraction) = rest.split_last()? else {
        return None;
    };
    let micros = match fraction {
        [] => 0,
        [b'.', digits @ ..] if (1..=6).contains(&digits.len()) => {
            let number = digits
                .iter()
                .try_fold(0_i64, |sum, byte| Some(sum * 10 + i64::from(digit(*byte)?)))?;
            number * POWERS[6 - digits.len()]
        }
        _ => return None,
    };
    fits.then(|| {
        (((days_since_1970(year, month, day) * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000
            + micros
    })
}

const POWERS: [i64; 7] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000];

fn digit(byte: u8) -> Option<u8> {
    byte.is_ascii_digit().then(|| byte - b'0')
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 in the proleptic Gregorian calendar (Hinnant, "chrono-compatible low-level date
/// algorithms"), for years from 0 on.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// A JSON number times 10^shift, downwards to a whole number, exactly.
fn scaled(text: &str, shift: i32) -> Option<i64> {
    let (negative, rest) = text
        .strip_prefix('-')
        .map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (rest, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    if whole.is_empty() || fraction.is_empty() {
        return None;
    }
    let mut number = 0_i128;
    for byte in whole.bytes().chain(fraction.bytes()) {
        number = number
            .checked_mul(10)?
            .checked_add(i128::from(digit(byte)?))?;
    }
    let number = if negative { -number } else { number };
    let scale = shift
        .checked_add(exponent)?
        .checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let power = |by: u32| 10_i128.checked_pow(by);
    let result = match power(scale.unsigned_abs()) {
        Some(power) if scale >= 0 => number.checked_mul(power)?,
        Some(power) => number.div_euclid(power),
        None if number == 0 => 0,
        None if scale > 0 => return None,
        None => number.signum().min(0),
    };
    i64::try_from(result).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_each_unit() {
        use TimeUnit::*;
        for (text, unit, micros) in [
            ("2013-01-01T10:15:00Z", Rfc3339, Some(1_357_035_300_000_000)),
            (
                "2013-01-01T10:15:00.25Z",
                Rfc3339,
                Some(1_357_035_300_250_000),
            ),
            (
                "2013-01-01T11:15:00+01:00",
                Rfc3339,
                Some(1_357_035_300_000_000),
            ),
            ("1969-12-31T23:59:59.999999Z", Rfc3339, Some(-1)),
            ("2012-02-29T00:00:00Z", Rfc3339, Some(1_330_473_600_000_000)),
            ("2013-02-29T00:00:00Z", Rfc3339, None),
            ("2013-01-01", Rfc3339, None),
            ("1357035300", Seconds, Some(1_357_035_300_000_000)),
            ("1357035300.5", Seconds, Some(1_357_035_300_500_000)),
            ("1.3570353e9", Seconds, Some(1_357_035_300_000_000)),
            ("-0.0000001", Seconds, Some(-1)),
            ("1357035300123", Millis, Some(1_357_035_300_123_000)),
            ("1357035300123456", Micros, Some(1_357_035_300_123_456)),
            ("1357035300123456789", Nanos, Some(1_357_035_300_123_456)),
            ("-1", Nanos, Some(-1)),
            ("0", Nanos, Some(0)),
            ("9223372036854775808", Micros, None),
            ("1e400", Seconds, None),
            ("1e-400", Seconds, Some(0)),
            ("-1e-400", Seconds, Some(-1)),
            ("", Seconds, None),
            ("1.", Seconds, None),
            (".5", Seconds, None),
            ("NaN", Seconds, None),
            ("yesterday", Millis, None),
        ] {
            assert_eq!(read_time(text, unit).ok(), micros, "{text:?} as {unit:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn the_short_way_agrees_with_the_general_parser(micros in -62_135_596_800_000_000_i64..253_402_300_799_999_999) {
            let text = Timestamp::from_micros(micros).to_string();
            prop_assert_eq!(plain_utc(text.as_bytes()), Some(micros), "{}", text);
        }

        #[test]
        fn the_short_way_accepts_nothing_else(text in "[0-9]{4}-[0-9]{2}-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9](\\.[0-9]{0,7})?Z?") {
            let general = text.parse::<Timestamp>().ok().map(Timestamp::micros);
            if let Some(short) = plain_utc(text.as_bytes()) {
                prop_assert_eq!(Some(short), general, "{}", text);
            }
        }
    }
}
