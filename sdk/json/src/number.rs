//! Numbers.

use crate::cursor::{Cursor, Declined};
use crate::word;

/// A number as serde_json tells it to a type.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Number {
    Positive(u64),
    Negative(i64),
    Float(f64),
}

/// Digits that surely fit into an `i64`.
const DIGITS: usize = 18;
/// Whole numbers up to here are floats exactly.
const EXACT: u64 = 1 << 53;
/// Powers of ten that are floats exactly.
const TENS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// The number here. Declines what serde_json reads in ways of its own: `-0`, and whole numbers of more
/// than 18 digits.
pub(crate) fn read(at: &mut Cursor<'_>) -> Result<Number, Declined> {
    let from = at.place();
    let negative = at.byte() == Some(b'-');
    if negative {
        at.step();
    }
    let first = at.place();
    let (whole, digits) = digits(at)?;
    let leading_zero = at.bytes().get(first) == Some(&b'0');
    if digits > DIGITS || (leading_zero && digits > 1) {
        return Err(Declined);
    }
    if matches!(at.byte(), Some(b'.' | b'e' | b'E')) {
        return float(at, from, negative, whole, digits);
    }
    match (negative, i64::try_from(whole)) {
        (false, _) => Ok(Number::Positive(whole)),
        (true, Ok(whole @ 1..)) => Ok(Number::Negative(-whole)),
        (true, _) => Err(Declined),
    }
}

/// The digits here as a number, and how many there are. Beyond [`DIGITS`] the number means nothing.
#[inline(always)]
fn digits(at: &mut Cursor<'_>) -> Result<(u64, usize), Declined> {
    let from = at.place();
    if let Some((few, digits)) = word::few_digits(at.bytes(), from) {
        at.skip_bytes(digits);
        return Ok((few, digits));
    }
    far_digits(at)
}

/// The same digit by digit.
#[inline(never)]
fn far_digits(at: &mut Cursor<'_>) -> Result<(u64, usize), Declined> {
    let from = at.place();
    let mut number = 0_u64;
    while let Some(digit @ b'0'..=b'9') = at.byte() {
        number = number
            .wrapping_mul(10)
            .wrapping_add(u64::from(digit - b'0'));
        at.step();
    }
    match at.place() - from {
        0 => Err(Declined),
        digits => Ok((number, digits)),
    }
}

/// A number with a fraction or an exponent whose whole part was passed.
#[inline(never)]
fn float(
    at: &mut Cursor<'_>,
    from: usize,
    negative: bool,
    whole: u64,
    digits: usize,
) -> Result<Number, Declined> {
    let point = at.place();
    at.skip_fraction()?;
    let behind = at.place();
    if let Some(number) = short(at, point, behind, whole, digits) {
        return Ok(Number::Float(if negative { -number } else { number }));
    }
    let number: f64 = at.between(from, behind)?.parse().map_err(|_| Declined)?;
    match number.is_finite() {
        true => Ok(Number::Float(number)),
        false => Err(Declined),
    }
}

/// Few digits and no exponent: a division of two exact floats, which rounds correctly (Clinger, "How to read
/// floating point numbers accurately", 1990).
#[expect(clippy::cast_precision_loss, reason = "up to 2^53 nothing is lost")]
fn short(at: &Cursor<'_>, point: usize, behind: usize, whole: u64, digits: usize) -> Option<f64> {
    let fraction = at.bytes().get(point + 1..behind)?;
    if at.bytes().get(point) != Some(&b'.') || digits + fraction.len() > DIGITS {
        return None;
    }
    let mut all = whole;
    for digit in fraction {
        if !digit.is_ascii_digit() {
            return None;
        }
        all = all * 10 + u64::from(digit - b'0');
    }
    (all <= EXACT).then(|| all as f64 / TENS[fraction.len()])
}

/// A float for a type that wants 32 bits: rounded once, as serde_json does it.
pub(crate) fn read_f32(at: &mut Cursor<'_>) -> Result<Number, Declined> {
    let from = at.place();
    match read(at)? {
        Number::Float(_) => {
            let text = at.between(from, at.place())?;
            let number: f32 = text.parse().map_err(|_| Declined)?;
            match number.is_finite() {
                true => Ok(Number::Float(f64::from(number))),
                false => Err(Declined),
            }
        }
        whole => Ok(whole),
    }
}
