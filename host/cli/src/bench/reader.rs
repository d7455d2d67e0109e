//! Readers of a topic, and what it has.

use super::connection::{Connection, get_as};
use super::events::Form;
use super::host::Host;
use crate::failure::{Failure, Result};
use crate::progress::{Stopwatch, pause};
use serde_json::Value;
use std::time::Duration;

/// How long a host may take to seal what it has, before the bench gives up.
const PATIENCE: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(5);

/// A reader of all partitions of a topic, page by page.
pub(super) struct Reader {
    connection: Connection,
    topic: String,
    form: Form,
    /// Where the next page begins, as a query.
    from: String,
    /// Offsets it has passed, over all partitions: events, in topics that lose none.
    pub(super) passed: u64,
}

impl Reader {
    /// From the first event on, or from the end on.
    pub(super) async fn open(address: &str, topic: &str, from: &str) -> Result<Self> {
        Ok(Self {
            connection: Connection::open(address).await?,
            topic: topic.to_owned(),
            form: Form::Ndjson,
            from: format!("from={from}"),
            passed: 0,
        })
    }

    /// The same, in another form.
    pub(super) fn of(self, form: Form) -> Self {
        Self { form, ..self }
    }

    /// Reads the next page, waiting for its first event.
    pub(super) async fn page(&mut self, wait: Duration) -> Result<()> {
        let path = format!(
            "/v1/topics/{}/events?{}&limit=10000&max_bytes=16MiB&wait={}ms",
            self.topic,
            self.from,
            wait.as_millis()
        );
        let request = get_as(&path, self.form.content_type());
        let status = self.connection.call(&request).await?;
        let next = self.connection.header("tidemill-next").ok_or_else(|| {
            let detail = format!("{path} answers {status} and no cursor");
            Failure::failed("strange-answer", detail)
        })?;
        self.passed = passed(&next);
        self.from = format!("cursor={next}");
        Ok(())
    }
}

/// The sum of a cursor's offsets.
fn passed(cursor: &str) -> u64 {
    let offsets = cursor.split(',').filter_map(|pair| pair.split_once(':'));
    offsets
        .filter_map(|(_, offset)| offset.parse::<u64>().ok())
        .sum()
}

/// Events of a topic and how many of them are in segments.
pub(super) async fn ends(host: &Host, topic: &str) -> Result<(u64, u64)> {
    let described = host.client.get(&["v1", "topics", topic], &[]).await?;
    let sum = |field: &str| -> u64 {
        let ranges = described["ranges"].as_array().into_iter().flatten();
        ranges.filter_map(|range| range[field].as_u64()).sum()
    };
    Ok((sum("end"), sum("archived_end")))
}

/// Waits until all events are in segments.
pub(super) async fn sealed(host: &Host, topic: &str) -> Result<()> {
    let watch = Stopwatch::start();
    loop {
        let (end, archived) = ends(host, topic).await?;
        if archived == end {
            return Ok(());
        }
        if watch.elapsed() > PATIENCE {
            let detail = format!("{} events aren't sealed after {PATIENCE:?}", end - archived);
            return Err(Failure::failed("stalled", detail));
        }
        pause(POLL).await;
    }
}

/// Runs a load of readers on a thread of its own.
pub(super) async fn apart<T: Send + 'static, F: Future<Output = Result<T>>>(
    load: impl FnOnce() -> F + Send + 'static,
) -> Result<T> {
    let thread = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(load())
    });
    thread
        .await
        .map_err(|error| Failure::failed("load", error.to_string()))?
}

/// A rate, of whatever.
#[expect(clippy::cast_precision_loss, reason = "a measured rate")]
pub(super) fn per_second(number: u64, seconds: f64) -> f64 {
    number as f64 / seconds.max(1e-9)
}

/// A figure of a row; 0 if it isn't there.
pub(super) fn figure(row: &Value, field: &str) -> f64 {
    row[field].as_f64().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_says_how_far_it_is() {
        assert_eq!(passed("0:13,1:5,12:0"), 18);
        assert_eq!(passed(""), 0);
    }
}
