//! Brings the lines that functions log into their topics, in the order they were logged and beside the
//! functions' work: a line that waits never holds a function up. Lines aren't part of transactions, so those
//! of a try that failed are seen, too; a crash takes what wasn't written yet.

use super::FunctionLogLine;
use crate::parts::Parts;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemill_log::{Format, Retention, Topic, TopicSettings};
use tidemill_types::{ByteSize, Error, FunctionName, PackedRows, Result, TopicName};
use tidemill_wasm::LogLevel;
use tokio::sync::{Notify, watch};

/// Bytes of lines that may wait to be written; more are dropped and counted.
const WAITING_BYTES: usize = 8 << 20;

/// How long and how much is kept of a function's log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRetention {
    /// How long.
    pub age: Duration,
    /// How much, in whole segments.
    pub bytes: ByteSize,
}

impl Default for LogRetention {
    fn default() -> Self {
        Self {
            age: Duration::from_secs(7 * 86_400),
            bytes: ByteSize::mib(64),
        }
    }
}

/// Name of the topic with a function's log.
pub(crate) fn log_topic(function: &FunctionName) -> String {
    format!("{function}.logs")
}

/// Lines on their way.
#[derive(Default)]
struct Queue {
    lines: Vec<(FunctionName, FunctionLogLine)>,
    bytes: usize,
    /// Lines that were ever taken.
    taken: u64,
    /// Lines that were dropped since the last one of the function, and the place of the first.
    dropped: BTreeMap<FunctionName, (u64, FunctionLogLine)>,
}

/// Keeps the lines of all functions.
pub(crate) struct Keeper {
    queue: Mutex<Queue>,
    wake: Notify,
    /// Of the lines taken, those that were written or given up.
    done: watch::Sender<u64>,
    retention: LogRetention,
}

impl Keeper {
    pub(crate) fn new(retention: LogRetention) -> Self {
        Self {
            queue: Mutex::default(),
            wake: Notify::new(),
            done: watch::Sender::new(0),
            retention,
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a line.
    pub(super) fn take(&self, function: &FunctionName, line: FunctionLogLine) {
        let mut queue = self.queue();
        if queue.bytes >= WAITING_BYTES {
            let dropped = &mut queue.dropped;
            dropped.entry(function.clone()).or_insert((0, line)).0 += 1;
            return;
        }
        queue.bytes += line.bytes();
        queue.taken += 1;
        queue.lines.push((function.clone(), line));
        drop(queue);
        self.wake.notify_one();
    }

    /// Waits until every line taken before is written or given up.
    pub(crate) async fn flushed(&self) {
        let taken = self.queue().taken;
        // The sender is here, so that it can't be gone.
        let _ = self.done.subscribe().wait_for(|done| *done >= taken).await;
    }

    /// Tells when lines were written.
    pub(super) fn written(&self) -> watch::Receiver<u64> {
        self.done.subscribe()
    }

    /// Writes what comes, for ever.
    pub(crate) async fn work(&self, parts: &Parts) {
        loop {
            let (lines, taken) = self.next();
            if lines.is_empty() {
                self.wake.notified().await;
                continue;
            }
            if let Err(error) = self.write(parts, lines).await {
                tracing::warn!(%error, "lines that functions logged couldn't be kept");
            }
            self.done.send_replace(taken);
        }
    }

    /// What waits, by function, with a word about what was dropped; and how many lines were ever taken.
    fn next(&self) -> (BTreeMap<FunctionName, Vec<FunctionLogLine>>, u64) {
        let mut queue = self.queue();
        let mut by_function: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (function, line) in std::mem::take(&mut queue.lines) {
            by_function.entry(function).or_default().push(line);
        }
        for (function, (count, first)) in std::mem::take(&mut queue.dropped) {
            let line = FunctionLogLine {
                level: LogLevel::Warn,
                message: format!(
                    "{count} lines from this one on were dropped: more are logged than can be written"
                ),
                ..first
            };
            by_function.entry(function).or_default().push(line);
        }
        queue.bytes = 0;
        (by_function, queue.taken)
    }

    async fn write(
        &self,
        parts: &Parts,
        lines: BTreeMap<FunctionName, Vec<FunctionLogLine>>,
    ) -> Result<()> {
        let mut draft = parts.log.draft();
        for (function, lines) in lines {
            let topic = self.topic(parts, &function).await?;
            let mut rows = PackedRows::default();
            for line in &lines {
                let value = line
                    .encode()
                    .map_err(|wrong| Error::internal(wrong.to_string()))?;
                rows.push(line.time, line.key.as_deref(), Some(&value), [])?;
            }
            draft.append(topic.id, &rows, &vec![0; lines.len()])?;
        }
        parts.commit_durably(draft, &[]).await
    }

    /// The function's topic, made with its first line.
    async fn topic(&self, parts: &Parts, function: &FunctionName) -> Result<Arc<Topic>> {
        let name: TopicName = log_topic(function).parse()?;
        let settings = TopicSettings {
            format: Format::Json,
            retention: Retention {
                age: Some(self.retention.age),
                bytes: Some(self.retention.bytes),
                ..Retention::default()
            },
            ..TopicSettings::default()
        };
        parts.topic(&name, settings).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_types::Timestamp;

    fn line(offset: u64, bytes: usize) -> FunctionLogLine {
        FunctionLogLine {
            time: Timestamp::from_micros(0),
            level: LogLevel::Info,
            version: 1,
            topic: None,
            partition: 0,
            offset,
            key: None,
            message: "x".repeat(bytes),
        }
    }

    #[test]
    fn what_waits_is_bounded_and_what_is_dropped_is_told() {
        let keeper = Keeper::new(LogRetention::default());
        let (one, other) = (
            "one".parse().expect("a name"),
            "other".parse().expect("a name"),
        );
        keeper.take(&one, line(0, WAITING_BYTES));
        for offset in 1..4 {
            keeper.take(&one, line(offset, 1));
        }
        keeper.take(&other, line(9, 1));
        let (lines, taken) = keeper.next();
        let told = |name| -> Vec<(u64, &str)> {
            let lines: &Vec<FunctionLogLine> = &lines[name];
            lines
                .iter()
                .map(|line| (line.offset, &line.message[..line.message.len().min(7)]))
                .collect()
        };
        assert_eq!(told(&one), [(0, "xxxxxxx"), (1, "3 lines")]);
        assert_eq!(told(&other), [(9, "1 lines")]);
        assert_eq!(taken, 1);
        keeper.take(&one, line(4, 1));
        assert_eq!(keeper.next().0[&one].len(), 1, "there is room again");
    }
}
