//! The packed row layout: one layout for the journal, the tail and the batch a guest is given.
//!
//! Rows are a block of 32-byte heads and a block of payload. A head says where in the payload its
//! event's key and value lie; headers follow the value directly. The key may lie anywhere, also
//! inside the value, so a request body can be the payload as it arrived.
//!
//! ```text
//! head, little endian:
//!   0  i64  event time, µs since 1970
//!   8  u32  key_at        offset into the payload
//!  12  u32  key_len
//!  16  u32  value_at
//!  20  u32  value_len
//!  24  u32  headers_len   bytes at value_at + value_len
//!  28  u32  flags         bit 0: has a key; bit 1: tombstone (no value)
//! headers: repeated  u16 name_len, u32 value_len, name (UTF-8), value (bytes)
//! ```

use crate::{Error, ErrorKind, Result, Timestamp, limits};

/// Bytes of one row head.
pub const ROW_HEAD_BYTES: usize = 32;

/// Flags of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RowFlags(pub u32);

impl RowFlags {
    /// The event has a key (which may be empty); without it the key is null.
    pub const KEY: Self = Self(1);
    /// The event has no value.
    pub const TOMBSTONE: Self = Self(2);
    /// Whether all bits of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
    /// Both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One decoded row head.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RowHead {
    /// Event time.
    pub time: i64,
    /// Where the key starts in the payload.
    pub key_at: u32,
    /// Key bytes.
    pub key_len: u32,
    /// Where the value starts in the payload.
    pub value_at: u32,
    /// Value bytes.
    pub value_len: u32,
    /// Header bytes, directly behind the value.
    pub headers_len: u32,
    /// Flags.
    pub flags: RowFlags,
}

impl RowHead {
    /// The 32 bytes of this head.
    #[inline]
    pub fn to_bytes(self) -> [u8; ROW_HEAD_BYTES] {
        let mut out = [0; ROW_HEAD_BYTES];
        out[0..8].copy_from_slice(&self.time.to_le_bytes());
        out[8..12].copy_from_slice(&self.key_at.to_le_bytes());
        out[12..16].copy_from_slice(&self.key_len.to_le_bytes());
        out[16..20].copy_from_slice(&self.value_at.to_le_bytes());
        out[20..24].copy_from_slice(&self.value_len.to_le_bytes());
        out[24..28].copy_from_slice(&self.headers_len.to_le_bytes());
        out[28..32].copy_from_slice(&self.flags.0.to_le_bytes());
        out
    }

    /// Reads the head of row `row` in a block of heads.
    ///
    /// # Panics
    /// When the block has no such row.
    #[inline]
    pub fn read(heads: &[u8], row: usize) -> Self {
        let (head, _) = heads[row * ROW_HEAD_BYTES..]
            .split_first_chunk::<ROW_HEAD_BYTES>()
            .unwrap_or((&[0; ROW_HEAD_BYTES], &[]));
        let field =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        Self {
            time: i64::from_le_bytes([
                head[0], head[1], head[2], head[3], head[4], head[5], head[6], head[7],
            ]),
            key_at: field(8),
            key_len: field(12),
            value_at: field(16),
            value_len: field(20),
            headers_len: field(24),
            flags: RowFlags(field(28)),
        }
    }

    /// Key, value and header bytes together.
    #[inline]
    pub fn bytes(self) -> usize {
        self.key_len as usize + self.value_len as usize + self.headers_len as usize
    }

    /// The key that it says within a payload.
    ///
    /// # Panics
    /// As [`RowView::new`].
    #[inline]
    pub fn key(self, payload: &[u8]) -> Option<&[u8]> {
        let at = self.key_at as usize;
        let has_key = self.flags.has(RowFlags::KEY);
        has_key.then(|| &payload[at..at + self.key_len as usize])
    }

