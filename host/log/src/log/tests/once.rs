//! Requests that take effect once: across restarts, sealing, cut journals and deleted topics.

use super::*;
use crate::Once;
use crate::marks::Earlier;

fn producer(seq: u64) -> Once {
    let (id, epoch) = ("p".into(), 3);
    Once::Producer { id, epoch, seq }
}

fn key(key: u128) -> Once {
    Once::Key { key, digest: 1 }
}

fn draft(topic: TopicId, value: &str, once: &Once) -> Draft {
    let mut draft = Draft::new();
    let rows = rows(&[value.to_owned()]);
    draft.append(topic, &rows, &[0]).expect("fits");
    draft.once(topic, once);
    draft
}

/// Offset of the event, and whether it was there before.
async fn once(log: &Log, topic: TopicId, value: &str, once: &Once) -> Result<(Option<u64>, bool)> {
    let draft = draft(topic, value, once);
    let mut ticket = log.commit(draft).map_err(|(error, _)| error)?;
    let written = std::mem::take(&mut ticket.written);
    let replayed = ticket.replayed;
    ticket.durable().await?;
    Ok((written.first().map(|written| written.first), replayed))
}

async fn count(log: &Log, topic: TopicId) -> usize {
    let at = PartitionId {
        topic,
        partition: 0,
    };
    read_all(log, at, MUCH).await.len()
}

#[tokio::test]
async fn a_request_takes_effect_once_also_across_restarts_and_a_cut_journal() {
    let dir = tempfile::tempdir().expect("dir");
    let mut log = open(dir.path()).await;
    let topic = topic(&log, "t", 1).await;
    for seq in 0..3 {
        let new = once(&log, topic, "p", &producer(seq)).await.expect("new");
        assert_eq!(new, (Some(seq), false));
    }
    assert_eq!(
        once(&log, topic, "k", &key(1)).await.expect("new"),
        (Some(3), false)
    );
    for round in 0..4_u64 {
        let again = once(&log, topic, "p", &producer(2)).await.expect("again");
        assert_eq!(again, (Some(2), true), "round {round}");
        let older = once(&log, topic, "p", &producer(1)).await.expect("again");
        assert_eq!(older, (None, true), "where it landed isn't kept");
        assert_eq!(
            once(&log, topic, "k", &key(1)).await.expect("again"),
            (Some(3), true)
        );
        let gap = once(&log, topic, "p", &producer(4))
            .await
            .expect_err("a gap");
        assert_eq!(gap.numbers, [("expected", 3), ("received", 4)]);
        assert_eq!(
            count(&log, topic).await,
            if round < 2 { 4 } else { 20_004 },
            "round {round}"
        );
        match round {
            0 => {}
            // The journal that held the marks is cut; what is left is what the manifest names.
            1 => {
                for start in (0..20_000).step_by(100) {
                    append(&log, topic, 0, &values(start..start + 100)).await;
                }
                log.settled().await.expect("durable");
                let first = first_journal_file(dir.path());
                log.seal().await.expect("sealed");
                assert_ne!(first_journal_file(dir.path()), first, "cut");
                assert_eq!(marks_objects(dir.path()).len(), 1);
            }
            // As it is, and over a manifest that changes nothing about the marks.
            _ => log.seal().await.expect("sealed"),
        }
        log.close().await.expect("closed");
        log = open(dir.path()).await;
    }
    let new = once(&log, topic, "p", &producer(3))
        .await
        .expect("the next");
    assert_eq!(new, (Some(20_004), false));
    let before = marks_objects(dir.path());
    append(&log, topic, 0, &values(0..1000)).await;
    log.seal().await.expect("sealed");
    let after = marks_objects(dir.path());
    assert_eq!(after.len(), 1, "older ones are removed");
    assert_ne!(after, before);
}

/// So many that they take more than the journal has grown by.
async fn many_keys(log: &Log, topic: TopicId, dir: &Path) {
    for nth in 0..500 {
        let sequenced = log.commit(draft(topic, "k", &key(nth)));
        sequenced.map_err(|(error, _)| error).expect("new");
    }
    log.seal().await.expect("sealed");
    assert_eq!(marks_objects(dir).len(), 0, "they are in the journal");
}

