//! Snapshots through object storage, and their bytes.

use super::bucket::{bucket, opened, random};
use super::{over, packed, restored, scope, set, stored};
use crate::behind::Map;
use crate::{Change, Changes};
use bytes::Bytes;
use tidemill_env::objects::Created;
use tidemill_types::CommitSeq;

#[tokio::test]
async fn a_snapshot_goes_to_storage_and_back() {
    let (_, objects) = bucket();
    let dirs = [
        tempfile::tempdir().expect("folder"),
        tempfile::tempdir().expect("folder"),
    ];
    let store = opened(&dirs[0]);
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

    let copy = opened(&dirs[1]);
    assert_eq!(
        copy.restore(&objects, &path).await.expect("restores"),
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

/// Looked up one by one, or picked out of all: where a tenth changed, it is the latter.
#[tokio::test]
async fn the_next_snapshot_has_many_changes_and_what_was_removed() {
    let (bucket, objects) = bucket();
    let dirs = [
        tempfile::tempdir().expect("folder"),
        tempfile::tempdir().expect("folder"),
    ];
    let (store, scope) = (opened(&dirs[0]), scope(1, 0));
    let change = |commit: u64, keys: &mut dyn Iterator<Item = u64>| {
        let mut changes = Changes::new(scope);
        for key in keys {
            let (key, value) = (key.to_be_bytes(), random(key ^ commit));
            changes.push(match commit > 1 && key[7] % 3 == 0 {
                true => Change::Delete { slot: 0, key: &key },
                false => Change::Set {
                    slot: 0,
                    key: &key,
                    value: &value,
                },
            });
        }
        let applied = store.apply(CommitSeq(commit), changes.as_bytes());
        applied.expect("applies");
        store.durable(CommitSeq(commit));
    };
    change(1, &mut (0..5000));
    store.snapshot(&objects, "one").await.expect("taken");
    let whole: usize = bucket.listed().values().sum();
    // Some are beyond what there was, and some of those are removed without having been there.
    change(2, &mut (0..5100).step_by(10));
    let (second, _) = store.snapshot(&objects, "two").await.expect("taken");
    let added = bucket.listed().values().sum::<usize>() - whole;
    assert!(added < whole / 5, "{added} of {whole}");
    let copy = opened(&dirs[1]);
    copy.restore(&objects, &second).await.expect("restores");
    let state = stored(store.engine());
    assert!(state.len() < 5000, "some were removed");
    assert_eq!(stored(copy.engine()), state);
}

#[tokio::test]
async fn the_next_snapshot_has_what_changed_and_shares_the_rest() {
    let (bucket, objects) = bucket();
    let dirs = [
        tempfile::tempdir().expect("folder"),
        tempfile::tempdir().expect("folder"),
    ];
    let store = opened(&dirs[0]);
    for key in 0..5000u64 {
        set(
            &store,
            key + 1,
            scope(1, 0),
            &key.to_be_bytes(),
            &random(key),
        );
    }
    store.durable(CommitSeq(5000));
    let (first, _) = store.snapshot(&objects, "one").await.expect("taken");
    let whole = bucket.listed();
    assert_eq!(whole.len(), 2, "one object and the index: {whole:?}");

    let mut changes = Changes::new(scope(1, 0));
    let gone = 17u64.to_be_bytes();
    changes.push(Change::Delete {
        slot: 0,
        key: &gone,
    });
    changes.push(Change::Set {
        slot: 0,
        key: b"new",
        value: b"1",
    });
    store
        .apply(CommitSeq(5001), changes.as_bytes())
        .expect("applies");
    store.durable(CommitSeq(5001));
    let (second, commit) = store.snapshot(&objects, "two").await.expect("taken");
    assert_eq!(commit, CommitSeq(5001));
    let both = bucket.listed();
    let added: usize = both.values().sum::<usize>() - whole.values().sum::<usize>();
    assert_eq!(both.len(), 4);
    assert!(added < 1000, "only what changed: {added} bytes");

    // The index of the first one goes; its object is the second one's, too.
    store.retire(&objects, &first).await.expect("retired");
    assert_eq!(bucket.listed().len(), 3);
    let copy = opened(&dirs[1]);
    assert_eq!(
        copy.restore(&objects, &second).await.expect("restores"),
        commit
    );
    let state = stored(store.engine());
    assert_eq!((state.len(), stored(copy.engine())), (5000, state));

    // Nothing more, a function gone, and what nobody can tell any more.
    let (third, _) = store.snapshot(&objects, "three").await.expect("taken");
    store.retire(&objects, &second).await.expect("retired");
    assert_eq!(bucket.listed().len(), 3, "the same objects, another index");
    store.forget(scope(1, 0).function);
    set(&store, 5002, scope(2, 0), b"k", b"v");
    store.durable(CommitSeq(5002));
    let (fourth, _) = store.snapshot(&objects, "four").await.expect("taken");
    store.retire(&objects, &third).await.expect("retired");
    let left = bucket.listed();
    assert_eq!(left.len(), 4, "what is gone needs no object: {left:?}");
    copy.restore(&objects, &fourth).await.expect("restores");
    assert_eq!(stored(copy.engine()), stored(store.engine()));

    // What a process left behind that ended before the manifest named it.
    let (orphan, _) = store.snapshot(&objects, "five").await.expect("taken");
    assert_ne!(orphan, fourth);
    for (upto, objects_left) in [(5001, 5), (5002, 4)] {
        let swept = store.sweep(&objects, Some(&fourth), CommitSeq(upto)).await;
        swept.expect("swept");
        assert_eq!(bucket.listed().len(), objects_left);
    }
    assert_eq!(bucket.listed(), left);

    // A part is missing: nothing is made up.
    let part = left.keys().find(|path| **path != fourth).expect("a part");
    objects.delete(part).await.expect("deleted");
    let refused = copy.restore(&objects, &fourth).await.expect_err("missing");
    assert!(refused.to_string().contains(part.as_str()), "{refused}");
}

#[tokio::test]
async fn a_snapshot_of_one_object_from_before_there_were_indexes_is_taken() {
    let (_, objects) = bucket();
    let mut bytes = small().to_vec();
    bytes[8] = 1;
    let checked = crc_fast::crc32_iscsi(&bytes[..42]).to_le_bytes();
    bytes[42..46].copy_from_slice(&checked);
    let path = "snapshots/00000000000000000003-old";
    let created = objects.create(path, bytes.into()).await.expect("created");
    assert_eq!(created, Created::Ours);
    let dir = tempfile::tempdir().expect("folder");
    let store = opened(&dir);
    let commit = store.restore(&objects, path).await.expect("restores");
    assert_eq!(commit, CommitSeq(3));
    assert_eq!(stored(store.engine()).len(), 2);
}

fn small() -> Bytes {
    let store = over(&Map::default(), 1 << 20);
    set(&store, 1, scope(1, 0), b"a", b"1");
    set(&store, 2, scope(1, 2), b"b", b"22");
    store.durable(CommitSeq(3));
    let (view, commit) = store.engine().freeze().expect("works");
    let mut objects = packed(view, commit, "n0");
    assert_eq!(objects.len(), 1);
    objects.remove(0)
}

#[test]
fn golden_bytes_of_version_2() {
    let bytes = small();
    #[rustfmt::skip]
    let header = [
        b't', b'm', b's', b't', b'a', b't', b'e', 0,  2, 0,  2, 0,  1, 0, 0, 0,
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
            let refusal = restored(&store, None, vec![bad.into()]).expect_err("refused");
            assert!(
                refusal.detail.starts_with("state snapshot, byte "),
                "{refusal}"
            );
        }
        let cut = bytes.slice(..at);
        assert!(restored(&store, None, vec![cut]).is_err(), "cut at {at}");
    }
    let longer = [&bytes[..], b"x"].concat().into();
    assert!(restored(&store, None, vec![longer]).is_err());
    assert_eq!(store.get(scope(5, 0), 0, b"mine"), Ok(Some("1".into())));
    let good = restored(&store, None, vec![bytes]);
    assert_eq!(good.expect("good"), CommitSeq(3));
}
