//! Visits per page, kept up to date with every visit.

use tidemill::prelude::*;

/// A visit as it comes in.
#[derive(Deserialize)]
struct Visit {
    page: String,
    /// How long it lasted; unknown while the page is still open.
    seconds: Option<f64>,
}

/// What is known of a page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Visits {
    visits: u64,
    seconds: f64,
    longest: f64,
}

/// Adds a visit to what is known of its page. Events have the page as their key, so `total` is this
/// page's; state, output and position are committed as one.
#[tidemill::function(input = "visits", output = "{{name}}")]
fn {{function}}(visit: Event<Visit>, total: State<Visits>, out: Output<Visits>) -> Result<()> {
    let Some(seconds) = visit.value.seconds else {
        return skip("not over yet");
    };
    let sum = total.update(|sum| {
        sum.visits += 1;
        sum.seconds += seconds;
        sum.longest = sum.longest.max(seconds);
    })?;
    out.emit(&visit.value.page, sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up() {
        let mut t = Driver::of({{function}});
        t.send("home", json!({"page": "home", "seconds": 2.0}));
        t.send("home", json!({"page": "home"}));
        t.send("shop", json!({"page": "shop", "seconds": 5.0}));
        t.send("home", json!({"page": "home", "seconds": 4.0}));

        let out = t.output::<Visits>("{{name}}");
        assert_eq!(out.len(), 3);
        assert_eq!(out.last().unwrap().value, Visits { visits: 2, seconds: 6.0, longest: 4.0 });
        assert_eq!(t.skipped(), 1);
    }
}