/// Many marks are not written with every manifest; the journal that has them stays until they are.
#[tokio::test]
async fn marks_may_lag_behind_the_manifest_and_keep_their_journal() {
    let dir = tempfile::tempdir().expect("dir");
    let mut log = open(dir.path()).await;
    let topic = topic(&log, "t", 1).await;
    many_keys(&log, topic, dir.path()).await;
    let first = first_journal_file(dir.path());
    for round in 0..3 {
        log.close().await.expect("closed");
        log = open(dir.path()).await;
        for nth in [0, 250, 499] {
            let again = once(&log, topic, "k", &key(nth)).await.expect("again");
            assert_eq!(again, (Some(u64::try_from(nth).expect("small")), true));
        }
        match round {
            0 => {
                // It is no longer the newest file, and nothing but marks is only there.
                append(&log, topic, 0, &values(0..1)).await;
                log.seal().await.expect("sealed");
                assert_eq!(first_journal_file(dir.path()), first, "kept");
            }
            1 => {
                for start in (0..20_000).step_by(100) {
                    append(&log, topic, 0, &values(start..start + 100)).await;
                }
                log.seal().await.expect("sealed");
                assert_ne!(first_journal_file(dir.path()), first, "cut");
                assert_eq!(marks_objects(dir.path()).len(), 1);
            }
            _ => {}
        }
    }
}

fn first_journal_file(dir: &Path) -> std::path::PathBuf {
    let mut all = Disk::default().list(&dir.join("journal")).expect("list");
    all.retain(|path| path.extension().is_some_and(|ending| ending == "journal"));
    all.into_iter().min().expect("a journal file")
}

fn marks_objects(dir: &Path) -> Vec<std::path::PathBuf> {
    Disk::default()
        .list(&dir.join("objects/marks/0"))
        .expect("list")
}

#[tokio::test]
async fn marks_that_nobody_names_are_removed_and_damaged_ones_stop_the_start() {
    let dir = tempfile::tempdir().expect("dir");
    let log = open(dir.path()).await;
    let topic = topic(&log, "t", 1).await;
    once(&log, topic, "k", &key(1)).await.expect("new");
    log.seal().await.expect("sealed");
    log.close().await.expect("closed");
    let named = marks_objects(dir.path());
    assert_eq!(named.len(), 1);
    std::fs::write(
        named[0].with_file_name("00000000000000000009-00ff"),
        "left by a crash",
    )
    .expect("written");
    open(dir.path()).await.close().await.expect("closed");
    assert_eq!(marks_objects(dir.path()), named);
    std::fs::write(&named[0], "not what was written").expect("written");
    let refused = open_with(small(dir.path()), &mut States::default()).await;
    let error = refused.err().expect("refused");
    assert!(
        error.kind == ErrorKind::Corrupt && error.detail.contains("marks/0/"),
        "{error}"
    );
}

#[tokio::test]
async fn a_deleted_topics_marks_do_not_count_for_a_later_one_of_its_name() {
    let dir = tempfile::tempdir().expect("dir");
    let mut log = open(dir.path()).await;
    for round in 0..3 {
        let topic = topic(&log, "t", 1).await;
        for seq in 0..2 {
            let new = once(&log, topic, "p", &producer(seq)).await.expect("new");
            assert_eq!(new, (Some(seq), false), "round {round}");
        }
        assert_eq!(
            once(&log, topic, "k", &key(1)).await.expect("new"),
            (Some(2), false)
        );
        if round == 1 {
            log.seal().await.expect("sealed");
            assert_eq!(marks_objects(dir.path()).len(), 1);
        }
        log.delete_topic(&"t".parse().expect("name"))
            .await
            .expect("deleted");
        assert_eq!(
            log.inner.shard.with_sequencer(|s| s.marks().counts()),
            (0, 0)
        );
        if round == 1 {
            // What the manifest names still has the marks; the topic is known to neither it nor the journal.
            log.seal().await.expect("sealed");
            log.close().await.expect("closed");
            log = open(dir.path()).await;
            assert_eq!(
                log.inner.shard.with_sequencer(|s| s.marks().counts()),
                (0, 0)
            );
        }
    }
}

