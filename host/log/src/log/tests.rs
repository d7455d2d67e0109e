mod keeping;
mod once;
mod sealing;

use super::*;
use crate::{AckMode, Advance, Written};
use async_trait::async_trait;
use std::path::Path;
use tidemill_env::files::Disk;
use tidemill_types::{Batch, ByteSize, PackedRows};

/// Collects what recovery gives back: sections, and how far the journal was said to be durable.
#[derive(Default)]
struct States(Vec<(u64, Vec<u8>)>, CommitSeq);

#[async_trait]
impl Recovery for States {
    async fn begin(&mut self, _: Option<&SnapshotRef>) -> Result<CommitSeq> {
        Ok(CommitSeq(0))
    }
    fn durable(&mut self, commit: CommitSeq) {
        assert!(commit >= self.1);
        self.1 = commit;
    }
    fn state(&mut self, commit: CommitSeq, section: &[u8]) -> Result<()> {
        assert!(commit > self.1, "what is durable was there before");
        self.0.push((commit.0, section.to_vec()));
        Ok(())
    }
}

fn small(dir: &Path) -> Settings {
    Settings {
        dir: dir.to_owned(),
        journal_file_bytes: ByteSize(256 << 10),
        tail_bytes: ByteSize(64 << 10),
        reserve_bytes: ByteSize(0),
        ..Settings::default()
    }
}

async fn open_with(settings: Settings, states: &mut States) -> Result<Log> {
    let storage = settings.dir.join("objects");
    let objects = Objects::open(&storage.display().to_string(), &[]).expect("storage");
    let (clock, random) = (Clock::system(), Random::seeded(1));
    Log::open(
        settings,
        Arc::new(Disk::default()),
        objects,
        clock,
        random,
        &Metrics::default(),
        states,
    )
    .await
}

async fn open(dir: &Path) -> Log {
    open_with(small(dir), &mut States::default())
        .await
        .expect("opens")
}

fn rows(values: &[String]) -> PackedRows {
    let mut rows = PackedRows::default();
    for (nth, value) in (0..).zip(values) {
        let time = Timestamp::from_micros(nth);
        rows.push(time, Some(b"k"), Some(value.as_bytes()), [])
            .expect("fits");
    }
    rows
}

fn values(range: std::ops::Range<u64>) -> Vec<String> {
    range.map(|nth| format!("value {nth:08}")).collect()
}

async fn topic(log: &Log, name: &str, partitions: u32) -> TopicId {
    let settings = TopicSettings {
        partitions,
        ..TopicSettings::default()
    };
    let (topic, _) = log
        .create_topic(&name.parse().expect("name"), settings)
        .await
        .expect("created");
    topic.id
}

async fn append(log: &Log, topic: TopicId, partition: u32, values: &[String]) -> Ticket {
    let rows = rows(values);
    let mut draft = Draft::new();
    draft
        .append(topic, &rows, &vec![partition; rows.len()])
        .expect("fits");
    log.commit(draft)
        .map_err(|(error, _)| error)
        .expect("committed")
}

async fn read_all(log: &Log, at: PartitionId, limit: ReadLimit) -> Vec<(u64, String)> {
    let mut from = log.ranges(at.topic).expect("ranges")[at.partition as usize].start;
    let mut all = Vec::new();
    loop {
        let read = log.read(at, from, limit).await.expect("read");
        for event in read.batches.iter().flat_map(|batch| batch.iter()) {
            let value = String::from_utf8(event.row.value.expect("value").to_vec()).expect("text");
            all.push((event.offset, value));
        }
        if read.next == read.end {
            return all;
        }
        assert!(read.next > from, "a read makes progress");
        from = read.next;
    }
}

fn numbered(values: Vec<String>) -> Vec<(u64, String)> {
    (0..).zip(values).collect()
}

const MUCH: ReadLimit = ReadLimit {
    events: usize::MAX,
    bytes: usize::MAX,
};

