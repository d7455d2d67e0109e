use super::*;
use crate::frame::{Kind, Section, Slice};
use tidemill_types::{PackedRows, Timestamp, TopicId};

fn segment(first: u64, end: u64) -> SegmentMeta {
    SegmentMeta {
        topic: TopicId(1),
        partition: 0,
        first,
        end,
        events: end - first,
        bytes: 100,
        path: format!("{first}"),
        min_time: 0,
        max_time: 0,
        min_ingest: 0,
        max_ingest: 0,
    }
}

fn place(first: u64, end: u64) -> Place {
    Place {
        first,
        end,
        bytes: (end - first) * 10,
        time: 0,
        file: first,
        at: 0,
        len: 1,
    }
}

/// A durable frame with two events of a partition, from an offset on.
fn frame(first: u64) -> (Arc<InMemory>, Chunk) {
    let mut rows = PackedRows::default();
    for n in first..first + 2 {
        let value = n.to_be_bytes();
        let time = Timestamp::from_micros(0);
        rows.push(time, None, Some(&value), []).expect("fits");
    }
    let heads = rows.heads.iter().flat_map(|head| head.to_bytes());
    let body: Vec<u8> = rows.payload.iter().copied().chain(heads).collect();
    let number = |n: usize| u32::try_from(n).expect("small");
    let section = Section {
        kind: Kind::Append,
        at: 0,
        len: number(body.len()),
        topic: 1,
        payload: number(rows.payload.len()),
        rows: 2,
    };
    let at = FrameAt {
        seq: first,
        time: 0,
        file: 7,
        at: first * 1000,
        len: 1000,
    };
    let slice = Slice {
        section: 0,
        topic: 1,
        partition: 0,
        first_row: 0,
        rows: 2,
        bytes: 16,
        base: first,
    };
    let frame = InMemory::new(body.into(), vec![section], at);
    let chunk = Chunk::new(&frame, &slice);
    (frame, chunk)
}

#[test]
fn events_whose_memory_was_let_go_are_in_the_journal_at_once_and_none_is_left_out() {
    let mut partition = Partition::new(0, 0, 0, Vec::new());
    let mut frames = Vec::new();
    let all = ReadLimit {
        events: usize::MAX,
        bytes: usize::MAX,
    };
    let count = u64::from(SETTLED_AT) * 3;
    for nth in 0..count {
        let (frame, chunk) = frame(nth * 2);
        partition.push(chunk);
        frames.push(frame);
        assert_eq!(partition.missing(), None);
    }
    for (gone, frame) in (1..).zip(&frames) {
        frame.let_go();
        let next = 2 * gone;
        assert_eq!(partition.memory_bytes(), (count * 2 - next) * 8);
        for from in 0..count * 2 {
            match partition.source(from, all) {
                Source::Memory(taken) => {
                    assert!(from >= next, "{from} of {next}");
                    assert_eq!(taken.next, count * 2);
                }
                Source::Journal(places) => {
                    assert!(from < next, "{from} of {next}");
                    assert!(places[0].first <= from && from < places[0].end);
                    assert_eq!(places[0].file, 7);
                }
                _ => panic!("{from} is in memory or in the journal"),
            }
        }
        assert_eq!(partition.missing(), None);
    }
    assert_eq!(partition.unsealed_bytes(), count * 16);
    partition.archive(segment(0, count * 2));
    assert_eq!(
        (partition.notes_bytes(), partition.unsealed_bytes()),
        (0, 0)
    );
}

#[test]
fn who_begins_to_wait_within_a_group_is_told_of_it() {
    let mut partition = Partition::new(0, 0, 0, Vec::new());
    assert!(!partition.has_to_tell(1), "nobody waits");
    let waits = partition.watch().expect("a topic that is there");
    assert!(partition.has_to_tell(1));
    assert!(!partition.has_to_tell(1), "noted already");
    assert!(partition.has_to_tell(2));
    partition.push_place(place(0, 10));
    partition.wake();
    assert_eq!(*waits.borrow(), 10);
    drop(waits);
    partition.wake();
    assert!(!partition.has_to_tell(3), "nobody waits any more");
    let again = partition.watch().expect("a topic that is there");
    assert_eq!(*again.borrow(), 10);
    assert!(partition.has_to_tell(3));
}

#[test]
fn a_segment_that_comes_after_its_events_went_is_no_part_of_it() {
    let mut partition = Partition::new(0, 0, 0, Vec::new());
    partition.push_place(place(0, 10));
    partition.push_place(place(10, 20));
    assert_eq!(partition.truncate(12), (12, 120));
    assert_eq!((partition.start(), partition.archived_end()), (12, 12));
    assert_eq!(partition.range(0).bytes, 80);
    assert_eq!(partition.oldest_file(), Some(10), "the other isn't needed");
    partition.archive(segment(0, 10));
    assert_eq!(
        (partition.archived_end(), partition.segments().len()),
        (12, 0)
    );
    partition.archive(segment(10, 15));
    assert_eq!(
        (partition.archived_end(), partition.segments().len()),
        (15, 1)
    );
    assert_eq!(partition.truncate(11), (0, 0), "a start never goes back");
    assert_eq!(partition.start(), 12);
    assert_eq!(partition.truncate(15), (3, 100));
    assert!(partition.segments().is_empty());
    assert_eq!(partition.missing(), None);
}

#[test]
fn a_partition_that_nothing_comes_to_lets_its_notes_of_memory_go_by_and_by() {
    let mut partition = Partition::new(0, 0, 0, Vec::new());
    let mut frames = Vec::new();
    for nth in 0..4 {
        let (frame, chunk) = frame(nth * 2);
        partition.push(chunk);
        frames.push(frame);
    }
    frames.iter().take(3).for_each(|frame| frame.let_go());
    partition.settle_some(2);
    assert_eq!(partition.chunks.len(), 2);
    partition.settle_some(2);
    assert_eq!(partition.chunks.len(), 1, "one is in memory");
    assert_eq!(partition.missing(), None);
}