    /// Whether everything it points to lies inside a payload of this length, its flags are known,
    /// a tombstone has no value and a null key no length.
    #[inline]
    pub fn fits(self, payload_len: usize) -> bool {
        let end = |at: u32, len: u32| at as usize + len as usize;
        end(self.key_at, self.key_len) <= payload_len
            && end(self.value_at, self.value_len) + self.headers_len as usize <= payload_len
            && self.flags.0 & !3 == 0
            && (self.flags.has(RowFlags::KEY) || self.key_len == 0)
            && (!self.flags.has(RowFlags::TOMBSTONE) || self.value_len == 0)
    }
}

/// One event as it lies in a payload.
#[derive(Clone, Copy, Debug)]
pub struct RowView<'a> {
    /// Event time.
    pub time: Timestamp,
    /// The key; `None` = null.
    pub key: Option<&'a [u8]>,
    /// The value; `None` = tombstone.
    pub value: Option<&'a [u8]>,
    /// Headers in order.
    pub headers: Headers<'a>,
}

impl<'a> RowView<'a> {
    /// The event that `head` describes.
    ///
    /// # Panics
    /// When the head points outside the payload; heads from outside are checked with [`RowHead::fits`] first.
    #[inline]
    pub fn new(head: RowHead, payload: &'a [u8]) -> Self {
        let slice = |at: u32, len: u32| &payload[at as usize..at as usize + len as usize];
        Self {
            time: Timestamp::from_micros(head.time),
            key: head.key(payload),
            value: (!head.flags.has(RowFlags::TOMBSTONE))
                .then(|| slice(head.value_at, head.value_len)),
            headers: Headers(slice(head.value_at + head.value_len, head.headers_len)),
        }
    }
}

/// The headers of one event: name and value, in order, names may repeat.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a>(pub &'a [u8]);

impl<'a> Headers<'a> {
    /// Whether the bytes are a whole number of headers with UTF-8 names.
    pub fn are_valid(self) -> bool {
        let mut rest = self;
        while !rest.0.is_empty() {
            if rest.next().is_none() {
                return false;
            }
        }
        true
    }
    /// The header bytes as stored.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a str, &'a [u8]);
    fn next(&mut self) -> Option<Self::Item> {
        let (fixed, rest) = self.0.split_at_checked(6)?;
        let name_len = usize::from(u16::from_le_bytes([fixed[0], fixed[1]]));
        let value_len = u32::from_le_bytes([fixed[2], fixed[3], fixed[4], fixed[5]]) as usize;
        let (name, rest) = rest.split_at_checked(name_len)?;
        let (value, rest) = rest.split_at_checked(value_len)?;
        let name = std::str::from_utf8(name).ok()?;
        self.0 = rest;
        Some((name, value))
    }
}

/// Appends one header to `out` in the packed form.
///
/// # Errors
/// `too-large` when the name or value doesn't fit the layout.
pub fn encode_header(out: &mut Vec<u8>, name: &str, value: &[u8]) -> Result<()> {
    let too_large = || {
        Error::new(
            ErrorKind::TooLarge,
            "too-large",
            "a header's name may have 65,535 bytes and its value 4 GiB",
        )
    };
    out.extend_from_slice(
        &u16::try_from(name.len())
            .map_err(|_| too_large())?
            .to_le_bytes(),
    );
    out.extend_from_slice(
        &u32::try_from(value.len())
            .map_err(|_| too_large())?
            .to_le_bytes(),
    );
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(value);
    Ok(())
}

/// Rows in the making: the blocks that one append consists of.
#[derive(Clone, Debug, Default)]
pub struct PackedRows {
    /// Payload block.
    pub payload: Vec<u8>,
    /// Heads, in order.
    pub heads: Vec<RowHead>,
}

impl PackedRows {
    /// Makes room for `rows` more with `bytes` bytes of payload.
    pub fn reserve(&mut self, rows: usize, bytes: usize) {
        self.heads.reserve(rows);
        self.payload.reserve(bytes);
    }

    /// Takes all rows away and keeps the room they had.
    pub fn clear(&mut self) {
        self.heads.clear();
        self.payload.clear();
    }

