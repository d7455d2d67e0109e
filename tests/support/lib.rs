//! What the tests of the whole share: the real program started on a free port, and a small client.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helper fails the test"
)]

mod duckdb;
mod host;
mod kill;
#[path = "../guests/outside.rs"]
mod outside;
mod program;
mod python;
mod s3;

pub use duckdb::duckdb;
pub use host::{Host, Settings};
pub use kill::{Moments, Writer, kill_under_load};
pub use outside::{Came, Outside, Reply};
pub use program::{cargo, component, program, repository, without_package};
pub use s3::S3;
