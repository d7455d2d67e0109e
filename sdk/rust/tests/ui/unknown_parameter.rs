use tidemill::prelude::*;

#[tidemill::function(input = "flights")]
fn late(flight: Event<Value>, threshold: u32) -> Result<()> {
    Ok(())
}

fn main() {}
