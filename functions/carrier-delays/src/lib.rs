//! Delays per carrier: how many flights left, how late together, how late at worst.

use tidemill::prelude::*;

#[derive(Deserialize)]
struct Flight {
    carrier: String,
    dep_delay: Option<f64>,
}

/// What is known of a carrier.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Delays {
    /// Flights that left.
    pub flights: u64,
    /// Minutes they were late, together.
    pub minutes: f64,
    /// Minutes the latest of them was late.
    pub worst: f64,
}

/// Delays per carrier, kept up to date with every flight.
#[tidemill::function(input = "flights", output = "carrier-delays", start = "earliest")]
pub fn carrier_delays(
    flight: Event<Flight>,
    total: State<Delays>,
    out: Output<Delays>,
) -> Result<()> {
    let Some(delay) = flight.value.dep_delay else {
        return skip("no departure delay");
    };
    let sum = total.update(|sum| {
        sum.flights += 1;
        sum.minutes += delay;
        sum.worst = sum.worst.max(delay);
    })?;
    out.emit(&flight.value.carrier, sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up() {
        let mut t = Driver::of(carrier_delays);
        t.send("UA", json!({"carrier": "UA", "dep_delay": 12.0}));
        t.send("DL", json!({"carrier": "DL", "dep_delay": -4}));
        t.send("UA", json!({"carrier": "UA"}));
        t.send("UA", json!({"carrier": "UA", "dep_delay": 3.5}));
        let last = Delays {
            flights: 2,
            minutes: 15.5,
            worst: 12.0,
        };
        let delays = t.output::<Delays>("carrier-delays");
        assert_eq!(
            delays
                .iter()
                .map(|event| event.key_str().unwrap_or_default())
                .collect::<Vec<_>>(),
            ["UA", "DL", "UA"]
        );
        assert_eq!(delays[2].value, last);
        assert_eq!(t.state("total", "UA"), Some(last));
        assert_eq!(
            t.state("total", "DL"),
            Some(Delays {
                flights: 1,
                minutes: -4.0,
                worst: 0.0
            })
        );
        assert_eq!(t.state::<Delays>("total", "AA"), None);
        assert_eq!(t.skipped(), 1);
    }

    #[test]
    fn a_flight_without_a_carrier_is_undecodable() {
        let mut t = Driver::of(carrier_delays);
        t.send("UA", json!({"dep_delay": 12.0}));
        assert!(
            t.dead_letters()[0]
                .error
                .contains("missing field `carrier`")
        );
    }
}
