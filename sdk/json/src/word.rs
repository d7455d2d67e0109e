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

/// The same where fewer are left of a text of eight or more: zeros stand behind it.
#[inline(always)]
fn last_word(bytes: &[u8], at: usize) -> Option<u64> {
    let (last, left) = (bytes.last_chunk::<8>()?, bytes.len().checked_sub(at)?);
    let beyond = 8_usize.checked_sub(left).filter(|beyond| *beyond < 8)?;
    Some(u64::from_le_bytes(*last) >> (8 * beyond))
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

/// Whether there is one in the four words from `at` on; `None`: fewer are left.
#[inline(always)]
fn special_in_four(bytes: &[u8], at: usize) -> Option<bool> {
    let four = bytes.get(at..)?.first_chunk::<32>()?;
    let marks = |nth: usize| special(word(four, nth * 8).unwrap_or_default());
    Some(marks(0) | marks(1) | marks(2) | marks(3) != 0)
}

#[inline(never)]
fn far_plain_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    while special_in_four(bytes, at) == Some(false) {
        at += 32;
    }
    while let Some(word) = word(bytes, at) {
        let marks = special(word);
        if marks != 0 {
            return Some(at + lowest(marks));
        }
        at += 8;
    }
    match last_word(bytes, at).map(special) {
        // Zeros count as control characters.
        Some(marks) => Some(at + lowest(marks)).filter(|end| *end < bytes.len()),
        None => bytes.get(at..)?.iter().position(ends_plain).map(|n| at + n),
    }
}

/// Whether no byte is a quote, a backslash or a control character.
#[inline]
pub(crate) fn is_plain(bytes: &[u8]) -> bool {
    match bytes.len() {
        8.. => {
            let (words, _) = bytes.as_chunks::<8>();
            let last = bytes
                .last_chunk()
                .map_or(0, |last| special(u64::from_le_bytes(*last)));
            let mark = |marks, word: &[u8; 8]| marks | special(u64::from_le_bytes(*word));
            words.iter().fold(last, mark) == 0
        }
        4..8 => match (bytes.first_chunk(), bytes.last_chunk()) {
            // The two overlap where there are fewer than eight.
            (Some(first), Some(last)) => {
                let both = u64::from(u32::from_le_bytes(*last)) << 32;
                special(both | u64::from(u32::from_le_bytes(*first))) == 0
            }
            _ => false,
        },
        0..4 => !bytes.iter().any(ends_plain),
    }
}

fn ends_plain(byte: &u8) -> bool {
    matches!(byte, b'"' | b'\\' | 0..=0x1f)
}

/// Bytes as text. Text that is all ASCII, as most is, is told by its high bits alone.
///
/// # Errors
/// When it isn't UTF-8.
pub fn text(bytes: &[u8]) -> Result<&str, std::str::Utf8Error> {
    match is_ascii(bytes) {
        // SAFETY: bytes below 0x80 are UTF-8, each a character of its own.
        #[expect(unsafe_code, reason = "every byte was looked at")]
        true => Ok(unsafe { std::str::from_utf8_unchecked(bytes) }),
        false => std::str::from_utf8(bytes),
    }
}

fn is_ascii(bytes: &[u8]) -> bool {
    let (fours, rest) = bytes.as_chunks::<32>();
    for four in fours {
        let (words, _) = four.as_chunks::<8>();
        let all = words
            .iter()
            .fold(0, |all, word| all | u64::from_le_bytes(*word));
        if all & HIGH != 0 {
            return false;
        }
    }
    let (words, rest) = rest.as_chunks::<8>();
    let all = words
        .iter()
        .fold(0, |all, word| all | u64::from_le_bytes(*word));
    let last = rest.iter().fold(0, |all, byte| all | byte);
    all & HIGH == 0 && last < 0x80
}

/// Eight digits, the first in the lowest byte, as a number.
#[inline(always)]
fn eight_digits(word: u64) -> u64 {
    let ones = word & (ONES * 0x0f);
    let tens = (ones * 10 + (ones >> 8)) & 0x00ff_00ff_00ff_00ff;
    let hundreds = (tens * 100 + (tens >> 16)) & 0x0000_ffff_0000_ffff;
    (hundreds * 10_000 + (hundreds >> 32)) & 0xffff_ffff
}

/// The digits from `at` on as a number, and how many there are: one to seven, in a text of eight bytes or more.
#[inline(always)]
pub(crate) fn few_digits(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let word = word(bytes, at).or_else(|| last_word(bytes, at))?;
    let marks = other_than_digit(word);
    let digits = lowest(marks);
    if marks == 0 || digits == 0 {
        return None;
    }
    // Shifted so that the last digit is the eighth; zeros come before the first.
    Some((eight_digits(word << (64 - 8 * digits)), digits))
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

    #[test]
    fn few_digits_are_read_at_once() {
        for (text, read) in [
            ("0,......", Some((0, 1))),
            ("7}\0\0\0\0\0\0", Some((7, 1))),
            ("1234567,", Some((1_234_567, 7))),
            ("0090807 ", Some((90_807, 7))),
            ("99e99999", Some((99, 2))),
            ("12345678", None),
            ("1234567", None),
            ("-1234567", None),
        ] {
            assert_eq!(few_digits(text.as_bytes(), 0), read, "{text}");
        }
        for left in 0..8 {
            let text = format!("{{\"n\":   {}", "1234567".get(..left).expect("ASCII"));
            let number = text[8..].parse().ok().map(|number| (number, left));
            assert_eq!(few_digits(text.as_bytes(), 8), number, "{text}");
            assert_eq!(few_digits(text.as_bytes(), 60), None);
        }
    }

    #[test]
    fn a_byte_that_is_no_utf8_is_seen_wherever_it_lies() {
        for length in 0..80 {
            let mut bytes = vec![b'a'; length];
            assert_eq!(text(&bytes).map(str::len), Ok(length));
            for at in 0..length {
                bytes[at] = 0xff;
                assert_eq!(text(&bytes), std::str::from_utf8(&bytes));
                assert!(text(&bytes).is_err());
                bytes[at] = b'a';
            }
        }
        assert_eq!(text("grüße".as_bytes()), Ok("grüße"));
    }
}
