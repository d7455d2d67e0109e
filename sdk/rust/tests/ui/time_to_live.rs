use tidemill::prelude::*;

#[tidemill::function(input = "flights", ttl(seen = "30 days"))]
fn late(flight: Event<Value>, seen: Counter) -> Result<()> {
    seen.clear()
}

#[tidemill::function(input = "flights", ttl(sen = "30d"))]
fn later(flight: Event<Value>, seen: Counter) -> Result<()> {
    seen.clear()
}

fn main() {}
