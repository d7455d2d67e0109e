//! An idle sandbox costs address space, not memory. Alone in its program, so that nothing else moves the
//! figure.

#![expect(clippy::expect_used, reason = "a test stops at what is wrong")]
#![cfg(target_os = "linux")]

use tidemill_types::ByteSize;
use tidemill_wasm::{Sandbox, Settings};

/// Resident bytes of this process.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("the kernel tells");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .expect("VmRSS");
    let kib: usize = line
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .expect("KiB");
    kib << 10
}

#[test]
fn a_pool_of_a_thousand_instances_is_not_resident() {
    let before = resident();
    let sandbox = Sandbox::new(Settings {
        cache_dir: None,
        cache_bytes: ByteSize(0),
        instances: 1000,
    })
    .expect("a sandbox");
    let cost = resident().saturating_sub(before);
    drop(sandbox);
    assert!(cost < 8 << 20, "{cost} bytes");
}
