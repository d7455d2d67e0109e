//! Segments, manifests, snapshots and what they let go of in the journal.

use super::*;
use bytes::Bytes;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use tidemill_env::objects::{Backend, Created, MemoryObjects};

/// Remembers with which snapshot it was begun.
#[derive(Default)]
struct Begun {
    from: u64,
    snapshot: Option<SnapshotRef>,
    states: Vec<u64>,
    /// Whether those were all.
    complete: Option<bool>,
}

#[async_trait]
impl Recovery for Begun {
    async fn begin(&mut self, snapshot: Option<&SnapshotRef>) -> Result<CommitSeq> {
        self.snapshot = snapshot.cloned();
        Ok(snapshot.map_or(CommitSeq(self.from), |snapshot| snapshot.commit))
    }
    fn state(&mut self, commit: CommitSeq, _: &[u8]) -> Result<()> {
        self.states.push(commit.0);
        Ok(())
    }
    fn end(&mut self, is_complete: bool) {
        assert_eq!(self.complete.replace(is_complete), None, "once");
    }
}

async fn open_begun(dir: &Path) -> Result<(Log, Begun)> {
    let mut begun = Begun::default();
    let storage = dir.join("objects").display().to_string();
    let objects = Objects::open(&storage, &[]).expect("storage");
    let (clock, random) = (Clock::system(), Random::system());
    let metrics = Metrics::default();
    let log = Log::open(
        small(dir),
        Arc::new(Disk::default()),
        objects,
        clock,
        random,
        &metrics,
        &mut begun,
    );
    Ok((log.await?, begun))
}

fn journal_files(dir: &Path) -> Vec<PathBuf> {
    let mut all = Disk::default().list(&dir.join("journal")).expect("list");
    all.retain(|path| path.extension().is_some_and(|ending| ending == "journal"));
    all.sort();
    all
}

async fn fill(log: &Log, topic: TopicId, range: std::ops::Range<u64>) {
    for start in range.clone().step_by(100) {
        let end = (start + 100).min(range.end);
        append(log, topic, 0, &values(start..end))
            .await
            .durable()
            .await
            .expect("durable");
    }
}

#[tokio::test]
async fn sealed_events_are_read_across_the_border_and_their_journal_is_cut() {
    let dir = tempfile::tempdir().expect("dir");
    let log = open(dir.path()).await;
    let topic = topic(&log, "t", 1).await;
    let at = PartitionId {
        topic,
        partition: 0,
    };
    fill(&log, topic, 0..20_000).await;
    assert!(journal_files(dir.path()).len() > 3);
    log.seal().await.expect("sealed");
    assert!(
        journal_files(dir.path()).len() <= 3,
        "the newest, the current and the next one are left"
    );
    let range = log.ranges(topic).expect("ranges")[0];
    assert_eq!(
        (range.start, range.archived_end, range.end),
        (0, 20_000, 20_000)
    );
    fill(&log, topic, 20_000..25_000).await;
    let expected = numbered(values(0..25_000));
    assert_eq!(read_all(&log, at, MUCH).await, expected);
    assert_eq!(
        read_all(
            &log,
            at,
            ReadLimit {
                events: 999,
                bytes: 1 << 20
            }
        )
        .await,
        expected
    );
    assert!(log.stats().segments >= 1);
    drop(log);
    let log = open(dir.path()).await;
    assert_eq!(read_all(&log, at, MUCH).await, expected);
    fill(&log, topic, 25_000..25_100).await;
    log.seal().await.expect("sealed");
    assert_eq!(read_all(&log, at, MUCH).await, numbered(values(0..25_100)));
    log.close().await.expect("closed");
    let log = open(dir.path()).await;
    assert_eq!(read_all(&log, at, MUCH).await, numbered(values(0..25_100)));
    assert_eq!(
        log.offset_at(at, Timestamp::from_micros(99), TimeOf::Event)
            .await
            .expect("found"),
        99
    );
    assert_eq!(
        log.offset_at(at, Timestamp::from_micros(100), TimeOf::Event)
            .await
            .expect("found"),
        25_100
    );
}

