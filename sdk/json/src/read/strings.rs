//! Strings.

use super::{Declined, Reader};
use serde::de::Visitor;

impl<'de> Reader<'de> {
    #[inline]
    pub(super) fn string<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Declined> {
        self.at.expect(b'"')?;
        let string = self.at.string()?;
        if !string.escaped {
            return visitor.visit_borrowed_str(string.written);
        }
        self.scratch.clear();
        unescape(string.written, &mut self.scratch)?;
        visitor.visit_str(&self.scratch)
    }

    /// A string for a type that takes bytes.
    pub(super) fn bytes<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Declined> {
        if self.at.token()? == b'[' {
            return self.array(visitor);
        }
        self.at.expect(b'"')?;
        let string = self.at.string()?;
        match string.escaped {
            false => visitor.visit_borrowed_bytes(string.written.as_bytes()),
            true => Err(Declined),
        }
    }
}

/// Replaces escapes that are known to be well formed. Declines halves of surrogate pairs that stand alone.
fn unescape(written: &str, out: &mut String) -> Result<(), Declined> {
    let mut rest = written;
    while let Some((plain, escape)) = rest.split_once('\\') {
        out.push_str(plain);
        let mut chars = escape.chars();
        let character = match chars.next() {
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => {
                let (character, behind) = unicode(chars.as_str())?;
                chars = behind.chars();
                character
            }
            Some(itself) => itself,
            None => return Err(Declined),
        };
        out.push(character);
        rest = chars.as_str();
    }
    out.push_str(rest);
    Ok(())
}

/// The character behind `\u`, and what follows.
fn unicode(text: &str) -> Result<(char, &str), Declined> {
    let (first, rest) = unit(text)?;
    if let Some(character) = char::from_u32(first) {
        return Ok((character, rest));
    }
    let (second, rest) = unit(rest.strip_prefix("\\u").ok_or(Declined)?)?;
    let pair = (0xd800..0xdc00).contains(&first) && (0xdc00..0xe000).contains(&second);
    if !pair {
        return Err(Declined);
    }
    let character = 0x1_0000 + ((first - 0xd800) << 10 | (second - 0xdc00));
    Ok((char::from_u32(character).ok_or(Declined)?, rest))
}

/// Four hexadecimal digits.
fn unit(text: &str) -> Result<(u32, &str), Declined> {
    let (digits, rest) = text.split_at_checked(4).ok_or(Declined)?;
    let unit = u32::from_str_radix(digits, 16).map_err(|_| Declined)?;
    Ok((unit, rest))
}
