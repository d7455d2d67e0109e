use tidemill::prelude::*;

struct Flights;

impl Flights {
    #[tidemill::function(input = "flights")]
    fn late(&self, flight: Event<Value>) -> Result<()> {
        Ok(())
    }
}

fn main() {}
