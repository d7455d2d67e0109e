use tidemill::prelude::*;

#[tidemill::function(input = "flights")]
fn late<T>(flight: Event<T>) -> Result<()> {
    Ok(())
}

fn main() {}
