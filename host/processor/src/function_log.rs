//! The last lines a function logged, and those to come.

use crate::FunctionLogLine;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use tokio::sync::broadcast;

/// Lines that a slow follower may fall behind before it misses some.
const FOLLOWERS_BEHIND: usize = 1024;

/// A ring of lines with followers.
pub(crate) struct FunctionLog {
    lines: Mutex<VecDeque<FunctionLogLine>>,
    most: usize,
    followers: broadcast::Sender<FunctionLogLine>,
}

impl FunctionLog {
    /// Keeps the last `most` lines.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            lines: Mutex::default(),
            most,
            followers: broadcast::channel(FOLLOWERS_BEHIND).0,
        }
    }

    /// Adds a line.
    pub(crate) fn push(&self, line: FunctionLogLine) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        while lines.len() >= self.most.max(1) {
            lines.pop_front();
        }
        lines.push_back(line.clone());
        // Sent under the lock, so that a reader misses none between the ring and the channel. Nobody
        // following is no error.
        let _ = self.followers.send(line);
    }

    /// The lines kept, and those to come.
    pub(crate) fn read(&self) -> (Vec<FunctionLogLine>, broadcast::Receiver<FunctionLogLine>) {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        (lines.iter().cloned().collect(), self.followers.subscribe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_types::Timestamp;

    #[test]
    fn keeps_the_last_lines_and_tells_followers() {
        let log = FunctionLog::new(2);
        let line = |offset| FunctionLogLine {
            time: Timestamp::from_micros(0),
            level: "info",
            version: 1,
            partition: 0,
            offset,
            message: String::new(),
        };
        log.push(line(1));
        let (kept, mut coming) = log.read();
        assert_eq!(kept.len(), 1);
        log.push(line(2));
        log.push(line(3));
        let kept: Vec<u64> = log.read().0.iter().map(|line| line.offset).collect();
        assert_eq!(kept, [2, 3]);
        assert_eq!(coming.try_recv().map(|line| line.offset).ok(), Some(2));
    }
}
