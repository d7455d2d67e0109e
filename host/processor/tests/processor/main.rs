//! Functions over the real log, state and sandbox on a real disk.

#[path = "../../../../tests/guests/component.rs"]
mod component;

mod by_key;
mod crash;
mod delivery;
mod failures;
mod host;
mod life;
