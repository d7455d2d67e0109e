use tidemill::prelude::*;

#[tidemill::function(input = "flights", topic = "late")]
fn late(flight: Event<Value>) -> Result<()> {
    Ok(())
}

fn main() {}
