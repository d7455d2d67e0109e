//! Counts per key and says nothing: what state costs by itself, with transactions.

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

/// Events per key, only kept.
#[tidemill::function(input = "bench", start = "earliest")]
pub fn bench_tally(event: Event<Reading>, count: State<Count>) -> Result<()> {
    count.update(|count| {
        count.events += 1;
        count.last = event.value.n;
    })?;
    Ok(())
}
