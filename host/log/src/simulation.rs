//! The whole log in one thread over a simulated disk and bucket, driven and broken as a seed decides,
//! beside a model of what must be true:
//! what is acknowledged is there, what retention and compaction may not take is there, a start never
//! goes back.

mod check;
mod keeping;
mod model;
mod world;

use world::{Faulty, World};

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
    assert!(retained > 100, "{retained} events by retention");
}

#[test]
fn a_disk_whose_syncs_do_nothing_is_found_out() {
    let found = (0..100)
        .filter(|seed| World::new(*seed, Faulty::Syncs).run().is_err())
        .count();
    assert!(found > 50, "only {found} of 100 runs noticed");
}

#[test]
fn objects_that_are_deleted_before_the_manifest_are_found_out() {
    let found = (0..200)
        .filter(|seed| World::new(*seed, Faulty::Deletes).run().is_err())
        .count();
    assert!(found > 10, "only {found} of 200 runs noticed");
}