#[tokio::test]
async fn events_are_read_in_order_from_memory_and_journal_and_after_a_restart() {
    let dir = tempfile::tempdir().expect("dir");
    let log = open(dir.path()).await;
    let topic = topic(&log, "t", 2).await;
    let (one, two) = (
        PartitionId {
            topic,
            partition: 0,
        },
        PartitionId {
            topic,
            partition: 1,
        },
    );
    for start in 0..200 {
        let ticket = append(&log, topic, 0, &values(start * 50..start * 50 + 50)).await;
        assert_eq!(
            ticket.written,
            [Written {
                at: one,
                first: start * 50,
                last: start * 50 + 49
            }]
        );
        if start % 10 == 0 {
            append(&log, topic, 1, &values(start..start + 1))
                .await
                .durable()
                .await
                .expect("durable");
        }
        ticket.durable().await.expect("durable");
    }
    let expected = numbered(values(0..10_000));
    let second: Vec<String> = (0..20).flat_map(|n| values(n * 10..n * 10 + 1)).collect();
    assert!(
        log.read_tail(one, 0, MUCH).is_none(),
        "the first events have left the memory"
    );
    let last = log.read_tail(one, 9_999, MUCH).expect("in memory");
    assert_eq!((last.next, last.end), (10_000, 10_000));
    assert!(log.stats().tail_bytes <= 64 << 10);
    for limit in [
        MUCH,
        ReadLimit {
            events: 7,
            bytes: 1 << 20,
        },
        ReadLimit {
            events: 1000,
            bytes: 100,
        },
    ] {
        assert_eq!(read_all(&log, one, limit).await, expected);
        assert_eq!(read_all(&log, two, limit).await, numbered(second.clone()));
    }
    log.close().await.expect("closed");
    let log = open(dir.path()).await;
    assert_eq!(read_all(&log, one, MUCH).await, expected);
    assert_eq!(read_all(&log, two, MUCH).await, numbered(second));
    let ticket = append(&log, topic, 0, &values(10_000..10_001)).await;
    assert_eq!(ticket.written[0].first, 10_000);
    ticket.durable().await.expect("durable");
    assert_eq!(read_all(&log, one, MUCH).await, numbered(values(0..10_001)));
    let below = log
        .read(one, 10_002, MUCH)
        .await
        .expect_err("above the end");
    assert_eq!(below.code, "offset-out-of-range");
}

#[tokio::test]
async fn a_transaction_is_all_or_nothing_and_comes_back_after_a_restart() {
    let dir = tempfile::tempdir().expect("dir");
    let log = open(dir.path()).await;
    let topic = topic(&log, "t", 1).await;
    let step = |from, to| Advance {
        reader: 7,
        topic,
        partition: 0,
        from,
        to,
        note: Bytes::from(format!("n{to}")),
    };
    let draft = |from, to| {
        let mut draft = Draft::new();
        draft
            .append(
                topic,
                &rows(&values(from..to)),
                &(from..to).map(|_| 0).collect::<Vec<u32>>(),
            )
            .expect("fits");
        draft.advance(step(from, to));
        draft.state(b"a");
        draft.state(b"b");
        draft.entry("functions/x", Some(format!("v{to}").as_bytes()));
        draft
    };
    let first = log
        .commit(draft(0, 3))
        .map_err(|(e, _)| e)
        .expect("committed");
    let (error, back) = log.commit(draft(0, 3)).err().expect("moved");
    assert_eq!(error.code, "position-moved");
    assert!(back.bytes() > 0);
    let commit = first.commit.0;
    first.durable().await.expect("durable");
    let mut removal = Draft::new();
    removal.entry("functions/y", None);
    removal.advance(step(3, 5));
    removal.advance(step(5, 6));
    log.commit(removal)
        .map_err(|(e, _)| e)
        .expect("committed")
        .durable()
        .await
        .expect("durable");
    drop(log);
    let mut states = States::default();
    let log = open_with(small(dir.path()), &mut states)
        .await
        .expect("opens");
    assert_eq!(states.0, [(commit, b"a".to_vec()), (commit, b"b".to_vec())]);
    assert!(states.1 >= CommitSeq(commit), "the frame behind it tells");
    let position = log.positions(7).remove(0);
    assert_eq!(
        (position.offset, position.note.as_ref()),
        (6, b"n6".as_slice())
    );
    assert_eq!(
        log.entries("functions/"),
        [("functions/x".to_owned(), Bytes::from_static(b"v3"))]
    );
    assert_eq!(log.ranges(topic).expect("ranges")[0].end, 3);
}

