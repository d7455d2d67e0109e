//! Counts per key beside a text that each key keeps: state that outgrows memory.

use tidemill::prelude::*;

#[derive(Deserialize)]
struct Reading {
    n: u64,
    text: Option<String>,
}

/// How many events a key has had, the last of them, and the last text.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Kept {
    events: u64,
    last: u64,
    text: String,
}

/// A key's count, as it is said.
#[derive(Serialize)]
pub struct Count {
    events: u64,
    /// Bytes of the text that is kept.
    text: usize,
}

/// Events per key. One with a text is only kept; any other has the count as its answer.
#[tidemill::function(input = "bench", output = "bench-hoard", start = "earliest")]
pub fn bench_hoard(event: Event<Reading>, kept: State<Kept>, out: Output<Count>) -> Result<()> {
    let Reading { n, text } = event.value;
    let brought = text.is_some();
    let kept = kept.update(|kept| {
        kept.events += 1;
        kept.last = n;
        if let Some(text) = text {
            kept.text = text;
        }
    })?;
    if brought {
        return Ok(());
    }
    out.emit(
        event.key,
        Count {
            events: kept.events,
            text: kept.text.len(),
        },
    )
}
