//! How much comes in, as of the last minute or so.

use std::time::Duration;

/// What came before this long counts a third.
const MEMORY: f64 = 60.0;

/// Events and bytes in a second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rate {
    /// Events.
    pub events: f64,
    /// Key, value and header bytes.
    pub bytes: f64,
}

/// Counts what comes in and smooths it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Flow {
    events: u64,
    bytes: u64,
    rate: Rate,
    /// When it was looked at last.
    at: Option<Duration>,
}

impl Flow {
    /// Something came in.
    pub(crate) fn add(&mut self, events: u64, bytes: u64) {
        self.events += events;
        self.bytes += bytes;
    }

    /// What came in since the last time belongs to the time since then.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a rate for people; far fewer than 2^53 events come in a second"
    )]
    pub(crate) fn tick(&mut self, now: Duration) {
        let Some(before) = self.at.replace(now) else {
            return;
        };
        let seconds = now.saturating_sub(before).as_secs_f64();
        if seconds <= 0.0 {
            self.at = Some(before);
            return;
        }
        let old = (-seconds / MEMORY).exp();
        let smooth = |rate: f64, came: u64| rate * old + came as f64 / seconds * (1.0 - old);
        self.rate.events = smooth(self.rate.events, std::mem::take(&mut self.events));
        self.rate.bytes = smooth(self.rate.bytes, std::mem::take(&mut self.bytes));
    }

    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_flow_is_told_as_it_is_and_fades_when_it_ends() {
        let mut flow = Flow::default();
        let second = |n| Duration::from_secs(n);
        flow.tick(second(0));
        for n in 1..=600 {
            flow.add(10, 1000);
            // Looked at late now and then, as when sealing takes long.
            if n % 7 == 0 || n == 600 {
                flow.tick(second(n));
            }
        }
        let rate = flow.rate();
        assert!((rate.events - 10.0).abs() < 0.01, "{rate:?}");
        assert!((rate.bytes - 1000.0).abs() < 1.0, "{rate:?}");
        flow.tick(second(600));
        assert_eq!(flow.rate(), rate, "no time has gone by");
        flow.tick(second(660));
        assert!((flow.rate().events - 10.0 / std::f64::consts::E).abs() < 0.01);
    }
}
