mod columns;
mod kept;
mod values;

use super::*;
use crate::{Format, ReadLimit, TimeOf, Topic, TopicSettings};
use bytes::Bytes;
use proptest::prelude::*;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidemill_env::Random;
use tidemill_env::objects::{Backend, Created, MemoryObjects, Objects};
use tidemill_types::{
    Batch, ByteSize, CommitSeq, Commits, ErrorKind, IngestTimes, Offsets, PackedRows, Result,
    Timestamp,
};

const ALL: ReadLimit = ReadLimit {
    events: usize::MAX,
    bytes: usize::MAX,
};

/// An event in full, to compare with.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Full {
    offset: u64,
    ingest: i64,
    commit: u64,
    time: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Vec<u8>)>,
}

fn topic(format: Format) -> Topic {
    let settings = TopicSettings {
        partitions: 3,
        format,
        ..TopicSettings::default()
    };
    Topic {
        id: TopicId(4),
        name: "orders".parse().expect("name"),
        settings,
    }
}

fn batch(events: &[Full]) -> Batch {
    let mut rows = PackedRows::default();
    for event in events {
        let headers = event
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()));
        let time = Timestamp::from_micros(event.time);
        rows.push(time, event.key.as_deref(), event.value.as_deref(), headers)
            .expect("push");
    }
    let heads: Vec<u8> = rows.heads.iter().flat_map(|head| head.to_bytes()).collect();
    Batch::new(
        heads.into(),
        rows.payload.into(),
        Offsets::Each(events.iter().map(|e| e.offset).collect()),
        IngestTimes::Each(
            events
                .iter()
                .map(|e| Timestamp::from_micros(e.ingest))
                .collect(),
        ),
        Commits::Each(events.iter().map(|e| CommitSeq(e.commit)).collect()),
    )
}

fn full(batches: &[Batch]) -> Vec<Full> {
    let events = batches.iter().flat_map(Batch::iter);
    events
        .map(|event| Full {
            offset: event.offset,
            ingest: event.ingest_time.micros(),
            commit: event.commit.0,
            time: event.row.time.micros(),
            key: event.row.key.map(<[u8]>::to_vec),
            value: event.row.value.map(<[u8]>::to_vec),
            headers: event
                .row
                .headers
                .map(|(name, value)| (name.to_owned(), value.to_vec()))
                .collect(),
        })
        .collect()
}

/// `count` events of about `size` bytes without gaps.
fn plain(first: u64, count: u64, size: usize) -> Vec<Full> {
    let random = Random::seeded(first);
    let value = |n: u64| {
        let noise: String = std::iter::repeat_with(|| random.nonce())
            .take(size / 16 + 1)
            .collect();
        format!("{{\"n\":{n},\"x\":\"{}\"}}", &noise[..size])
    };
    (first..first + count)
        .map(|offset| Full {
            offset,
            ingest: 1_000_000 + offset.cast_signed() / 10,
            commit: offset / 7 + 1,
            time: offset.cast_signed() * 1000 - 500,
            key: Some(format!("key{}", offset % 100).into_bytes()),
            value: Some(value(offset).into_bytes()),
            headers: vec![],
        })
        .collect()
}

/// The same with values of 300 bytes that can't be compressed.
fn noise(first: u64, count: u64) -> Vec<Full> {
    let random = Random::seeded(first);
    let word = || random.next_u64().to_le_bytes();
    let mut events = plain(first, count, 0);
    for event in &mut events {
        event.value = Some(std::iter::repeat_with(word).take(38).flatten().collect());
    }
    events
}

/// Counts what is fetched.
struct Counting {
    inner: Objects,
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Counting {
    fn take(&self) -> (u64, u64) {
        (
            self.requests.swap(0, Ordering::Relaxed),
            self.bytes.swap(0, Ordering::Relaxed),
        )
    }
}

#[async_trait::async_trait]
impl Backend for Counting {
    async fn get(&self, path: &str) -> Result<Bytes> {
        self.inner.get(path).await
    }
    async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes
            .fetch_add(range.end - range.start, Ordering::Relaxed);
        self.inner.get_range(path, range).await
    }
    async fn size(&self, path: &str) -> Result<Option<u64>> {
        self.inner.size(path).await
    }
    async fn create(&self, path: &str, body: Bytes) -> Result<Created> {
        self.inner.create(path, body).await
    }
    async fn upload(&self, path: &str, file: &Path) -> Result<()> {
        self.inner.upload(path, file).await
    }
    async fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.inner.list(prefix).await
    }
    async fn delete(&self, path: &str) -> Result<()> {
        self.inner.delete(path).await
    }
}

