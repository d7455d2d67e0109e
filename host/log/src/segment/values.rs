//! The column of values in the making: most of a segment. Its pages are made in memory that the next ones use
//! again, for each first touch of fresh memory costs more than a copy.

use super::writer::NOT_TEXT;
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, PageType, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, OffsetIndexBuilder, PageEncodingStats};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use tidemill_types::{Batch, Error, Result, RowFlags};
use zstd::bulk::Compressor;

/// Bytes of a page, with the length of each value; one value alone may have more.
const PAGE_BYTES: usize = 1 << 20;
/// Most rows of a page.
const PAGE_ROWS: u32 = 20_000;
/// Room in front of a page for its levels, if they are as short as they are without tombstones.
const ROOM: usize = 16;

/// The values of a row group.
pub(super) struct Values {
    column: ColumnDescPtr,
    text: bool,
    level: ZstdLevel,
    compressor: Compressor<'static>,
    /// Room for levels, then the values of the page in the making, each behind its length.
    page: Vec<u8>,
    levels: Levels,
    /// Bytes of its values.
    bytes: i64,
    /// The last page, compressed.
    packed: Vec<u8>,
    /// The pages before it with their headers, as they lie in the file.
    chunk: TrackedWrite<Vec<u8>>,
    index: OffsetIndexBuilder,
    pages: i32,
    rows: i64,
    unpacked: i64,
}

impl Values {
    /// None yet, of this column; `text` says that each has to be UTF-8.
    pub(super) fn new(column: ColumnDescPtr, text: bool, level: ZstdLevel) -> Result<Self> {
        let compressor = Compressor::new(level.compression_level());
        Ok(Self {
            column,
            text,
            level,
            compressor: compressor.map_err(|error| Error::internal(error.to_string()))?,
            page: vec![0; ROOM],
            levels: Levels::default(),
            bytes: 0,
            packed: Vec::new(),
            chunk: TrackedWrite::new(Vec::new()),
            index: OffsetIndexBuilder::new(),
            pages: 0,
            rows: 0,
            unpacked: 0,
        })
    }

    /// Takes the values of some rows.
    ///
    /// # Errors
    /// `Invalid` with code [`NOT_TEXT`] when a value is to be text and isn't; `Corrupt`; `Internal`.
    pub(super) fn write(&mut self, batch: &Batch) -> Result<()> {
        let payload = batch.payload();
        for row in 0..batch.len() {
            let head = batch.head(row);
            if head.flags.has(RowFlags::TOMBSTONE) {
                self.levels.push(false);
            } else {
                let (at, len) = (head.value_at as usize, head.value_len as usize);
                let value = payload.get(at..at + len);
                let value =
                    value.ok_or_else(|| Error::corrupt("an event points outside its payload"))?;
                if self.text
                    && let Err(error) = simdutf8::basic::from_utf8(value)
                {
                    return Err(Error::invalid(NOT_TEXT, error.to_string()));
                }
                if self.page.len() + len > PAGE_BYTES {
                    self.end_page()?;
                }
                self.levels.push(true);
                self.page.extend_from_slice(&head.value_len.to_le_bytes());
                self.page.extend_from_slice(value);
                self.bytes += i64::from(head.value_len);
            }
            if self.levels.rows >= PAGE_ROWS {
                self.end_page()?;
            }
        }
        Ok(())
    }

    /// About how many bytes they take in the file.
    pub(super) fn encoded_bytes(&self) -> usize {
        self.chunk.bytes_written() + self.page.len() - ROOM
    }

