use super::*;
use crate::manifest::{PartitionManifest, TopicManifest};
use crate::segment::Segments;
use crate::{ReadLimit, TopicSettings};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidemill_env::Random;
use tidemill_env::objects::{Faults, MemoryObjects};
use tidemill_types::{CommitSeq, Commits, ErrorKind, IngestTimes, Offsets, PackedRows, TopicId};

const DAY: i64 = 86_400_000_000;
const AT: PartitionId = PartitionId {
    topic: TopicId(4),
    partition: 1,
};
const SETTINGS: SealSettings = SealSettings {
    bytes: ByteSize(1000),
    age: Duration::from_secs(60),
};

fn facts(bytes: u64, oldest: i64) -> PartitionFacts {
    PartitionFacts {
        at: AT,
        archived_end: 10,
        end: 20,
        bytes,
        oldest: Timestamp::from_micros(oldest),
    }
}

#[test]
fn bytes_age_and_day_make_it_due() {
    let noon = 20_000 * DAY + DAY / 2;
    let midnight = 20_000 * DAY;
    let cases = [
        ("little and young", facts(999, noon - 1), noon, false),
        ("enough bytes", facts(1000, noon - 1), noon, true),
        ("just not old", facts(1, noon - 59_999_999), noon, false),
        ("old", facts(1, noon - 60_000_000), noon, true),
        ("the day has ended", facts(1, midnight - 1), midnight, true),
        (
            "the last moment of the day",
            facts(1, midnight - 2),
            midnight - 1,
            false,
        ),
        (
            "the clock stepped back",
            facts(1, noon),
            noon - 2 * DAY,
            false,
        ),
        (
            "nothing there",
            PartitionFacts {
                end: 10,
                ..facts(5000, 0)
            },
            noon,
            false,
        ),
    ];
    for (what, facts, now, expected) in cases {
        let orders = due(&[facts], Timestamp::from_micros(now), SETTINGS);
        let order = SealOrder {
            at: AT,
            from: 10,
            to: 20,
            max_bytes: 1000,
        };
        assert_eq!(
            orders,
            if expected { vec![order] } else { vec![] },
            "{what}"
        );
    }
}

fn topic() -> Topic {
    let settings = TopicSettings {
        partitions: 2,
        ..TopicSettings::default()
    };
    Topic {
        id: TopicId(4),
        name: "orders".parse().expect("name"),
        settings,
    }
}

