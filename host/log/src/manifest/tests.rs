use super::*;
use crate::{Cleanup, Format, OnMismatch, Retention, Schema, TimeFrom, TimeUnit, TopicSettings};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use tidemill_env::Random;
use tidemill_env::objects::{Faults, MemoryObjects, Objects};
use tidemill_types::{ByteSize, ErrorKind, PartitionId, Timestamp};

fn segment(topic: u32, first: u64, end: u64) -> SegmentMeta {
    SegmentMeta {
        topic: TopicId(topic),
        partition: 0,
        first,
        end,
        events: end - first,
        bytes: 1234,
        path: format!("topics/orders/p=00000/{first:020}-00ff.parquet"),
        min_time: -5,
        max_time: 9,
        min_ingest: 100,
        max_ingest: 200,
    }
}

fn sample() -> Manifest {
    let settings = TopicSettings {
        partitions: 2,
        format: Format::Bytes,
        key: Some("/carrier".into()),
        time: TimeFrom::Value {
            pointer: "/t".into(),
            unit: TimeUnit::Millis,
        },
        retention: Retention {
            age: Some(Duration::from_secs(7)),
            bytes: Some(ByteSize::mib(1)),
            hold_for: Some(Duration::from_secs(9)),
            ..Retention::default()
        },
        cleanup: Cleanup::CompactDelete,
        ..TopicSettings::default()
    };
    let partition = PartitionManifest {
        start: 3,
        archived_end: 30,
        end: u64::MAX,
        cleaned: vec![
            Cleaned {
                end: 10,
                since: None,
            },
            Cleaned {
                end: 20,
                since: Some(Timestamp::from_micros(-1)),
            },
        ],
        segments: vec![segment(4, 0, 10), segment(4, 12, 30)],
    };
    let topic = Topic {
        id: TopicId(4),
        name: "orders".parse().expect("name"),
        settings,
    };
    Manifest {
        number: 7,
        owner: "00000000000000aa".into(),
        data_id: "00000000000000bb".into(),
        commit: CommitSeq(u64::MAX - 1),
        next_topic: 5,
        topics: vec![TopicManifest {
            topic,
            partitions: vec![partition, PartitionManifest::default()],
        }],
        positions: vec![Position {
            reader: 1,
            at: PartitionId {
                topic: TopicId(4),
                partition: 1,
            },
            offset: 9,
            note: Bytes::from_static(b"\0\xff"),
        }],
        entries: BTreeMap::from([("function/f".into(), Bytes::from_static(b"{}"))]),
        snapshot: Some(SnapshotRef {
            path: "snapshots/0/1".into(),
            commit: CommitSeq(3),
        }),
        marks: Some(MarksRef {
            path: "marks/0/2".into(),
            commit: CommitSeq(1),
        }),
        marked: CommitSeq(1),
    }
}

const GOLDEN: &str = r#"{"format":1,"crc32c":"3c22a47f","manifest":{"number":7,"owner":"00000000000000aa","data_id":"00000000000000bb","commit":18446744073709551614,"next_topic":5,"topics":[{"id":4,"name":"orders","format":"bytes","key":"/carrier","time":{"value":{"pointer":"/t","unit":"millis"}},"retention_us":7000000,"retention_bytes":1048576,"hold_for_us":9000000,"tombstone_age_us":86400000000,"cleanup":"compact_delete","ack":"fsync","partitions":[{"start":3,"archived_end":30,"end":18446744073709551615,"cleaned":[{"end":10,"since":null},{"end":20,"since":-1}],"segments":[{"first":0,"end":10,"events":10,"bytes":1234,"path":"topics/orders/p=00000/00000000000000000000-00ff.parquet","min_time":-5,"max_time":9,"min_ingest":100,"max_ingest":200},{"first":12,"end":30,"events":18,"bytes":1234,"path":"topics/orders/p=00000/00000000000000000012-00ff.parquet","min_time":-5,"max_time":9,"min_ingest":100,"max_ingest":200}]},{"start":0,"archived_end":0,"end":0,"segments":[]}]}],"positions":[{"reader":1,"topic":4,"partition":1,"offset":9,"note":"AP8="}],"entries":{"function/f":"e30="},"snapshot":{"path":"snapshots/0/1","commit":3},"marks":{"path":"marks/0/2","commit":1},"marked":1}}"#;

