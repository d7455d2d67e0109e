//! Packed batches (`application/vnd.tidemill.batch`): the journal's own layout, for programs that count
//! cycles. The structure is checked, the values are taken as they are.
//!
//! ```text
//! header, little endian: u32 version = 1, u32 count of rows, u32 length of the payload, u32 = 0
//! then `count` row heads of 32 bytes, then the payload they point into (row layout of `types`)
//! ```
//! A row head whose time is the least i64 gets the time of acceptance.

use super::intake::Intake;
use super::rows::{Rows, Wrong};
use crate::problem::{Answer, Problem};
use tidemill_types::{Headers, ROW_HEAD_BYTES, RowFlags, RowHead};

/// Bytes of the header.
const HEADER_BYTES: usize = 16;
const VERSION: u32 = 1;
/// Stands for the time of acceptance.
const NO_TIME: i64 = i64::MIN;

/// Receives a body: header and heads apart, the payload straight to where it stays.
#[derive(Default)]
pub(super) struct Front {
    bytes: Vec<u8>,
}

impl Front {
    /// Takes the next bytes of the body.
    pub(super) fn take(&mut self, mut bytes: &[u8], payload: &mut Vec<u8>) {
        while !bytes.is_empty() {
            let wanted = self.len_wanted().saturating_sub(self.bytes.len());
            if wanted == 0 {
                payload.extend_from_slice(bytes);
                return;
            }
            let (front, rest) = bytes.split_at(wanted.min(bytes.len()));
            self.bytes.extend_from_slice(front);
            bytes = rest;
        }
    }

    /// Length of header and heads, as far as it is known.
    fn len_wanted(&self) -> usize {
        match self.bytes.get(..HEADER_BYTES) {
            Some(_) => {
                HEADER_BYTES.saturating_add((self.field(4) as usize).saturating_mul(ROW_HEAD_BYTES))
            }
            None => HEADER_BYTES,
        }
    }

    /// Header and heads, as they came.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn field(&self, at: usize) -> u32 {
        self.bytes
            .get(at..at + 4)
            .and_then(|b| b.try_into().ok())
            .map_or(0, u32::from_le_bytes)
    }

    /// Checks everything and adds the rows.
    pub(super) fn finish(self, intake: &Intake, rows: &mut Rows, payload: &[u8]) -> Answer<()> {
        let wrong = |detail: String| Problem::because("invalid-rows", detail);
        if self.bytes.len() < HEADER_BYTES {
            return Err(wrong(format!(
                "the body has {} bytes; its header alone has {HEADER_BYTES}",
                self.bytes.len()
            )));
        }
        let (version, count, payload_len, reserved) =
            (self.field(0), self.field(4), self.field(8), self.field(12));
        if version != VERSION || reserved != 0 {
            return Err(wrong(format!(
                "the header says version {version}, reserved {reserved}; version {VERSION}, reserved 0 is known"
            )));
        }
        if self.bytes.len() != self.len_wanted() || payload.len() != payload_len as usize {
            let got = self.bytes.len() + payload.len();
            let announced = self.len_wanted() + payload_len as usize;
            return Err(wrong(format!(
                "the header announces {count} rows and {payload_len} bytes of payload, {announced} bytes in all; the body has {got}"
            )));
        }
        let heads = &self.bytes[HEADER_BYTES..];
        for row in 0..count as usize {
            take_row(intake, rows, RowHead::read(heads, row), payload)?;
        }
        Ok(())
    }
}

fn take_row(intake: &Intake, rows: &mut Rows, mut head: RowHead, payload: &[u8]) -> Answer<()> {
    let index = rows.seen;
    rows.seen += 1;
    let slice = |at: u32, len: u32| {
        payload
            .get(at as usize..at as usize + len as usize)
            .unwrap_or_default()
    };
    if !head.fits(payload.len()) {
        return Err(Problem::because(
            "invalid-rows",
            format!("row {index} points outside the payload or has flags that aren't known"),
        ));
    }
    if head.headers_len > 0
        && !Headers(slice(head.value_at + head.value_len, head.headers_len)).are_valid()
    {
        return Err(Problem::because(
            "invalid-rows",
            format!("the headers of row {index} are not whole headers with UTF-8 names"),
        ));
    }
    let has_key = intake.has_key(head.flags.has(RowFlags::KEY));
    if let Err(wrong) = intake.fits(head.bytes()).and(has_key) {
        rows.refuse(index, None, wrong);
        return Ok(());
    }
    if head.time == NO_TIME {
        head.time = intake.now;
    }
    let key = head
        .flags
        .has(RowFlags::KEY)
        .then(|| slice(head.key_at, head.key_len));
    let partition = Rows::partition(key, intake.partitions, intake.sticky);
    let value = slice(head.value_at, head.value_len);
    match intake.fitting((!head.flags.has(RowFlags::TOMBSTONE)).then_some(value)) {
        Ok(wrong) => rows.push_head(head, partition, wrong)?,
        Err(wrong) => rows.refuse(index, None, wrong),
    }
    Ok(())
}

/// Takes the body as the value of one event.
pub(super) fn take_raw(intake: &Intake, rows: &mut Rows, body: &[u8]) -> Answer<()> {
    rows.seen += 1;
    let taken = (|| {
        let (key, partition) = intake.key(rows, "null", None, None)?;
        intake.has_key(key.is_some())?;
        intake.fits(body.len() + key.map_or(0, |key| key.len))?;
        let time = intake.time(None)?;
        Ok::<_, Wrong>((
            super::rows::Row {
                time,
                key,
                value: Some(super::rows::Place {
                    at: 0,
                    len: body.len(),
                }),
                headers_len: 0,
                headers_at: 0,
            },
            partition,
        ))
    })();
    match taken {
        Ok((row, partition)) => Ok(rows.push(row, partition, None)?),
        Err(wrong) => {
            rows.refuse(0, None, wrong);
            Ok(())
        }
    }
}
