use tidemill::prelude::*;

#[tidemill::on_timer]
fn gone(flight: Event<Value>) -> Result<()> {
    Ok(())
}

fn main() {}