    fn end_page(&mut self) -> Result<()> {
        let rows = self.levels.rows;
        if rows == 0 {
            return Ok(());
        }
        let levels = self.levels.finish();
        let from = match ROOM.checked_sub(levels.len()) {
            Some(from) => {
                self.page[from..ROOM].copy_from_slice(&levels);
                from
            }
            None => {
                self.page.splice(..ROOM, levels);
                0
            }
        };
        let unpacked = &self.page[from..];
        self.packed.clear();
        self.packed
            .reserve(zstd::zstd_safe::compress_bound(unpacked.len()));
        let compressed = self
            .compressor
            .compress_to_buffer(unpacked, &mut self.packed);
        compressed.map_err(|error| Error::internal(format!("zstd: {error}")))?;
        let bytes = Bytes::from(std::mem::take(&mut self.packed));
        let page = Page::DataPage {
            buf: bytes.clone(),
            num_values: rows,
            encoding: Encoding::PLAIN,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let page = CompressedPage::new(page, unpacked.len());
        let spec = SerializedPageWriter::new(&mut self.chunk).write_page(page);
        let spec = spec.map_err(|error| apart(&error))?;
        // Nobody else has it any more, so this is the same memory.
        self.packed = bytes.into();
        let signed = |size: usize| i32::try_from(size).map_err(|_| too_large());
        self.index.append_row_count(rows.into());
        self.index.append_offset_and_size(
            i64::try_from(spec.offset).map_err(|_| too_large())?,
            signed(spec.compressed_size)?,
        );
        self.index
            .append_unencoded_byte_array_data_bytes(Some(self.bytes));
        self.pages += 1;
        self.rows += i64::from(rows);
        self.unpacked += i64::from(signed(spec.uncompressed_size)?);
        self.bytes = 0;
        self.page.clear();
        self.page.resize(ROOM, 0);
        Ok(())
    }

    /// Ends the column of a row group, and hands its pages and what the footer says of them to `take`. The next
    /// one begins in the same memory.
    ///
    /// # Errors
    /// Whatever `take` says; `Internal`.
    pub(super) fn finish(
        &mut self,
        take: impl FnOnce(&Bytes, ColumnCloseResult) -> Result<()>,
    ) -> Result<()> {
        self.end_page()?;
        let chunk = std::mem::replace(&mut self.chunk, TrackedWrite::new(Vec::new()));
        let chunk = chunk.into_inner().map_err(|error| apart(&error))?;
        let packed = i64::try_from(chunk.len()).map_err(|_| too_large())?;
        let stats = PageEncodingStats {
            page_type: PageType::DATA_PAGE,
            encoding: Encoding::PLAIN,
            count: std::mem::take(&mut self.pages),
        };
        let rows = std::mem::take(&mut self.rows);
        let metadata = ColumnChunkMetaData::builder(self.column.clone())
            .set_compression(Compression::ZSTD(self.level))
            .set_encodings(vec![Encoding::PLAIN, Encoding::RLE])
            .set_page_encoding_stats(vec![stats])
            .set_total_compressed_size(packed)
            .set_total_uncompressed_size(std::mem::take(&mut self.unpacked))
            .set_num_values(rows)
            .set_data_page_offset(0)
            .build();
        let closed = ColumnCloseResult {
            bytes_written: packed.unsigned_abs(),
            rows_written: rows.unsigned_abs(),
            metadata: metadata.map_err(|error| apart(&error))?,
            bloom_filter: None,
            column_index: None,
            offset_index: Some(std::mem::take(&mut self.index).build()),
        };
        let chunk = Bytes::from(chunk);
        take(&chunk, closed)?;
        let mut again: Vec<u8> = chunk.into();
        again.clear();
        self.chunk = TrackedWrite::new(again);
        Ok(())
    }
}

fn apart(error: &ParquetError) -> Error {
    Error::internal(format!("values of a segment don't fit together: {error}"))
}

fn too_large() -> Error {
    Error::internal("a page of values beyond 2 GiB")
}

/// Which rows of a page have a value, as Parquet's definition levels: runs of rows alike, in front of them how
/// many bytes they are.
#[derive(Default)]
struct Levels {
    rows: u32,
    runs: Vec<u8>,
    run: u32,
    has_value: bool,
}

impl Levels {
    fn push(&mut self, has_value: bool) {
        if has_value != self.has_value {
            self.end_run();
            self.has_value = has_value;
        }
        self.run += 1;
        self.rows += 1;
    }

    /// A run is its length, with the lowest bit 0, in groups of seven bits, and the level.
    fn end_run(&mut self) {
        let mut rest = u64::from(std::mem::take(&mut self.run)) << 1;
        if rest == 0 {
            return;
        }
        loop {
            let [low, ..] = rest.to_le_bytes();
            rest >>= 7;
            if rest == 0 {
                self.runs.push(low & 0x7f);
                break;
            }
            self.runs.push(low | 0x80);
        }
        self.runs.push(u8::from(self.has_value));
    }

    /// All of them; the next page begins.
    fn finish(&mut self) -> Vec<u8> {
        self.end_run();
        self.rows = 0;
        let length = u32::try_from(self.runs.len()).unwrap_or(u32::MAX);
        let mut all = length.to_le_bytes().to_vec();
        all.append(&mut self.runs);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_runs() {
        let mut levels = Levels::default();
        (0..300).for_each(|_| levels.push(true));
        assert_eq!(levels.rows, 300);
        assert_eq!(levels.finish(), [3, 0, 0, 0, 0xd8, 0x04, 1]);
        [false, true, true, false]
            .iter()
            .for_each(|it| levels.push(*it));
        assert_eq!(levels.finish(), [6, 0, 0, 0, 2, 0, 4, 1, 2, 0]);
        assert_eq!(levels.finish(), [0; 4]);
    }
}