    /// Appends an event by copying its parts.
    ///
    /// # Errors
    /// `too-large` when the payload would pass [`limits::FRAME_BYTES`].
    pub fn push<'h>(
        &mut self,
        time: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
    ) -> Result<()> {
        let start = self.payload.len();
        let push = || -> Result<RowHead> {
            let key_at = here(&self.payload)?;
            self.payload.extend_from_slice(key.unwrap_or_default());
            let value_at = here(&self.payload)?;
            self.payload.extend_from_slice(value.unwrap_or_default());
            let headers_at = here(&self.payload)?;
            for (name, value) in headers {
                encode_header(&mut self.payload, name, value)?;
            }
            let mut flags = RowFlags::default();
            if key.is_some() {
                flags = flags.with(RowFlags::KEY);
            }
            if value.is_none() {
                flags = flags.with(RowFlags::TOMBSTONE);
            }
            Ok(RowHead {
                time: time.micros(),
                key_at,
                key_len: value_at - key_at,
                value_at,
                value_len: headers_at - value_at,
                headers_len: here(&self.payload)? - headers_at,
                flags,
            })
        };
        match push() {
            Ok(head) => self.heads.push(head),
            Err(error) => {
                self.payload.truncate(start);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Row `row`.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn event(&self, row: usize) -> RowView<'_> {
        RowView::new(self.heads[row], &self.payload)
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }
}

fn here(payload: &[u8]) -> Result<u32> {
    if payload.len() > limits::FRAME_BYTES {
        return Err(Error::new(
            ErrorKind::TooLarge,
            "too-large",
            format!("one append may carry {} bytes", limits::FRAME_BYTES),
        ));
    }
    u32::try_from(payload.len()).map_err(|_| Error::internal("frame limit above 4 GiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_have_golden_bytes() {
        let head = RowHead {
            time: -2,
            key_at: 1,
            key_len: 2,
            value_at: 3,
            value_len: 4,
            headers_len: 5,
            flags: RowFlags::KEY,
        };
        let bytes = head.to_bytes();
        assert_eq!(
            bytes,
            [
                254, 255, 255, 255, 255, 255, 255, 255, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0,
                0, 0, 5, 0, 0, 0, 1, 0, 0, 0
            ]
        );
        assert_eq!(RowHead::read(&bytes, 0), head);
    }

    #[test]
    fn null_and_empty_differ() {
        let mut rows = PackedRows::default();
        let time = Timestamp::from_micros(5);
        rows.push(time, None, Some(b""), []).expect("push");
        rows.push(
            time,
            Some(b""),
            None,
            [
                ("a", b"1".as_slice()),
                ("a", b"2"),
                ("A", b"\xff\0"),
                ("empty", b""),
            ],
        )
        .expect("push");
        assert_eq!(
            (rows.event(0).key, rows.event(0).value),
            (None, Some(b"".as_slice()))
        );
        assert_eq!(
            (rows.event(1).key, rows.event(1).value),
            (Some(b"".as_slice()), None)
        );
        let headers: Vec<_> = rows.event(1).headers.collect();
        assert_eq!(
            headers,
            [
                ("a", b"1".as_slice()),
                ("a", b"2"),
                ("A", b"\xff\0"),
                ("empty", b"")
            ]
        );
        assert!(rows.event(1).headers.are_valid());
        assert!(!Headers(&[1, 0, 9, 0, 0, 0, b'x']).are_valid());
    }

    #[test]
    fn heads_from_outside_are_checked() {
        let good = RowHead {
            value_at: 2,
            value_len: 3,
            headers_len: 5,
            ..RowHead::default()
        };
        assert!(good.fits(10));
        assert!(!good.fits(9));
        assert!(
            !RowHead { key_len: 1, ..good }.fits(10),
            "a null key has no bytes"
        );
        assert!(
            !RowHead {
                flags: RowFlags(4),
                ..good
            }
            .fits(10),
            "unknown flag"
        );
        assert!(
            !RowHead {
                value_at: u32::MAX,
                value_len: u32::MAX,
                ..good
            }
            .fits(10),
            "no overflow"
        );
    }
}
