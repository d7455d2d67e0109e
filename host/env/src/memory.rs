//! How much memory there is.

use std::fs;

/// Bytes of memory this process may count on: the machine's, or its control group's where that is less.
/// `None` where the system doesn't say.
pub fn machine_memory() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| total(&text));
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    machine.into_iter().chain(group).min()
}

/// Memory of this process that lies in the machine's, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResidentMemory {
    /// Now.
    pub now: u64,
    /// At most since it was started.
    pub most: u64,
}

/// How much memory this process has taken. `None` where the system doesn't say.
pub fn resident_memory() -> Option<ResidentMemory> {
    resident(&fs::read_to_string("/proc/self/status").ok()?)
}

/// `VmRSS` and `VmHWM` of a `/proc/<process>/status`.
fn resident(status: &str) -> Option<ResidentMemory> {
    Some(ResidentMemory {
        now: field(status, "VmRSS:")?,
        most: field(status, "VmHWM:")?,
    })
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn total(meminfo: &str) -> Option<u64> {
    field(meminfo, "MemTotal:")
}

/// A line in kB, in bytes.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read() {
        let text = "MemTotal:       24689092 kB\nMemFree:        1 kB\n";
        assert_eq!(total(text), Some(24_689_092 * 1024));
        assert_eq!(total("MemFree: 1 kB"), None);
        assert_eq!(total("MemTotal: much"), None);
    }

    #[test]
    fn what_is_resident_is_read() {
        let text = "VmPeak:\t 9 kB\nVmHWM:\t     300 kB\nVmRSS:\t     200 kB\n";
        let seen = resident(text).expect("told");
        assert_eq!((seen.now, seen.most), (200 << 10, 300 << 10));
        assert_eq!(resident("VmRSS:\t 1 kB\n"), None);
        let own = resident_memory().expect("told");
        assert!(own.now > 1 << 20 && own.most >= own.now / 2);
    }
}
