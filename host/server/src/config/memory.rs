//! How the memory that is planned with is shared out.

use super::{Config, refused};
use std::collections::BTreeSet;
use tidemill_types::{ByteSize, Result};

/// A setting of memory and how many parts of what there is to share it takes at most, unless it is given.
struct Share {
    name: &'static str,
    parts: u64,
    /// How often it may be taken.
    times: u64,
    /// With less a host doesn't get on.
    least: ByteSize,
    of: fn(&mut Config) -> &mut ByteSize,
}

const fn share(
    name: &'static str,
    (parts, times): (u64, u64),
    least: ByteSize,
    of: fn(&mut Config) -> &mut ByteSize,
) -> Share {
    Share {
        name,
        parts,
        times,
        least,
        of,
    }
}

const SHARES: [Share; 15] = [
    share("log.tail_bytes", (3, 1), ByteSize(0), |config| {
        &mut config.log.tail_bytes
    }),
    share("log.in_flight_bytes", (4, 1), ByteSize::mib(4), |config| {
        &mut config.log.in_flight_bytes
    }),
    share("log.reuse_bytes", (3, 1), ByteSize(0), |config| {
        &mut config.log.reuse_bytes
    }),
    share("log.sealing_bytes", (5, 1), ByteSize::mib(4), |config| {
        &mut config.log.sealing_bytes
    }),
    share("log.reading_bytes", (3, 1), ByteSize::mib(2), |config| {
        &mut config.log.reading_bytes
    }),
    share("log.compaction_bytes", (2, 1), ByteSize::mib(1), |config| {
        &mut config.log.compaction_bytes
    }),
    share("log.producer_bytes", (1, 1), ByteSize(0), |config| {
        &mut config.log.producer_bytes
    }),
    share("log.idempotency_bytes", (2, 1), ByteSize(0), |config| {
        &mut config.log.idempotency_bytes
    }),
    // Once for what arrives, once for what leaves.
    share("http.memory_bytes", (3, 2), ByteSize::mib(3), |config| {
        &mut config.http.memory_bytes
    }),
    share("state.memory_bytes", (9, 1), ByteSize::mib(4), |config| {
        &mut config.state.memory_bytes
    }),
    // What is being written back is there once more.
    share("state.dirty_bytes", (2, 2), ByteSize::mib(2), |config| {
        &mut config.state.dirty_bytes
    }),
    share("state.store_bytes", (9, 1), ByteSize::mib(8), |config| {
        &mut config.state.store_bytes
    }),
    share(
        "state.snapshot_memory",
        (3, 1),
        ByteSize::mib(3),
        |config| &mut config.state.snapshot_memory,
    ),
    share(
        "functions.memory_bytes",
        (6, 1),
        ByteSize::mib(6),
        |config| &mut config.functions.memory_bytes,
    ),
    share(
        "functions.replay_bytes",
        (3, 1),
        ByteSize::mib(3),
        |config| &mut config.functions.replay_bytes,
    ),
];

/// The program itself: its code, its threads, functions' machine code, and what each part takes however little it is
/// given.
const PROGRAM: ByteSize = ByteSize::mib(96);
/// An allocator keeps some of what was let go of: one byte in so many of all there is.
const KEPT: u64 = 5;

/// The least that a host can be run with.
const LEAST: ByteSize = ByteSize::mib(224);

fn limit(given: ByteSize, machine: Option<u64>) -> Option<ByteSize> {
    match (given, machine) {
        (ByteSize(0), machine) => machine.map(|machine| ByteSize((machine / 4).max(LEAST.0))),
        (given, _) => Some(given),
    }
}

/// To a size that can be read.
fn round(bytes: u64) -> u64 {
    const STEP: u64 = 64 << 10;
    bytes / STEP * STEP
}

/// What of a limit there is to share.
fn to_share(limit: ByteSize) -> u64 {
    (limit.0 - limit.0 / KEPT).saturating_sub(PROGRAM.0)
}

