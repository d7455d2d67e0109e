//! Which events are old enough, or too many, to go. Only whole segments go; pure.

use crate::Retention;
use crate::segment::SegmentMeta;
use std::sync::Arc;
use std::time::Duration;
use tidemill_types::Timestamp;

/// Where a partition should start, if later than it does: behind the last segment of those at its
/// front that may go.
///
/// A segment may go by age once its newest event was committed that long ago, and by bytes once the
/// segments behind it have that many. `reader` is the position of the least reader: a segment that it
/// still needs stays for `hold_for` longer, counted from when it might have gone.
pub(crate) fn new_start(
    segments: &[Arc<SegmentMeta>],
    retention: Retention,
    reader: Option<u64>,
    now: Timestamp,
) -> Option<u64> {
    let mut start = None;
    for (nth, segment) in segments.iter().enumerate() {
        let behind = &segments[nth + 1..];
        let since = earlier(
            by_age(segment, retention.age),
            by_bytes(behind, retention.bytes.map(|bytes| bytes.0)),
        );
        let Some(since) = since else { break };
        let needed = reader.is_some_and(|position| position < segment.end);
        let hold = match needed {
            true => micros(retention.hold_for.unwrap_or_default()),
            false => 0,
        };
        if since.saturating_add(hold) > now.micros() {
            break;
        }
        start = Some(segment.end);
    }
    start
}

/// When a segment gets too old.
fn by_age(segment: &SegmentMeta, age: Option<Duration>) -> Option<i64> {
    age.map(|age| segment.max_ingest.saturating_add(micros(age)))
}

/// When the segments behind one had enough bytes without it.
fn by_bytes(behind: &[Arc<SegmentMeta>], most: Option<u64>) -> Option<i64> {
    let most = most?;
    let mut bytes = 0;
    let filled = behind.iter().find(|segment| {
        bytes += segment.bytes;
        bytes >= most
    });
    filled.map(|segment| segment.max_ingest)
}

fn earlier(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_types::{ByteSize, TopicId};

    /// Segments of ten offsets and 100 bytes, the newest event of each at the given second.
    fn segments(newest: &[i64]) -> Vec<Arc<SegmentMeta>> {
        let segment = |(nth, second): (u64, &i64)| {
            Arc::new(SegmentMeta {
                topic: TopicId(1),
                partition: 0,
                first: nth * 10,
                end: nth * 10 + 10,
                events: 10,
                bytes: 100,
                path: String::new(),
                min_time: 0,
                max_time: 0,
                min_ingest: 0,
                max_ingest: second * 1_000_000,
            })
        };
        (0..).zip(newest).map(segment).collect()
    }

    #[test]
    fn old_and_surplus_segments_go_from_the_front() {
        let secs = |n| Some(Duration::from_secs(n));
        let bytes = |n| Some(ByteSize(n));
        let unlimited = Retention::default();
        let age = |n| Retention {
            age: secs(n),
            ..unlimited
        };
        let size = |n| Retention {
            bytes: bytes(n),
            ..unlimited
        };
        // Name, retention, least reader, now in seconds, expected start.
        let cases = [
            ("nothing is said", unlimited, None, 1000, None),
            ("just not old", age(10), None, 10, None),
            ("old", age(10), None, 11, Some(10)),
            ("all are old", age(10), None, 100, Some(30)),
            ("the clock stepped back", age(10), None, -100, None),
            ("two behind have enough", size(200), None, 0, None),
            ("two behind had enough", size(200), None, 3, Some(10)),
            ("one more byte is wanted", size(201), None, 1000, None),
            ("zero bytes leave the last", size(0), None, 1000, Some(20)),
            (
                "whichever comes first",
                Retention {
                    bytes: bytes(100),
                    ..age(100)
                },
                None,
                3,
                Some(20),
            ),
            (
                "a reader that is past it holds nothing",
                Retention {
                    hold_for: secs(60),
                    ..age(10)
                },
                Some(10),
                11,
                Some(10),
            ),
            (
                "a reader holds what it needs",
                Retention {
                    hold_for: secs(60),
                    ..age(10)
                },
                Some(9),
                70,
                None,
            ),
            (
                "and not for ever",
                Retention {
                    hold_for: secs(60),
                    ..age(10)
                },
                Some(9),
                71,
                Some(10),
            ),
            (
                "a surplus is held too",
                Retention {
                    hold_for: secs(60),
                    ..size(200)
                },
                Some(0),
                62,
                None,
            ),
            (
                "until its time",
                Retention {
                    hold_for: secs(60),
                    ..size(200)
                },
                Some(0),
                63,
                Some(10),
            ),
            (
                "without hold_for readers hold nothing",
                age(10),
                Some(0),
                11,
                Some(10),
            ),
        ];
        let segments = segments(&[1, 2, 3]);
        for (name, retention, reader, now, expected) in cases {
            let now = Timestamp::from_micros(now * 1_000_000);
            assert_eq!(
                new_start(&segments, retention, reader, now),
                expected,
                "{name}"
            );
        }
        assert_eq!(
            new_start(&[], age(1), None, Timestamp::from_micros(i64::MAX)),
            None
        );
    }
}
