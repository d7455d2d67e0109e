//! Flights that left late, reshaped for those who only care about them.

use tidemill::prelude::*;

#[derive(Deserialize)]
struct Flight {
    carrier: String,
    flight: u32,
    route: String,
    dep_delay: Option<i32>,
    time_hour: String,
}

/// A flight that left late.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Delayed {
    /// The airline.
    pub carrier: String,
    /// Its number.
    pub flight: u32,
    /// Both airports, as in `JFK-LAX`.
    pub route: String,
    /// How late it left.
    pub minutes: i32,
    /// The hour it was to leave in, UTC.
    pub scheduled: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    threshold: i32,
}

impl Default for Config {
    fn default() -> Self {
        Self { threshold: 15 }
    }
}

/// Flights that left at least `threshold` minutes late (15 by default).
#[tidemill::function(input = "flights", output = "delayed-flights", start = "earliest")]
pub fn delayed_flights(event: Event<Flight>, out: Output<Delayed>, ctx: Context) -> Result<()> {
    let threshold = ctx.config::<Config>()?.threshold;
    let Flight {
        carrier,
        flight,
        route,
        dep_delay,
        time_hour,
    } = event.value;
    match dep_delay {
        Some(minutes) if minutes >= threshold => out.emit(
            event.key,
            Delayed {
                carrier,
                flight,
                route,
                minutes,
                scheduled: time_hour,
            },
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(delay: Option<i32>) -> Value {
        json!({"carrier": "UA", "flight": 7, "route": "JFK-LAX", "dep_delay": delay, "time_hour": "2013-01-01T10:00:00Z", "dest": "LAX"})
    }

    #[test]
    fn only_late_flights_pass() {
        let mut t = Driver::of(delayed_flights);
        for delay in [Some(14), Some(15), None, Some(-3), Some(90)] {
            t.send("UA", flight(delay));
        }
        let delayed = t.output::<Delayed>("delayed-flights");
        assert_eq!(
            delayed
                .iter()
                .map(|event| event.value.minutes)
                .collect::<Vec<_>>(),
            [15, 90]
        );
        assert_eq!(delayed[0].key_str(), Some("UA"));
        assert_eq!(delayed[0].value.scheduled, "2013-01-01T10:00:00Z");
        assert_eq!(t.filtered(), 3);
    }

    #[test]
    fn the_threshold_is_configured() {
        let mut t = Driver::of(delayed_flights).with_config(json!({"threshold": 60}));
        for delay in [59, 60] {
            t.send("UA", flight(Some(delay)));
        }
        assert_eq!(t.output::<Delayed>("delayed-flights").len(), 1);
    }

    #[test]
    fn a_misspelt_configuration_is_not_taken_in_silence() {
        let mut t = Driver::of(delayed_flights).with_config(json!({"treshold": 60}));
        t.send("UA", flight(Some(70)));
        let letters = t.dead_letters();
        assert!(
            letters[0].error.contains("unknown field `treshold`"),
            "{}",
            letters[0].error
        );
        assert_eq!(letters[0].attempts, 5);
    }
}
