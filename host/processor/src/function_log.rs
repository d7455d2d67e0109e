//! The last lines a function logged, and those to come.

use crate::FunctionLogLine;
use crate::manifest::Limits;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use tokio::sync::broadcast;

/// Lines that a slow follower may fall behind before it misses some.
const FOLLOWERS_BEHIND: usize = 1024;

/// A ring of lines with followers.
pub(crate) struct FunctionLog {
    lines: Mutex<VecDeque<FunctionLogLine>>,
    most: usize,
    rate: Mutex<Rate>,
    followers: broadcast::Sender<FunctionLogLine>,
}

impl FunctionLog {
    /// Keeps the last `most` lines.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            lines: Mutex::default(),
            most,
            rate: Mutex::default(),
            followers: broadcast::channel(FOLLOWERS_BEHIND).0,
        }
    }

    /// Adds a line of the function's own, as long as it doesn't log more in a second than it may. Lines that
    /// are dropped are counted, and the next one that isn't comes with how many they were.
    pub(crate) fn push_within(&self, limits: &Limits, line: FunctionLogLine) {
        let mut rate = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
        if !rate.takes(limits, &line) {
            return;
        }
        let dropped = std::mem::take(&mut rate.dropped);
        drop(rate);
        if dropped > 0 {
            let (lines, bytes) = (limits.log_lines, limits.log_bytes);
            self.push(FunctionLogLine {
                level: "warn",
                message: format!("{dropped} lines were dropped: a function may log log_lines = {lines} and log_bytes = {bytes} a second"),
                ..line.clone()
            });
        }
        self.push(line);
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

/// What was logged in one second.
#[derive(Default)]
struct Rate {
    second: i64,
    lines: u32,
    bytes: u64,
    dropped: u64,
}

impl Rate {
    fn takes(&mut self, limits: &Limits, line: &FunctionLogLine) -> bool {
        let second = line.time.micros().div_euclid(1_000_000);
        if second != self.second {
            (self.second, self.lines, self.bytes) = (second, 0, 0);
        }
        let bytes = self.bytes + line.message.len() as u64;
        if self.lines >= limits.log_lines || bytes > limits.log_bytes.0 {
            self.dropped += 1;
            return false;
        }
        (self.lines, self.bytes) = (self.lines + 1, bytes);
        true
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

    #[test]
    fn more_than_allowed_in_a_second_is_dropped_and_counted() {
        let source = serde_json::json!({"input": [{"topic": "a"}], "limits": {"log_lines": 3, "log_bytes": "20B"}});
        let name = "f".parse().expect("a name");
        let limits = crate::Manifest::resolve(None, Some(&source), &name)
            .expect("valid")
            .limits;
        let log = FunctionLog::new(100);
        let line = |millis: i64, message: &str| FunctionLogLine {
            time: Timestamp::from_micros(millis * 1000),
            level: "info",
            version: 1,
            partition: 0,
            offset: 0,
            message: message.to_owned(),
        };
        for millis in 0..5 {
            log.push_within(&limits, line(millis, "short"));
        }
        log.push_within(&limits, line(1000, "after a second"));
        log.push_within(&limits, line(1001, "too long now"));
        log.push_within(&limits, line(1002, "fits"));
        let seen: Vec<String> = log.read().0.into_iter().map(|line| line.message).collect();
        let says = |dropped| {
            format!(
                "{dropped} lines were dropped: a function may log log_lines = 3 and log_bytes = 20B a second"
            )
        };
        assert_eq!(
            seen,
            [
                "short",
                "short",
                "short",
                &says(2),
                "after a second",
                &says(1),
                "fits"
            ]
        );
    }
}
