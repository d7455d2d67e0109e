//! Alerts per route: raised when its recent flights are late on average, cleared once when they no longer are.

use std::collections::VecDeque;
use tidemill::prelude::*;

#[derive(Deserialize)]
struct Flight {
    route: String,
    dep_delay: Option<i32>,
}

/// What is remembered of a route.
#[derive(Default, Serialize, Deserialize)]
struct Route {
    recent: VecDeque<i32>,
    raised: bool,
}

/// A route's recent flights are late, or no longer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Alert {
    /// Both airports, as in `JFK-LAX`.
    pub route: String,
    /// Raised or cleared.
    pub alert: Change,
    /// Minutes its recent flights were late, on average.
    pub mean: f64,
}

/// What an alert says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// The mean reached the threshold.
    Raised,
    /// It fell below.
    Cleared,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// Flights that count as recent.
    recent: usize,
    /// Minutes.
    threshold: i32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            recent: 10,
            threshold: 30,
        }
    }
}

/// Alerts when a route's recent flights (10) were late by 30 minutes on average, and once when they no longer are.
#[tidemill::function(
    input = "flights",
    key = "/route",
    output = "route-alerts",
    start = "earliest"
)]
pub fn route_alerts(
    flight: Event<Flight>,
    route: State<Route>,
    out: Output<Alert>,
    ctx: Context,
) -> Result<()> {
    let Some(delay) = flight.value.dep_delay else {
        return skip("no departure delay");
    };
    let config = ctx.config::<Config>()?;
    let mut change = None;
    route.update(|route| change = route.see(delay, &config))?;
    let Some((alert, mean)) = change else {
        return Ok(());
    };
    let name = flight.value.route;
    out.emit(
        &name,
        &Alert {
            route: name.clone(),
            alert,
            mean,
        },
    )
}

impl Route {
    /// Takes one more delay; says whether that changed the alert, and the mean.
    fn see(&mut self, delay: i32, config: &Config) -> Option<(Change, f64)> {
        self.recent.push_back(delay);
        while self.recent.len() > config.recent {
            self.recent.pop_front();
        }
        if self.recent.len() < config.recent.max(1) {
            return None;
        }
        let sum: i64 = self.recent.iter().map(|delay| i64::from(*delay)).sum();
        let late = sum >= i64::from(config.threshold) * self.recent.len() as i64;
        if late == self.raised {
            return None;
        }
        self.raised = late;
        Some((
            if late {
                Change::Raised
            } else {
                Change::Cleared
            },
            sum as f64 / self.recent.len() as f64,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fly(t: &mut Driver, route: &str, delays: &[i32]) {
        for delay in delays {
            t.send(
                "UA",
                json!({"route": route, "dep_delay": delay, "carrier": "UA"}),
            );
        }
    }

    #[test]
    fn rises_and_falls_once() {
        let mut t = Driver::of(route_alerts).with_config(json!({"recent": 3, "threshold": 30}));
        fly(&mut t, "JFK-LAX", &[90, 90]);
        fly(&mut t, "EWR-IAH", &[0, 0]);
        fly(&mut t, "JFK-LAX", &[0, 0, 0, 0, 0]);
        fly(&mut t, "EWR-IAH", &[90, 90]);
        let alerts = t.output::<Alert>("route-alerts");
        let seen: Vec<_> = alerts
            .iter()
            .map(|event| {
                (
                    event.value.route.as_str(),
                    event.value.alert,
                    event.value.mean,
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("JFK-LAX", Change::Raised, 60.0),
                ("JFK-LAX", Change::Cleared, 0.0),
                ("EWR-IAH", Change::Raised, 30.0)
            ]
        );
        assert_eq!(alerts[0].key_str(), Some("JFK-LAX"));
    }

    #[test]
    fn a_few_flights_say_nothing() {
        let mut t = Driver::of(route_alerts);
        fly(&mut t, "JFK-LAX", &[300; 9]);
        t.send("UA", json!({"route": "JFK-LAX", "dep_delay": null}));
        assert_eq!(t.output::<Alert>("route-alerts").len(), 0);
        assert_eq!(t.skipped(), 1);
    }
}
