//! How long to wait before another try: longer each time, within the bounds of the manifest, and not all
//! at the same moment.

use crate::manifest::Retry;
use std::time::Duration;

/// The pause after so many failures (from 1). Its longest doubles each time; `below` draws a number below
/// a bound, so that what failed together isn't tried again together. Never shorter than the manifest's
/// first pause, never longer than its longest.
pub(crate) fn pause(retry: &Retry, failures: u32, below: impl FnOnce(u64) -> u64) -> Duration {
    let doubled = retry
        .backoff_least
        .saturating_mul(1 << failures.clamp(1, 30));
    let longest = doubled.min(retry.backoff_most);
    let shortest = (longest / 2).max(retry.backoff_least);
    let span = longest.saturating_sub(shortest).as_micros();
    let span = u64::try_from(span).unwrap_or(u64::MAX - 1);
    shortest + Duration::from_micros(below(span + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Exhausted, Order};
    use proptest::prelude::*;
    use tidemill_env::Random;

    fn retry(least: u64, most: u64) -> Retry {
        Retry {
            attempts: 5,
            backoff_least: Duration::from_micros(least),
            backoff_most: Duration::from_micros(most),
            exhausted: Exhausted::Skip,
            order: Order::Partition,
        }
    }

    #[test]
    fn pauses_double_and_are_drawn() {
        let retry = retry(100, 1000);
        let bounds = |failures| {
            let least = pause(&retry, failures, |_| 0).as_micros();
            let most = pause(&retry, failures, |bound| bound - 1).as_micros();
            (least, most)
        };
        let drawn: Vec<_> = (1..=5).map(bounds).collect();
        assert_eq!(
            drawn,
            [(100, 200), (200, 400), (400, 800), (500, 1000), (500, 1000)]
        );
        let random = Random::seeded(3);
        let some: std::collections::BTreeSet<_> = (0..20)
            .map(|_| pause(&retry, 4, |bound| random.below(bound)))
            .collect();
        assert!(some.len() > 10, "{some:?}");
    }

    proptest! {
        #[test]
        fn pauses_keep_within_the_bounds(
            least in 1..100_000_000_u64, more in 0..100_000_000_000_u64, failures: u32, seed: u64
        ) {
            let retry = retry(least, least + more);
            let random = Random::seeded(seed);
            let pause = pause(&retry, failures, |bound| random.below(bound));
            prop_assert!(pause >= retry.backoff_least && pause <= retry.backoff_most);
        }
    }
}
