use tidemill::prelude::*;

#[tidemill::function(input = "flights")]
async fn late(flight: Event<Value>) -> Result<()> {
    Ok(())
}

fn main() {}
