//! Truncation, retention, compaction and lookup by time: cases from a file, and what they can't show.

use super::*;
use crate::{Cleanup, Retention, TimeOf};
use serde_json::Value;
use std::time::Duration;

const BEGIN: i64 = 1_700_000_000_000_000;

/// A log under a clock that stands still, with one topic of one partition.
struct Place {
    dir: tempfile::TempDir,
    clock: Clock,
    log: Log,
    at: PartitionId,
}

async fn open_at(dir: &Path, clock: &Clock) -> Log {
    open_sealing(dir, clock, Settings::default().segment_bytes).await
}

/// With segments of so many bytes.
async fn open_sealing(dir: &Path, clock: &Clock, segment_bytes: ByteSize) -> Log {
    let storage = dir.join("objects").display().to_string();
    let objects = Objects::open(&storage, &[]).expect("storage");
    let settings = Settings {
        compaction_percent: 0,
        segment_bytes,
        // What is in memory would be read from there, compacted or not.
        tail_bytes: ByteSize(0),
        ..small(dir)
    };
    let (metrics, mut states) = (Metrics::default(), States::default());
    let (clock, random) = (clock.clone(), Random::system());
    Log::open(
        settings,
        Arc::new(Disk::default()),
        objects,
        clock,
        random,
        &metrics,
        &mut states,
    )
    .await
    .expect("opens")
}

impl Place {
    async fn new(cleanup: Cleanup, retention: Retention) -> Self {
        let dir = tempfile::tempdir().expect("dir");
        let clock = Clock::manual(Timestamp::from_micros(BEGIN));
        let log = open_at(dir.path(), &clock).await;
        let settings = TopicSettings {
            cleanup,
            retention,
            ..TopicSettings::default()
        };
        let created = log
            .create_topic(&"t".parse().expect("name"), settings)
            .await;
        let topic = created.expect("created").0.id;
        let at = PartitionId {
            topic,
            partition: 0,
        };
        Self {
            dir,
            clock,
            log,
            at,
        }
    }

    async fn append(&self, events: &[&str]) {
        let mut rows = PackedRows::default();
        for event in events {
            let (event, time) = event.split_once('@').unwrap_or((event, "0"));
            let (key, value) = match event.split_once('=') {
                Some((key, value)) => (key, Some(value)),
                None => (event, None),
            };
            let time = Timestamp::from_micros(time.parse().expect("a time"));
            let (key, value) = (key.as_bytes(), value.map(str::as_bytes));
            rows.push(time, Some(key), value, []).expect("fits");
        }
        let mut draft = Draft::new();
        let partitions = vec![0; rows.len()];
        draft
            .append(self.at.topic, &rows, &partitions)
            .expect("fits");
        let ticket = self.log.commit(draft).map_err(|(error, _)| error);
        ticket.expect("taken").durable().await.expect("durable");
    }

    async fn read(&self, from: u64) -> (Vec<String>, u64) {
        let (mut next, mut seen) = (from, Vec::new());
        loop {
            let limit = ReadLimit {
                events: 2,
                bytes: 1 << 20,
            };
            let read = self.log.read(self.at, next, limit).await.expect("read");
            for event in read.batches.iter().flat_map(|batch| batch.iter()) {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let (key, value) = (event.row.key.map(text), event.row.value.map(text));
                let value = value.map_or(String::new(), |value| format!("={value}"));
                seen.push(format!(
                    "{}:{}{value}",
                    event.offset,
                    key.unwrap_or_default()
                ));
            }
            if read.next == next || read.next >= read.end {
                return (seen, read.next);
            }
            next = read.next;
        }
    }

    fn start(&self) -> u64 {
        self.log.range(self.at).expect("there").start
    }

    /// Lets retention decide, and everything happen that follows.
    async fn retain(&self) {
        let inner = &self.log.inner;
        inner.keeper.retain(&inner.shard);
        self.log.settled().await.expect("settled");
        inner.keeper.keep(&inner.shard).await;
    }

    fn segments(&self) -> usize {
        let folder = self.dir.path().join("objects/topics/t/p=00000");
        std::fs::read_dir(folder).map_or(0, Iterator::count)
    }

    async fn reopen(&mut self) {
        self.log.close().await.expect("closes");
        self.log = open_at(self.dir.path(), &self.clock).await;
    }

