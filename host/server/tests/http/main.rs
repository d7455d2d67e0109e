//! The HTTP API of a real host, over sockets, on a directory of its own.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod client;
mod connections;
mod errors;
mod functions;
mod ingest;
mod keeping;
mod reads;
mod schemas;
mod storage;
mod streams;
mod terms;
mod topics;
mod versions;
