use tidemill::prelude::*;

struct Flight;

#[tidemill::function(input = "flights")]
fn late(flight: Event<Flight>) -> Result<()> {
    Ok(())
}

fn main() {}