    async fn step(&mut self, step: &Value) {
        let number = |name: &str| step[name].as_u64();
        let micros = |seconds: u64| i64::try_from(seconds).expect("small") * 1_000_000;
        let texts = |name: &str| -> Vec<&str> {
            let all = step[name].as_array().expect("a list");
            all.iter()
                .map(|text| text.as_str().expect("text"))
                .collect()
        };
        if step.get("append").is_some() {
            self.append(&texts("append")).await;
        } else if step.get("seal").is_some() {
            self.log.seal().await.expect("sealed");
        } else if step.get("compact").is_some() {
            self.log.compact().await.expect("compacted");
        } else if step.get("merge").is_some() {
            self.log.merge().await.expect("merged");
        } else if let Some(segments) = number("segments") {
            assert_eq!(self.segments() as u64, segments);
        } else if step.get("retain").is_some() {
            self.retain().await;
        } else if let Some(seconds) = number("advance_s") {
            self.clock.advance(micros(seconds));
        } else if let Some(before) = number("truncate") {
            self.log.truncate(self.at, before).await.expect("truncated");
        } else if let Some(from) = number("read") {
            let expected = (texts("events"), number("next").expect("next"));
            let (seen, next) = self.read(from).await;
            let seen: Vec<&str> = seen.iter().map(String::as_str).collect();
            assert_eq!((seen, next), expected, "from {from}");
        } else if let Some(offset) = number("out_of_range") {
            let refused = self.log.read(self.at, offset, MUCH).await;
            let refused = refused.expect_err("it is gone");
            assert_eq!(refused.code, "offset-out-of-range");
            let range = self.log.range(self.at).expect("there");
            let expected = (number("start_is"), number("end_is"));
            assert_eq!((Some(range.start), Some(range.end)), expected);
            for named in [offset, range.start, range.end] {
                assert!(refused.detail.contains(&named.to_string()), "{refused}");
            }
        } else if let Some(start) = number("start") {
            assert_eq!(self.start(), start);
        } else {
            let (time, of) = match (step["time"].as_i64(), number("ingest_s")) {
                (Some(time), _) => (time, TimeOf::Event),
                (_, Some(seconds)) => (BEGIN + micros(seconds), TimeOf::Ingest),
                _ => panic!("no such step: {step}"),
            };
            let found = self
                .log
                .offset_at(self.at, Timestamp::from_micros(time), of);
            assert_eq!(found.await.ok(), number("is"), "{step}");
        }
    }
}

