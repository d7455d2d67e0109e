//! Rows in the making over a request's body: heads that point into it, and a little room behind it for
//! what doesn't lie there as it is needed (keys with escapes, headers).

use serde_json::{Value, json};
use tidemill_types::{
    Error, ErrorKind, ROW_HEAD_BYTES, Result, RowFlags, RowHead, limits, partition_of_key,
};

/// Why one event was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    /// Its place among the request's events, from 0.
    pub(crate) index: u64,
    /// Its line, from 1, where there are lines.
    pub(crate) line: Option<u64>,
    /// The pointer it is about; empty: the whole event.
    pub(crate) pointer: String,
    /// What is wrong, and what would be right.
    pub(crate) reason: String,
    /// Whether its size is the reason.
    pub(crate) too_large: bool,
}

/// What is wrong with an event, before its place is known.
pub(crate) struct Wrong {
    pub(crate) pointer: String,
    pub(crate) reason: String,
    pub(crate) too_large: bool,
}

impl Wrong {
    /// About the whole event.
    pub(crate) fn event(reason: impl Into<String>) -> Self {
        Self::at("", reason)
    }
    /// About a place in it.
    pub(crate) fn at(pointer: impl ToString, reason: impl Into<String>) -> Self {
        Self {
            pointer: pointer.to_string(),
            reason: reason.into(),
            too_large: false,
        }
    }
}

/// An event that goes to the topic's dead letters.
pub(crate) struct Letter {
    pub(crate) head: RowHead,
    /// The partition it would have gone to.
    pub(crate) partition: u32,
    pub(crate) wrong: Wrong,
}

/// Where bytes lie in the payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Place {
    pub(crate) at: usize,
    pub(crate) len: usize,
}

/// One event by its places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub(crate) time: i64,
    pub(crate) key: Option<Place>,
    /// `None`: a tombstone. Headers follow the value directly.
    pub(crate) value: Option<Place>,
    pub(crate) headers_len: usize,
    /// Where a tombstone's headers lie.
    pub(crate) headers_at: usize,
}

/// The rows of one append.
#[derive(Default)]
pub(crate) struct Rows {
    /// Length of the body, behind which `extra` will lie.
    body_len: usize,
    extra: Vec<u8>,
    /// Where the key that all events share lies.
    fixed_key: Option<Place>,
    /// Heads, in order.
    pub(crate) heads: Vec<RowHead>,
    /// Partition of each row.
    pub(crate) partitions: Vec<u32>,
    /// Events for the dead letters, in order.
    pub(crate) letters: Vec<Letter>,
    /// Refused events, the first of them.
    pub(crate) refusals: Vec<Refusal>,
    /// How many were refused.
    pub(crate) refused: u64,
    /// Events seen, refused or not.
    pub(crate) seen: u64,
    /// Key, value and header bytes.
    pub(crate) bytes: u64,
}

impl Rows {
    /// Rows over a body of this length.
    pub(crate) fn over(body_len: usize) -> Self {
        let expected = (body_len / 128).clamp(1, 16 << 10);
        Self {
            body_len,
            heads: Vec::with_capacity(expected),
            partitions: Vec::with_capacity(expected),
            ..Self::default()
        }
    }

