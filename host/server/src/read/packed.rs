//! A page as a packed batch (`application/vnd.tidemill.batch`), for readers that count cycles: row heads
//! and payload as an append takes them, and behind them which rows these are. Nothing is looked at or
//! written anew; what lies in memory in one stretch is sent from there.
//!
//! ```text
//! header, little endian: u32 version = 1, u32 count of rows, u32 length of the payload, u32 count of runs
//! then `count` row heads of 32 bytes, then the payload they point into (row layout of `types`),
//! then the runs, 24 bytes each: u32 partition, u32 rows, u64 first offset, i64 ingest time (µs since 1970)
//! ```
//! Runs are in the order of the rows. The rows of a run have consecutive offsets and the same ingest time.
//! The payload may hold bytes that no row points to. Without its runs, and with 0 for their number, an
//! answer can be appended to another topic as it is.

use super::gather::Page;
use super::parts::Parts;
use crate::problem::Answer;
use bytes::Bytes;
use std::ops::Range;
use tidemill_env::Buffers;
use tidemill_types::{Batch, Error, ROW_HEAD_BYTES, RowHead};

pub(super) const HEADER_BYTES: usize = 16;
pub(super) const RUN_BYTES: usize = 24;
pub(super) const VERSION: u32 = 1;
/// A stretch of a payload shorter than this is copied: a part of its own costs more.
const LEAST_SHARED: usize = 16 << 10;

/// The parts of the body in order.
pub(super) fn render(page: &Page, buffers: &Buffers) -> Answer<Vec<Bytes>> {
    let mut front = buffers.take(HEADER_BYTES + page.count * ROW_HEAD_BYTES);
    front.resize(HEADER_BYTES, 0);
    let mut payload = Payload(Parts::new(buffers, page.bytes));
    let mut runs = Runs::default();
    for (partition, batch) in page.batches() {
        payload.take(batch, &mut front)?;
        (0..batch.len()).for_each(|row| runs.take(*partition, batch, row));
    }
    let lengths = [page.count, payload.0.len(), runs.count()];
    let [count, length, of_runs] = lengths.map(u32::try_from);
    let header = [
        VERSION,
        fitting(count)?,
        fitting(length)?,
        fitting(of_runs)?,
    ];
    for (field, number) in front.chunks_exact_mut(4).zip(header) {
        field.copy_from_slice(&number.to_le_bytes());
    }
    let mut parts = vec![buffers.lend(front)];
    parts.extend(payload.0.finish());
    parts.push(runs.finish().into());
    Ok(parts)
}

fn fitting(number: Result<u32, std::num::TryFromIntError>) -> Answer<u32> {
    Ok(number.map_err(|_| Error::internal("a page beyond 4 GiB"))?)
}

/// The payload in the making.
struct Payload(Parts);

impl Payload {
    /// Takes a batch's events, and adds their heads.
    fn take(&mut self, batch: &Batch, heads: &mut Vec<u8>) -> Answer<()> {
        let Some((values, keys)) = stretches(batch) else {
            for row in 0..batch.len() {
                let head = self.copy(batch.head(row), batch.payload())?;
                heads.extend_from_slice(&head.to_bytes());
            }
            return Ok(());
        };
        // A part that is sent keeps all of the memory it lies in.
        let is_most = batch.payload().len() <= 2 * (values.len() + keys.len());
        let values = self.stretch(batch, values, is_most)?;
        let keys = match keys.is_empty() {
            true => values,
            false => self.stretch(batch, keys, is_most)?,
        };
        fitting(u32::try_from(self.0.len()))?;
        for row in 0..batch.len() {
            let head = batch.head(row);
            let (key, rest) = places(head);
            let key_from = if is_within(&key, &rest) { values } else { keys };
            let head = RowHead {
                key_at: key_from.of(head.key_at, head.key_len),
                value_at: values.of(head.value_at, head.value_len + head.headers_len),
                ..head
            };
            heads.extend_from_slice(&head.to_bytes());
        }
        Ok(())
    }

    /// Takes a stretch of a batch's payload.
    fn stretch(&mut self, batch: &Batch, stretch: Range<usize>, shared: bool) -> Answer<Move> {
        let moved = Move {
            from: fitting(u32::try_from(stretch.start))?,
            to: fitting(u32::try_from(self.0.len()))?,
        };
        if shared && stretch.len() >= LEAST_SHARED {
            self.0.share(batch.payload().slice(stretch));
        } else {
            self.0.out().extend_from_slice(&batch.payload()[stretch]);
        }
        Ok(moved)
    }

