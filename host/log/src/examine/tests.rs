//! A repair makes a start possible exactly where it was refused, and loses no more than it says.

use super::*;
use crate::draft::Draft;
use crate::journal::tests::{copy, disk, end_of, events, fill, flush, journal_files, start};
use crate::{Log, Recovery, Settings, SnapshotRef, TopicSettings};
use std::sync::Arc;
use tidemill_env::files::{Disk, SimDisk};
use tidemill_env::metrics::Metrics;
use tidemill_env::objects::MemoryObjects;
use tidemill_env::{Clock, Random};
use tidemill_types::{ByteSize, CommitSeq, PackedRows, PartitionId, Timestamp, TopicId};

fn bucket() -> Objects {
    Objects::new(Arc::new(MemoryObjects::new(Random::seeded(1))))
}

fn directory(disk: &SimDisk) -> Directory {
    Directory::open(Arc::new(disk.clone()), Path::new("d")).expect("a journal")
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("runtime").block_on(work)
}

fn repair(disk: &SimDisk, accept_loss: bool) -> Result<(Plan, Option<PathBuf>)> {
    let (directory, random) = (directory(disk), Random::seeded(3));
    block_on(directory.repair(&bucket(), accept_loss, &["state"], &random))
}

#[test]
fn what_a_start_refuses_is_found_and_can_be_repaired_wherever_a_bit_flips() {
    let disk = disk();
    let shard = fill(&disk, 4, 3);
    shard.begin_close(true);
    flush(&shard);
    drop(shard);
    let path = journal_files(&disk).remove(0);
    let bytes = disk.contents(&path).expect("there");
    let (mut cut, mut heads) = (0, 0);
    let places = (0..44).chain((4096..end_of(&bytes) + 16).step_by(3));
    for at in places {
        let disk = copy(&path, &bytes);
        let bit = u32::try_from(at % 8).expect("small");
        disk.flip(&path, at, bit).expect("flipped");
        let damaged = disk.contents(&path).expect("there");
        let verified = block_on(directory(&disk).verify(&bucket(), false)).expect("verified");
        let refused = start(&disk.clone()).is_err();
        assert_eq!(verified.is_good(), !refused, "byte {at}: {verified:?}");
        if !refused {
            continue;
        }
        // The refused start changed nothing.
        assert_eq!(disk.contents(&path).expect("there"), damaged, "byte {at}");
        let plan = block_on(directory(&disk).plan(&bucket())).expect("plan");
        match &plan {
            Plan::Cut { loss, keeps, .. } => {
                cut += 1;
                assert!(*keeps < 14 && loss.from == keeps + 1, "byte {at}: {plan:?}");
                let error = repair(&disk, false).expect_err("not accepted");
                assert_eq!(error.code, "loss-not-accepted");
                assert_eq!(disk.contents(&path).expect("there"), damaged, "byte {at}");
            }
            Plan::WriteHeads { .. } => heads += 1,
            _ => panic!("byte {at}: {plan:?}"),
        }
        let (done, kept) = repair(&disk, plan.loses()).expect("repaired");
        assert_eq!(done, plan, "byte {at}");
        let kept = kept.expect("kept").join(path.file_name().expect("name"));
        assert_eq!(disk.contents(&kept).expect("copied"), damaged, "byte {at}");
        disk.crash();
        let shard = start(&disk).unwrap_or_else(|error| panic!("byte {at}: {error}"));
        let last = shard.with_sequencer(|s| s.last()).0;
        match plan {
            Plan::Cut { keeps, .. } => assert_eq!(last, keeps, "byte {at}"),
            _ => assert_eq!((last, events(&shard)), (14, 12), "byte {at}"),
        }
    }
    assert!(cut > 300 && heads > 10, "{cut} cut, {heads} heads");
}