    /// Puts bytes behind the body.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Place {
        let at = self.body_len + self.extra.len();
        self.extra.extend_from_slice(bytes);
        Place {
            at,
            len: bytes.len(),
        }
    }

    /// Puts one header behind what was put last.
    ///
    /// # Errors
    /// `too-large`.
    pub(crate) fn put_header(&mut self, name: &str, value: &[u8]) -> Result<usize> {
        let before = self.extra.len();
        tidemill_types::encode_header(&mut self.extra, name, value)
            .inspect_err(|_| self.extra.truncate(before))?;
        Ok(self.extra.len() - before)
    }

    /// Where a key that all events share lies; put once.
    pub(crate) fn fixed_key(&mut self, key: &[u8]) -> Place {
        if let Some(place) = self.fixed_key {
            return place;
        }
        let place = self.put(key);
        *self.fixed_key.insert(place)
    }

    /// Adds an event; to the dead letters if something is wrong with it.
    ///
    /// # Errors
    /// `too-large` when one append can't hold it any more.
    pub(crate) fn push(&mut self, row: Row, partition: u32, wrong: Option<Wrong>) -> Result<()> {
        self.push_head(head_of(row)?, partition, wrong)
    }

    /// Adds an event whose head is known; to the dead letters if something is wrong with it.
    ///
    /// # Errors
    /// `too-large` when one append can't hold it any more.
    pub(crate) fn push_head(
        &mut self,
        head: RowHead,
        partition: u32,
        wrong: Option<Wrong>,
    ) -> Result<()> {
        let rows = self.heads.len() + self.letters.len() + 1;
        let whole = self.body_len + self.extra.len() + rows * ROW_HEAD_BYTES;
        if whole > limits::FRAME_BYTES {
            let most = limits::FRAME_BYTES >> 20;
            let detail = format!(
                "one append may take {most} MiB with {ROW_HEAD_BYTES} bytes for each event; send fewer events per request, or stream them as NDJSON"
            );
            return Err(Error::new(ErrorKind::TooLarge, "too-large", detail));
        }
        self.bytes += head.bytes() as u64;
        match wrong {
            None => {
                self.heads.push(head);
                self.partitions.push(partition);
            }
            Some(wrong) => self.letters.push(Letter {
                head,
                partition,
                wrong,
            }),
        }
        Ok(())
    }

    /// Whether there is nothing to append.
    pub(crate) fn is_empty(&self) -> bool {
        self.heads.is_empty() && self.letters.is_empty()
    }

    /// Notes a refused event.
    pub(crate) fn refuse(&mut self, index: u64, line: Option<u64>, wrong: Wrong) {
        self.refused += 1;
        if self.refusals.len() < limits::LISTED_ERRORS {
            let Wrong {
                pointer,
                reason,
                too_large,
            } = wrong;
            self.refusals.push(Refusal {
                index,
                line,
                pointer,
                reason,
                too_large,
            });
        }
    }

    /// Moves what was put behind the body to where the heads expect it.
    pub(crate) fn finish(&mut self, payload: &mut Vec<u8>) {
        debug_assert_eq!(payload.len(), self.body_len);
        payload.append(&mut self.extra);
    }

    /// Partition of an event.
    pub(crate) fn partition(key: Option<&[u8]>, partitions: u32, sticky: u32) -> u32 {
        match key {
            Some(_) if partitions == 1 => 0,
            Some(key) => partition_of_key(key, partitions),
            None => sticky,
        }
    }
}

fn head_of(row: Row) -> Result<RowHead> {
    let small = |n: usize| u32::try_from(n).map_err(|_| Error::internal("an append above 4 GiB"));
    let mut flags = RowFlags::default();
    if row.key.is_some() {
        flags = flags.with(RowFlags::KEY);
    }
    if row.value.is_none() {
        flags = flags.with(RowFlags::TOMBSTONE);
    }
    let key = row.key.unwrap_or_default();
    let value = row.value.unwrap_or(Place {
        at: row.headers_at,
        len: 0,
    });
    Ok(RowHead {
        time: row.time,
        key_at: small(key.at)?,
        key_len: small(key.len)?,
        value_at: small(value.at)?,
        value_len: small(value.len)?,
        headers_len: small(row.headers_len)?,
        flags,
    })
}

impl Refusal {
    /// As it is shown.
    pub(crate) fn to_json(&self) -> Value {
        let mut shown =
            json!({"index": self.index, "pointer": self.pointer, "reason": self.reason});
        if let Some(line) = self.line {
            shown["line"] = json!(line);
        }
        shown
    }
}