#[tokio::test]
async fn cases() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("cases.json")).expect("cases");
    for case in &cases {
        // As it is, and with the log opened again after each step.
        for reopens in [false, true] {
            println!("{} (opened again: {reopens})", case["id"]);
            let cleanup = match case["cleanup"].as_str() {
                Some("compact") => Cleanup::Compact,
                Some("compact+delete") => Cleanup::CompactDelete,
                _ => Cleanup::Delete,
            };
            let seconds = |name: &str| case[name].as_u64().map(Duration::from_secs);
            let retention = Retention {
                age: seconds("age_s"),
                tombstone_age: seconds("tombstone_age_s").unwrap_or(Retention::TOMBSTONE_AGE),
                ..Retention::default()
            };
            let mut place = Place::new(cleanup, retention).await;
            for step in case["steps"].as_array().expect("steps") {
                println!("  {step}");
                place.step(step).await;
                if reopens {
                    place.reopen().await;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_truncation_above_the_end_is_refused() {
    let place = Place::new(Cleanup::Delete, Retention::default()).await;
    place.append(&["a=1", "a=2"]).await;
    let refused = place.log.truncate(place.at, 3).await.expect_err("above");
    assert_eq!(refused.kind, ErrorKind::OutOfRange);
    let nowhere = PartitionId {
        partition: 7,
        ..place.at
    };
    let refused = place.log.truncate(nowhere, 0).await.expect_err("nowhere");
    assert_eq!(refused.code, "partition-not-found");
    assert_eq!(place.start(), 0);
}

#[tokio::test]
async fn who_seals_is_told_that_there_is_more_to_seal() {
    const SEGMENT: u16 = 4 << 10;
    let mut place = Place::new(Cleanup::Delete, Retention::default()).await;
    place.log.close().await.expect("closed");
    place.log = open_sealing(place.dir.path(), &place.clock, ByteSize(SEGMENT.into())).await;
    let inner = &place.log.inner;
    let quarter = "v".repeat(usize::from(SEGMENT / 4));
    for _ in 0..10 {
        place.append(&[&format!("k={quarter}")]).await;
    }
    for (more, segments) in [(true, 1), (false, 2), (false, 2)] {
        assert_eq!(inner.keeper.keep(&inner.shard).await, more);
        assert_eq!(place.segments(), segments);
    }
}

#[tokio::test]
async fn segments_below_the_start_go_with_their_objects() {
    let mut place = Place::new(Cleanup::Delete, Retention::default()).await;
    for value in ["a=1", "a=2", "a=3"] {
        place.append(&[value, value]).await;
        place.log.seal().await.expect("sealed");
    }
    assert_eq!(place.segments(), 3);
    place.log.truncate(place.at, 3).await.expect("truncated");
    assert_eq!(place.segments(), 3, "the manifest still names them");
    place.retain().await;
    assert_eq!(place.segments(), 2, "the second has an event that stays");
    assert_eq!(place.read(3).await.0, ["3:a=2", "4:a=3", "5:a=3"]);
    place.reopen().await;
    assert_eq!((place.start(), place.segments()), (3, 2));
    place.log.truncate(place.at, 6).await.expect("truncated");
    place.retain().await;
    assert_eq!(place.segments(), 0);
    place.reopen().await;
    assert_eq!((place.start(), place.read(6).await), (6, (vec![], 6)));
}

#[tokio::test]
async fn a_reader_holds_retention_back_for_a_while() {
    let second = Duration::from_secs(1);
    let retention = Retention {
        age: Some(second),
        hold_for: Some(10 * second),
        ..Retention::default()
    };
    let place = Place::new(Cleanup::Delete, retention).await;
    place.append(&["a=1", "a=2"]).await;
    let mut draft = Draft::new();
    draft.advance(Advance {
        reader: 5,
        topic: place.at.topic,
        partition: 0,
        from: 0,
        to: 1,
        note: Bytes::new(),
    });
    let ticket = place.log.commit(draft).map_err(|(error, _)| error);
    ticket.expect("taken").durable().await.expect("durable");
    place.log.seal().await.expect("sealed");
    place.clock.advance(10_999_999);
    place.retain().await;
    assert_eq!(place.start(), 0);
    let mut draft = Draft::new();
    draft.forget(5);
    let ticket = place.log.commit(draft).map_err(|(error, _)| error);
    ticket.expect("taken").durable().await.expect("durable");
    assert_eq!(place.log.positions(5), []);
    place.retain().await;
    assert_eq!(place.start(), 2, "nobody needs it any more");
}

#[tokio::test]
async fn a_deleted_topic_leaves_no_objects() {
    let place = Place::new(Cleanup::Delete, Retention::default()).await;
    place.append(&["a=1"]).await;
    place.log.seal().await.expect("sealed");
    assert_eq!(place.segments(), 1);
    let name = "t".parse().expect("name");
    place.log.delete_topic(&name).await.expect("deleted");
    place.retain().await;
    assert_eq!(place.segments(), 0);
}

/// Goes over the whole partition again and again until it has seen an end.
async fn read_over_and_over(log: Log, at: PartitionId, until: u64) {
    let mut last = 0;
    while last < until {
        let (mut next, mut before) = (log.range(at).expect("there").start, None);
        loop {
            let limit = ReadLimit {
                events: 7,
                bytes: 1 << 20,
            };
            let read = match log.read(at, next, limit).await {
                Ok(read) => read,
                // Its events went; it begins again.
                Err(error) if error.kind == ErrorKind::OutOfRange => break,
                Err(error) => panic!("from {next}: {error}"),
            };
            for event in read.batches.iter().flat_map(|batch| batch.iter()) {
                let value = String::from_utf8_lossy(event.row.value.expect("no tombstones"));
                assert_eq!(value, event.offset.to_string(), "offsets never change");
                assert!(
                    before.is_none_or(|before| before < event.offset),
                    "in order"
                );
                before = Some(event.offset);
            }
            next = read.next;
            last = next;
            if next >= read.end {
                break;
            }
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_go_on_while_segments_are_compacted() {
    let place = replaced(Cleanup::Compact).await;
    place.log.compact().await.expect("compacted");
    let (seen, next) = place.read(place.start()).await;
    assert_eq!((seen.len(), next), (30, 2000), "one event of each key");
    assert_eq!(place.segments(), 1, "merged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_go_on_while_segments_are_merged() {
    let mut place = replaced(Cleanup::Delete).await;
    let start = place.start();
    let all: Vec<String> = (start..2000)
        .map(|n| format!("{n}:{}={n}", n % 30))
        .collect();
    assert_eq!(place.read(start).await, (all.clone(), 2000));
    place.clock.advance(86_400_000_000);
    place.log.merge().await.expect("merged");
    assert_eq!(place.segments(), 1, "the day is over");
    assert_eq!(place.read(start).await, (all.clone(), 2000));
    place.reopen().await;
    assert_eq!(place.read(start).await, (all, 2000));
}

#[tokio::test]
async fn merges_of_many_partitions_are_one_manifest() {
    let place = Place::new(Cleanup::Delete, Retention::default()).await;
    let many = topic(&place.log, "many", 8).await;
    for _ in 0..2 {
        for partition in 0..8 {
            let ticket = append(&place.log, many, partition, &values(0..10)).await;
            ticket.durable().await.expect("durable");
        }
        place.log.seal().await.expect("sealed");
    }
    place.clock.advance(86_400_000_000);
    let manifests = || {
        let folder = place.dir.path().join("objects/manifests/0");
        std::fs::read_dir(folder).map_or(0, Iterator::count)
    };
    let before = manifests();
    place.log.merge().await.expect("merged");
    assert_eq!(place.log.stats().segments, 8);
    assert_eq!(manifests(), before + 1);
    for partition in 0..8 {
        let at = PartitionId {
            topic: many,
            partition,
        };
        assert_eq!(read_all(&place.log, at, MUCH).await.len(), 20);
    }
}

#[tokio::test]
async fn a_value_that_is_no_text_is_merged_as_bytes() {
    let place = Place::new(Cleanup::Delete, Retention::default()).await;
    for value in [&b"1"[..], b"\xff", b"2", b"3"] {
        let mut rows = PackedRows::default();
        rows.push(Timestamp::from_micros(0), Some(b"k"), Some(value), [])
            .expect("fits");
        let mut draft = Draft::new();
        draft.append(place.at.topic, &rows, &[0]).expect("fits");
        let ticket = place.log.commit(draft).map_err(|(error, _)| error);
        ticket.expect("taken").durable().await.expect("durable");
        place.log.seal().await.expect("sealed");
    }
    place.clock.advance(86_400_000_000);
    place.log.merge().await.expect("merged");
    assert_eq!(place.segments(), 1);
    let read = place.log.read(place.at, 0, MUCH).await.expect("read");
    let events = read.batches.iter().flat_map(|batch| batch.iter());
    let values: Vec<_> = events
        .map(|event| event.row.value.map(<[u8]>::to_vec))
        .collect();
    assert_eq!(values[1].as_deref(), Some(&b"\xff"[..]));
    assert_eq!(values.len(), 4);
}

/// Appending, sealing, truncating, compacting or merging, and reading, all at the same time.
async fn replaced(cleanup: Cleanup) -> Place {
    let place = Place::new(cleanup, Retention::default()).await;
    let reader = tokio::spawn(read_over_and_over(place.log.clone(), place.at, 2000));
    let compactor = tokio::spawn({
        let (log, at) = (place.log.clone(), place.at);
        async move {
            while log.range(at).expect("there").archived_end < 2000 {
                log.compact().await.expect("compacted");
                log.merge().await.expect("merged");
                tokio::task::yield_now().await;
            }
        }
    });
    for round in 0_u64..40 {
        let events: Vec<String> = (round * 50..round * 50 + 50)
            .map(|n| format!("{}={n}", n % 30))
            .collect();
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        place.append(&events).await;
        place.log.seal().await.expect("sealed");
        if round % 8 == 7 {
            let cut = place.log.truncate(place.at, round * 50 - 20).await;
            cut.expect("truncated");
            place.retain().await;
        }
    }
    reader.await.expect("the reader");
    compactor.await.expect("the compactor");
    place
}
