//! The real program from outside: started, fed, killed, filled, abused, and asked what it knows.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and wait for separate processes"
)]

mod archive;
mod bank;
mod calls;
mod cases;
mod crash;
mod demo;
mod full_disk;
mod guests;
mod inputs;
mod keeping;
mod letters;
mod log_tools;
mod many;
mod memory;
mod object_storage;
mod program;
mod restores;
mod retries;
mod schemas;
mod state;
mod versions;
