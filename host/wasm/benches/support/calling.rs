//! A guest called over and over by a host that has nothing for it.

use std::sync::Arc;
use std::time::Duration;
use tidemill_types::{ByteSize, CommitSeq, Event, PackedRows, Timestamp};
use tidemill_wasm::{
    BatchPacker, Call, CallLimits, Component, Instance, Sandbox, StateCell, Stateless,
};

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

/// Packs events, each of a key of its own; with a state: that of every key, in one slot.
pub(crate) fn pack<'p>(
    packer: &'p mut BatchPacker,
    rows: &PackedRows,
    state: Option<&[u8]>,
) -> &'p [u8] {
    packer.begin(usize::from(state.is_some()));
    packer.expect(rows.len(), state.map_or(0, |_| rows.len()), false);
    for (row, key) in (0..rows.len()).zip(0..) {
        let event = Event {
            offset: row as u64,
            ingest_time: Timestamp::from_micros(0),
            commit: CommitSeq(1),
            row: rows.event(row),
        };
        packer.push(&event, key);
    }
    if let Some(state) = state {
        for _ in 0..rows.len() {
            packer.state(&[StateCell::Value(state)]);
        }
    }
    packer.finish()
}
