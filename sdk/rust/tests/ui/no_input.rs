use tidemill::prelude::*;

#[tidemill::function(output = "late")]
fn late(flight: Event<Value>, out: Output<Value>) -> Result<()> {
    out.emit("a", flight.value)
}

fn main() {}
