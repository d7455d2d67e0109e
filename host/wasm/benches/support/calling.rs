//! A guest called over and over by a host that has nothing for it.

use std::sync::Arc;
use std::time::Duration;
use tidemill_types::{ByteSize, CommitSeq, Event, PackedRows, Timestamp};
use tidemill_wasm::{BatchPacker, Call, CallLimits, Component, Instance, Sandbox, Stateless};

pub(crate) const CALL: Call = Call {
    input: 0,
    partition: 0,
    attempt: 0,
    watermark: i64::MIN,
    seed: 0,
};

pub(crate) fn instance(sandbox: &Sandbox, component: &Component) -> Instance {
    let limits = CallLimits {
        memory: ByteSize::mib(64),
        deadline: Duration::from_secs(1),
        output_bytes: ByteSize::mib(8),
    };
    sandbox
        .instantiate(
            component,
            limits,
            Arc::new(Stateless {
                input: Some("flights"),
            }),
        )
        .expect("an instance")
}

pub(crate) fn pack<'p>(packer: &'p mut BatchPacker, rows: &PackedRows) -> &'p [u8] {
    packer.begin(0);
    packer.expect(rows.len(), 0, false);
    for row in 0..rows.len() {
        let event = Event {
            offset: row as u64,
            ingest_time: Timestamp::from_micros(0),
            commit: CommitSeq(1),
            row: rows.event(row),
        };
        packer.push(&event, 0);
    }
    packer.finish()
}
