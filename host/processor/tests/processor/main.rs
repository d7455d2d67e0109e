//! Functions over the real log, state and sandbox on a real disk.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "../../../../tests/guests/component.rs"]
mod component;

#[path = "../../../../tests/guests/built.rs"]
mod built;

#[path = "../../../../tests/guests/outside.rs"]
mod outside;

mod bank;
mod batches;
mod by_key;
mod calls;
mod crash;
mod delivery;
mod deploys;
mod failures;
mod host;
mod inputs;
mod keeping;
mod kept;
mod letters;
mod life;
mod limits;
mod logs;
mod many;
mod parking;
mod reasons;
mod rebatching;
mod replays;
mod restores;
mod schemas;
mod shadows;
mod snapshots;
mod timers;
mod versions;