impl Config {
    /// The memory that the host keeps to: `memory.limit`, or its part of the machine's. `None` where neither is known.
    pub fn planned_memory(&self) -> Option<ByteSize> {
        limit(self.memory_limit, tidemill_env::machine_memory())
    }

    /// Shares out the memory among the settings that aren't `given`.
    ///
    /// # Errors
    /// `invalid-config` when it is too little, or too little for what is given.
    pub(super) fn plan_memory(
        &mut self,
        machine: Option<u64>,
        given: &BTreeSet<String>,
    ) -> Result<()> {
        let Some(limit) = limit(self.memory_limit, machine) else {
            return Ok(());
        };
        if limit < LEAST {
            return Err(refused(format!(
                "memory.limit = \"{limit}\": a host needs at least {LEAST}, {PROGRAM} of them for the program itself"
            )));
        }
        let all = to_share(limit);
        let parts: u64 = SHARES.iter().map(|share| share.parts * share.times).sum();
        let mut planned = 0;
        for share in SHARES {
            let size = (share.of)(self);
            if !given.contains(share.name) {
                size.0 = size
                    .0
                    .min(round(all / parts * share.parts))
                    .max(share.least.0);
            }
            planned += size.0 * share.times;
        }
        if planned > all {
            let names: Vec<&str> = SHARES.iter().map(|share| share.name).collect();
            return Err(refused(format!(
                "{} take {} together, and of memory.limit = \"{limit}\" {} are for them: make one of them smaller, or the limit larger",
                names.join(", "),
                ByteSize(planned),
                ByteSize(all)
            )));
        }
        // No instance is promised more than there is for all of them.
        let most = &mut self.functions.maxima.memory;
        *most = (*most).min(self.functions.memory_bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(limit: u64, machine: Option<u64>, set: &[(&str, &str)]) -> Result<Config> {
        let mut config = Config {
            memory_limit: ByteSize(limit),
            ..Config::default()
        };
        let mut given = BTreeSet::new();
        for (name, value) in set {
            config.set(name, value)?;
            given.insert((*name).to_owned());
        }
        config.plan_memory(machine, &given)?;
        Ok(config)
    }

    #[test]
    fn a_large_machine_leaves_the_defaults() {
        let config = planned(0, Some(128 << 30), &[]).unwrap();
        assert_eq!(config, Config::default());
        assert_eq!(planned(0, None, &[]).unwrap(), Config::default());
    }

    #[test]
    fn the_parts_of_any_limit_are_no_more_than_it_together() {
        let mib = |mib: u64| mib << 20;
        for limit in (224..=4096).step_by(32).chain([5000, 20_000]).map(mib) {
            let mut config = planned(limit, None, &[]).unwrap();
            let mut together = PROGRAM.0 + limit / KEPT;
            for share in SHARES {
                let size = *(share.of)(&mut config);
                assert!(size >= share.least, "{} of {limit} is {size}", share.name);
                together += size.0 * share.times;
            }
            assert!(together <= limit, "{together} of {limit}");
            assert!(
                limit > mib(1024) || together > limit / 20 * 19,
                "all is used: {together} of {limit}"
            );
            assert!(config.functions.maxima.memory <= config.functions.memory_bytes);
        }
    }

    #[test]
    fn a_small_limit_is_shared_out_and_what_is_given_stays() {
        let small = planned(0, Some(1 << 30), &[]).unwrap();
        assert!(small.log.tail_bytes < ByteSize::mib(16));
        let config = planned(256 << 20, Some(1 << 40), &[("log.tail_bytes", "4MiB")]).unwrap();
        assert_eq!(config.log.tail_bytes, ByteSize::mib(4));
        assert_eq!(config.state.memory_bytes, small.state.memory_bytes);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let too_much = [("state.memory_bytes", "1GiB")];
        for (limit, set, says) in [
            (1 << 30, &too_much[..], "are for them"),
            (223 << 20, &[], "at least 224MiB"),
        ] {
            let error = planned(limit, None, set).expect_err("refused");
            assert_eq!(error.code, "invalid-config");
            assert!(error.detail.contains(says), "{error}");
        }
    }
}
