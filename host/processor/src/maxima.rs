//! What a host allows functions at most, whatever their manifests want.

use crate::manifest::{Limits, Manifest};
use std::time::Duration;
use tidemill_types::{ByteSize, Error, Result, format_duration, limits};

/// Most that functions may be given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Maxima {
    /// Bytes of a component.
    pub component: ByteSize,
    /// Linear memory of an instance.
    pub memory: ByteSize,
    /// Time of a call.
    pub deadline: Duration,
    /// State of a function, over all partitions.
    pub state: ByteSize,
    /// Log lines of a function, in bytes a second.
    pub log: ByteSize,
}

impl Default for Maxima {
    fn default() -> Self {
        Self {
            component: ByteSize(limits::COMPONENT_BYTES as u64),
            memory: ByteSize::mib(1 << 10),
            deadline: Duration::from_secs(10),
            state: ByteSize::mib(64 << 10),
            log: ByteSize::mib(1),
        }
    }
}

impl Maxima {
    /// Refuses a component that is too large.
    ///
    /// # Errors
    /// `invalid-component`.
    pub(crate) fn check_component(&self, bytes: usize) -> Result<()> {
        let bytes = ByteSize(bytes as u64);
        if bytes <= self.component {
            return Ok(());
        }
        Err(Error::invalid(
            "invalid-component",
            format!(
                "too large: it has {bytes}, this host takes {} (functions.max_component)",
                self.component
            ),
        ))
    }

    /// Refuses a manifest that wants more than the host allows.
    ///
    /// # Errors
    /// `invalid-manifest` with the limit, what is wanted and what is allowed.
    pub(crate) fn check(&self, manifest: &Manifest) -> Result<()> {
        let wanted = &manifest.limits;
        let sizes = [
            ("memory", wanted.memory, "max_memory", self.memory),
            ("state_bytes", wanted.state_bytes, "max_state", self.state),
            ("log_bytes", wanted.log_bytes, "max_log", self.log),
        ];
        let refuse = |limit: &str, wants: &str, setting: &str, most: &str| {
            Err(Error::invalid(
                "invalid-manifest",
                format!(
                    "manifest, limits.{limit}: {wants} is more than this host allows a function (functions.{setting} = {most:?})"
                ),
            ))
        };
        for (limit, wants, setting, most) in sizes {
            // Who doesn't say how much memory it needs gets along with what there is.
            let is_said = limit != "memory" || wants != Limits::MEMORY;
            if wants > most && is_said {
                return refuse(limit, &wants.to_string(), setting, &most.to_string());
            }
        }
        if wanted.deadline > self.deadline {
            let (wants, most) = (wanted.deadline, self.deadline);
            let (wants, most) = (format_duration(wants), format_duration(most));
            return refuse("deadline", &wants, "max_deadline", &most);
        }
        Ok(())
    }

    /// What a function that was deployed under other settings gets: what it wanted, as far as it is allowed.
    pub(crate) fn clamp(&self, wanted: &Limits) -> Limits {
        Limits {
            memory: wanted.memory.min(self.memory),
            deadline: wanted.deadline.min(self.deadline),
            state_bytes: wanted.state_bytes.min(self.state),
            log_bytes: wanted.log_bytes.min(self.log),
            ..wanted.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn manifest(limits: serde_json::Value) -> Manifest {
        let source = json!({"input": [{"topic": "a"}], "limits": limits});
        Manifest::resolve(None, Some(&source), &"f".parse().expect("a name")).expect("valid")
    }

    #[test]
    fn what_is_wanted_beyond_the_maxima_is_refused_by_name_and_value() {
        let most = Maxima {
            state: ByteSize::mib(2048),
            ..Maxima::default()
        };
        assert!(most.check(&manifest(json!({}))).is_ok());
        for (limits, says) in [
            (
                json!({"memory": "2GiB"}),
                "limits.memory: 2GiB is more than this host allows a function (functions.max_memory = \"1GiB\")",
            ),
            (json!({"deadline": "11s"}), "limits.deadline: 11s is more"),
            (
                json!({"state_bytes": "3GiB"}),
                "functions.max_state = \"2GiB\"",
            ),
            (json!({"log_bytes": "2MiB"}), "functions.max_log = \"1MiB\""),
        ] {
            let wanted = manifest(limits);
            let refusal = most.check(&wanted).expect_err("refused");
            assert_eq!(refusal.code, "invalid-manifest");
            assert!(refusal.detail.contains(says), "{refusal}");
            let given = Manifest {
                limits: most.clamp(&wanted.limits),
                ..wanted
            };
            assert!(most.check(&given).is_ok(), "what is left of it is allowed");
        }
        let refusal = most.check_component((64 << 20) + 1).expect_err("refused");
        assert!(
            refusal.detail.contains("functions.max_component"),
            "{refusal}"
        );
    }
}
