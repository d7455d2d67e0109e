//! Lets one event in a hundred through, after reading its value: what a filter costs.

use tidemill::prelude::*;

#[derive(Deserialize)]
struct Reading<'a> {
    user: &'a str,
    n: u64,
}

/// A reading that was let through.
#[derive(Serialize)]
pub struct Passed {
    n: u64,
}

/// Every hundredth event.
#[tidemill::function(input = "bench", output = "bench-filter", start = "earliest")]
pub fn bench_filter(event: Event<Reading>, out: Output<Passed>) -> Result<()> {
    let Reading { user, n } = event.value;
    match n % 100 {
        0 => out.emit(user, Passed { n }),
        _ => Ok(()),
    }
}
