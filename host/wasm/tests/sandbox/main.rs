//! The sandbox against functions that behave and functions that don't.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at what is wrong"
)]

#[path = "../../../../tests/guests/built.rs"]
mod built;
#[path = "../../../../tests/guests/component.rs"]
mod component;

mod alike;
mod cache;
mod calls;
mod grants;
mod hostile;
mod refused;
mod rogue;
mod services;
mod standard;

use std::sync::Arc;
use std::time::Duration;
use tidemill_types::{ByteSize, CommitSeq, Event, PackedRows, Timestamp};
use tidemill_wasm::{
    BatchPacker, Call, CallLimits, Component, HostServices, Instance, MapScan, Sandbox, Settings,
    Stateless,
};

const FILTER: &str = include_str!("../../../../tests/guests/wat/filter.wat");
const PASSTHROUGH: &str = include_str!("../../../../tests/guests/wat/passthrough.wat");

const CALL: Call = Call {
    input: 0,
    partition: 0,
    attempt: 0,
    watermark: i64::MIN,
    seed: 0,
};

const LIMITS: CallLimits = CallLimits {
    memory: ByteSize::mib(64),
    deadline: Duration::from_secs(20),
    output_bytes: ByteSize::mib(1),
};

fn sandbox() -> Sandbox {
    Sandbox::new(Settings {
        cache_dir: None,
        cache_bytes: ByteSize(0),
        instances: 4,
    })
    .expect("a sandbox")
}

fn compile(sandbox: &Sandbox, imports: &str, fields: &str) -> Component {
    sandbox
        .compile(&component::guest(imports, fields))
        .expect("a sound component")
}

fn start(sandbox: &Sandbox, component: &Component, limits: CallLimits) -> Instance {
    sandbox
        .instantiate(component, limits, Arc::new(Stateless::default()))
        .expect("an instance")
}

/// A batch of these values, without keys and slots.
fn batch(values: &[&[u8]]) -> Vec<u8> {
    let mut rows = PackedRows::default();
    let mut packer = BatchPacker::default();
    packer.begin(0);
    for value in values {
        rows.push(Timestamp::from_micros(7), None, Some(value), [])
            .expect("push");
    }
    for row in 0..rows.len() {
        let event = Event {
            offset: row as u64,
            ingest_time: Timestamp::from_micros(8),
            commit: CommitSeq(1),
            row: rows.event(row),
        };
        packer.push(&event, 0);
    }
    packer.finish().to_vec()
}

/// A function that behaves gets its answer: the host is unharmed.
fn works(sandbox: &Sandbox) {
    let mut instance = start(sandbox, &compile(sandbox, "", FILTER), LIMITS);
    let answer = instance
        .on_batch(CALL, &batch(&[b"a", b"b"]))
        .expect("an answer");
    let commands = tidemill_wasm::Commands::parse(&answer, 2, 0, 0).expect("a sound answer");
    assert_eq!((commands.processed(), commands.iter().count()), (2, 0));
}