struct Stored {
    memory: Arc<MemoryObjects>,
    counting: Arc<Counting>,
    segments: Segments,
    meta: SegmentMeta,
}

async fn store(format: Format, batches: &[Batch]) -> Stored {
    let memory = Arc::new(MemoryObjects::new(Random::seeded(1)));
    let inner = Objects::new(memory.clone());
    let counting = Arc::new(Counting {
        inner,
        requests: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
    });
    let objects = Objects::new(counting.clone());
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("segment");
    let mut writer = SegmentWriter::create(
        &Kind::within(&objects, ByteSize::mib(16)),
        &file,
        &topic(format),
        2,
    )
    .expect("create");
    for batch in batches {
        writer.write(batch).expect("write");
    }
    let mut meta = writer.finish().expect("finish").meta;
    meta.path = "a.parquet".into();
    objects.upload(&meta.path, &file).await.expect("upload");
    Stored {
        memory,
        counting,
        segments: Segments::new(objects, 0, None),
        meta,
    }
}

impl Stored {
    /// Reads page by page, as the log does, until nothing comes.
    async fn read_on(&self, mut from: u64, limit: ReadLimit) -> Vec<Full> {
        let mut seen = Vec::new();
        loop {
            let got = full(
                &self
                    .segments
                    .read(&self.meta, from, limit)
                    .await
                    .expect("read"),
            );
            let Some(last) = got.last() else { return seen };
            let bytes = |e: &Full| {
                let headers: usize = e.headers.iter().map(|(n, v)| 6 + n.len() + v.len()).sum();
                e.key.as_ref().map_or(0, Vec::len) + e.value.as_ref().map_or(0, Vec::len) + headers
            };
            assert!(got.len() <= limit.events);
            assert!(got.len() == 1 || got.iter().map(bytes).sum::<usize>() <= limit.bytes);
            from = last.offset + 1;
            seen.extend(got);
        }
    }
}

