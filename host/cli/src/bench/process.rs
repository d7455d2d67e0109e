//! A server under measurement, as the kernel sees it.

use crate::failure::Result;
use serde_json::{Value, json};
use std::process::{Child, Command};

/// Clock ticks of a CPU second in `/proc`, on every Linux.
const TICKS: f64 = 100.0;
/// Fields of processor time in a `stat` of `/proc`: user and system, then those of children that ended.
const ALONE: usize = 2;
/// See [`ALONE`].
const WITH_CHILDREN: usize = 4;

/// A process that is killed if dropped: what it leaves is thrown away, so it need not end in order.
pub(super) struct Process(pub(super) Child);

impl Process {
    pub(super) fn spawn(command: &mut Command) -> Result<Self> {
        Ok(Self(command.spawn()?))
    }

    /// Processor time used so far, that of its children too.
    pub(super) fn cpu_seconds(&self) -> f64 {
        seconds(&self.proc("stat"), WITH_CHILDREN)
    }

    /// Processor time of the threads whose names begin so.
    pub(super) fn cpu_seconds_of(&self, name: &str) -> f64 {
        let threads = format!("/proc/{}/task", self.0.id());
        let threads = std::fs::read_dir(threads).into_iter().flatten().flatten();
        let stats = threads.filter_map(|it| std::fs::read_to_string(it.path().join("stat")).ok());
        let called = |stat: &String| {
            stat.split('(')
                .nth(1)
                .is_some_and(|it| it.starts_with(name))
        };
        stats.filter(called).map(|stat| seconds(&stat, ALONE)).sum()
    }

    /// Resident memory now and at most so far, in bytes.
    pub(super) fn memory(&self) -> Value {
        let status = self.proc("status");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kib = line.split_whitespace().next()?.parse::<u64>().ok()?;
            Some(kib << 10)
        };
        json!({"now": field("VmRSS:"), "most": field("VmHWM:")})
    }

    /// Threads it has now.
    pub(super) fn threads(&self) -> usize {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.0.id()));
        threads.map_or(0, Iterator::count)
    }

    fn proc(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.0.id())).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Processor time in a `stat` of `/proc`.
fn seconds(stat: &str, fields: usize) -> f64 {
    // Fields are counted behind the name, which may hold anything, in brackets.
    let behind = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = behind.split_whitespace().skip(11).take(fields);
    let ticks: f64 = ticks.filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / TICKS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_found_behind_any_name_and_that_of_children_counts_where_asked_for() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4 1 2 3 4 150 50 300 500 20 0 1";
        assert!((seconds(stat, ALONE) - 2.0).abs() < 1e-9);
        assert!((seconds(stat, WITH_CHILDREN) - 10.0).abs() < 1e-9);
        assert!(seconds("", ALONE).abs() < 1e-9);
    }
}
