//! The whole log in one thread over a simulated disk and bucket, driven and broken as a seed decides,
//! beside a model of what must be true:
//! what is acknowledged is there, what retention and compaction may not take is there, a start never
//! goes back.

mod broken;
mod check;
mod keeping;
mod model;
mod outside;
mod world;

use broken::Faulty;
use world::World;

/// Seeds of one run of the suite.
const SEEDS: u64 = 1000;
/// Runs are independent of each other.
const THREADS: u64 = 4;

#[test]
fn nothing_acknowledged_is_lost_and_nothing_comes_twice() {
    let more = std::env::var("TIDEMILL_TEST_SEEDS").ok();
    let seeds = more.map_or(SEEDS, |n| n.parse().expect("a number of seeds"));
    std::thread::scope(|scope| {
        for first in 0..THREADS {
            scope.spawn(move || {
                for seed in (first..seeds).filter(|seed| seed % THREADS == first) {
                    if let Err(wrong) = World::new(seed, Faulty::Nothing).run() {
                        panic!("seed {seed}: {wrong}");
                    }
                }
            });
        }
    });
}

#[test]
fn the_same_seed_twice_ends_the_same() {
    for seed in 0..20 {
        let run = || {
            let mut world = World::new(seed, Faulty::Nothing);
            world.run().expect("a good run");
            world.trace()
        };
        let (first, second) = (run(), run());
        assert!(first.len() > 20);
        assert_eq!(first, second, "seed {seed}");
    }
}

#[test]
fn events_are_really_taken_away_and_segments_merged() {
    let (mut compacted, mut retained, mut merged) = (0, 0, 0);
    for seed in 0..100 {
        let mut world = World::new(seed, Faulty::Nothing);
        world.run().expect("a good run");
        compacted += world.taken.compacted;
        retained += world.taken.retained;
        merged += world.taken.merged;
    }
    assert!(merged > 10, "{merged} segments less by merging");
    assert!(compacted > 100, "{compacted} events by compaction");
    assert!(retained > 50, "{retained} events by retention");
}

#[test]
fn every_broken_promise_is_found_out() {
    let broken = [
        (Faulty::Syncs, 40, 20),
        (Faulty::FolderSyncs, 100, 10),
        (Faulty::Deletes, 200, 10),
        (Faulty::Fences, 40, 10),
        (Faulty::Ambiguity, 200, 10),
    ];
    std::thread::scope(|scope| {
        for (faulty, seeds, least) in broken {
            scope.spawn(move || {
                let noticed = |seed: &u64| World::new(*seed, faulty).run().is_err();
                let found = (0..seeds).filter(noticed).count();
                assert!(found >= least, "{faulty:?}: {found} of {seeds} noticed");
            });
        }
    });
}