/// Batches of three events of ten bytes; ingest moves by `step` per event.
fn source(value: &'static [u8], step: i64) -> impl FnMut(u64) -> Result<Batch> + Send + 'static {
    move |from| {
        let mut rows = PackedRows::default();
        for _ in 0..3 {
            rows.push(Timestamp::from_micros(5), None, Some(value), [])?;
        }
        let heads: Vec<u8> = rows.heads.iter().flat_map(|head| head.to_bytes()).collect();
        let time = |n: u64| Timestamp::from_micros((from + n).cast_signed() * step);
        Ok(Batch::new(
            heads.into(),
            rows.payload.into(),
            Offsets::From(from),
            IngestTimes::Each((0..3).map(time).collect()),
            Commits::Same(CommitSeq(1)),
        ))
    }
}

struct Place {
    dir: tempfile::TempDir,
    memory: Arc<MemoryObjects>,
    objects: Objects,
}

fn place() -> Place {
    let memory = Arc::new(MemoryObjects::new(Random::seeded(3)));
    Place {
        dir: tempfile::tempdir().expect("folder"),
        objects: Objects::new(memory.clone()),
        memory,
    }
}

impl Place {
    async fn write(
        &self,
        order: SealOrder,
        mut next_batch: impl FnMut(u64) -> Result<Batch> + Send + 'static,
    ) -> Result<SegmentMeta> {
        let dir = self.dir.path().join("scratch");
        let job = Job {
            topic: topic(),
            order,
            nonce: "00ff".into(),
        };
        let next = move |at, from| {
            assert_eq!(at, order.at);
            Ok(vec![next_batch(from)?])
        };
        let mut all = write_segments(
            &self.objects,
            &dir,
            (vec![job], ByteSize::mib(16)),
            Urgency::Low,
            next,
        )
        .await;
        let (of, written) = all.pop().expect("one");
        assert_eq!((of, all.len()), (order, 0));
        assert_eq!(
            std::fs::read_dir(dir).expect("folder").count(),
            0,
            "no scratch file stays"
        );
        written
    }
}

fn order(from: u64, to: u64, max_bytes: u64) -> SealOrder {
    SealOrder {
        at: AT,
        from,
        to,
        max_bytes,
    }
}

#[tokio::test]
async fn a_segment_ends_where_it_must() {
    let cases = [
        ("at the order's end", order(10, 17, 10_000), 1, 17),
        ("when it is large enough", order(10, 1000, 45), 1, 15),
        ("one event is always taken", order(10, 1000, 1), 1, 11),
        (
            "at the end of the day",
            order(10, 1000, 10_000),
            DAY / 16,
            16,
        ),
        ("inside one batch", order(15, 1000, 10_000), DAY / 16, 16),
    ];
    for (what, order, step, end) in cases {
        let place = place();
        let meta = place
            .write(order, source(b"0123456789", step))
            .await
            .expect(what);
        assert_eq!(
            (meta.first, meta.end, meta.events),
            (order.from, end, end - order.from),
            "{what}"
        );
        let object = place.objects.get(&meta.path).await.expect("uploaded");
        let checksum = crc_fast::crc32_iscsi(&object);
        assert_eq!(
            meta.path,
            format!(
                "topics/orders/p=00001/{:020}-00ff{checksum:08x}.parquet",
                order.from
            )
        );
        assert_eq!(place.memory.paths(), std::slice::from_ref(&meta.path));
        let all = ReadLimit {
            events: 1000,
            bytes: 1 << 20,
        };
        let events: usize = Segments::new(place.objects.clone(), 0, None)
            .read(&meta, 0, all)
            .await
            .expect("read")
            .iter()
            .map(Batch::len)
            .sum();
        assert_eq!(events as u64, meta.events, "{what}");
        assert_eq!(
            Timestamp::from_micros(meta.max_ingest).utc_day(),
            Timestamp::from_micros(meta.min_ingest).utc_day()
        );
    }
}

#[tokio::test]
async fn values_that_are_not_text_are_sealed_as_bytes() {
    let place = place();
    let meta = place
        .write(order(0, 6, 10_000), source(b"\xff\xfe", 1))
        .await
        .expect("sealed");
    let all = ReadLimit {
        events: 10,
        bytes: 1000,
    };
    let batches = Segments::new(place.objects.clone(), 0, None)
        .read(&meta, 0, all)
        .await
        .expect("read");
    assert!(
        batches[0]
            .iter()
            .all(|event| event.row.value == Some(b"\xff\xfe"))
    );
    assert_eq!(meta.events, 6);
}

#[tokio::test]
async fn a_failed_upload_can_be_repeated() {
    let place = place();
    place.memory.set_faults(Faults {
        lost_answers: 100,
        ..Faults::default()
    });
    let failed = place
        .write(order(0, 6, 10_000), source(b"{}", 1))
        .await
        .expect_err("no answer");
    assert_eq!(failed.kind, ErrorKind::Unavailable);
    place.memory.set_faults(Faults::default());
    let meta = place
        .write(order(0, 6, 10_000), source(b"{}", 1))
        .await
        .expect("again");
    assert_eq!(meta.events, 6);
}

#[tokio::test]
async fn events_that_are_missing_stop_the_sealing() {
    let place = place();
    let nothing = |_: u64| Err(Error::corrupt("gone"));
    let error = place
        .write(order(0, 6, 10_000), nothing)
        .await
        .expect_err("gone");
    assert_eq!(error.kind, ErrorKind::Corrupt);
    assert!(error.detail.contains("orders"), "{error}");
    let mut before = source(b"{}", 1);
    let earlier = move |_: u64| before(0);
    assert_eq!(
        place
            .write(order(3, 6, 10_000), earlier)
            .await
            .expect_err("other events")
            .kind,
        ErrorKind::Internal
    );
    assert_eq!(place.memory.paths(), Vec::<String>::new());
}

#[tokio::test]
async fn only_what_the_manifest_names_stays() {
    let place = place();
    let kept = place
        .write(order(0, 6, 10_000), source(b"{}", 1))
        .await
        .expect("kept");
    let partition = PartitionManifest {
        start: 0,
        archived_end: 6,
        end: 9,
        cleaned: Vec::new(),
        segments: vec![kept.clone()],
    };
    let manifest = Manifest {
        number: 1,
        owner: "a".into(),
        data_id: "b".into(),
        commit: CommitSeq(9),
        next_topic: 5,
        topics: vec![TopicManifest {
            topic: topic(),
            partitions: vec![PartitionManifest::default(), partition],
        }],
        positions: vec![],
        entries: BTreeMap::new(),
        snapshot: None,
        marks: None,
        marked: CommitSeq(0),
    };
    let orphans = [
        "topics/orders/p=00001/00000000000000000006-00aa.parquet",
        "topics/orders/p=00001/00000000000000000000-00aa.parquet",
        "topics/deleted/p=00000/00000000000000000000-00aa.parquet",
    ];
    let others = [
        "topics/orders/README.md",
        "manifests/0/00000000000000000001",
        "functions/ab.wasm",
    ];
    for path in orphans.iter().chain(&others) {
        place.memory.tamper(path, Some("x".into()));
    }
    assert_eq!(
        remove_orphans(&place.objects, &manifest)
            .await
            .expect("removed"),
        3
    );
    let mut expected: Vec<_> = others.map(str::to_owned).into();
    expected.push(kept.path);
    expected.sort();
    assert_eq!(place.memory.paths(), expected);
    assert_eq!(
        remove_orphans(&place.objects, &manifest)
            .await
            .expect("again"),
        0
    );
}