    /// Copies one event.
    fn copy(&mut self, head: RowHead, payload: &[u8]) -> Answer<RowHead> {
        let (key, rest) = places(head);
        let value_at = fitting(u32::try_from(self.0.len()))?;
        self.0.out().extend_from_slice(&payload[rest.clone()]);
        let key_at = if is_within(&key, &rest) {
            value_at + (head.key_at - head.value_at)
        } else {
            let at = fitting(u32::try_from(self.0.len()))?;
            self.0.out().extend_from_slice(&payload[key]);
            at
        };
        Ok(RowHead {
            key_at,
            value_at,
            ..head
        })
    }
}

/// Where a stretch began, and where it begins now.
#[derive(Clone, Copy)]
struct Move {
    from: u32,
    to: u32,
}

impl Move {
    fn of(self, at: u32, len: u32) -> u32 {
        if len == 0 {
            0
        } else {
            at - self.from + self.to
        }
    }
}

/// Where the key lies, and where value and headers do.
fn places(head: RowHead) -> (Range<usize>, Range<usize>) {
    let (key_at, value_at) = (head.key_at as usize, head.value_at as usize);
    let rest = head.value_len as usize + head.headers_len as usize;
    (
        key_at..key_at + head.key_len as usize,
        value_at..value_at + rest,
    )
}

fn is_within(part: &Range<usize>, whole: &Range<usize>) -> bool {
    part.start >= whole.start && part.end <= whole.end
}

/// The stretch of a payload in which a batch's values lie, and the one of its keys if those lie elsewhere; none if
/// much else lies there.
fn stretches(batch: &Batch) -> Option<(Range<usize>, Range<usize>)> {
    let (mut values, mut keys, mut bytes) = (None, None, 0);
    let with = |all: Option<Range<usize>>, part: Range<usize>| match all {
        Some(all) => all.start.min(part.start)..all.end.max(part.end),
        None => part,
    };
    for row in 0..batch.len() {
        let (key, rest) = places(batch.head(row));
        if !key.is_empty() && !is_within(&key, &rest) {
            bytes += key.len();
            keys = Some(with(keys, key));
        }
        if !rest.is_empty() {
            bytes += rest.len();
            values = Some(with(values, rest));
        }
    }
    let (values, keys) = match (values, keys) {
        (Some(values), Some(keys)) if keys.start > values.end || values.start > keys.end => {
            (values, keys)
        }
        (values, Some(keys)) => (with(values, keys), 0..0),
        (values, None) => (values?, 0..0),
    };
    let length = values.len() + keys.len();
    (length > 0 && length <= bytes + bytes / 4).then_some((values, keys))
}

/// Which rows they are, in the making.
#[derive(Default)]
struct Runs {
    bytes: Vec<u8>,
    last: Option<Run>,
}

struct Run {
    partition: u32,
    rows: u32,
    first: u64,
    ingest: i64,
}

impl Runs {
    fn take(&mut self, partition: u32, batch: &Batch, row: usize) {
        let (offset, ingest) = (batch.offset(row), batch.ingest_time(row).micros());
        match &mut self.last {
            Some(run)
                if run.partition == partition
                    && run.ingest == ingest
                    && run.first + u64::from(run.rows) == offset =>
            {
                run.rows += 1;
            }
            last => {
                let begun = Run {
                    partition,
                    rows: 1,
                    first: offset,
                    ingest,
                };
                if let Some(done) = last.replace(begun) {
                    done.write(&mut self.bytes);
                }
            }
        }
    }

    fn count(&self) -> usize {
        self.bytes.len() / RUN_BYTES + usize::from(self.last.is_some())
    }

    fn finish(mut self) -> Vec<u8> {
        if let Some(last) = self.last.take() {
            last.write(&mut self.bytes);
        }
        self.bytes
    }
}

