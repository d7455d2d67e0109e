//! Cleans and types raw rows of flights: text becomes numbers, `NA` becomes null, nonsense a dead letter.

mod row;

pub use row::Flight;

use row::Row;
use tidemill::prelude::*;

/// Cleans and types raw rows of flights, keyed by carrier, at the time of their scheduled hour.
#[tidemill::function(input = "flights-raw", output = "flights", start = "earliest")]
pub fn parse_flights(raw: Event<Row>, out: Output<Flight>) -> Result<()> {
    match raw.value.clean() {
        Ok(flight) => out
            .emit_with(&flight.carrier, &flight)
            .time(flight.time_hour)
            .send(),
        Err(why) => dead_letter(why),
    }
}

#[cfg(test)]
mod tests;