#[tokio::test]
async fn topics_are_created_altered_deleted_and_never_share_a_number() {
    let dir = tempfile::tempdir().expect("dir");
    let log = open(dir.path()).await;
    let name: TopicName = "t".parse().expect("name");
    let first = topic(&log, "t", 3).await;
    let same = TopicSettings {
        partitions: 3,
        ..TopicSettings::default()
    };
    assert!(!log.create_topic(&name, same.clone()).await.expect("same").1);
    let other = TopicSettings {
        ack: AckMode::Memory,
        ..same.clone()
    };
    assert_eq!(
        log.create_topic(&name, other)
            .await
            .expect_err("differs")
            .code,
        "topic-exists"
    );
    let retention = Retention {
        bytes: Some(ByteSize(5)),
        ..Retention::default()
    };
    log.alter_topic(&name, retention, None)
        .await
        .expect("altered");
    append(&log, first, 2, &values(0..2))
        .await
        .durable()
        .await
        .expect("durable");
    let mut watch = log
        .watch(PartitionId {
            topic: first,
            partition: 2,
        })
        .expect("watch");
    assert_eq!(*watch.borrow_and_update(), 2);
    log.delete_topic(&name).await.expect("deleted");
    assert!(watch.changed().await.is_err(), "the watch closes");
    let second = topic(&log, "t", 3).await;
    assert_ne!(first, second);
    assert_eq!(
        log.delete_topic(&"none".parse().expect("name"))
            .await
            .expect_err("none")
            .code,
        "topic-not-found"
    );
    log.close().await.expect("closed");
    let log = open(dir.path()).await;
    assert_eq!(log.topic("t").expect("there").id, second);
    assert_eq!(log.topics().len(), 1);
    assert!(log.topic_by_id(first).is_none());
    assert_eq!(topic(&log, "u", 1).await.0, second.0 + 1);
    let mut draft = Draft::new();
    draft
        .append(second, &rows(&values(0..1)), &[3])
        .expect("fits");
    let (error, _) = log.commit(draft).err().expect("refused");
    assert_eq!(error.code, "partition-not-found");
}

#[tokio::test]
async fn a_second_start_is_refused_and_names_the_directory() {
    let dir = tempfile::tempdir().expect("dir");
    let log = open(dir.path()).await;
    let refused = open_with(small(dir.path()), &mut States::default())
        .await
        .err()
        .expect("in use");
    assert_eq!(refused.code, "directory-in-use");
    assert!(refused.detail.contains(&dir.path().display().to_string()));
    log.close().await.expect("closed");
    open(dir.path()).await;
}

#[tokio::test]
async fn too_much_in_flight_is_busy_until_there_is_room() {
    let dir = tempfile::tempdir().expect("dir");
    let settings = Settings {
        in_flight_bytes: ByteSize(1),
        ..small(dir.path())
    };
    let log = open_with(settings, &mut States::default())
        .await
        .expect("opens");
    let topic = topic(&log, "t", 1).await;
    for nth in 0..200 {
        let mut draft = Draft::new();
        draft
            .append(topic, &rows(&values(nth..nth + 1)), &[0])
            .expect("fits");
        loop {
            draft = match log.commit(draft) {
                Ok(_) => break,
                Err((error, draft)) => {
                    assert_eq!(error.code, "busy");
                    draft
                }
            };
            log.room().await;
        }
    }
    log.close().await.expect("closed");
    let log = open(dir.path()).await;
    let at = PartitionId {
        topic,
        partition: 0,
    };
    assert_eq!(read_all(&log, at, MUCH).await, numbered(values(0..200)));
    assert_eq!(
        log.offset_at(at, Timestamp::from_micros(0), TimeOf::Event)
            .await
            .expect("found"),
        0
    );
    assert_eq!(
        log.offset_at(at, Timestamp::from_micros(1), TimeOf::Event)
            .await
            .expect("found"),
        200
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_read_is_taken_in_parts() {
    let dir = tempfile::tempdir().expect("dir");
    let log = open(dir.path()).await;
    let topic = topic(&log, "t", 1).await;
    let at = PartitionId {
        topic,
        partition: 0,
    };
    for n in 0..20 {
        let ticket = append(&log, topic, 0, &values(n * 3..n * 3 + 3)).await;
        ticket.durable().await.expect("durable");
    }
    let limit = |events, bytes| ReadLimit { events, bytes };
    let mut whole = log.read(at, 1, limit(50, 1 << 20)).await.expect("read");
    let (mut seen, mut position) = (Vec::new(), 1);
    for most in [1, 2, 7, 0, 30, 100] {
        let part = whole.take(limit(most, 1 << 20));
        assert!(part.batches.iter().map(Batch::len).sum::<usize>() <= most);
        seen.extend(part.batches.iter().flat_map(Batch::iter).map(|e| e.offset));
        assert!(part.next >= position);
        position = part.next;
    }
    assert_eq!(seen, (1..51).collect::<Vec<_>>());
    assert_eq!((position, whole.batches.len()), (51, 0));
    let mut whole = log.read(at, 0, limit(6, 1 << 20)).await.expect("read");
    let one = whole.take(limit(6, 1));
    assert_eq!(
        (one.next, one.batches.len()),
        (1, 1),
        "one event comes even if it is larger than the limit"
    );
}
