use tidemill::prelude::*;

#[tidemill::function(input = "flights")]
fn late(flight: Event<Value>) {}

fn main() {}
