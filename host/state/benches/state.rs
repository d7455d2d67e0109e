//! Get and apply in memory, write-back and restore of the store on disk.
//!
//! Run with `cargo bench -p tidemill-state`.

#![expect(clippy::expect_used, reason = "a benchmark that cannot go on ends")]

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use tidemill_env::metrics::Metrics;
use tidemill_state::{Change, Changes, Scope, Settings, Store};
use tidemill_types::{ByteSize, CommitSeq, FunctionId};

/// Changes or reads of one transaction.
const BATCH: u64 = 256;
const VALUE_BYTES: usize = 100;
const SCOPE: Scope = Scope {
    function: FunctionId(1),
    partition: 0,
};

fn main() {
    divan::main();
}

struct Filled {
    store: Store,
    keys: u64,
    /// Pseudo-random walk over the keys.
    at: u64,
    commit: u64,
    _dir: tempfile::TempDir,
}

impl Filled {
    fn new(keys: u64) -> Self {
        let dir = tempfile::tempdir().expect("folder");
        let settings = Settings {
            dir: dir.path().into(),
            memory_bytes: ByteSize::mib(2048),
            dirty_bytes: ByteSize::mib(2048),
            store_bytes: ByteSize::mib(64),
            snapshot_memory: ByteSize::mib(64),
        };
        let store = Store::open(settings, &Metrics::default()).expect("opens");
        let mut filled = Self {
            store,
            keys,
            at: 1,
            commit: 0,
            _dir: dir,
        };
        for first in (0..keys).step_by(256) {
            let section = section((first..keys.min(first + BATCH)).map(key));
            filled.apply(&section);
        }
        filled
    }

    fn next_key(&mut self) -> [u8; 16] {
        self.at = self
            .at
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        key((self.at >> 33) % self.keys)
    }

    fn apply(&mut self, section: &Changes) {
        self.commit += 1;
        self.store
            .apply(CommitSeq(self.commit), section.as_bytes())
            .expect("applies");
    }
}

fn key(at: u64) -> [u8; 16] {
    let mut key = *b"key-0000-0000000";
    key[8..].copy_from_slice(&at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

fn section(keys: impl Iterator<Item = [u8; 16]>) -> Changes {
    let mut section = Changes::new(SCOPE);
    for key in keys {
        section.push(Change::Set {
            slot: 0,
            key: &key,
            value: &[7; VALUE_BYTES],
        });
    }
    section
}

#[divan::bench(args = [10_000, 1_000_000], sample_count = 50, sample_size = 20)]
fn get(bencher: Bencher<'_, '_>, keys: u64) {
    let mut filled = Filled::new(keys);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            let key = filled.next_key();
            black_box(filled.store.get(SCOPE, 0, &key)).expect("in memory");
        }
    });
}

#[divan::bench(args = [10_000, 1_000_000], sample_count = 50, sample_size = 20)]
fn read_a_batch(bencher: Bencher<'_, '_>, keys: u64) {
    let mut filled = Filled::new(keys);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        let wanted: Vec<_> = (0..BATCH).map(|_| filled.next_key()).collect();
        filled.store.read(SCOPE, |reader| {
            for key in &wanted {
                black_box(reader.get(0, key)).expect("in memory");
            }
        });
    });
}

#[divan::bench(args = [10_000, 1_000_000], sample_count = 50, sample_size = 20)]
fn apply(bencher: Bencher<'_, '_>, keys: u64) {
    let mut filled = Filled::new(keys);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        let wanted: Vec<_> = (0..BATCH).map(|_| filled.next_key()).collect();
        let section = section(wanted.into_iter());
        filled.apply(&section);
    });
}

/// All keys changed once, until the store behind has them: no change coalesces with another.
#[divan::bench(args = [10_000, 1_000_000], sample_count = 3, sample_size = 1)]
fn write_back(bencher: Bencher<'_, '_>, keys: u64) {
    bencher
        .counter(ItemsCount::new(keys))
        .with_inputs(|| Filled::new(keys))
        .bench_local_values(|filled| {
            filled.store.durable(CommitSeq(filled.commit));
            filled.store.close();
            assert_eq!(filled.store.stats().written, CommitSeq(filled.commit));
            filled
        });
}

/// The same few keys changed over and over: changes coalesce.
#[divan::bench(sample_count = 3, sample_size = 1)]
fn write_back_of_hot_keys(bencher: Bencher<'_, '_>) {
    let prepare = || {
        let mut filled = Filled::new(10_000);
        for _ in 0..4000 {
            let wanted: Vec<_> = (0..BATCH).map(|_| filled.next_key()).collect();
            filled.apply(&section(wanted.into_iter()));
        }
        filled
    };
    bencher
        .counter(ItemsCount::new(BATCH * 4000))
        .with_inputs(prepare)
        .bench_local_values(|filled| {
            filled.store.durable(CommitSeq(filled.commit));
            filled.store.close();
            filled
        });
}
