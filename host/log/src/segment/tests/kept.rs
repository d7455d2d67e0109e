//! What is kept of segments that were read.

use super::*;
use tidemill_env::files::BlockCache;

/// Reads all of a segment in steps of 256 KiB, counting requests and bytes.
async fn catch_up(stored: &Stored, segments: &Segments) -> (Vec<Full>, u64, u64) {
    let limit = ReadLimit {
        events: usize::MAX,
        bytes: 256 << 10,
    };
    stored.counting.take();
    let (mut from, mut seen) = (stored.meta.first, Vec::new());
    while from < stored.meta.end {
        let got = full(
            &segments
                .read(&stored.meta, from, limit)
                .await
                .expect("read"),
        );
        from = got.last().expect("more").offset + 1;
        seen.extend(got);
    }
    let (requests, bytes) = stored.counting.take();
    (seen, requests, bytes)
}

#[tokio::test]
async fn what_was_read_is_kept_in_memory_and_on_the_disk() {
    let all = noise(0, 60_000);
    let stored = store(Format::Bytes, &[batch(&all)]).await;
    let size = stored.meta.bytes;
    assert!(size > 16 << 20, "{size}");
    let objects = Objects::new(stored.counting.clone());

    let memory = Segments::new(objects.clone(), 128 << 20, None);
    let (seen, requests, bytes) = catch_up(&stored, &memory).await;
    assert!(seen == all);
    assert!(
        requests < 40 && bytes < size * 3 / 2,
        "{requests} requests, {bytes} of {size} bytes"
    );
    let (seen, requests, _) = catch_up(&stored, &memory).await;
    assert!(seen == all && requests == 0, "{requests} requests");

    // With little memory what is decoded ahead is still there when it is wanted.
    let little = Segments::new(objects.clone(), 4 << 20, None);
    let (seen, _, bytes) = catch_up(&stored, &little).await;
    assert!(
        seen == all && bytes < size * 3 / 2,
        "{bytes} of {size} bytes"
    );

    // Hardly any memory: each step decodes its unit, the disk has what was fetched.
    let dir = tempfile::tempdir().expect("dir");
    let cache = BlockCache::open(dir.path(), 64 << 20).expect("cache");
    let disk = Segments::new(objects.clone(), 16 << 10, Some(cache.clone()));
    let (seen, requests, bytes) = catch_up(&stored, &disk).await;
    assert!(seen == all);
    assert!(
        requests < 8 && bytes <= size,
        "{requests} requests, {bytes} of {size} bytes"
    );
    assert!(cache.bytes() >= size);
    let (seen, requests, _) = catch_up(&stored, &disk).await;
    assert!(seen == all && requests == 0, "{requests} requests");

    // A damaged block is fetched again and never believed.
    for file in std::fs::read_dir(dir.path()).expect("folder") {
        let path = file.expect("file").path();
        let mut bytes = std::fs::read(&path).expect("read");
        bytes[1000] ^= 1;
        std::fs::write(&path, bytes).expect("write");
    }
    let (seen, requests, _) = catch_up(&stored, &disk).await;
    assert!(seen == all && requests > 0);

    // What is deleted is forgotten everywhere.
    disk.forget(&stored.meta.path).await;
    stored.memory.tamper("a.parquet", None);
    assert_eq!(cache.bytes(), 0);
    let gone = disk.read(&stored.meta, 0, ALL).await.expect_err("gone");
    assert_eq!(gone.code, ABSENT);
}

#[tokio::test]
async fn a_small_cache_holds_what_was_read_last() {
    let all = noise(0, 30_000);
    let stored = store(Format::Bytes, &[batch(&all)]).await;
    let objects = Objects::new(stored.counting.clone());
    let dir = tempfile::tempdir().expect("dir");
    let cache = BlockCache::open(dir.path(), 3 << 20).expect("cache");
    let segments = Segments::new(objects, 4 << 20, Some(cache.clone()));
    let (seen, _, _) = catch_up(&stored, &segments).await;
    assert!(seen == all);
    assert!(cache.bytes() <= 3 << 20, "{}", cache.bytes());
}

/// A page of the log has a share of each partition: what was decoded for the later ones must not drive out what
/// was decoded for the first.
#[tokio::test]
async fn segments_that_are_read_side_by_side_are_decoded_once() {
    const SEGMENTS: usize = 8;
    let all = noise(0, 20_000);
    let stored = store(Format::Bytes, &[batch(&all)]).await;
    let object = stored.memory.tamper("a.parquet", None).expect("stored");
    let mut metas = Vec::new();
    for nth in 0..SEGMENTS {
        let path = format!("{nth}.parquet");
        stored.memory.tamper(&path, Some(object.clone()));
        metas.push(SegmentMeta {
            path,
            ..stored.meta.clone()
        });
    }
    let objects = Objects::new(stored.counting.clone());
    let segments = Segments::new(objects, 24 << 20, None);
    let limit = ReadLimit {
        events: 1250,
        bytes: 256 << 10,
    };
    let mut from = [0; SEGMENTS];
    stored.counting.take();
    while from.iter().any(|from| *from < 20_000) {
        for (meta, from) in metas.iter().zip(&mut from) {
            let read = segments.read(meta, *from, limit).await.expect("read");
            *from += read.iter().map(Batch::len).sum::<usize>() as u64;
        }
    }
    let (_, bytes) = stored.counting.take();
    let size = stored.meta.bytes * SEGMENTS as u64;
    assert!(bytes < size * 3 / 2, "{bytes} of {size} bytes");
}
