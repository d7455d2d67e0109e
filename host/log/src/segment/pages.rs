//! Pages of values, unpacked to where their values stay: values aren't copied once more.

use super::file::guard;
use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::serialized_reader::SerializedPageReader;
use std::io::Cursor;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_types::{Error, Result};
use zstd::bulk::Decompressor;

/// Decompressors kept for those who come next: each has about 100 KiB.
const KEPT: usize = 8;

/// Decompressors that nobody uses.
#[derive(Clone, Default)]
pub(super) struct Unpackers(Arc<Mutex<Vec<Decompressor<'static>>>>);

impl Unpackers {
    /// One of them, or a new one.
    fn take(&self) -> Result<Decompressor<'static>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match kept {
            Some(kept) => Ok(kept),
            None => Decompressor::new().map_err(|error| Error::internal(error.to_string())),
        }
    }

    fn give_back(&self, unpacker: Decompressor<'static>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT {
            kept.push(unpacker);
        }
    }
}

/// Unpacks neighbouring pages of a column of values to the end of `payload`, and tells `each` where the value of
/// each row lies there, or that it has none.
///
/// # Errors
/// `Corrupt` when the bytes aren't such pages.
pub(super) fn unpack(
    pages: Bytes,
    column: &ColumnChunkMetaData,
    path: &str,
    unpackers: &Unpackers,
    payload: &mut Vec<u8>,
    mut each: impl FnMut(Option<Range<usize>>) -> Result<()>,
) -> Result<()> {
    let most = usize::try_from(column.uncompressed_size()).unwrap_or(0);
    let mut reader = guard(path, || packed_pages(pages, column))?;
    let mut unpacker = unpackers.take()?;
    while let Some(page) = guard(path, || reader.get_next_page())? {
        let Page::DataPage {
            buf,
            num_values,
            encoding: Encoding::PLAIN,
            def_level_encoding: Encoding::RLE,
            ..
        } = page
        else {
            return Err(strange());
        };
        let from = payload.len();
        unpack_one(&mut unpacker, &buf, payload, most)?;
        let mut rest = from;
        let mut levels = Levels::read(payload, &mut rest)?;
        for _ in 0..num_values {
            if !levels.next(payload).ok_or_else(strange)? {
                each(None)?;
                continue;
            }
            let length = payload.get(rest..).and_then(<[u8]>::first_chunk);
            let length = u32::from_le_bytes(*length.ok_or_else(strange)?) as usize;
            let value = rest + 4..rest + 4 + length;
            if value.end > payload.len() {
                return Err(strange());
            }
            rest = value.end;
            each(Some(value))?;
        }
    }
    unpackers.give_back(unpacker);
    Ok(())
}

/// The library reads the pages' headers; told that they aren't compressed, it leaves unpacking to us.
fn packed_pages(
    pages: Bytes,
    column: &ColumnChunkMetaData,
) -> parquet::errors::Result<SerializedPageReader<Bytes>> {
    let as_they_are = ColumnChunkMetaData::builder(column.column_descr_ptr())
        .set_compression(Compression::UNCOMPRESSED)
        .set_data_page_offset(0)
        .set_total_compressed_size(i64::try_from(pages.len())?)
        .build()?;
    SerializedPageReader::new(Arc::new(pages), &as_they_are, 0, None)
}

/// Unpacks a page to the end of `payload`; a column has no page of more than `most` bytes.
fn unpack_one(
    unpacker: &mut Decompressor<'static>,
    page: &[u8],
    payload: &mut Vec<u8>,
    most: usize,
) -> Result<()> {
    let size = zstd::zstd_safe::get_frame_content_size(page);
    let size = size.ok().flatten().and_then(|it| usize::try_from(it).ok());
    let size = size.filter(|size| *size <= most).ok_or_else(strange)?;
    let from = payload.len();
    payload.try_reserve(size).map_err(|_| strange())?;
    let mut to = Cursor::new(payload);
    to.set_position(from as u64);
    match unpacker.decompress_to_buffer(page, &mut to) {
        Ok(unpacked) if unpacked == size => Ok(()),
        _ => Err(strange()),
    }
}

