//! Snapshots through object storage, and their bytes.

use super::{over, scope, set, stored};
use crate::behind::Map;
use crate::{Settings, Store, snapshot};
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tidemill_env::metrics::Metrics;
use tidemill_env::objects::{Backend, Created, Objects};
use tidemill_types::{ByteSize, CommitSeq, Error, Result};

#[derive(Default)]
struct Bucket(Mutex<BTreeMap<String, Bytes>>);

#[async_trait]
impl Backend for Bucket {
    async fn get(&self, path: &str) -> Result<Bytes> {
        let objects = self.0.lock().expect("not poisoned");
        objects
            .get(path)
            .cloned()
            .ok_or_else(|| Error::not_found("object-not-found", path))
    }
    async fn get_range(&self, _: &str, _: Range<u64>) -> Result<Bytes> {
        Err(Error::internal("not needed"))
    }
    async fn size(&self, _: &str) -> Result<Option<u64>> {
        Err(Error::internal("not needed"))
    }
    async fn create(&self, path: &str, body: Bytes) -> Result<Created> {
        let mut objects = self.0.lock().expect("not poisoned");
        if objects.contains_key(path) {
            return Ok(Created::Exists);
        }
        objects.insert(path.to_owned(), body);
        Ok(Created::Ours)
    }
    async fn upload(&self, _: &str, _: &Path) -> Result<()> {
        Err(Error::internal("not needed"))
    }
    async fn list(&self, _: &str) -> Result<Vec<String>> {
        Err(Error::internal("not needed"))
    }
    async fn delete(&self, _: &str) -> Result<()> {
        Err(Error::internal("not needed"))
    }
}

fn settings(dir: &Path) -> Settings {
    Settings {
        dir: dir.to_owned(),
        memory_bytes: ByteSize::mib(64),
        dirty_bytes: ByteSize::mib(8),
    }
}

#[tokio::test]
async fn a_snapshot_goes_to_storage_and_back() {
    let objects = Objects::new(Arc::new(Bucket::default()));
    let dirs = [
        tempfile::tempdir().expect("folder"),
        tempfile::tempdir().expect("folder"),
    ];
    let store = Store::open(settings(dirs[0].path()), &Metrics::default()).expect("opens");
    for key in 0..5000u64 {
        set(
            &store,
            key + 1,
            scope(1, 0),
            &key.to_be_bytes(),
            &vec![7; 500],
        );
    }
    store.durable(CommitSeq(4000));
    let (path, commit) = store.snapshot(&objects, "abc").await.expect("taken");
    assert_eq!(
        (path.as_str(), commit),
        ("snapshots/00000000000000004000-abc", CommitSeq(4000))
    );
    assert_eq!(store.reflects(), CommitSeq(4000));
    let again = store.snapshot(&objects, "abc").await.expect("our own");
    assert_eq!(again.0, path);
    let taken = "snapshots/00000000000000004000-def";
    let theirs = objects.create(taken, "another's".into()).await;
    assert_eq!(theirs.expect("created"), Created::Ours);
    let refused = store.snapshot(&objects, "def").await.expect_err("exists");
    assert_eq!(refused.code, "object-exists");

    let copy = Store::open(settings(dirs[1].path()), &Metrics::default()).expect("opens");
    assert_eq!(
        copy.restore(objects.get(&path).await.expect("there"))
            .expect("restores"),
        CommitSeq(4000)
    );
    drop(store);
    assert_eq!(stored(copy.engine()).len(), 4000);
    assert_eq!(
        copy.list(scope(1, 0), 0, b"", Some(&3997u64.to_be_bytes()), 9)
            .expect("readable")
            .len(),
        2
    );
}

fn small() -> Bytes {
    let store = over(&Map::default(), 1 << 20);
    set(&store, 1, scope(1, 0), b"a", b"1");
    set(&store, 2, scope(1, 2), b"b", b"22");
    store.durable(CommitSeq(3));
    let (view, commit) = store.engine().freeze().expect("works");
    snapshot::write(&*view, commit, "n0").expect("packs")
}

#[test]
fn golden_bytes_of_version_1() {
    let bytes = small();
    #[rustfmt::skip]
    let header = [
        b't', b'm', b's', b't', b'a', b't', b'e', 0,  1, 0,  2, 0,  1, 0, 0, 0,
        3, 0, 0, 0, 0, 0, 0, 0,  2, 0, 0, 0, 0, 0, 0, 0,  41, 0, 0, 0, 0, 0, 0, 0,
        b'n', b'0',
    ];
    assert_eq!(bytes[..42], header);
    let head = &bytes[46..62];
    assert_eq!(head[4..12], [41, 0, 0, 0, 2, 0, 0, 0]);
    #[rustfmt::skip]
    let block = [
        11, 0, 0, 0, 1, 0, 0, 0,  0, 0, 0, 1, 0, 0, 0, 0, 0, 0, b'a', b'1',
        11, 0, 0, 0, 2, 0, 0, 0,  0, 0, 0, 1, 0, 0, 0, 2, 0, 0, b'b', b'2', b'2',
    ];
    assert_eq!(
        zstd::bulk::decompress(&bytes[62..], 1000).expect("zstd"),
        block
    );
    assert_eq!(bytes[42..46], crc_fast::crc32_iscsi(&header).to_le_bytes());
    assert_eq!(
        head[12..],
        crc_fast::crc32_iscsi(&[&head[..12], &bytes[62..]].concat()).to_le_bytes()
    );
}

#[test]
fn every_flipped_bit_and_every_cut_is_refused_and_nothing_is_lost() {
    let bytes = small();
    let store = over(&Map::default(), 1 << 20);
    set(&store, 1, scope(5, 0), b"mine", b"1");
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bad = bytes.to_vec();
            bad[at] ^= 1 << bit;
            let refusal = store.restore(bad.into()).expect_err("refused");
            assert!(
                refusal.detail.starts_with("state snapshot, byte "),
                "{refusal}"
            );
        }
        assert!(store.restore(bytes.slice(..at)).is_err(), "cut at {at}");
    }
    assert!(store.restore([&bytes[..], b"x"].concat().into()).is_err());
    assert_eq!(store.get(scope(5, 0), 0, b"mine"), Ok(Some("1".into())));
    assert_eq!(store.restore(bytes).expect("good"), CommitSeq(3));
}