#[test]
fn files_behind_a_gap_are_put_aside() {
    let disk = disk();
    drop(fill(&disk, 200, 1));
    disk.kill();
    let files = journal_files(&disk);
    assert!(files.len() >= 3);
    disk.remove(&files[1]).expect("removed");
    let verified = block_on(directory(&disk).verify(&bucket(), false)).expect("verified");
    let finding = verified.findings.first().expect("found");
    assert_eq!(finding.weight, Weight::Wrong);
    assert_eq!(finding.place, files[2].display().to_string());
    let (plan, kept) = repair(&disk, true).expect("repaired");
    let Plan::Cut { keeps, loss, .. } = plan else {
        panic!("{plan:?}")
    };
    assert_eq!((loss.from, loss.to), (keeps + 1, Some(201)));
    let kept = disk.list(&kept.expect("kept")).expect("list");
    assert_eq!(kept.len(), files.len() - 2, "{kept:?}");
    let shard = start(&disk).expect("starts");
    assert_eq!(shard.with_sequencer(|s| s.last()).0, keeps);
    assert_eq!(events(&shard), keeps - 1, "the first frame was the topic");
}

#[test]
fn a_torn_tail_needs_no_repair_and_is_told() {
    let disk = disk();
    drop(fill(&disk, 3, 2));
    disk.kill();
    let path = journal_files(&disk).remove(0);
    let bytes = disk.contents(&path).expect("there");
    disk.flip(&path, end_of(&bytes) - 20, 1).expect("flipped");
    let verified = block_on(directory(&disk).verify(&bucket(), false)).expect("verified");
    assert!(verified.is_good());
    let (plan, kept) = repair(&disk, false).expect("nothing to do");
    let Plan::Nothing { torn_frames, .. } = plan else {
        panic!("{plan:?}")
    };
    assert_eq!((torn_frames, kept), (1, None));
    assert_eq!(verified.findings.len(), 1, "{:?}", verified.findings);
    assert_eq!(verified.findings[0].weight, Weight::Note);
}

#[test]
fn frames_are_shown_in_order_with_what_they_hold() {
    let disk = disk();
    drop(fill(&disk, 2, 2));
    disk.kill();
    let mut seen = Vec::new();
    let mut each = |frame: FrameView| {
        seen.push(frame);
        true
    };
    let view = directory(&disk).inspect(&mut each).expect("inspected");
    let sequences: Vec<u64> = seen.iter().map(|frame| frame.sequence).collect();
    assert_eq!(sequences, [1, 2, 3, 4, 5]);
    assert_eq!(seen[0].sections[0].kind, "topic-created");
    let slice = seen[4].slices[0];
    assert_eq!((slice.topic, slice.first, slice.rows), (1, 3, 1));
    assert_eq!(seen[4].durable, 3, "the group before it");
    assert_eq!(
        (view.first, view.last, view.damage),
        (Some(1), Some(5), None)
    );
    assert_eq!(view.kinds["append"].rows, 4);
    assert_eq!(view.files.iter().map(|file| file.frames).sum::<u64>(), 5);
}

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

fn storage(dir: &Path) -> Objects {
    Objects::open(&dir.join("objects").display().to_string(), &[]).expect("storage")
}

async fn open(dir: &Path) -> Result<Log> {
    let settings = Settings {
        dir: dir.to_owned(),
        journal_file_bytes: ByteSize(64 << 10),
        reserve_bytes: ByteSize(0),
        ..Settings::default()
    };
    let (clock, random, metrics) = (Clock::system(), Random::system(), Metrics::default());
    let files = Arc::new(Disk::default());
    Log::open(
        settings,
        files,
        storage(dir),
        clock,
        random,
        &metrics,
        &mut Nothing,
    )
    .await
}

async fn append(log: &Log, topic: TopicId, count: u64) {
    for nth in 0..count {
        let mut rows = PackedRows::default();
        let value = format!("value {nth}");
        rows.push(Timestamp::from_micros(0), None, Some(value.as_bytes()), [])
            .expect("fits");
        let mut draft = Draft::new();
        draft.append(topic, &rows, &[0]).expect("fits");
        let ticket = log.commit(draft).map_err(|(error, _)| error);
        ticket.expect("committed").durable().await.expect("durable");
    }
}

