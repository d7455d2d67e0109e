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

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
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
}
