//! Counts per key and says each count: what state with transactions costs.

use tidemill::prelude::*;

#[derive(Deserialize)]
struct Reading {
    n: u64,
}

/// How many events a key has had, and the last of them.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub struct Count {
    events: u64,
    last: u64,
}

/// Events per key.
#[tidemill::function(input = "bench", output = "bench-count", start = "earliest")]
pub fn bench_count(event: Event<Reading>, count: State<Count>, out: Output<Count>) -> Result<()> {
    let sum = count.update(|count| {
        count.events += 1;
        count.last = event.value.n;
    })?;
    out.emit(event.key, sum)
}
