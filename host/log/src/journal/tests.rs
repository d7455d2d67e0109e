//! Torn tails and flipped bits: a clear refusal or a clean recovery, never silence.

use crate::draft::Draft;
use crate::meters::Meters;
use crate::open::{self, Parts};
use crate::segment::Segments;
use crate::shard::{Flushed, Shard};
use crate::{ReadLimit, Recovery, Settings, SnapshotRef, Topic, TopicSettings};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidemill_env::files::{Files, SimDisk};
use tidemill_env::metrics::Metrics;
use tidemill_env::objects::{MemoryObjects, Objects};
use tidemill_env::{Clock, Random};
use tidemill_types::{
    ByteSize, CommitSeq, ErrorKind, PackedRows, PartitionId, Result, Timestamp, TopicId,
};

struct Nothing;

#[async_trait::async_trait]
impl Recovery for Nothing {
    async fn begin(&mut self, _: Option<&SnapshotRef>) -> Result<CommitSeq> {
        Ok(CommitSeq(0))
    }
    fn state(&mut self, _: CommitSeq, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

const TOPIC: TopicId = TopicId(1);
const AT: PartitionId = PartitionId {
    topic: TOPIC,
    partition: 0,
};

const READ_ALL: ReadLimit = ReadLimit {
    events: usize::MAX,
    bytes: usize::MAX,
};

pub(crate) fn disk() -> SimDisk {
    SimDisk::new(Random::seeded(1), 64 << 20)
}

/// Starts a log; the journal alone, without object storage.
pub(crate) fn start(disk: &SimDisk) -> Result<Shard> {
    start_with(disk, ByteSize(16 << 10))
}

fn start_with(disk: &SimDisk, journal_file_bytes: ByteSize) -> Result<Shard> {
    let settings = Settings {
        dir: PathBuf::from("d"),
        journal_file_bytes,
        reserve_bytes: ByteSize(0),
        ..Settings::default()
    };
    let parts = Parts {
        settings,
        files: Arc::new(disk.clone()),
        clock: Clock::manual(Timestamp::from_micros(5)),
        random: Random::seeded(9),
        meters: Meters::new(&Metrics::default()),
    };
    let mut recovery = Nothing;
    let opening = open::open(parts, None, crate::marks::Saved::default(), &mut recovery);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("runtime");
    Ok(runtime.block_on(opening)?.shard)
}

pub(crate) fn flush(shard: &Shard) {
    while shard.flush() == Flushed::Group {}
}

fn create_topic(shard: &Shard) {
    create_topic_of(shard, TopicSettings::default());
}

fn create_topic_of(shard: &Shard, settings: TopicSettings) {
    let name = "t".parse().expect("name");
    let topic = Arc::new(Topic {
        id: TOPIC,
        name,
        settings,
    });
    let mut draft = Draft::new();
    draft.topic_change(crate::sequencer::TopicChange::Created(topic));
    commit(shard, draft);
    flush(shard);
}

/// One event, sequenced.
fn append(shard: &Shard, value: &[u8]) {
    commit(shard, event(value));
}

fn event(value: &[u8]) -> Draft {
    let mut rows = PackedRows::default();
    rows.push(Timestamp::from_micros(0), None, Some(value), [])
        .expect("fits");
    let mut draft = Draft::new();
    draft.append(TOPIC, &rows, &[0]).expect("fits");
    draft
}

fn commit(shard: &Shard, draft: Draft) {
    let committed = shard.commit(draft).map_err(|(error, _)| error);
    committed.expect("committed");
}

/// Groups of `per_group` frames with one event each; the last one isn't closed.
pub(crate) fn fill(disk: &SimDisk, groups: u64, per_group: u64) -> Shard {
    let shard = start(disk).expect("starts");
    create_topic(&shard);
    for nth in 0..groups * per_group {
        append(&shard, format!("value {nth}").as_bytes());
        if nth % per_group == per_group - 1 {
            flush(&shard);
        }
    }
    shard
}

/// The events there are; they must be the first ones, in order.
pub(crate) fn events(shard: &Shard) -> u64 {
    let mut count = 0;
    loop {
        let taken = shard.read_local(AT, count, READ_ALL).expect("read");
        if taken.batches.is_empty() {
            return count;
        }
        for event in taken.batches.iter().flat_map(|batch| batch.iter()) {
            let expected = format!("value {count}");
            assert_eq!(
                (event.offset, event.row.value),
                (count, Some(expected.as_bytes()))
            );
            count += 1;
        }
    }
}

pub(crate) fn journal_files(disk: &SimDisk) -> Vec<PathBuf> {
    let mut all = disk.list(Path::new("d/journal")).expect("list");
    all.retain(|path| path.extension().is_some_and(|ending| ending == "journal"));
    all.sort();
    all
}

/// The first byte behind all frames.
pub(crate) fn end_of(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .expect("not empty")
        + 1
}

#[test]
fn frames_at_the_same_place_of_several_files_are_told_apart() {
    let disk = disk();
    let shard = fill(&disk, 400, 1);
    drop(shard);
    assert!(journal_files(&disk).len() > 3);
    let shard = start(&disk).expect("starts");
    for _ in 0..2 {
        assert_eq!(events(&shard), 400);
    }
    // Backwards, so that stretches that are known begin behind the one that is read.
    let one = ReadLimit {
        events: 1,
        bytes: 1,
    };
    for offset in (0..400).rev() {
        let taken = shard.read_local(AT, offset, one).expect("read");
        assert_eq!(taken.batches[0].offset(0), offset);
    }
}

#[test]
fn files_of_different_sizes_follow_each_other() {
    let disk = disk();
    drop(fill(&disk, 400, 1));
    let second = &journal_files(&disk)[1];
    let mut longer = disk.contents(second).expect("there");
    longer.resize(longer.len() * 4, 0);
    disk.replace(second, &longer).expect("replaced");
    assert_eq!(events(&start(&disk).expect("starts")), 400);
}

#[test]
fn a_tail_torn_at_any_byte_loses_only_what_was_torn() {
    let disk = disk();
    drop(fill(&disk, 3, 1));
    disk.kill();
    let path = journal_files(&disk).remove(0);
    let before = disk.contents(&path).expect("there");
    let shard = fill_more(&disk);
    drop(shard);
    let full = disk.contents(&path).expect("there");
    let (start_at, end) = (end_of(&before).next_multiple_of(8), end_of(&full));
    assert!(end > start_at + 100);
    for torn in start_at..end {
        for garbage in [0, 0xff] {
            let mut bytes = full.clone();
            bytes[torn..].fill(0);
            bytes[torn..end].fill(garbage);
            if bytes == full {
                continue;
            }
            let disk = copy(&path, &bytes);
            let shard = start(&disk).unwrap_or_else(|e| panic!("byte {torn}: {e}"));
            assert_eq!(events(&shard), 3, "byte {torn}");
            assert_eq!(shard.with_sequencer(|s| s.last()).0, 4, "byte {torn}");
        }
    }
}

/// The same journal file with one more group, as if the process had gone on.
fn fill_more(disk: &SimDisk) -> Shard {
    for path in disk.list(Path::new("d/journal")).expect("list") {
        disk.remove(&path).expect("removed");
    }
    fill(disk, 4, 1)
}

/// A disk that holds one journal file.
pub(crate) fn copy(path: &Path, bytes: &[u8]) -> SimDisk {
    let disk = disk();
    disk.create_zeroed(path, bytes.len() as u64)
        .expect("created");
    disk.replace(path, bytes).expect("replaced");
    disk
}

#[test]
fn a_bit_flipped_anywhere_is_refused_or_loses_only_the_last_group() {
    for closed in [false, true] {
        let disk = disk();
        let shard = fill(&disk, 4, 3);
        if closed {
            shard.begin_close(true);
            flush(&shard);
        }
        drop(shard);
        let path = journal_files(&disk).remove(0);
        let bytes = disk.contents(&path).expect("there");
        let (mut refused, mut shorter) = (0, 0);
        let head = 0..super::HEAD_LEN;
        let frames = usize::try_from(super::FILE_HEAD).expect("small")..end_of(&bytes) + 16;
        for at in head.chain(frames) {
            let disk = copy(&path, &bytes);
            disk.flip(&path, at, u32::try_from(at * 7 % 8).expect("small"))
                .expect("flipped");
            match start(&disk) {
                Ok(shard) if events(&shard) == 12 => {}
                Ok(shard) => {
                    assert!(
                        !closed,
                        "byte {at}: lost in silence although the log was closed"
                    );
                    assert!(
                        events(&shard) >= 9,
                        "byte {at}: only the last group may be lost"
                    );
                    shorter += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind, ErrorKind::Corrupt, "byte {at}: {error}");
                    assert!(
                        error.detail.contains(&path.display().to_string()),
                        "{error}"
                    );
                    refused += 1;
                }
            }
        }
        assert!(refused > 500, "{refused} refused");
        assert_eq!(shorter > 0, !closed);
    }
}

#[test]
fn frames_of_an_earlier_use_of_a_file_are_never_taken_for_new_ones() {
    let disk = disk();
    let shard = fill(&disk, 10, 1);
    let file = shard.journal().pop_first().expect("used").1.file;
    let path = file.path.clone();
    let full = disk.contents(&path).expect("there");
    drop(shard);
    let head = usize::try_from(super::FILE_HEAD).expect("small");
    // The same bytes behind the head of another use.
    let mut bytes = full.clone();
    let again = super::FileHead {
        number: file.number,
        nonce: file.nonce + 1,
        data_id: 7,
    };
    bytes[..super::HEAD_LEN].copy_from_slice(&again.to_bytes());
    let disk = copy(&path, &bytes);
    let shard = start(&disk).expect("starts");
    assert_eq!(shard.with_sequencer(|s| s.last()).0, 0);
    assert!(end_of(&full) > head);
}

#[test]
fn a_missing_file_in_the_middle_is_refused() {
    let disk = disk();
    drop(fill(&disk, 200, 1));
    let files = journal_files(&disk);
    assert!(files.len() >= 3);
    disk.remove(&files[1]).expect("removed");
    let refused = start(&disk).err().expect("refused");
    assert_eq!(refused.kind, ErrorKind::Corrupt);
    assert!(
        refused.detail.contains(&files[2].display().to_string()),
        "{refused}"
    );
}

#[test]
fn a_failed_sync_is_final_and_what_it_left_is_written_again_at_the_next_start() {
    let disk = disk();
    let shard = fill(&disk, 2, 1);
    let mut rows = PackedRows::default();
    rows.push(Timestamp::from_micros(0), None, Some(b"value 2"), [])
        .expect("fits");
    let draft = || {
        let mut draft = Draft::new();
        draft.append(TOPIC, &rows, &[0]).expect("fits");
        draft
    };
    let mut ticket = shard
        .commit(draft())
        .map_err(|(error, _)| error)
        .expect("committed");
    let durable = shard.durable();
    disk.fail_syncs(1);
    assert_eq!(shard.flush(), Flushed::Failed);
    let told = ticket
        .durable
        .as_mut()
        .expect("waits")
        .try_recv()
        .expect("told");
    assert_eq!(told.expect_err("unknown").kind, ErrorKind::Unavailable);
    assert!(durable.has_changed().is_err(), "the watch is closed");
    assert_eq!(
        shard.commit(draft()).err().expect("stopped").0.kind,
        ErrorKind::Unavailable
    );
    assert_eq!(shard.flush(), Flushed::Nothing);
    drop(shard);
    disk.kill();
    // The frame can be read although it isn't durable: it counts, so it must be made durable now.
    let shard = start(&disk).expect("starts");
    assert_eq!(events(&shard), 3);
    drop(shard);
    disk.crash();
    assert_eq!(events(&start(&disk).expect("starts")), 3);
}

#[test]
fn who_reads_in_step_goes_through_little_of_the_journal_and_misses_nothing() {
    let disk = disk();
    drop(fill(&disk, 600, 2));
    assert!(
        journal_files(&disk).len() > 8,
        "more than is looked at at once"
    );
    let shard = Arc::new(start(&disk).expect("starts"));
    let objects = Objects::new(Arc::new(MemoryObjects::new(Random::seeded(2))));
    let segments = Segments::new(objects, 0, None);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("runtime");
    let all = ReadLimit {
        events: usize::MAX,
        bytes: usize::MAX,
    };
    let read = |from, journal| {
        let read = crate::read::read(&shard, &segments, AT, from, all, journal);
        runtime.block_on(read).expect("read").next
    };
    assert_eq!(read(0, u64::MAX), 1200);
    let mut ends = vec![0];
    while ends.last() != Some(&1200) {
        ends.push(read(ends[ends.len() - 1], 1));
    }
    assert!(ends.is_sorted_by(|one, next| one < next), "{ends:?}");
    assert!(ends.len() > 2, "{ends:?}");
}

#[test]
fn a_full_disk_refuses_commits_while_reads_go_on_and_recovers() {
    let disk = disk();
    let shard = fill(&disk, 2, 1);
    disk.set_capacity(0);
    let mut nth = 2;
    let mut commit = || {
        let mut rows = PackedRows::default();
        let value = format!("value {nth}");
        rows.push(Timestamp::from_micros(0), None, Some(value.as_bytes()), [])
            .expect("fits");
        let mut draft = Draft::new();
        draft.append(TOPIC, &rows, &[0]).expect("fits");
        let done = shard.commit(draft).map_err(|(error, _)| error);
        nth += u64::from(done.is_ok());
        done
    };
    let mut last = None;
    while shard.flush() != Flushed::NoSpace {
        last = Some(commit().expect("there is room in the file"));
    }
    assert_eq!(commit().err().expect("full").kind, ErrorKind::StorageFull);
    let at = tidemill_types::PartitionId {
        topic: TOPIC,
        partition: 0,
    };
    let truncation = crate::sequencer::Truncation { at, before: 0 };
    shard
        .truncate(truncation)
        .expect("what makes room is taken");
    let mut last = last.expect("waits").durable.expect("waits");
    assert!(last.try_recv().is_err(), "not acknowledged");
    let readable = events(&shard);
    assert!(readable > 2);
    disk.set_capacity(64 << 20);
    assert_eq!(shard.flush(), Flushed::Group);
    last.try_recv().expect("told").expect("durable");
    shard.check_space();
    commit().expect("admitted again");
    flush(&shard);
    assert_eq!(events(&shard), readable + 2);
}

#[test]
fn files_for_large_groups_are_set_aside_and_hold_what_was_written() {
    let disk = disk();
    drop(fill(&disk, 20, 40));
    assert!(journal_files(&disk).len() > 1, "more than one file");
    assert_eq!(disk.reserved(), 0, "small groups have zeros");

    let disk = self::disk();
    let large = |nth: u8| vec![nth; 3 << 19];
    let start = || start_with(&disk, ByteSize(4 << 20)).expect("starts");
    let shard = start();
    create_topic(&shard);
    for nth in 0..24 {
        append(&shard, &large(nth));
        flush(&shard);
    }
    assert!(disk.reserved() > 0, "large ones don't wait for zeros");
    drop(shard);
    disk.crash();
    let shard = start();
    for nth in 0..24 {
        let one = ReadLimit {
            events: 1,
            bytes: usize::MAX,
        };
        let read = shard.read_local(AT, u64::from(nth), one).expect("read");
        let events = read.batches.iter().flat_map(|batch| batch.iter());
        let values: Vec<_> = events.map(|event| event.row.value).collect();
        assert_eq!(values.first(), Some(&Some(large(nth).as_slice())));
    }
}

#[test]
fn what_nobody_waits_for_gathers_until_it_is_enough_or_somebody_waits() {
    let shard = start_with(&disk(), ByteSize(4 << 20)).expect("starts");
    create_topic(&shard);
    let flush_one = || assert_eq!(shard.flush(), Flushed::Group);
    let unawaited = |bytes: usize| {
        let sequenced = shard.sequence(event(&vec![b'x'; bytes]), false);
        sequenced.map_err(|(error, _)| error).expect("sequenced");
    };
    unawaited(100 << 10);
    assert!(
        !shard.would_gather(),
        "nothing came before that lets it hope for more"
    );
    flush_one();
    assert!(!shard.would_gather(), "there is nothing");
    unawaited(1 << 10);
    assert!(shard.would_gather());
    append(&shard, b"somebody waits for it");
    assert!(!shard.would_gather());
    flush_one();
    unawaited(1 << 10);
    assert!(!shard.would_gather(), "the last ones were little");
    unawaited(100 << 10);
    flush_one();
    unawaited(600 << 10);
    assert!(!shard.would_gather(), "it is enough");
    flush_one();
    unawaited(100 << 10);
    flush(&shard);
    unawaited(1 << 10);
    assert!(!shard.would_gather(), "there was a pause");
    let read = shard.read_local(AT, 5, READ_ALL).expect("read");
    assert!(!read.batches.is_empty(), "all of it is durable");
}

#[test]
fn partitions_that_nobody_looks_at_get_what_is_theirs_before_it_is_much() {
    let shard = start_with(&disk(), ByteSize(4 << 20)).expect("starts");
    let settings = TopicSettings {
        partitions: 8,
        ..TopicSettings::default()
    };
    create_topic_of(&shard, settings);
    let one_for_each = || {
        let mut rows = PackedRows::default();
        for _ in 0..8 {
            let pushed = rows.push(Timestamp::from_micros(0), None, Some(b"v"), []);
            pushed.expect("fits");
        }
        let mut draft = Draft::new();
        let partitions: Vec<u32> = (0..8).collect();
        draft.append(TOPIC, &rows, &partitions).expect("fits");
        commit(&shard, draft);
        flush(&shard);
    };
    let mut frames = 0;
    while !shard.has_to_deliver() {
        one_for_each();
        frames += 1;
        assert!(frames < 100, "all of it waits for somebody to look");
    }
    assert!(!shard.has_to_deliver(), "that was said");
    shard.deliver();
    one_for_each();
    assert!(!shard.has_to_deliver(), "there is little again");
    for number in 0..8 {
        let at = PartitionId {
            topic: TOPIC,
            partition: number,
        };
        let read = shard.read_local(at, 0, READ_ALL).expect("read");
        let events: usize = read.batches.iter().map(tidemill_types::Batch::len).sum();
        assert_eq!(events, frames + 1);
    }
}
