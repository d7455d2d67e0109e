//! Reading a function's log out of its topic.

use super::{FunctionLogLine, Keeper, log_topic};
use crate::parts::Parts;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use tidemill_log::{ReadLimit, TimeOf};
use tidemill_types::{Batch, ErrorKind, FunctionName, PartitionId, Result, Timestamp};
use tidemill_wasm::LogLevel;

/// How many lines are read at once.
const READ: ReadLimit = ReadLimit {
    events: 1000,
    bytes: 1 << 20,
};

/// Which lines are wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogQuery {
    /// Only this severe or more.
    pub level: Option<LogLevel>,
    /// Only of this version.
    pub version: Option<u32>,
    /// Only about events of this topic, of a function that reads several.
    pub topic: Option<String>,
    /// Only about events of this partition.
    pub partition: Option<u32>,
    /// Only about events with this key.
    pub key: Option<Bytes>,
    /// Only from this time on.
    pub since: Option<Timestamp>,
    /// The last so many of those there are.
    pub limit: usize,
}

impl LogQuery {
    fn wants(&self, line: &FunctionLogLine) -> bool {
        self.level.is_none_or(|level| line.level >= level)
            && self.version.is_none_or(|version| line.version == version)
            && (self.topic.is_none() || self.topic == line.topic)
            && self.partition.is_none_or(|at| line.partition == at)
            && (self.key.is_none() || FunctionLogLine::key_of(self.key.as_deref()) == line.key)
            && self.since.is_none_or(|since| line.time >= since)
    }

    /// Whether every line that is there is wanted.
    fn wants_all(&self) -> bool {
        *self
            == Self {
                limit: self.limit,
                ..Self::default()
            }
    }
}

/// Reads lines: those there are, then those that come.
pub struct LogReader {
    parts: Arc<Parts>,
    keeper: Arc<Keeper>,
    topic: String,
    query: LogQuery,
    /// The topic, once there is one, and the next offset.
    at: Option<(PartitionId, u64)>,
}

impl LogReader {
    pub(crate) fn new(parts: &Arc<Parts>, function: &FunctionName, query: LogQuery) -> Self {
        Self {
            parts: Arc::clone(parts),
            keeper: Arc::clone(&parts.keeper),
            topic: log_topic(function),
            query,
            at: None,
        }
    }

    /// The last of the lines there are, those logged a moment ago among them.
    ///
    /// # Errors
    /// As [`tidemill_log::Log::read`].
    pub async fn last(&mut self) -> Result<Vec<FunctionLogLine>> {
        self.keeper.flushed().await;
        let Some(at) = self.place() else {
            return Ok(Vec::new());
        };
        let log = &self.parts.log;
        let range = log.range(at)?;
        let from = match self.query.since {
            Some(since) => log.offset_at(at, since, TimeOf::Event).await?,
            None if self.query.wants_all() => range.end.saturating_sub(self.query.limit as u64),
            None => range.start,
        };
        self.at = Some((at, from.clamp(range.start, range.end)));
        let mut last = VecDeque::new();
        while let Some((at, from)) = self.at.filter(|(_, from)| *from < range.end) {
            for line in self.read(at, from, range.end).await? {
                last.push_back(line);
                if last.len() > self.query.limit {
                    last.pop_front();
                }
            }
        }
        Ok(last.into())
    }

    /// Waits for lines that come; `None` once the log has stopped.
    ///
    /// # Errors
    /// As [`tidemill_log::Log::read`].
    pub async fn next(&mut self) -> Result<Option<Vec<FunctionLogLine>>> {
        let mut written = self.keeper.written();
        loop {
            if self.at.is_none() {
                self.at = self.place().map(|at| (at, 0));
            }
            match self.at {
                Some((at, from)) => match self.parts.log.watch(at) {
                    Ok(mut end) => {
                        // Closed: the topic is gone, perhaps a new one comes.
                        let Ok(end) = end.wait_for(|end| *end > from).await.map(|end| *end) else {
                            self.at = None;
                            continue;
                        };
                        let lines = self.read(at, from, end).await?;
                        if !lines.is_empty() {
                            return Ok(Some(lines));
                        }
                    }
                    Err(_) => self.at = None,
                },
                None if written.changed().await.is_err() => return Ok(None),
                None => {}
            }
        }
    }

    fn place(&self) -> Option<PartitionId> {
        let topic = self.parts.log.topic(&self.topic)?;
        Some(PartitionId {
            topic: topic.id,
            partition: 0,
        })
    }

    /// Wanted lines of one read from `from` on and below `end`; goes on behind it.
    async fn read(&mut self, at: PartitionId, from: u64, end: u64) -> Result<Vec<FunctionLogLine>> {
        let read = match self.parts.log.read(at, from, READ).await {
            Ok(read) => read,
            // Retention was faster.
            Err(error) if error.kind == ErrorKind::OutOfRange => {
                let start = self.parts.log.range(at)?.start;
                self.at = Some((at, start.max(from)));
                return if start > from {
                    Ok(Vec::new())
                } else {
                    Err(error)
                };
            }
            Err(error) => return Err(error),
        };
        self.at = Some((at, read.next.min(end)));
        let events = read.batches.iter().flat_map(Batch::iter);
        Ok(events
            .filter(|event| event.offset < end)
            .filter_map(|event| FunctionLogLine::decode(&event))
            .filter(|line| self.query.wants(line))
            .collect())
    }
}
