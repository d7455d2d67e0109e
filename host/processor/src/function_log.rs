//! What functions log: a topic per function, `<function>.logs`, made with its first line.

mod keeper;
mod line;
mod reader;

pub use keeper::LogRetention;
pub(crate) use keeper::{Keeper, log_topic};
pub use line::FunctionLogLine;
pub use reader::{LogQuery, LogReader};

use crate::manifest::Limits;
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_types::FunctionName;
use tidemill_wasm::LogLevel;

/// Where a function's lines go, as long as they aren't too many.
pub(crate) struct FunctionLog {
    rate: Mutex<Rate>,
    /// `None`: nobody reads them.
    to: Option<(Arc<Keeper>, FunctionName)>,
}

impl FunctionLog {
    /// The log of a function.
    pub(crate) fn new(keeper: &Arc<Keeper>, function: &FunctionName) -> Self {
        Self {
            rate: Mutex::default(),
            to: Some((Arc::clone(keeper), function.clone())),
        }
    }

    /// For one that only tries things out.
    pub(crate) fn nowhere() -> Self {
        Self {
            rate: Mutex::default(),
            to: None,
        }
    }

    /// Adds a line of the function's own, as long as it doesn't log more in a second than it may. Lines that
    /// are dropped are counted, and the next one that isn't comes with how many they were.
    pub(crate) fn push_within(&self, limits: &Limits, line: FunctionLogLine) {
        let mut rate = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(dropped) = rate.takes(limits, &line) else {
            return;
        };
        drop(rate);
        if dropped > 0 {
            let (lines, bytes) = (limits.log_lines, limits.log_bytes);
            self.push(FunctionLogLine {
                level: LogLevel::Warn,
                message: format!("{dropped} lines were dropped: a function may log log_lines = {lines} and log_bytes = {bytes} a second"),
                ..line.clone()
            });
        }
        self.push(line);
    }

    /// Adds a line.
    pub(crate) fn push(&self, line: FunctionLogLine) {
        if let Some((keeper, function)) = &self.to {
            keeper.take(function, line);
        }
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
    /// How many were dropped before a line that may be kept; `None`: it may not.
    fn takes(&mut self, limits: &Limits, line: &FunctionLogLine) -> Option<u64> {
        let second = line.time.micros().div_euclid(1_000_000);
        if second != self.second {
            (self.second, self.lines, self.bytes) = (second, 0, 0);
        }
        let bytes = self.bytes + line.message.len() as u64;
        if self.lines >= limits.log_lines || bytes > limits.log_bytes.0 {
            self.dropped += 1;
            return None;
        }
        (self.lines, self.bytes) = (self.lines + 1, bytes);
        Some(std::mem::take(&mut self.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_types::Timestamp;

    #[test]
    fn more_than_allowed_in_a_second_is_dropped_and_counted() {
        let source = serde_json::json!({"input": [{"topic": "a"}], "limits": {"log_lines": 3, "log_bytes": "20B"}});
        let name = "f".parse().expect("a name");
        let limits = crate::Manifest::resolve(None, Some(&source), &name)
            .expect("valid")
            .limits;
        let mut rate = Rate::default();
        let mut told = Vec::new();
        for (millis, message) in [
            (0, "short"),
            (1, "short"),
            (2, "short"),
            (3, "short"),
            (4, "short"),
            (1000, "after a second"),
            (1001, "too long now"),
            (1002, "fits"),
        ] {
            let line = FunctionLogLine {
                time: Timestamp::from_micros(millis * 1000),
                level: LogLevel::Info,
                version: 1,
                topic: None,
                partition: 0,
                offset: 0,
                key: None,
                message: message.to_owned(),
            };
            told.extend(rate.takes(&limits, &line).map(|dropped| (message, dropped)));
        }
        let short = ("short", 0);
        let expected = [short, short, short, ("after a second", 2), ("fits", 1)];
        assert_eq!(
            told, expected,
            "a line, and how many were dropped before it"
        );
    }
}
