use tidemill::prelude::*;

#[tidemill::function(input = "flights")]
fn late(flight: Event<Value>, out: Output<Value>) -> Result<()> {
    out.emit("a", flight.value)
}

fn main() {}
