use tidemill::prelude::*;

#[tidemill::function(input = "flights", outputs(late = "late", early = "early"))]
fn sorted(flight: Event<Value>, late: Output<Value>) -> Result<()> {
    late.emit("a", flight.value)
}

fn main() {}
