use tidemill::prelude::*;

#[tidemill::function(input = "flights", on_timer = gone)]
fn late(flight: Event<Value>, seen: Counter, timers: Timers) -> Result<()> {
    seen.add(1)?;
    timers.set("t", flight.time)
}

#[tidemill::on_timer]
fn gone(timer: Timer, seen: State<i64>) -> Result<()> {
    seen.clear()
}

fn main() {}
