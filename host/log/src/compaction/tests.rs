use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tidemill_types::{CommitSeq, PackedRows, TopicId};

const AGE: Duration = Duration::from_secs(16);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn segment(first: u64, end: u64, bytes: u64) -> SegmentMeta {
    SegmentMeta {
        topic: TopicId(1),
        partition: 0,
        first,
        end,
        events: end - first,
        bytes,
        path: format!("{first}"),
        min_time: 0,
        max_time: 0,
        min_ingest: 0,
        max_ingest: 0,
    }
}

fn cleaned(end: u64, since: Option<i64>) -> Cleaned {
    Cleaned {
        end,
        since: since.map(at),
    }
}

fn partition(start: u64, cleaned: Vec<Cleaned>, segments: &[(u64, u64, u64)]) -> PartitionManifest {
    let segments = segments
        .iter()
        .map(|(first, end, bytes)| segment(*first, *end, *bytes));
    PartitionManifest {
        start,
        archived_end: 1000,
        end: 1000,
        cleaned,
        segments: segments.collect(),
    }
}

#[test]
fn a_partition_is_due_by_its_dirty_part_or_by_old_tombstones() {
    let two = [(0, 10, 100), (10, 20, 100)];
    let work = |start, dirty_from, forget_below| {
        Some(Work {
            start,
            dirty_from,
            forget_below,
        })
    };
    // Name, partition, now in seconds, expected.
    let cases = [
        ("nothing is sealed", partition(0, vec![], &[]), 0, None),
        (
            "never compacted",
            partition(0, vec![], &two),
            0,
            work(0, 0, 0),
        ),
        (
            "half of it is dirty",
            partition(0, vec![cleaned(10, Some(1))], &two),
            0,
            work(0, 10, 0),
        ),
        (
            "less than half of it is dirty",
            partition(
                0,
                vec![cleaned(10, Some(1))],
                &[(0, 10, 101), (10, 20, 100)],
            ),
            0,
            None,
        ),
        (
            "all is clean and its tombstones are young",
            partition(0, vec![cleaned(20, Some(1))], &two),
            16,
            None,
        ),
        (
            "its tombstones are old",
            partition(0, vec![cleaned(20, Some(1))], &two),
            17,
            work(0, 20, 20),
        ),
        (
            "only the older of them",
            partition(
                0,
                vec![cleaned(5, None), cleaned(8, Some(1)), cleaned(20, Some(2))],
                &two,
            ),
            17,
            work(0, 20, 8),
        ),
        (
            "there are none",
            partition(0, vec![cleaned(20, None)], &two),
            1000,
            None,
        ),
        (
            "it starts behind what was compacted",
            partition(15, vec![], &two),
            0,
            work(15, 15, 0),
        ),
    ];
    for (name, partition, now, expected) in cases {
        assert_eq!(due(&partition, 50, AGE, at(now)), expected, "{name}");
    }
}

#[test]
fn stretches_are_few_and_their_times_are_never_too_early() {
    let work = |forget_below| Work {
        start: 0,
        dirty_from: 0,
        forget_below,
    };
    let half = Timestamp::from_micros(1_500_000);
    assert_eq!(
        cleaned_after(&[], work(0), 10, true, AGE, half),
        [cleaned(10, Some(2))]
    );
    assert_eq!(
        cleaned_after(&[], work(0), 10, false, AGE, half),
        [cleaned(10, None)]
    );
    let before = [cleaned(10, Some(2)), cleaned(20, Some(3))];
    assert_eq!(
        cleaned_after(&before, work(0), 30, true, AGE, at(3)),
        [cleaned(10, Some(2)), cleaned(30, Some(3))],
        "passes of the same time are one"
    );
    assert_eq!(
        cleaned_after(&before, work(10), 20, true, AGE, at(18)),
        [cleaned(10, None), cleaned(20, Some(3))],
        "nothing was dirty"
    );
    assert_eq!(
        cleaned_after(&before, work(20), 30, false, AGE, at(19)),
        [cleaned(30, None)]
    );
    assert_eq!(
        cleaned_after(&before, work(0), 30, true, AGE, at(1)),
        [cleaned(10, Some(2)), cleaned(30, Some(3))],
        "the clock stepped back"
    );
    assert_eq!(cleaned_after(&[], work(0), 0, false, AGE, at(1)), []);
    assert_eq!(
        cleaned_after(&[], work(0), 1, true, Duration::ZERO, half)[0].since,
        Some(half)
    );
}