/// A data directory with ten sealed events and five more, and the file those are in.
async fn filled(dir: &Path) -> PathBuf {
    let log = open(dir).await.expect("opens");
    let name = "t".parse().expect("name");
    let created = log.create_topic(&name, TopicSettings::default()).await;
    let topic = created.expect("created").0.id;
    append(&log, topic, 10).await;
    log.seal().await.expect("sealed");
    append(&log, topic, 5).await;
    let held = Directory::open(Arc::new(Disk::default()), dir).expect("there");
    assert!(held.is_running());
    let verified = held.verify(&storage(dir), true).await.expect("verified");
    assert!(verified.is_good(), "{verified:?}");
    let error = held
        .repair(&storage(dir), true, &[], &Random::system())
        .await;
    assert_eq!(error.expect_err("it runs").code, "directory-in-use");
    log.close().await.expect("closed");
    let files = Disk::default().list(&dir.join("journal")).expect("list");
    let journal = files
        .into_iter()
        .filter(|it| it.extension().is_some_and(|e| e == "journal"));
    journal.max().expect("a file")
}

#[tokio::test]
async fn objects_that_are_not_what_the_manifest_says_are_found() {
    let dir = tempfile::tempdir().expect("dir");
    filled(dir.path()).await;
    let objects = storage(dir.path());
    let directory = Directory::open(Arc::new(Disk::default()), dir.path()).expect("there");
    assert!(!directory.is_running());
    let verified = directory.verify(&objects, true).await.expect("verified");
    assert!(verified.is_good(), "{verified:?}");
    assert_eq!((verified.segments, verified.events), (1, 10));
    assert!(verified.manifest.is_some_and(|number| number >= 2));

    let segment = objects.list("topics/").await.expect("list").remove(0);
    let file = dir.path().join("objects").join(&segment);
    let good = std::fs::read(&file).expect("there");
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 4;
    let wrong = [
        (Some(flipped), true),
        (Some(good[1..].to_vec()), false),
        (None, false),
    ];
    for (bytes, needs_deep) in wrong {
        match &bytes {
            Some(bytes) => std::fs::write(&file, bytes).expect("written"),
            None => std::fs::remove_file(&file).expect("removed"),
        }
        for deep in [false, true] {
            let verified = directory.verify(&objects, deep).await.expect("verified");
            let found = verified.findings.iter().any(|it| it.place == segment);
            assert_eq!(found, deep || !needs_deep, "{verified:?}");
            assert_eq!(verified.is_good(), !found);
        }
    }
    std::fs::write(&file, &good).expect("written");
    std::fs::remove_file(dir.path().join("objects/manifests/0/00000000000000000001"))
        .expect("removed");
    let verified = directory.verify(&objects, false).await.expect("verified");
    assert!(
        verified.findings[0].what.contains("number 1"),
        "{verified:?}"
    );
}

#[tokio::test]
async fn damage_before_what_storage_knows_leaves_the_journal_behind() {
    let dir = tempfile::tempdir().expect("dir");
    let file = filled(dir.path()).await;
    let mut bytes = std::fs::read(&file).expect("there");
    bytes[4096 + 100] ^= 1;
    std::fs::write(&file, &bytes).expect("written");
    let refused = open(dir.path()).await.err().expect("refused");
    assert!(refused.detail.contains("log repair --dry-run"), "{refused}");
    let objects = storage(dir.path());
    let directory = Directory::open(Arc::new(Disk::default()), dir.path()).expect("there");
    let verified = directory.verify(&objects, false).await.expect("verified");
    assert!(!verified.is_good());
    let (plan, kept) = directory
        .repair(&objects, true, &[], &Random::system())
        .await
        .expect("repaired");
    let Plan::Leave { loss, .. } = plan else {
        panic!("{plan:?}")
    };
    assert!(loss.events >= 5, "{loss:?}");
    let kept = kept.expect("kept").join(file.file_name().expect("name"));
    assert_eq!(std::fs::read(kept).expect("kept"), bytes);
    drop(directory);
    let log = open(dir.path()).await.expect("opens");
    let topic = log.topic("t").expect("known").id;
    let at = PartitionId {
        topic,
        partition: 0,
    };
    let limit = crate::ReadLimit {
        events: 100,
        bytes: 1 << 20,
    };
    let read = log.read(at, 0, limit).await.expect("read");
    assert_eq!(
        read.batches
            .iter()
            .map(tidemill_types::Batch::len)
            .sum::<usize>(),
        10
    );
    log.close().await.expect("closed");
}

#[test]
fn a_folder_without_a_journal_is_left_alone() {
    let dir = tempfile::tempdir().expect("dir");
    let error = Directory::open(Arc::new(Disk::default()), dir.path()).err();
    assert_eq!(error.expect("refused").code, "no-journal");
    assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 0);
}