impl Run {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.partition.to_le_bytes());
        out.extend_from_slice(&self.rows.to_le_bytes());
        out.extend_from_slice(&self.first.to_le_bytes());
        out.extend_from_slice(&self.ingest.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::PackedPage;
    use crate::read::cursor::Cursor;
    use crate::read::event::{Layout, write};
    use proptest::prelude::*;
    use tidemill_log::Format;
    use tidemill_types::{
        CommitSeq, Commits, IngestTimes, Offsets, PackedRows, RowView, Timestamp,
    };

    type Shown = (
        u32,
        u64,
        i64,
        i64,
        Option<Vec<u8>>,
        Option<Vec<u8>>,
        Vec<u8>,
    );

    fn field(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    /// Reads a body as its description says.
    fn unpack(body: &[u8]) -> Vec<Shown> {
        let number = |at: usize| field(body, at) as usize;
        assert_eq!(field(body, 0), 1);
        let (count, length, of_runs) = (number(4), number(8), number(12));
        let payload_at = HEADER_BYTES + count * ROW_HEAD_BYTES;
        let (heads, payload) = (
            &body[HEADER_BYTES..payload_at],
            &body[payload_at..][..length],
        );
        let runs = &body[payload_at + length..];
        assert_eq!(runs.len(), of_runs * RUN_BYTES);
        let mut rows = 0..count;
        let mut shown = Vec::new();
        for run in runs.chunks(RUN_BYTES) {
            let first = u64::from_le_bytes(run[8..16].try_into().unwrap());
            let ingest = i64::from_le_bytes(run[16..24].try_into().unwrap());
            for nth in 0..u64::from(field(run, 4)) {
                let head = RowHead::read(heads, rows.next().unwrap());
                assert!(head.fits(payload.len()));
                let row = RowView::new(head, payload);
                let (key, value) = (row.key.map(<[u8]>::to_vec), row.value.map(<[u8]>::to_vec));
                let headers = row.headers.as_bytes().to_vec();
                let (partition, offset) = (field(run, 0), first + nth);
                shown.push((partition, offset, ingest, head.time, key, value, headers));
            }
        }
        assert!(rows.next().is_none());
        shown
    }

    fn expected(page: &Page) -> Vec<Shown> {
        let events = page.events().map(|(partition, event)| {
            let (key, value) = (event.row.key, event.row.value);
            (
                partition,
                event.offset,
                event.ingest_time.micros(),
                event.row.time.micros(),
                key.map(<[u8]>::to_vec),
                value.map(<[u8]>::to_vec),
                event.row.headers.as_bytes().to_vec(),
            )
        });
        events.collect()
    }

    fn page(batches: Vec<(u32, Batch)>) -> Page {
        Page::of(batches, Cursor::default())
    }

    fn batch(rows: &PackedRows, first: u64, ingest: i64) -> Batch {
        let heads: Vec<u8> = rows.heads.iter().flat_map(|head| head.to_bytes()).collect();
        Batch::new(
            heads.into(),
            rows.payload.clone().into(),
            Offsets::From(first),
            IngestTimes::Same(Timestamp::from_micros(ingest)),
            Commits::Same(CommitSeq(1)),
        )
    }

    #[test]
    fn a_page_has_golden_bytes() {
        let mut rows = PackedRows::default();
        let time = Timestamp::from_micros(5);
        rows.push(time, Some(b"k"), Some(b"12"), []).unwrap();
        rows.push(time, None, None, []).unwrap();
        let page = page(vec![(3, batch(&rows, 7, 9))]);
        let body = render(&page, &Buffers::keeping(1 << 20)).unwrap().concat();
        let golden = [
            "01000000 02000000 03000000 01000000",
            "0500000000000000 00000000 01000000 01000000 02000000 00000000 01000000",
            "0500000000000000 00000000 00000000 00000000 00000000 00000000 02000000",
            "6b 3132",
            "03000000 02000000 0700000000000000 0900000000000000",
        ];
        let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden.concat().replace(' ', ""));
        assert_eq!(unpack(&body), expected(&page));
    }

    #[test]
    fn what_lies_in_one_stretch_is_sent_from_where_it_is() {
        let mut rows = PackedRows::default();
        for nth in 0..1000_u32 {
            let value = format!("{{\"key\":\"{nth:05}\",\"more\":\"0123456789\"}}");
            rows.push(Timestamp::from_micros(1), None, Some(value.as_bytes()), [])
                .unwrap();
            // The key lies in the value, as in a body of JSON.
            let head = rows.heads.last_mut().unwrap();
            (head.key_at, head.key_len) = (head.value_at + 8, 5);
            head.flags = tidemill_types::RowFlags::KEY;
        }
        let whole = batch(&rows, 0, 1);
        let few = whole.slice(10..20);
        let scattered = Batch::new(
            [rows.heads[0], rows.heads[999]]
                .iter()
                .flat_map(|head| head.to_bytes())
                .collect::<Vec<u8>>()
                .into(),
            whole.payload().clone(),
            Offsets::Each([5, 8].into()),
            IngestTimes::Each([1, 2].map(Timestamp::from_micros).into()),
            Commits::Same(CommitSeq(1)),
        );
        let page = page(vec![(0, few), (1, whole.clone()), (1, scattered)]);
        let parts = render(&page, &Buffers::keeping(1 << 20)).unwrap();
        // Header and heads; what was copied; what is shared; what was copied; runs.
        assert_eq!(parts.len(), 5);
        assert_eq!(parts[2].as_ptr(), whole.payload().as_ptr());
        assert_eq!(unpack(&parts.concat()), expected(&page));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn a_page_comes_as_it_is(
            batches in prop::collection::vec(
                (
                    0_u32..3,
                    any::<u32>(),
                    prop::collection::vec(
                        (any::<Option<[u8; 3]>>(), prop::option::of(prop::collection::vec(any::<u8>(), 0..3000)), any::<bool>()),
                        1..20,
                    ),
                ),
                0..5,
            ),
        ) {
            let batches = batches.into_iter().map(|(partition, first, events)| {
                let mut rows = PackedRows::default();
                for (key, value, has_header) in events {
                    let header = has_header.then_some(("h", b"v".as_slice()));
                    let key = key.as_ref().map(|key| key.as_slice());
                    rows.push(Timestamp::from_micros(1), key, value.as_deref(), header).unwrap();
                }
                let all = batch(&rows, first.into(), i64::from(first));
                (partition, all.slice(all.len() / 3..all.len()))
            });
            let page = page(batches.collect());
            let body = render(&page, &Buffers::keeping(1 << 20)).unwrap().concat();
            prop_assert_eq!(unpack(&body), expected(&page));
            for is_json in [true, false] {
                prop_assert_eq!(lines_of(&body, is_json), lines(&page, is_json));
            }
        }

        /// What a host sends is no more to be believed than what it is sent.
        #[test]
        fn a_bent_page_is_refused_or_read(at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
            let mut rows = PackedRows::default();
            rows.push(Timestamp::from_micros(5), Some(b"k"), Some(b"12"), [("h", b"v".as_slice())]).unwrap();
            rows.push(Timestamp::from_micros(6), None, None, []).unwrap();
            let mut body = render(&page(vec![(3, batch(&rows, 7, 9))]), &Buffers::keeping(1 << 20)).unwrap().concat();
            let whole = body.len();
            let at = at.index(whole);
            body[at] = byte;
            body.truncate(cut.index(whole + 1));
            if let Ok(read) = PackedPage::read(&body) {
                prop_assert_eq!((read.events().count(), body.len()), (2, whole));
            }
        }
    }

    /// The lines of a page as a program makes them of its body.
    fn lines_of(body: &[u8], is_json: bool) -> Vec<u8> {
        let page = PackedPage::read(body).unwrap();
        let mut out = Vec::new();
        for event in page.events() {
            event.write_line(is_json, &mut out);
            out.push(b'\n');
        }
        out
    }

    /// The same as the host writes them.
    fn lines(page: &Page, is_json: bool) -> Vec<u8> {
        let format = if is_json { Format::Json } else { Format::Bytes };
        let mut out = Vec::new();
        for (partition, event) in page.events() {
            write(&mut out, format, partition, &event, Layout::OneLine);
            out.push(b'\n');
        }
        out
    }

    #[test]
    fn what_makes_no_sense_says_why() {
        let mut rows = PackedRows::default();
        rows.push(Timestamp::from_micros(5), None, Some(b"12"), [])
            .unwrap();
        let body = render(
            &page(vec![(3, batch(&rows, 7, 9))]),
            &Buffers::keeping(1 << 20),
        )
        .unwrap()
        .concat();
        for (at, byte, why) in [
            (0, 2, "version 2 isn't known"),
            (4, 9, "ends before all"),
            (8, 200, "ends before all"),
            (12, 2, "its runs aren't as many"),
            (body.len() - 20, 2, "its runs have 2 rows of 1"),
        ] {
            let mut bad = body.clone();
            bad[at] = byte;
            let refused = PackedPage::read(&bad).unwrap_err();
            assert!(refused.detail.contains(why), "{refused} for byte {at}");
        }
        assert!(PackedPage::read(&body[..9]).is_err());
        let empty = render(&page(vec![]), &Buffers::keeping(1 << 20))
            .unwrap()
            .concat();
        assert!(PackedPage::read(&empty).unwrap().is_empty());
    }
}