#[test]
fn format_1_has_golden_bytes() {
    let bytes = encode(&sample()).expect("encode");
    assert_eq!(String::from_utf8_lossy(&bytes), GOLDEN);
    assert_eq!(decode(GOLDEN.as_bytes()).expect("decode"), sample());
}

#[test]
fn a_schema_and_a_bloom_filter_have_golden_bytes() {
    let mut manifest = sample();
    let settings = &mut manifest.topics[0].topic.settings;
    let json = serde_json::json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let schema = Schema::read(json, OnMismatch::DeadLetter).expect("a schema");
    settings.schema = Some(Arc::new(schema));
    settings.bloom = true;
    let bytes = encode(&manifest).expect("encode");
    let text = String::from_utf8_lossy(&bytes);
    let golden = r#""ack":"fsync","schema":{"json":{"properties":{"n":{"type":"integer"}},"type":"object"},"on_mismatch":"dead-letter"},"bloom":true,"partitions":["#;
    assert!(text.contains(golden), "{text}");
    assert_eq!(decode(&bytes).expect("decode"), manifest);
}

#[test]
fn later_formats_and_other_fields_are_refused() {
    let newer = decode(br#"{"format":2,"shape":"unknown"}"#).expect_err("newer");
    assert_eq!(newer.code, "format-too-new");
    assert!(newer.detail.contains("format 2"), "{newer}");
    let extra = GOLDEN.replacen("\"format\":1", "\"format\":1,\"extra\":0", 1);
    assert_eq!(
        decode(extra.as_bytes()).expect_err("extra").kind,
        ErrorKind::Corrupt
    );
}

#[test]
fn contradictions_are_refused_on_both_sides() {
    type Break = fn(&mut Manifest);
    let breaks: [Break; 11] = [
        |m| m.next_topic = 4,
        |m| m.topics[0].topic.settings.partitions = 3,
        |m| m.topics[0].partitions[0].segments.swap(0, 1),
        |m| m.topics[0].partitions[0].archived_end = 29,
        |m| m.topics[0].partitions[0].end = 29,
        |m| m.topics[0].partitions[0].start = 31,
        |m| m.topics[0].partitions[0].cleaned.swap(0, 1),
        |m| m.topics[0].partitions[0].cleaned[1].end = 31,
        |m| m.topics[0].partitions[0].segments[0].partition = 1,
        |m| m.marked = CommitSeq(u64::MAX),
        |m| m.marks.as_mut().expect("marks").commit = CommitSeq(u64::MAX),
    ];
    for (i, broken) in breaks.iter().enumerate() {
        let mut manifest = sample();
        broken(&mut manifest);
        assert_eq!(
            encode(&manifest).expect_err("contradiction").kind,
            ErrorKind::Corrupt,
            "{i}"
        );
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let bytes = encode(&sample()).expect("encode");
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            assert!(decode(&flipped).is_err(), "byte {at} bit {bit}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn garbage_never_panics(
        cut in 0_usize..2000,
        changes in prop::collection::vec((0_usize..1500, any::<u8>()), 0..6),
        random in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let _ = decode(&random);
        let mut bytes = GOLDEN.as_bytes().to_vec();
        bytes.truncate(cut);
        for (at, byte) in changes {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        if bytes != GOLDEN.as_bytes() {
            prop_assert!(decode(&bytes).is_err());
        }
    }
}

fn bucket(seed: u64) -> (Arc<MemoryObjects>, Objects) {
    let memory = Arc::new(MemoryObjects::new(Random::seeded(seed)));
    (memory.clone(), Objects::new(memory))
}

async fn open(objects: &Objects, owner: &str) -> (ManifestStore, Option<Manifest>) {
    ManifestStore::open(objects.clone(), "0", owner)
        .await
        .expect("open")
}

fn at(commit: u64) -> Manifest {
    Manifest {
        commit: CommitSeq(commit),
        ..sample()
    }
}

#[tokio::test]
async fn the_newest_is_found_whatever_the_listing() {
    let (memory, objects) = bucket(1);
    let (mut store, none) = open(&objects, "a").await;
    assert_eq!(none, None);
    for commit in 1..=12 {
        store.commit(at(commit)).await.expect("commit");
    }
    memory.tamper("manifests/0/notes.txt", Some("by a person".into()));
    let (_, newest) = open(&objects, "b").await;
    let newest = newest.expect("there is one");
    assert_eq!(
        (newest.number, newest.commit.0, newest.owner.as_str()),
        (12, 12, "a")
    );
    assert_eq!(memory.paths().len(), 13, "slots are never deleted");
}

#[tokio::test]
async fn an_old_owner_is_fenced() {
    let (_, objects) = bucket(1);
    let (mut old, _) = open(&objects, "old").await;
    old.commit(at(1)).await.expect("commit");
    let (mut new, seen) = open(&objects, "new").await;
    assert_eq!(seen.expect("there is one").number, 1);
    old.commit(at(2)).await.expect("opening fences nobody");
    let fenced = new.commit(at(3)).await.expect_err("taken");
    assert_eq!(fenced.kind, ErrorKind::Fenced);
    let (mut new, _) = open(&objects, "newer").await;
    new.commit(at(4)).await.expect("commit");
    for _ in 0..2 {
        let fenced = old.commit(at(5)).await.expect_err("fenced");
        assert_eq!(fenced.kind, ErrorKind::Fenced);
        assert!(fenced.detail.contains("newer"), "{fenced}");
    }
    assert_eq!(
        open(&objects, "c").await.1.expect("there is one").commit.0,
        4
    );
}

#[tokio::test]
async fn lost_answers_lose_and_repeat_nothing() {
    let mut unknown = 0;
    for seed in 0..100 {
        let (memory, objects) = bucket(seed);
        let (mut store, _) = open(&objects, "a").await;
        memory.set_faults(Faults {
            lost_answers: 40,
            errors: 30,
            slow: 10,
            ..Faults::default()
        });
        let mut committed = 0;
        for commit in 1..=10 {
            match store.commit(at(commit)).await {
                Ok(()) => committed = commit,
                Err(error) => {
                    assert_eq!(
                        error.kind,
                        ErrorKind::Unavailable,
                        "seed {seed}: never fenced by oneself"
                    );
                    unknown += 1;
                }
            }
        }
        memory.set_faults(Faults::default());
        let newest = open(&objects, "b").await.1;
        assert!(newest.map_or(0, |m| m.commit.0) >= committed, "seed {seed}");
        store
            .commit(at(11))
            .await
            .expect("goes on behind whatever landed");
        assert_eq!(
            open(&objects, "b").await.1.expect("there is one").commit.0,
            11
        );
    }
    assert!(unknown > 0);
}

#[tokio::test]
async fn a_damaged_manifest_stops_the_start_and_is_named() {
    let (memory, objects) = bucket(1);
    let (mut store, _) = open(&objects, "a").await;
    store.commit(at(1)).await.expect("commit");
    let path = "manifests/0/00000000000000000001";
    memory.tamper(path, Some("{}".into()));
    let error = ManifestStore::open(objects, "0", "b")
        .await
        .err()
        .expect("refused");
    assert_eq!(error.kind, ErrorKind::Corrupt);
    assert!(error.detail.contains(path), "{error}");
}
