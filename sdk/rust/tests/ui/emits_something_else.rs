use tidemill::prelude::*;

#[tidemill::function(input = "flights", output = "late")]
fn late(flight: Event<Value>, out: Output<u64>) -> Result<()> {
    out.emit("a", flight.value)
}

fn main() {}