fn events(text: bool) -> impl Strategy<Value = Vec<Full>> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    let value = match text {
        true => any::<String>().prop_map(String::into_bytes).boxed(),
        false => bytes().boxed(),
    };
    let headers = prop::collection::vec(("[a-b]{0,2}|é", bytes()), 0..4);
    let event = (
        (1_u64..4, any::<i64>(), 0_u64..3, any::<i64>()),
        (prop::option::of(bytes()), prop::option::of(value), headers),
    );
    (0_u64..1 << 40, prop::collection::vec(event, 1..60)).prop_map(|(mut offset, events)| {
        let full =
            events
                .into_iter()
                .map(|((step, ingest, commit, time), (key, value, headers))| {
                    offset += step;
                    Full {
                        offset,
                        ingest,
                        commit,
                        time,
                        key,
                        value,
                        headers,
                    }
                });
        full.collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn what_goes_in_comes_out(
        (text, events) in any::<bool>().prop_flat_map(|text| (Just(text), events(text))),
        cut in any::<prop::sample::Index>(),
        from in any::<prop::sample::Index>(),
        limit in (1_usize..20, 0_usize..300),
        time in any::<i64>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
        runtime.block_on(async {
            let cut = cut.index(events.len());
            let format = if text { Format::Json } else { Format::Bytes };
            let stored = store(format, &[batch(&events[..cut]), batch(&events[cut..])]).await;

            let meta = &stored.meta;
            assert_eq!((meta.first, meta.end), (events[0].offset, events[events.len() - 1].offset + 1));
            assert_eq!((meta.topic, meta.partition, meta.events), (TopicId(4), 2, events.len() as u64));
            assert_eq!(Some(meta.min_time), events.iter().map(|e| e.time).min());
            assert_eq!(Some(meta.max_time), events.iter().map(|e| e.time).max());
            assert_eq!(Some(meta.min_ingest), events.iter().map(|e| e.ingest).min());
            assert_eq!(Some(meta.max_ingest), events.iter().map(|e| e.ingest).max());

            assert_eq!(full(&stored.segments.read(meta, 0, ALL).await.expect("read")), events);
            let from = from.index(usize::try_from(meta.end - meta.first).expect("small") + 1) as u64 + meta.first;
            let expected: Vec<_> = events.iter().filter(|e| e.offset >= from).cloned().collect();
            let limit = ReadLimit { events: limit.0, bytes: limit.1 };
            assert_eq!(stored.read_on(from, limit).await, expected);

            let time_at = events[cut].time;
            for time in [time, time_at, events[cut].ingest, i64::MIN] {
                let find = |time_of| stored.segments.offset_at(meta, from, Timestamp::from_micros(time), time_of);
                let by_event = expected.iter().find(|e| e.time >= time).map(|e| e.offset);
                assert_eq!(find(TimeOf::Event).await.expect("found"), by_event);
                let by_ingest = expected.iter().find(|e| e.ingest >= time).map(|e| e.offset);
                assert_eq!(find(TimeOf::Ingest).await.expect("found"), by_ingest);
            }
        });
    }
}

#[tokio::test]
async fn a_read_from_the_middle_fetches_little() {
    let all = plain(5000, 200_000, 200);
    let batches: Vec<_> = all.chunks(50_000).map(batch).collect();
    let stored = store(Format::Json, &batches).await;
    assert!(
        stored.meta.bytes > 10 << 20,
        "random text doesn't compress: {}",
        stored.meta.bytes
    );
    for from in [5000, 104_321, 204_999] {
        stored.counting.take();
        let limit = ReadLimit {
            events: 1000,
            bytes: 100_000,
        };
        let got = full(
            &stored
                .segments
                .read(&stored.meta, from, limit)
                .await
                .expect("read"),
        );
        let start = usize::try_from(from - 5000).expect("small");
        assert_eq!(got[..], all[start..start + got.len()]);
        assert!(got.len() > 400 || from == 204_999, "{}", got.len());
        let (requests, bytes) = stored.counting.take();
        assert!(bytes < 4 << 20, "{bytes} bytes fetched from {from}");
        assert!(requests <= 12, "{requests} requests from {from}");
    }
    assert_eq!(
        stored
            .segments
            .read(&stored.meta, 205_000, ALL)
            .await
            .expect("read")
            .len(),
        0
    );
}

#[tokio::test]
async fn row_groups_are_crossed_and_gaps_skipped() {
    // Every third offset is left, over more than one row group.
    let all: Vec<_> = noise(0, 300_000)
        .into_iter()
        .filter(|e| e.offset % 3 == 0)
        .collect();
    let more = noise(300_000, 60_000);
    let stored = store(Format::Bytes, &[batch(&all), batch(&more)]).await;
    assert!(
        stored.meta.bytes > 33 << 20,
        "more than one row group: {}",
        stored.meta.bytes
    );
    let all = [all, more].concat();
    for from in [1, 100_000, 250_001, 299_998, 359_000] {
        let expected: Vec<_> = all
            .iter()
            .filter(|e| e.offset >= from)
            .take(5000)
            .cloned()
            .collect();
        let limit = ReadLimit {
            events: 1500,
            bytes: 1 << 20,
        };
        let mut seen = Vec::new();
        let mut at = from;
        while seen.len() < expected.len() {
            let got = full(
                &stored
                    .segments
                    .read(&stored.meta, at, limit)
                    .await
                    .expect("read"),
            );
            at = got.last().expect("more").offset + 1;
            seen.extend(got);
        }
        assert!(seen[..expected.len()] == expected[..], "from {from}");
    }
    let late = Timestamp::from_micros(299_998_000);
    let found = stored
        .segments
        .offset_at(&stored.meta, 0, late, TimeOf::Event)
        .await
        .expect("found");
    assert_eq!(found, Some(300_000));
}

#[tokio::test]
async fn one_huge_event_among_small_ones() {
    let mut all = plain(0, 3000, 20);
    all[1500].value = Some(vec![b'x'; 900_000]);
    all[1501].value = None;
    let stored = store(Format::Json, &[batch(&all)]).await;
    let limit = ReadLimit {
        events: 1000,
        bytes: 64 << 10,
    };
    assert_eq!(stored.read_on(0, limit).await, all);
}

/// A segment of JSON that begins in a folder.
fn begun(folder: &Path, name: &str) -> SegmentWriter {
    SegmentWriter::create(&nowhere(), &folder.join(name), &topic(Format::Json), 0).expect("create")
}

/// Objects that nobody looks at, and row groups of a usual size.
fn nowhere() -> Kind {
    let memory = Arc::new(MemoryObjects::new(Random::seeded(1)));
    Kind::within(&Objects::new(memory), ByteSize::mib(16))
}

#[tokio::test]
async fn values_that_are_not_text_are_told_apart() {
    let mut events = plain(0, 3, 10);
    events[1].value = Some(vec![0xff]);
    let folder = tempfile::tempdir().expect("folder");
    let mut writer = begun(folder.path(), "s");
    let refused = writer.write(&batch(&events)).expect_err("not text");
    assert_eq!(refused.code, NOT_TEXT);
}

/// Rows of several frames become columns together; where they are cut doesn't show.
#[tokio::test]
async fn how_events_are_split_into_batches_does_not_show() {
    let mut events = plain(0, 9000, 100);
    events[4200].headers = vec![("a".into(), b"b".to_vec())];
    let pieces = [1, 3, 62, 5000, 700];
    let mut rest = events.as_slice();
    let mut batches = Vec::new();
    for size in pieces.iter().cycle() {
        let (some, others) = rest.split_at((*size).min(rest.len()));
        batches.push(batch(some));
        rest = others;
        if rest.is_empty() {
            break;
        }
    }
    let stored = store(Format::Json, &batches).await;
    assert_eq!(stored.read_on(0, ALL).await, events);
    assert_eq!(
        (stored.meta.first, stored.meta.end, stored.meta.events),
        (0, 9000, 9000)
    );
}

#[tokio::test]
async fn offsets_that_fall_are_refused() {
    let folder = tempfile::tempdir().expect("folder");
    let mut writer = begun(folder.path(), "s");
    writer.write(&batch(&plain(10, 3, 10))).expect("write");
    assert_eq!(
        writer
            .write(&batch(&plain(12, 3, 10)))
            .expect_err("again")
            .kind,
        ErrorKind::Internal
    );
    let empty = begun(folder.path(), "t");
    assert_eq!(
        empty.finish().err().expect("nothing in it").kind,
        ErrorKind::Internal
    );
}

#[tokio::test]
async fn damage_is_an_error_that_names_the_segment() {
    let events = plain(0, 500, 50);
    let stored = store(Format::Json, &[batch(&events)]).await;
    let good = stored.memory.tamper("a.parquet", None).expect("stored");
    let gone = stored
        .segments
        .read(&stored.meta, 0, ALL)
        .await
        .expect_err("gone");
    assert_eq!(gone.kind, ErrorKind::Corrupt);
    assert!(gone.detail.contains("a.parquet"), "{gone}");

    let mut damaged = 0;
    for at in (0..good.len()).step_by(37) {
        let mut bad = good.to_vec();
        bad[at] ^= 0x55;
        stored.memory.tamper("a.parquet", Some(bad.into()));
        // Never a panic; what can't be read says where.
        if let Err(error) = stored.segments.read(&stored.meta, 0, ALL).await {
            assert_eq!(error.kind, ErrorKind::Corrupt);
            assert!(error.detail.contains("a.parquet"), "{error}");
            damaged += 1;
        }
    }
    assert!(damaged > 0);
    stored
        .memory
        .tamper("a.parquet", Some(good.slice(..good.len() - 9)));
    assert_eq!(
        stored
            .segments
            .read(&stored.meta, 0, ALL)
            .await
            .expect_err("cut")
            .kind,
        ErrorKind::Corrupt
    );
}
