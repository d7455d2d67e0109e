//! How the memory that replays may take is shared out: among those that run, and of each among its parts.

use tidemill_log::ReadLimit;
use tidemill_types::ByteSize;

/// Replays that may run at once: each takes what live functions leave of the cores.
const RUNNING: u64 = 4;
/// With less than this for each, fewer run at once.
const LEAST: u64 = 16 << 20;
/// A share of a replay is divided into so many parts: two each for live state, for the store behind it and for what
/// its lanes have at hand, one for changed state that waits, which is there once more while it is written.
const PARTS: u64 = 8;
/// Partitions that are run side by side at most.
const LANES: u64 = 16;
/// What a lane has at hand: what it reads, and once more what that comes to.
const BESIDE: u64 = 2;
/// A lane reads no more than this at once, and no less.
const CHUNK: std::ops::RangeInclusive<u64> = (256 << 10)..=(4 << 20);
/// Events it reads at once.
const EVENTS: usize = 16 << 10;

/// How many replays may run at once with so much memory for all of them.
pub(super) fn running(all: ByteSize) -> usize {
    ByteSize((all.0 / LEAST).clamp(1, RUNNING)).as_usize()
}

/// What a run may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RunMemory {
    /// Live values of state.
    pub(crate) live: ByteSize,
    /// Changed state that waits to be written.
    pub(crate) dirty: ByteSize,
    /// Partitions that are run side by side.
    pub(crate) lanes: usize,
    /// What a lane reads at once.
    pub(crate) chunk: ReadLimit,
}

impl RunMemory {
    /// One of `runs` runs of a replay.
    pub(super) fn of(all: ByteSize, runs: u64) -> Self {
        let each = all.0 / running(all) as u64 / runs;
        let part = each / PARTS;
        let chunk = (2 * part / (4 * BESIDE)).clamp(*CHUNK.start(), *CHUNK.end());
        let lanes = (2 * part / (chunk * BESIDE)).clamp(1, LANES);
        Self {
            live: ByteSize(2 * part),
            dirty: ByteSize(part),
            lanes: ByteSize(lanes).as_usize(),
            chunk: ReadLimit {
                events: EVENTS,
                bytes: ByteSize(chunk).as_usize(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_may_run_fit_together() {
        for mib in [16, 24, 40, 64, 256, 1024, 8192] {
            let all = ByteSize::mib(mib);
            for runs in [1, 2] {
                let run = RunMemory::of(all, runs);
                let lanes = run.lanes as u64 * run.chunk.bytes as u64 * BESIDE;
                let store = run.live.0;
                let one = run.live.0 + 2 * run.dirty.0 + store + lanes;
                let together = one * runs * running(all) as u64;
                assert!(together <= all.0, "{together} of {mib} MiB: {run:?}");
                assert!(run.lanes >= 2, "{run:?}");
            }
        }
        assert_eq!(
            [8, 16, 40, 64, 4096].map(|mib| running(ByteSize::mib(mib))),
            [1, 1, 2, 4, 4]
        );
    }
}
