use tidemill::prelude::*;

#[tidemill::function(input = "flights")]
fn late(flight: Event<Value>, timers: Timers) -> Result<()> {
    timers.cancel("t")
}

fn main() {}
