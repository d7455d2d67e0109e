//! Eight bytes at once.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Marks the high bit of each byte that ends a plain stretch of a string: a quote, a backslash, a control
/// character. Bytes above the first marked one may be marked wrongly (a borrow), so only the lowest counts.
fn special(word: u64) -> u64 {
    let quote = word ^ (ONES * 0x22);
    let backslash = word ^ (ONES * 0x5c);
    let control = word.wrapping_sub(ONES * 0x20);
    (quote.wrapping_sub(ONES) & !quote
        | backslash.wrapping_sub(ONES) & !backslash
        | control & !word)
        & HIGH
}

/// Marks the high bit of each byte that is no digit, with the same reservation.
fn other_than_digit(word: u64) -> u64 {
    let digit = word ^ (ONES * 0x30);
    // Digits are 0 to 9 now; adding 0x76 carries anything above into the high bit.
    (((digit & !HIGH) + ONES * 0x76) | digit) & HIGH
}

/// Eight bytes from `at` on.
#[inline(always)]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*word))
}

fn lowest(marks: u64) -> usize {
    (marks.trailing_zeros() / 8) as usize
}

/// Where from `at` on the first quote, backslash or control character lies; `None`: nowhere.
///
/// Most strings end within eight bytes: these are found without a loop, for in a sandbox with a deadline each
/// turn of a loop is counted.
#[inline(always)]
pub(crate) fn plain_end(bytes: &[u8], at: usize) -> Option<usize> {
    match word(bytes, at).map(special) {
        None | Some(0) => far_plain_end(bytes, at),
        Some(marks) => Some(at + lowest(marks)),
    }
}

#[inline(never)]
fn far_plain_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    while let Some(word) = word(bytes, at) {
        let marks = special(word);
        if marks != 0 {
            return Some(at + lowest(marks));
        }
        at += 8;
    }
    let rest = bytes.get(at..)?;
    let ends = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
    rest.iter().position(ends).map(|n| at + n)
}

/// Where from `at` on the digits end.
#[inline(always)]
pub(crate) fn digits_end(bytes: &[u8], at: usize) -> usize {
    match word(bytes, at).map(other_than_digit) {
        None | Some(0) => far_digits_end(bytes, at),
        Some(marks) => at + lowest(marks),
    }
}

#[inline(never)]
fn far_digits_end(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    at + digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_special_byte_is_found_wherever_it_lies() {
        for special in [b'"', b'\\', 0, 0x1f, b'\n'] {
            for others in [b' ', b'!', b'#', b'[', b']', 0x7f, 0x80, 0xa2, 0xff] {
                for at in 0..20 {
                    let mut bytes = [others; 20];
                    bytes[at] = special;
                    assert_eq!(plain_end(&bytes, 0), Some(at), "{special} among {others}");
                    assert_eq!(plain_end(&bytes, at), Some(at));
                    assert_eq!(plain_end(&bytes, at + 1), None);
                }
            }
        }
    }

    #[test]
    fn digits_end_wherever_they_end() {
        for other in (0..=u8::MAX).filter(|byte| !byte.is_ascii_digit()) {
            for digit in [b'0', b'9'] {
                for at in 0..20 {
                    let mut bytes = [digit; 20];
                    bytes[at] = other;
                    assert_eq!(digits_end(&bytes, 0), at, "{other} among {digit}");
                    assert_eq!(digits_end(&bytes[..at], 0), at);
                }
            }
        }
    }
}
