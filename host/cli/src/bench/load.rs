//! Load from many connections on one thread, and the times that answers took.

use super::connection::Connection;
use crate::failure::{Failure, Result};
use crate::progress::{Stopwatch, pause};
use futures::future::try_join_all;
use std::sync::Arc;
use std::time::Duration;

/// How long a connection that was refused waits.
const REFUSED: Duration = Duration::from_millis(1);

/// Times of single acts, in microseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Times(Vec<u32>);

impl Times {
    pub(super) fn add(&mut self, time: Duration) {
        self.0
            .push(u32::try_from(time.as_micros()).unwrap_or(u32::MAX));
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// The time that `percent` of the acts did not exceed, in microseconds; 0 if there were none.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index from a share"
    )]
    pub(super) fn percentile(&self, percent: f64) -> u32 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    }
}

/// What a run of load brought.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Times of requests that were acknowledged.
    pub(super) times: Times,
    /// Requests refused under pressure.
    pub(super) refused: u64,
    pub(super) seconds: f64,
}

/// Sends requests, each connection one after the other, for some time. All connections share one
/// thread, so that the load leaves the host as much of the machine as it can.
pub(super) async fn run(
    address: &str,
    requests: Vec<Vec<u8>>,
    connections: usize,
    time: Duration,
) -> Result<Outcome> {
    let address = address.to_owned();
    let thread = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let requests = Arc::new(requests);
        let watch = Stopwatch::start();
        let each =
            (0..connections).map(|nth| connection(&address, requests.clone(), nth, watch, time));
        let outcomes = runtime.block_on(try_join_all(each))?;
        let seconds = watch.elapsed().as_secs_f64();
        Ok(outcomes.into_iter().fold(
            Outcome {
                seconds,
                ..Outcome::default()
            },
            |mut sum, one| {
                sum.times.0.extend(one.times.0);
                sum.refused += one.refused;
                sum
            },
        ))
    });
    thread
        .await
        .map_err(|error| Failure::failed("load", error.to_string()))?
}

async fn connection(
    address: &str,
    requests: Arc<Vec<Vec<u8>>>,
    nth: usize,
    watch: Stopwatch,
    time: Duration,
) -> Result<Outcome> {
    let mut connection = Connection::open(address).await?;
    let mut outcome = Outcome::default();
    let mut requests = requests.iter().cycle().skip(nth);
    while let Some(request) = requests.next().filter(|_| watch.elapsed() < time) {
        let one = Stopwatch::start();
        match connection.call(request).await? {
            200..=299 => outcome.times.add(one.elapsed()),
            429 | 503 => {
                outcome.refused += 1;
                pause(REFUSED).await;
            }
            status => {
                let says = String::from_utf8_lossy(connection.body()).into_owned();
                return Err(Failure::failed(
                    "refused",
                    format!("the host answers {status}: {says}"),
                ));
            }
        }
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_measured() {
        let mut times = Times::default();
        assert_eq!(times.percentile(50.0), 0);
        for micros in (1..=100).rev() {
            times.add(Duration::from_micros(micros));
        }
        assert_eq!(
            (
                times.percentile(50.0),
                times.percentile(99.0),
                times.percentile(100.0)
            ),
            (50, 99, 100)
        );
    }
}
