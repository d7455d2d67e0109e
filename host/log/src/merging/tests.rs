use super::*;
use proptest::prelude::*;
use tidemill_types::{ByteSize, TopicId};

const DAY: i64 = 86_400_000_000;

/// Segments of so many bytes, committed at hours after each other.
fn segments(sizes: &[u64]) -> Vec<SegmentMeta> {
    let segment = |(nth, bytes): (u64, &u64)| SegmentMeta {
        topic: TopicId(1),
        partition: 0,
        first: nth * 10,
        end: nth * 10 + 10,
        events: 10,
        bytes: *bytes,
        path: nth.to_string(),
        min_time: 0,
        max_time: 0,
        min_ingest: nth.cast_signed() * DAY / 24,
        max_ingest: nth.cast_signed() * DAY / 24 + 1,
    };
    (0..).zip(sizes).map(segment).collect()
}

fn bounds(full: u64) -> Bounds {
    Bounds { full, span: None }
}

/// Name, sizes, whether the day is over, what becomes one.
type Case<'a> = (&'a str, &'a [u64], bool, Option<Range<usize>>);

#[test]
fn what_is_merged_and_what_waits() {
    let cases: &[Case<'_>] = &[
        ("nothing", &[], true, None),
        ("one", &[5], true, None),
        ("too few to be worth it", &[5, 5, 5], false, None),
        ("four times the largest", &[5, 5, 5, 5], false, Some(0..4)),
        (
            "a larger one before them waits",
            &[20, 5, 5, 5, 5],
            false,
            Some(1..5),
        ),
        (
            "unless they make it worth it",
            &[7, 7, 7, 1, 1, 1, 1, 1, 1, 1],
            false,
            Some(0..10),
        ),
        ("enough for a full one", &[60, 41], false, None),
        ("twice the largest", &[60, 40, 30], false, Some(0..3)),
        (
            "full ones stay as they are",
            &[100, 5, 5, 100, 5, 5, 120],
            false,
            None,
        ),
        (
            "also at the end of the day",
            &[100, 5, 5, 100, 5, 120],
            true,
            Some(1..3),
        ),
        ("the rest of a day", &[60, 41, 5], true, Some(0..2)),
        ("a day that is one", &[100, 5, 100], true, None),
    ];
    for (name, sizes, over, expected) in cases {
        let day = i64::from(*over);
        assert_eq!(due(&segments(sizes), bounds(100), day), *expected, "{name}");
    }
}

#[test]
fn days_stay_apart() {
    let all = segments(&[5; 26]);
    assert_eq!(
        due(&all, bounds(1000), 0),
        Some(0..24),
        "four times the largest"
    );
    assert_eq!(due(&all[20..], bounds(1000), 0), Some(0..4));
    assert_eq!(due(&all[21..], bounds(1000), 0), None);
    assert_eq!(due(&all[21..], bounds(1000), 1), Some(0..3));
    assert_eq!(due(&all[24..], bounds(1000), 1), None);
    let mut two_days = all[20..22].to_vec();
    two_days[0].min_ingest -= DAY;
    assert_eq!(due(&two_days, bounds(1000), 9), None);
}

#[test]
fn retention_stays_as_fine_as_it_was() {
    let retention = |age: Option<u64>, bytes: Option<u64>| Retention {
        age: age.map(|hours| Duration::from_secs(hours * 3600)),
        bytes: bytes.map(ByteSize),
        ..Retention::default()
    };
    let full = |bytes| Bounds::of(100, &retention(None, bytes)).full;
    assert_eq!(
        (full(None), full(Some(4000)), full(Some(80)), full(Some(0))),
        (100, 100, 20, 0)
    );
    // Eight hours are kept: no segment spans more than two.
    let hours = Bounds::of(1000, &retention(Some(8), None));
    assert_eq!(
        due(&segments(&[5; 9]), hours, 1),
        Some(0..2),
        "three begin an hour apart and end a moment later"
    );
    assert_eq!(due(&segments(&[5; 9]), hours, 0), None);
    let none = Bounds::of(100, &retention(None, Some(0)));
    assert_eq!(due(&segments(&[5; 9]), none, 1), None);
}

proptest! {
    /// Segments arrive, whatever is due is merged at once, the day ends: how often is a byte written?
    #[test]
    fn no_byte_is_written_again_and_again(sizes in prop::collection::vec(1_u64..300, 1..400)) {
        const FULL: u64 = 1 << 14;
        let mut all: Vec<(SegmentMeta, u32)> = Vec::new();
        let total: u64 = sizes.iter().sum();
        for (nth, bytes) in sizes.iter().enumerate() {
            let mut fresh = segments(&[*bytes]).remove(0);
            fresh.first = nth as u64;
            fresh.end = nth as u64 + 1;
            all.push((fresh, 0));
            merge_all(&mut all, FULL, 0);
        }
        let waiting = all.iter().filter(|(it, _)| it.bytes < FULL).count();
        prop_assert!(waiting <= 60, "{waiting} small ones wait");
        merge_all(&mut all, FULL, 1);
        let metas: Vec<&SegmentMeta> = all.iter().map(|(it, _)| it).collect();
        prop_assert!(metas.windows(2).all(|two| two[0].end == two[1].first));
        prop_assert_eq!(metas.iter().map(|it| it.bytes).sum::<u64>(), total);
        let small = metas.iter().filter(|it| it.bytes < FULL).count();
        let full = metas.len() - small;
        prop_assert!(small <= full + 1, "{small} small ones beside {full} full ones");
        // log4(16384) + 2
        let most = all.iter().map(|(_, times)| *times).max().unwrap_or(0);
        prop_assert!(most <= 9, "a byte was written again {most} times");
    }
}

/// Merges until nothing is due; counts the most times that a byte of each was written again.
fn merge_all(all: &mut Vec<(SegmentMeta, u32)>, full: u64, day: i64) {
    loop {
        let metas: Vec<SegmentMeta> = all.iter().map(|(it, _)| it.clone()).collect();
        let Some(group) = due(&metas, bounds(full), day) else {
            return;
        };
        assert!(group.len() > 1);
        let times = all[group.clone()]
            .iter()
            .map(|(_, times)| *times)
            .max()
            .unwrap_or(0)
            + 1;
        let merged = SegmentMeta {
            end: metas[group.end - 1].end,
            bytes: metas[group.clone()].iter().map(|it| it.bytes).sum(),
            ..metas[group.start].clone()
        };
        all.splice(group, [(merged, times)]);
    }
}