#[test]
fn neighbours_are_joined_while_they_are_small() {
    let ends = |cleanup, segments: &[SegmentMeta]| -> Vec<Vec<u64>> {
        let groups = groups(segments, cleanup, 100);
        let ends = groups
            .iter()
            .map(|group| group.iter().map(|it| it.end).collect());
        ends.collect()
    };
    let mut segments = vec![
        segment(0, 10, 60),
        segment(10, 20, 40),
        segment(20, 30, 1),
        segment(30, 40, 200),
        segment(40, 50, 1),
    ];
    let joined = [vec![10, 20], vec![30], vec![40], vec![50]];
    assert_eq!(ends(Cleanup::Compact, &segments), joined);
    assert_eq!(ends(Cleanup::CompactDelete, &segments), joined);
    segments[1].max_ingest = 86_400_000_000;
    assert_eq!(ends(Cleanup::Compact, &segments), joined);
    let apart = [vec![10], vec![20], vec![30], vec![40], vec![50]];
    segments[2].min_ingest = 86_400_000_000;
    segments[2].max_ingest = 86_400_000_000;
    assert_eq!(ends(Cleanup::CompactDelete, &segments), apart);
}

/// One event: key (none, or a letter), whether it is a tombstone.
type Model = (Option<u8>, bool);

fn batch(events: &BTreeMap<u64, Model>) -> Batch {
    let mut rows = PackedRows::default();
    for (key, tombstone) in events.values() {
        let key = key.map(|key| [key]);
        let value = (!tombstone).then_some(b"value".as_slice());
        rows.push(at(0), key.as_ref().map(|key| key.as_slice()), value, [])
            .expect("fits");
    }
    let heads: Vec<u8> = rows.heads.iter().flat_map(|head| head.to_bytes()).collect();
    Batch::new(
        heads.into(),
        rows.payload.into(),
        Offsets::Each(events.keys().copied().collect()),
        IngestTimes::Same(at(0)),
        Commits::Same(CommitSeq(1)),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Passes in any state of memory, over any events, with events coming between them.
    #[test]
    fn the_last_event_of_each_key_stays_where_it_was(
        rounds in prop::collection::vec(
            (prop::collection::vec((prop::option::of(0_u8..5), any::<bool>()), 0..20), 0_u64..400, any::<bool>()),
            1..6,
        ),
    ) {
        let mut all: BTreeMap<u64, Model> = BTreeMap::new();
        let mut left = all.clone();
        let (mut end, mut stretches): (u64, Vec<Cleaned>) = (0, vec![]);
        for (round, (came, memory, forget)) in (0_i64..).zip(rounds) {
            for event in came {
                all.insert(end, event);
                left.insert(end, event);
                end += 1;
            }
            let clean = stretches.last().map_or(0, |it| it.end);
            let work = Work { start: 0, dirty_from: clean, forget_below: if forget { clean } else { 0 } };
            let mut keys = Keys::new(clean, memory);
            let taken = left.range(clean..).all(|(offset, (key, _))| {
                keys.take(key.map(|key| [key]).as_ref().map(|key| key.as_slice()), *offset)
            });
            prop_assert!(taken || keys.end > clean, "at least one key fits");
            let mut stayed = Stayed::default();
            let kept = sift(&batch(&left), &keys, work, &mut stayed);
            prop_assert_eq!(stayed.keyed, keys.len());
            let kept: Vec<u64> = kept.iter().map(|event| event.offset).collect();
            prop_assert!(kept.is_sorted());
            left.retain(|offset, _| kept.contains(offset));
            stretches = cleaned_after(&stretches, work, keys.end, stayed.tombstones, AGE, at(round));
            prop_assert!(stretches.windows(2).all(|two| two[0].end < two[1].end));
            // What must hold after each pass.
            let mut last: BTreeMap<u8, u64> = BTreeMap::new();
            for (offset, (key, _)) in &all {
                if let Some(key) = key {
                    last.insert(*key, *offset);
                } else {
                    prop_assert!(left.contains_key(offset), "events without a key stay");
                }
            }
            for (key, offset) in last {
                let (_, tombstone) = all[&offset];
                prop_assert!(tombstone || left.contains_key(&offset), "key {} lost its last event", key);
                if !left.contains_key(&offset) {
                    let older = left.iter().any(|(_, (other, _))| *other == Some(key));
                    prop_assert!(!older, "key {} came back", key);
                }
            }
            let mut seen = BTreeMap::new();
            for (offset, (key, _)) in left.range(..keys.end) {
                if let Some(key) = key {
                    prop_assert_eq!(seen.insert(*key, *offset), None, "each key once");
                }
            }
        }
    }
}
