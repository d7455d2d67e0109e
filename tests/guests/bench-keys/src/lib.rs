//! Counts per key and says each count, without looking at values: what state and outputs cost where
//! nothing is parsed.

use tidemill::prelude::*;

/// Events per key, whatever they hold.
#[tidemill::function(input = "bench", output = "bench-keys", start = "earliest")]
pub fn bench_keys(event: Event<Bytes>, count: Counter, out: Output<i64>) -> Result<()> {
    count.add(1)?;
    out.emit(event.key, count.get()?)
}
