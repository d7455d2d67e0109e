//! A function over whole batches, to test them against what single events come to.

use serde::Deserialize;
use tidemill::prelude::*;

/// What an event asks for.
#[derive(Deserialize)]
pub struct Ask {
    /// What to add to the key's sum.
    pub add: i64,
    /// What becomes of the event: `skip`, `dead`, `trap`; anything else: it goes through.
    #[serde(default)]
    pub then: String,
}

/// Sums per key, with the size of the batch beside it in a header.
#[tidemill::function(input = "in", output = "out")]
pub fn batches(asks: Batch<Ask>, sum: State<i64>, out: Output<i64>) -> Result<()> {
    let size = asks.len().to_string();
    asks.each(|ask| {
        let total = *sum.update(|sum| *sum += ask.value.add)?;
        out.emit_with(ask.key, total).header("of", &size).send()?;
        match ask.value.then.as_str() {
            "skip" => skip("asked to"),
            "dead" => dead_letter("asked to"),
            "trap" => panic!("asked to"),
            _ => Ok(()),
        }
    })
}
