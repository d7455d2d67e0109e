use tidemill::prelude::*;

#[tidemill::function(input = "flights")]
fn late(flight: Event<Value>, flights: Batch<Value>) -> Result<()> {
    Ok(())
}

fn main() {}
