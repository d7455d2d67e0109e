//! How the memory that is planned with is shared out.

use super::{Config, refused};
use std::collections::BTreeSet;
use tidemill_types::{ByteSize, Result};

/// A setting of memory and which part of the whole it takes at most, unless it is given.
struct Share {
    name: &'static str,
    part: u64,
    /// How often it may be taken.
    times: u64,
    of: fn(&mut Config) -> &mut ByteSize,
}

const SHARES: [Share; 11] = [
    Share {
        name: "log.tail_bytes",
        part: 8,
        times: 1,
        of: |config| &mut config.log.tail_bytes,
    },
    Share {
        name: "log.in_flight_bytes",
        part: 16,
        times: 1,
        of: |config| &mut config.log.in_flight_bytes,
    },
    // Once for what arrives, once for what leaves.
    Share {
        name: "http.memory_bytes",
        part: 16,
        times: 2,
        of: |config| &mut config.http.memory_bytes,
    },
    Share {
        name: "state.memory_bytes",
        part: 8,
        times: 1,
        of: |config| &mut config.state.memory_bytes,
    },
    Share {
        name: "functions.memory_bytes",
        part: 32,
        times: 1,
        of: |config| &mut config.functions.memory_bytes,
    },
    Share {
        name: "functions.replay_bytes",
        part: 32,
        times: 1,
        of: |config| &mut config.functions.replay_bytes,
    },
    Share {
        name: "log.compaction_bytes",
        part: 16,
        times: 1,
        of: |config| &mut config.log.compaction_bytes,
    },
    Share {
        name: "log.reading_bytes",
        part: 16,
        times: 1,
        of: |config| &mut config.log.reading_bytes,
    },
    Share {
        name: "log.producer_bytes",
        part: 64,
        times: 1,
        of: |config| &mut config.log.producer_bytes,
    },
    Share {
        name: "log.idempotency_bytes",
        part: 16,
        times: 1,
        of: |config| &mut config.log.idempotency_bytes,
    },
    Share {
        name: "state.dirty_bytes",
        part: 32,
        times: 1,
        of: |config| &mut config.state.dirty_bytes,
    },
];

/// The least that a host can be run with: what sealing, reading and the program itself take, twice.
const LEAST: ByteSize = ByteSize::mib(128);

impl Config {
    /// Shares out the memory among the settings that aren't `given`.
    ///
    /// # Errors
    /// `invalid-config` when it is too little, or too little for what is given.
    pub(super) fn plan_memory(
        &mut self,
        machine: Option<u64>,
        given: &BTreeSet<String>,
    ) -> Result<()> {
        let limit = match (self.memory_limit, machine) {
            (ByteSize(0), None) => return Ok(()),
            (ByteSize(0), Some(machine)) => ByteSize((machine / 4).max(LEAST.0)),
            (limit, _) => limit,
        };
        if limit < LEAST {
            return Err(refused(format!(
                "memory.limit = \"{limit}\": a host needs at least {LEAST}"
            )));
        }
        let mut planned = 0;
        for share in SHARES {
            let size = (share.of)(self);
            if !given.contains(share.name) {
                size.0 = size.0.min(limit.0 / share.part);
            }
            planned += size.0 * share.times;
        }
        if planned > limit.0 / 4 * 3 {
            let names: Vec<&str> = SHARES.iter().map(|share| share.name).collect();
            return Err(refused(format!(
                "{} take {} together, and of memory.limit = \"{limit}\" three quarters are for them: make one of them smaller, or the limit larger",
                names.join(", "),
                ByteSize(planned)
            )));
        }
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
        let config = planned(0, Some(16 << 30), &[]).unwrap();
        assert_eq!(config, Config::default());
        assert_eq!(planned(0, None, &[]).unwrap(), Config::default());
    }

    #[test]
    fn a_small_limit_is_shared_out_and_what_is_given_stays() {
        let small = planned(0, Some(1 << 30), &[]).unwrap();
        assert_eq!(small.log.tail_bytes, ByteSize::mib(32));
        let config = planned(256 << 20, Some(1 << 40), &[("log.tail_bytes", "36MiB")]).unwrap();
        assert_eq!(config.log.tail_bytes, ByteSize::mib(36));
        assert_eq!(config.log.in_flight_bytes, ByteSize::mib(16));
        assert_eq!(config.http.memory_bytes, ByteSize::mib(16));
        assert_eq!(config.state.memory_bytes, ByteSize::mib(32));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let too_much = [("state.memory_bytes", "1GiB")];
        for (limit, set, says) in [
            (1 << 30, &too_much[..], "three quarters"),
            (100 << 20, &[], "at least 128MiB"),
        ] {
            let error = planned(limit, None, set).expect_err("refused");
            assert_eq!(error.code, "invalid-config");
            assert!(error.detail.contains(says), "{error}");
        }
    }
}
