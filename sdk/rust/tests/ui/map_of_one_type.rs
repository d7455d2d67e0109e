use tidemill::prelude::*;

#[tidemill::function(input = "flights")]
fn late(flight: Event<Value>, seen: StateMap<u64>) -> Result<()> {
    Ok(())
}

fn main() {}