#[tokio::test]
async fn state_keeps_the_journal_until_a_snapshot_covers_it() {
    let dir = tempfile::tempdir().expect("dir");
    let (log, begun) = open_begun(dir.path()).await.expect("opens");
    assert_eq!(begun.complete, Some(true), "of nothing");
    let mut last = 0;
    for nth in 0..400_u64 {
        let mut draft = Draft::new();
        draft.state(&vec![7; 4096]);
        draft.entry("nth", Some(&nth.to_le_bytes()));
        let ticket = log.commit(draft).map_err(|(e, _)| e).expect("committed");
        last = ticket.commit.0;
        ticket.durable().await.expect("durable");
    }
    let oldest = journal_files(dir.path()).remove(0);
    log.seal().await.expect("sealed");
    assert_eq!(
        journal_files(dir.path()).remove(0),
        oldest,
        "nothing may be cut without a snapshot"
    );
    let snapshot = SnapshotRef {
        path: "snap".into(),
        commit: CommitSeq(last - 10),
    };
    log.snapshot_taken(snapshot.clone())
        .await
        .expect("recorded");
    assert!(journal_files(dir.path()).remove(0) > oldest);
    drop(log);
    let (log, begun) = open_begun(dir.path()).await.expect("opens");
    assert_eq!(begun.snapshot, Some(snapshot));
    assert_eq!(begun.states, (last - 9..=last).collect::<Vec<_>>());
    assert_eq!(begun.complete, Some(true), "what was cut was of no use");
    assert_eq!(log.entries("nth")[0].1.as_ref(), 399_u64.to_le_bytes());
    drop(log);
    let mut behind = Begun {
        from: 3,
        ..Begun::default()
    };
    let objects =
        Objects::open(&dir.path().join("objects").display().to_string(), &[]).expect("storage");
    struct Behind<'b>(&'b mut Begun);
    #[async_trait]
    impl Recovery for Behind<'_> {
        async fn begin(&mut self, _: Option<&SnapshotRef>) -> Result<CommitSeq> {
            Ok(CommitSeq(self.0.from))
        }
        fn state(&mut self, commit: CommitSeq, section: &[u8]) -> Result<()> {
            self.0.state(commit, section)
        }
    }
    let refused = Log::open(
        small(dir.path()),
        Arc::new(Disk::default()),
        objects,
        Clock::system(),
        Random::system(),
        &Metrics::default(),
        &mut Behind(&mut behind),
    )
    .await;
    let refused = refused.err().expect("frames that the state needs are cut");
    assert_eq!(refused.kind, ErrorKind::Corrupt);
    assert!(
        refused.detail.contains("frames from 4 on are needed"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_lost_journal_goes_on_from_the_manifest_and_repeats_no_number() {
    let dir = tempfile::tempdir().expect("dir");
    let log = open(dir.path()).await;
    let topic = topic(&log, "t", 1).await;
    let at = PartitionId {
        topic,
        partition: 0,
    };
    fill(&log, topic, 0..1000).await;
    log.seal().await.expect("sealed");
    fill(&log, topic, 1000..1200).await;
    let before = *log.durable().borrow();
    log.close().await.expect("closed");
    std::fs::remove_dir_all(dir.path().join("journal")).expect("removed");
    for _ in 0..3 {
        let (log, begun) = open_begun(dir.path()).await.expect("opens");
        assert_eq!(begun.complete, Some(false));
        assert!(log.durable().borrow().0 > before.0 + (1 << 31));
        assert_eq!(read_all(&log, at, MUCH).await, numbered(values(0..1000)));
    }
    let (log, _) = open_begun(dir.path()).await.expect("opens");
    let ticket = append(&log, topic, 0, &values(0..1)).await;
    assert_eq!(ticket.written[0].first, 1000);
    ticket.durable().await.expect("durable");
    log.close().await.expect("closed");
    let (log, begun) = open_begun(dir.path()).await.expect("opens");
    assert_eq!(begun.complete, Some(false), "nor is it whole again later");
    assert_eq!(log.ranges(topic).expect("ranges")[0].end, 1001);
}

#[tokio::test]
async fn a_second_owner_of_the_storage_fences_the_first() {
    let (one, two) = (
        tempfile::tempdir().expect("dir"),
        tempfile::tempdir().expect("dir"),
    );
    let log = open(one.path()).await;
    let topic = topic(&log, "t", 1).await;
    fill(&log, topic, 0..10).await;
    let copy = two.path().join("journal");
    std::fs::create_dir_all(&copy).expect("folder");
    for path in journal_files(one.path()) {
        std::fs::copy(&path, copy.join(path.file_name().expect("name"))).expect("copied");
    }
    let objects =
        Objects::open(&one.path().join("objects").display().to_string(), &[]).expect("storage");
    let second = Log::open(
        small(two.path()),
        Arc::new(Disk::default()),
        objects,
        Clock::system(),
        Random::system(),
        &Metrics::default(),
        &mut States::default(),
    )
    .await;
    let _second = second.expect("takes over");
    assert_eq!(
        log.seal().await.expect_err("fenced").kind,
        ErrorKind::Fenced
    );
    assert!(
        log.durable().changed().await.is_err(),
        "the first one has stopped"
    );
    let mut draft = Draft::new();
    draft
        .append(topic, &rows(&values(0..1)), &[0])
        .expect("fits");
    assert_eq!(
        log.commit(draft).err().expect("stopped").0.kind,
        ErrorKind::Unavailable
    );
}

#[tokio::test]
async fn objects_of_a_deleted_topic_go_at_the_next_start_at_the_latest() {
    let dir = tempfile::tempdir().expect("dir");
    let log = open(dir.path()).await;
    let topic = topic(&log, "t", 1).await;
    fill(&log, topic, 0..10).await;
    log.seal().await.expect("sealed");
    let folder = dir.path().join("objects/topics/t/p=00000");
    assert_eq!(Disk::default().list(&folder).expect("list").len(), 1);
    log.delete_topic(&"t".parse().expect("name"))
        .await
        .expect("deleted");
    log.close().await.expect("closed");
    let log = open(dir.path()).await;
    assert!(Disk::default().list(&folder).expect("list").is_empty());
    assert!(log.topics().is_empty());
}

#[tokio::test]
async fn a_journal_of_other_data_is_refused() {
    let (one, two) = (
        tempfile::tempdir().expect("dir"),
        tempfile::tempdir().expect("dir"),
    );
    open_begun(one.path())
        .await
        .expect("opens")
        .0
        .close()
        .await
        .expect("closed");
    open_begun(two.path())
        .await
        .expect("opens")
        .0
        .close()
        .await
        .expect("closed");
    std::fs::remove_dir_all(one.path().join("journal")).expect("removed");
    std::fs::rename(two.path().join("journal"), one.path().join("journal")).expect("moved");
    let refused = open_begun(one.path()).await.err().expect("refused");
    assert_eq!(refused.kind, ErrorKind::Corrupt);
    assert!(
        refused.detail.contains("belongs to other data"),
        "{refused}"
    );
}

/// Storage whose uploads never end.
struct Stuck {
    inner: MemoryObjects,
    begun: Arc<AtomicBool>,
}

#[async_trait]
impl Backend for Stuck {
    async fn get(&self, path: &str) -> Result<Bytes> {
        self.inner.get(path).await
    }
    async fn get_range(&self, path: &str, range: std::ops::Range<u64>) -> Result<Bytes> {
        self.inner.get_range(path, range).await
    }
    async fn size(&self, path: &str) -> Result<Option<u64>> {
        self.inner.size(path).await
    }
    async fn create(&self, path: &str, body: Bytes) -> Result<Created> {
        self.inner.create(path, body).await
    }
    async fn upload(&self, _: &str, _: &Path) -> Result<()> {
        self.begun.store(true, Ordering::Release);
        std::future::pending().await
    }
    async fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.inner.list(prefix).await
    }
    async fn delete(&self, path: &str) -> Result<()> {
        self.inner.delete(path).await
    }
}

/// Space is looked at also between the beginning of a segment and its end.
#[tokio::test]
async fn a_journal_that_grows_too_long_is_refused_while_a_segment_takes_its_time() {
    let dir = tempfile::tempdir().expect("dir");
    let settings = Settings {
        journal_bytes: ByteSize(512 << 10),
        segment_bytes: ByteSize(1),
        ..small(dir.path())
    };
    let begun = Arc::new(AtomicBool::new(false));
    let stuck = Stuck {
        inner: MemoryObjects::new(Random::seeded(1)),
        begun: begun.clone(),
    };
    let clock = Clock::manual(Timestamp::from_micros(0));
    let (metrics, mut states) = (Metrics::default(), States::default());
    let log = Log::open(
        settings,
        Arc::new(Disk::default()),
        Objects::new(Arc::new(stuck)),
        clock.clone(),
        Random::seeded(1),
        &metrics,
        &mut states,
    );
    let log = log.await.expect("opens");
    let topic = topic(&log, "t", 1).await;
    fill(&log, topic, 0..100).await;
    while !begun.load(Ordering::Acquire) {
        clock.advance(1_000_000);
        tokio::task::yield_now().await;
    }
    fill(&log, topic, 100..20_000).await;
    let rows = rows(&values(0..1));
    for _ in 0..1000 {
        clock.advance(1_000_000);
        tokio::task::yield_now().await;
    }
    let mut draft = Draft::new();
    draft.append(topic, &rows, &[0]).expect("fits");
    let (refused, _) = log.commit(draft).err().expect("too long");
    assert_eq!(refused.code, "journal-full");
}
