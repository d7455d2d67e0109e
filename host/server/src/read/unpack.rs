//! A page in the form of `packed`, as a program reads it that has the host's crate at hand: its events, and the
//! lines that the host would have made of them.

use super::event::{Layout, write};
use super::packed::{HEADER_BYTES, RUN_BYTES, VERSION};
use tidemill_log::Format;
use tidemill_types::{
    CommitSeq, Error, Event, Headers, ROW_HEAD_BYTES, Result, RowHead, RowView, Timestamp,
};

/// A page of events as it comes for `Accept: application/vnd.tidemill.batch`.
#[derive(Clone, Copy, Debug)]
pub struct PackedPage<'a> {
    heads: &'a [u8],
    payload: &'a [u8],
    runs: &'a [u8],
}

/// An event of a page.
#[derive(Clone, Copy, Debug)]
pub struct PackedEvent<'a> {
    partition: u32,
    event: Event<'a>,
}

impl<'a> PackedPage<'a> {
    /// Checks a whole body.
    ///
    /// # Errors
    /// `strange-answer` with what is wrong and where.
    pub fn read(body: &'a [u8]) -> Result<Self> {
        let (header, rest) = body
            .split_at_checked(HEADER_BYTES)
            .ok_or_else(|| wrong("it ends inside its header"))?;
        if field(header, 0) != VERSION {
            return Err(wrong(&format!("version {} isn't known", field(header, 0))));
        }
        let [rows, length, of_runs] = [4, 8, 12].map(|at| field(header, at) as usize);
        let parts = rows
            .checked_mul(ROW_HEAD_BYTES)
            .and_then(|heads| rest.split_at_checked(heads))
            .and_then(|(heads, rest)| Some((heads, rest.split_at_checked(length)?)));
        let Some((heads, (payload, runs))) = parts else {
            return Err(wrong("it ends before all that its header announces"));
        };
        if of_runs.checked_mul(RUN_BYTES) != Some(runs.len()) {
            return Err(wrong("its runs aren't as many as its header announces"));
        }
        let page = Self {
            heads,
            payload,
            runs,
        };
        page.check_runs(rows)?;
        (0..rows).try_for_each(|row| page.check_row(row))?;
        Ok(page)
    }

    fn check_runs(&self, rows: usize) -> Result<()> {
        let mut in_runs = 0_u64;
        for run in self.runs.chunks_exact(RUN_BYTES) {
            let rows = u64::from(field(run, 4));
            in_runs += rows;
            if u64_at(run, 8).checked_add(rows).is_none() {
                return Err(wrong("a run goes beyond the last offset there can be"));
            }
        }
        if in_runs == rows as u64 {
            return Ok(());
        }
        Err(wrong(&format!("its runs have {in_runs} rows of {rows}")))
    }

    fn check_row(&self, row: usize) -> Result<()> {
        let head = RowHead::read(self.heads, row);
        let headers = || {
            let at = head.value_at as usize + head.value_len as usize;
            self.payload.get(at..at + head.headers_len as usize)
        };
        let is_sound = head.fits(self.payload.len())
            && (head.headers_len == 0 || headers().is_some_and(|bytes| Headers(bytes).are_valid()));
        if is_sound {
            return Ok(());
        }
        Err(wrong(&format!("row {row} makes no sense")))
    }

    /// Whether it has no events.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// The events in order.
    pub fn events(self) -> impl Iterator<Item = PackedEvent<'a>> {
        let runs = self.runs.chunks_exact(RUN_BYTES);
        let places = runs.flat_map(|run| {
            let ingest_time = Timestamp::from_micros(u64_at(run, 16).cast_signed());
            let offsets = (u64_at(run, 8)..).take(field(run, 4) as usize);
            offsets.map(move |offset| (field(run, 0), offset, ingest_time))
        });
        (0..)
            .zip(places)
            .map(move |(row, (partition, offset, ingest_time))| PackedEvent {
                partition,
                event: Event {
                    offset,
                    ingest_time,
                    // Pages don't tell it, and lines don't show it.
                    commit: CommitSeq(0),
                    row: RowView::new(RowHead::read(self.heads, row), self.payload),
                },
            })
    }
}

impl PackedEvent<'_> {
    /// Its partition.
    pub fn partition(&self) -> u32 {
        self.partition
    }

    /// Its offset.
    pub fn offset(&self) -> u64 {
        self.event.offset
    }

    /// Appends the line that stands for it in an answer of `application/x-ndjson`, without its end.
    /// `is_json`: the topic's format.
    pub fn write_line(&self, is_json: bool, out: &mut Vec<u8>) {
        let format = if is_json { Format::Json } else { Format::Bytes };
        write(out, format, self.partition, &self.event, Layout::OneLine);
    }
}

fn field(bytes: &[u8], at: usize) -> u32 {
    let found = bytes
        .get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok());
    found.map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(field(bytes, at)) | u64::from(field(bytes, at + 4)) << 32
}

fn wrong(why: &str) -> Error {
    Error::invalid(
        "strange-answer",
        format!("the host's page of events can't be read: {why}"),
    )
}
