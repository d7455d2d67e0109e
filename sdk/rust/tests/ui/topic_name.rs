use tidemill::prelude::*;

#[tidemill::function(input = "all flights")]
fn late(flight: Event<Value>) -> Result<()> {
    Ok(())
}

fn main() {}