fn strange() -> Error {
    Error::corrupt("its pages of values aren't what was written")
}

/// Which rows have a value: Parquet's definition levels of a column that may be null, runs of rows alike and
/// groups of eight rows with a bit each.
struct Levels {
    /// What is left of them in the payload.
    rest: Range<usize>,
    /// Rows left of the run or of the groups.
    left: u64,
    run: Run,
}

#[derive(Clone, Copy)]
enum Run {
    /// All have a value, or none.
    Same(bool),
    /// One bit each, of the byte here and those behind it; so many are used.
    Bits(usize, usize),
}

impl Levels {
    /// Those that lie at a place of the payload, behind their length; the place moves behind them.
    fn read(payload: &[u8], at: &mut usize) -> Result<Self> {
        let length = payload.get(*at..).and_then(<[u8]>::first_chunk);
        let length = u32::from_le_bytes(*length.ok_or_else(strange)?) as usize;
        let rest = *at + 4..*at + 4 + length;
        if rest.end > payload.len() {
            return Err(strange());
        }
        *at = rest.end;
        Ok(Self {
            rest,
            left: 0,
            run: Run::Same(false),
        })
    }

    /// Whether the next row has a value; `None` when there are no more levels.
    #[inline]
    fn next(&mut self, payload: &[u8]) -> Option<bool> {
        if self.left == 0 {
            self.next_run(payload)?;
        }
        self.left -= 1;
        match &mut self.run {
            Run::Same(has_value) => Some(*has_value),
            Run::Bits(at, used) => {
                let byte = payload.get(*at + *used / 8)?;
                let bit = byte >> (*used % 8) & 1;
                *used += 1;
                Some(bit == 1)
            }
        }
    }

    fn next_run(&mut self, payload: &[u8]) -> Option<()> {
        let (mut head, mut shift) = (0_u64, 0);
        loop {
            let byte = u64::from(self.byte(payload)?);
            head |= (byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        if head & 1 == 0 {
            self.left = head >> 1;
            self.run = Run::Same(self.byte(payload)? == 1);
        } else {
            let groups = head >> 1;
            self.left = groups.checked_mul(8)?;
            self.run = Run::Bits(self.rest.start, 0);
            // The last group may be cut off.
            let bytes = usize::try_from(groups).ok()?;
            self.rest.start = self.rest.start.saturating_add(bytes).min(self.rest.end);
        }
        (self.left > 0).then_some(())
    }

    fn byte(&mut self, payload: &[u8]) -> Option<u8> {
        let at = self.rest.next()?;
        payload.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(bytes: &[u8]) -> Vec<bool> {
        let mut all = u32::try_from(bytes.len())
            .expect("few")
            .to_le_bytes()
            .to_vec();
        all.extend(bytes);
        let mut at = 0;
        let mut levels = Levels::read(&all, &mut at).expect("whole");
        assert_eq!(at, all.len());
        std::iter::from_fn(|| levels.next(&all)).collect()
    }

    #[test]
    fn levels_are_runs_and_groups_of_bits() {
        assert!(levels(&[]).is_empty());
        assert_eq!(levels(&[6, 1, 2, 0]), [true, true, true, false]);
        assert_eq!(levels(&[0xd8, 0x04, 1]), [true; 300]);
        let bits = [true, false, true, true, false, false, false, true];
        let twice = [bits, [false; 8]].concat();
        assert_eq!(levels(&[5, 0b1000_1101, 0]), twice);
        assert_eq!(
            levels(&[3, 0b1000_1101, 2, 1]),
            [&bits[..], &[true]].concat()
        );
        // What makes no sense ends.
        assert!(levels(&[0, 1]).is_empty());
        assert!(levels(&[0xff; 20]).is_empty());
        assert!(Levels::read(&[9, 0, 0, 0, 1], &mut 0).is_err());
    }
}
