//! Waits until functions have caught up and topics are archived, and notices when neither will happen.

use crate::client::Client;
use crate::failure::{Failure, Result};
use crate::functions::lag;
use crate::print::cell;
use crate::progress::{Stopwatch, pause};
use serde_json::Value;
use std::time::Duration;

const POLL: Duration = Duration::from_millis(20);
/// If nothing moves for so long, nothing will.
const STALL: Duration = Duration::from_secs(60);

/// Ends a wait in which nothing moves.
struct Patience {
    seen: String,
    since: Stopwatch,
}

impl Patience {
    fn new() -> Self {
        Self {
            seen: String::new(),
            since: Stopwatch::start(),
        }
    }

    /// Waits a moment; fails if `state` has been the same for too long.
    async fn wait(&mut self, state: String, hint: &str) -> Result<()> {
        if self.since.elapsed() > STALL && self.seen == state {
            let message = format!("nothing moves any more: {state}");
            return Err(Failure::failed("stalled", message).hint(hint));
        }
        if self.seen != state {
            self.seen = state;
            self.since = Stopwatch::start();
        }
        pause(POLL).await;
        Ok(())
    }
}

/// Waits until functions have read all there is, and gives back what the host says of each.
///
/// They are asked in the order of the stream: one without lag has committed its outputs, so that the
/// next one's lag counts them. The second round sees what the first let through inside a function that
/// repartitions its input.
pub(crate) async fn functions(client: &Client, names: &[&str]) -> Result<Vec<Value>> {
    let mut patience = Patience::new();
    let mut quiet = 0;
    loop {
        let mut reports = Vec::new();
        for name in names {
            reports.push(client.get(&["v1", "functions", name], &[]).await?);
        }
        if let Some(stopped) = reports.iter().find(|report| report["status"] == "stopped") {
            let message = format!(
                "{} stopped: {}",
                cell(&stopped["name"]),
                cell(&stopped["status_reason"])
            );
            return Err(Failure::failed("function-stopped", message));
        }
        let behind: Vec<&Value> = reports.iter().filter(|report| lag(report) > 0).collect();
        quiet = if behind.is_empty() { quiet + 1 } else { 0 };
        if quiet > 1 {
            return Ok(reports);
        }
        let behind = behind
            .iter()
            .map(|report| format!("{} is {} events behind", cell(&report["name"]), lag(report)));
        let state = behind.collect::<Vec<_>>().join(", ");
        let hint = "`tidemill functions describe NAME` says what a function waits for";
        patience.wait(state, hint).await?;
    }
}

/// Waits until everything committed to the topics lies in Parquet files.
pub(crate) async fn archive(client: &Client, topics: &[&str]) -> Result<()> {
    let mut patience = Patience::new();
    loop {
        let mut left = Vec::new();
        for topic in topics {
            let events = unarchived(&client.get(&["v1", "topics", topic], &[]).await?);
            if events > 0 {
                left.push(format!("{events} events of {topic} are not archived"));
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        patience
            .wait(left.join(", "), "the host's log lines say why")
            .await?;
    }
}

/// Events of a topic that are not in Parquet files yet.
fn unarchived(topic: &Value) -> u64 {
    let ranges = topic["ranges"].as_array().into_iter().flatten();
    let field = |range: &Value, name: &str| range[name].as_u64().unwrap_or(0);
    ranges
        .map(|range| field(range, "end").saturating_sub(field(range, "archived_end")))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_archived_is_counted() {
        let topic = json!({"ranges": [{"end": 10, "archived_end": 4}, {"end": 3, "archived_end": 3}, {"end": 0}]});
        assert_eq!(unarchived(&topic), 6);
    }
}
