//! How much work in the background leaves to what arrives: while the disk is busy with the journal it works a tenth of
//! its time, and the more the longer the journal has grown; so a burst comes in at nearly full speed, and what comes for
//! long is sealed as fast as it comes before the journal is as long as it may get.

use super::{Condition, Shard};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidemill_env::Urgency;

/// Work in the background is in a hurry with so much journal, or with half of `log.journal_bytes`: a start has so much
/// to read.
const FAR_BEHIND: u64 = 4 << 30;
/// The part of its time that it works at least, in percent.
const LEAST: u64 = 10;
/// The journal is busy when it writes and syncs this part of the time, in percent.
const BUSY: u64 = 50;
/// How long it rests before it looks again whether it still has to.
const NAP: Duration = Duration::from_millis(5);
/// Nor does it rest longer at once: work of which a part took long isn't late for that.
const MOST: Duration = Duration::from_millis(200);

/// What a piece of work in the background knows of its own time.
pub(crate) struct Stint {
    /// When it began or rested last.
    since: Duration,
    /// How long the journal had been busy then.
    busy: Duration,
}

impl Shard {
    /// Work begins.
    pub(crate) fn begin_stint(&self) -> Stint {
        Stint {
            since: self.clock.elapsed(),
            busy: self.busy(),
        }
    }

    /// How long the journal may grow before nothing comes first any more.
    fn far_behind(&self) -> u64 {
        match self.settings.journal_bytes.0 / 2 {
            0 => FAR_BEHIND,
            half => half.min(FAR_BEHIND),
        }
    }

    /// Events come first, unless the journal has grown long.
    pub(crate) fn urgency(&self) -> Urgency {
        match self.journal_bytes() > self.far_behind() {
            true => Urgency::Normal,
            false => Urgency::Low,
        }
    }

    /// Rests after a step of work, for as long as the journal is busy and may grow. Blocks.
    pub(crate) fn rest(&self, stint: &mut Stint) {
        let (now, busy) = (self.clock.elapsed(), self.busy());
        let worked = now.saturating_sub(stint.since);
        if is_busy(busy.saturating_sub(stint.busy), worked) {
            let share = share(self.journal_bytes(), self.far_behind());
            let mut left = due(worked, share).min(MOST);
            let (mut at, mut before) = (now, busy);
            while left > Duration::ZERO && self.nap(left.min(NAP)) {
                let (now, busy) = (self.clock.elapsed(), self.busy());
                let slept = now.saturating_sub(at);
                if !is_busy(busy.saturating_sub(before), slept) {
                    break;
                }
                left = left.saturating_sub(slept);
                (at, before) = (now, busy);
            }
        }
        *stint = self.begin_stint();
    }

    /// How long the journal has been writing and syncing in all.
    fn busy(&self) -> Duration {
        Duration::from_micros(self.busy_micros.load(Ordering::Relaxed))
    }

    /// Waits; false when the log is closing.
    fn nap(&self, time: Duration) -> bool {
        let open = |inbox: &mut super::Inbox| inbox.condition == Condition::Open;
        let waited = self.closing.wait_timeout_while(self.inbox(), time, open);
        let (inbox, _) = waited.unwrap_or_else(PoisonError::into_inner);
        inbox.condition == Condition::Open
    }
}

/// Whether so much of a time is much.
fn is_busy(busy: Duration, of: Duration) -> bool {
    !of.is_zero() && busy.as_micros() * 100 >= of.as_micros() * u128::from(BUSY)
}

/// The part of its time that work in the background has, in percent: by the cube of how far the journal has grown, which
/// leaves most of the way to bursts.
fn share(journal: u64, far: u64) -> u64 {
    let grown = u128::from(journal.min(far)) * 100;
    let grown = grown.checked_div(u128::from(far)).unwrap_or(100);
    u64::try_from(grown.pow(3) / 10_000)
        .unwrap_or(100)
        .clamp(LEAST, 100)
}

/// How long who worked for a while has to rest to keep to its part of the time.
fn due(worked: Duration, share: u64) -> Duration {
    let factor = (100 - share.min(100)) as f64 / share.max(1) as f64;
    worked.mul_f64(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_a_tenth_until_the_journal_is_long_and_then_all_of_its_time() {
        let of = |percent: u64| share(percent << 20, 100 << 20);
        assert_eq!(
            [0, 30, 46, 50, 80, 99, 100, 200].map(of),
            [10, 10, 10, 12, 51, 97, 100, 100]
        );
        assert_eq!(share(5, 0), 100);
        let ms = Duration::from_millis;
        assert_eq!(due(ms(2), 10), ms(18));
        assert_eq!(due(ms(2), 50), ms(2));
        assert_eq!(due(ms(2), 100), Duration::ZERO);
    }

    #[test]
    fn a_journal_is_busy_that_writes_half_of_the_time() {
        let ms = Duration::from_millis;
        assert!(is_busy(ms(5), ms(10)));
        assert!(!is_busy(ms(4), ms(10)));
        assert!(!is_busy(ms(0), ms(0)), "no time has passed");
    }
}