#[tokio::test]
async fn an_append_is_made_only_where_its_partition_ends_as_expected() {
    let dir = tempfile::tempdir().expect("dir");
    let log = open(dir.path()).await;
    let topic = topic(&log, "t", 2).await;
    let at = |partition| PartitionId { topic, partition };
    let conditional = |value: &str, partition: u32, end: u32| {
        let mut draft = draft(topic, value, &key(end.into()));
        draft.expect_end(at(partition), end.into());
        log.commit(draft).map_err(|(error, _)| error.code)
    };
    assert_eq!(
        conditional("a", 0, 0).map(|ticket| ticket.written[0].first),
        Ok(0)
    );
    assert!(conditional("a", 0, 0).expect("the same again").replayed);
    assert_eq!(conditional("b", 0, 2).err(), Some("tail-moved"));
    assert_eq!(conditional("b", 1, 1).err(), Some("tail-moved"));
    assert!(
        conditional("a", 2, 0)
            .expect("decided before the condition")
            .replayed
    );
    assert_eq!(conditional("b", 2, 7).err(), Some("partition-not-found"));
    assert_eq!(
        conditional("b", 0, 1).map(|ticket| ticket.written[0].first),
        Ok(1)
    );
    log.settled().await.expect("durable");
    assert_eq!(count(&log, topic).await, 2);
}

#[tokio::test]
async fn a_repetition_waits_for_the_disk_as_the_first_one_did() {
    let (durable, seen) = watch::channel(CommitSeq(4));
    let again = |commit| {
        let (time, written) = (0, Vec::new());
        let earlier = Earlier {
            commit,
            time,
            written,
        };
        Ticket::again(earlier, Some(seen.clone())).durable()
    };
    again(4).await.expect("durable already");
    let (mut waiting, lost) = (Box::pin(again(5)), again(6));
    assert!(futures::poll!(&mut waiting).is_pending());
    durable.send_replace(CommitSeq(5));
    waiting.await.expect("durable");
    drop(durable);
    assert_eq!(lost.await.expect_err("unknown").code, "journal-failed");
}

#[tokio::test]
async fn where_memory_is_enough_a_repetition_needs_no_disk_either() {
    let dir = tempfile::tempdir().expect("dir");
    let log = open(dir.path()).await;
    let settings = TopicSettings {
        ack: AckMode::Memory,
        ..TopicSettings::default()
    };
    let name = "t".parse().expect("name");
    let (topic, _) = log.create_topic(&name, settings).await.expect("created");
    for replayed in [false, true] {
        let draft = draft(topic.id, "p", &producer(0));
        let ticket = log
            .commit(draft)
            .map_err(|(error, _)| error)
            .expect("taken");
        assert_eq!(ticket.replayed, replayed);
        assert!(ticket.durable.is_none() && ticket.earlier.is_none());
    }
}

/// A host that is started again and again doesn't keep ever more journal for them.
#[tokio::test]
async fn marks_are_written_when_the_journal_of_several_runs_has_grown_enough() {
    let dir = tempfile::tempdir().expect("dir");
    let log = open(dir.path()).await;
    let topic = topic(&log, "t", 1).await;
    many_keys(&log, topic, dir.path()).await;
    log.close().await.expect("closed");
    for run in 0..3 {
        let log = open(dir.path()).await;
        append(&log, topic, 0, &values(0..400)).await;
        log.settled().await.expect("durable");
        log.close().await.expect("closed");
        open(dir.path()).await.close().await.expect("closed");
        let written = marks_objects(dir.path()).len();
        assert_eq!(written, usize::from(run > 0), "run {run}");
    }
}

#[tokio::test]
async fn a_mark_that_is_nowhere_stops_the_start() {
    let dir = tempfile::tempdir().expect("dir");
    let log = open(dir.path()).await;
    let topic = topic(&log, "t", 1).await;
    many_keys(&log, topic, dir.path()).await;
    log.close().await.expect("closed");
    let first = first_journal_file(dir.path());
    let log = open(dir.path()).await;
    append(&log, topic, 0, &values(0..1)).await;
    log.seal().await.expect("sealed");
    log.close().await.expect("closed");
    std::fs::remove_file(first).expect("removed");
    let refused = open_with(small(dir.path()), &mut States::default()).await;
    let error = refused.err().expect("refused");
    assert!(
        error.kind == ErrorKind::Corrupt && error.detail.contains("the mark of frame 501"),
        "{error}"
    );
}
