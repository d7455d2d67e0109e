//! Short pieces of text. In WebAssembly a copy of unknown length is a call out of the sandbox; up to some
//! dozen bytes, words of fixed length that overlap cost less.

use crate::word::is_plain;

/// Longest text that is put word by word.
const SHORT: usize = 48;

/// Appends bytes.
#[inline]
pub(super) fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    match bytes.len() {
        8..=SHORT => put_words(out, bytes),
        4..8 => put_ends::<4>(out, bytes),
        0..4 => bytes.iter().for_each(|byte| out.push(*byte)),
        _ => out.extend_from_slice(bytes),
    }
}

/// Appends eight bytes or more.
#[inline]
fn put_words(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut rest = bytes;
    while let Some((word, behind @ [_, _, _, _, _, _, _, _, ..])) = rest.split_first_chunk::<8>() {
        out.extend_from_slice(word);
        rest = behind;
    }
    put_ends::<8>(out, rest);
}

/// Appends `N` bytes up to twice as many: the first and the last of them, which may overlap.
#[inline]
fn put_ends<const N: usize>(out: &mut Vec<u8>, bytes: &[u8]) {
    if let (Some(first), Some(last)) = (bytes.first_chunk::<N>(), bytes.last_chunk::<N>()) {
        let start = out.len();
        out.extend_from_slice(first);
        out.truncate(start + bytes.len() - N);
        out.extend_from_slice(last);
    }
}

/// Appends a whole number.
#[inline]
pub(super) fn number(out: &mut Vec<u8>, number: impl itoa::Integer) {
    put(out, itoa::Buffer::new().format(number).as_bytes());
}

/// Appends a string in quotes; `false`, and nothing, where something in it has to be escaped.
#[inline]
pub(super) fn quoted(out: &mut Vec<u8>, text: &str) -> bool {
    let bytes = text.as_bytes();
    if !is_plain(bytes) {
        return false;
    }
    out.push(b'"');
    put(out, bytes);
    out.push(b'"');
    true
}
