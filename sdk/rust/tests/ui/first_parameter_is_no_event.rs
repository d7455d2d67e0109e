use tidemill::prelude::*;

#[tidemill::function(input = "flights")]
fn late(total: State<u64>, flight: Event<Value>) -> Result<()> {
    Ok(())
}

fn main() {}
