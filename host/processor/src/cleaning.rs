//! Takes expired values away, in memory and on disk, and records of calls that nobody needs, beside the tasks.
//!
//! Nothing depends on it: an event doesn't see what has expired for it, whether it was taken away or not.
//! A value goes once no event that is still to come can see it, for the task's committed watermark (or
//! processing time) has reached its end; both never go back, and only durable ones count.

use crate::calls::{self, Sweeps};
use crate::deployment::Deployment;
use crate::processor::Inner;
use crate::slot::expired;
use crate::stored::opened;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tidemill_state::{Scope, Store};
use tidemill_types::Result;
use tidemill_wasm::{Clock, SlotTtl};

/// How often slots are looked for whose turn it is.
const LOOK: Duration = Duration::from_secs(1);
/// A slot is cleaned so often in one time-to-live.
const PARTS: u32 = 10;
/// The shortest time between two passes, for all of a slot is read in each.
const LEAST: Duration = Duration::from_secs(1);
/// The longest.
const MOST: Duration = Duration::from_secs(3600);
/// While there is nothing to read, processing time goes by the clock, and an event may have been received
/// a little before what it said; in µs.
const RECEIPT: i64 = 60_000_000;

/// Starts it; it ends with the processor.
pub(crate) fn start(inner: &Arc<Inner>) {
    let (clock, shutdown) = (inner.parts.clock.clone(), inner.shutdown.clone());
    let inner = Arc::downgrade(inner);
    tokio::spawn(async move {
        shutdown
            .run_until_cancelled(async move {
                let (mut passes, mut sweeps) = (Passes::default(), Sweeps::default());
                loop {
                    clock.sleep(LOOK).await;
                    if !look(&inner, &mut passes).await {
                        return;
                    }
                    let Some(inner) = inner.upgrade() else {
                        return;
                    };
                    calls::sweep(&inner, &mut sweeps).await;
                }
            })
            .await
    });
}

/// When which slot was cleaned last.
#[derive(Default)]
struct Passes(Vec<((Scope, u16), Duration)>);

impl Passes {
    /// Whether a slot's turn has come; then it begins anew.
    fn turn(&mut self, slot: (Scope, u16), ttl: SlotTtl, now: Duration) -> bool {
        let every = (Duration::from_micros(ttl.micros.unsigned_abs()) / PARTS).clamp(LEAST, MOST);
        match self.0.iter_mut().find(|(known, _)| *known == slot) {
            Some((_, last)) if now.saturating_sub(*last) < every => false,
            Some((_, last)) => {
                *last = now;
                true
            }
            None => {
                self.0.push((slot, now));
                true
            }
        }
    }
}

/// What to take away.
pub(crate) struct Expired {
    of: Arc<Deployment>,
    scope: Scope,
    slot: u16,
    ttl: SlotTtl,
    until: i64,
}

impl Expired {
    fn clean(&self, state: &Store) -> Result<u64> {
        let (ttl, until) = (Some(self.ttl), self.until);
        let dead = |stored: &[u8]| opened(true, ttl, stored).expires <= until;
        state.clean(self.scope, self.slot, &dead)
    }
}

async fn look(inner: &Weak<Inner>, passes: &mut Passes) -> bool {
    let Some(inner) = inner.upgrade() else {
        return false;
    };
    let now = inner.parts.clock.elapsed();
    let mut due = expired_slots(&inner);
    passes.0.retain(|(slot, _)| {
        due.iter()
            .any(|expired| (expired.scope, expired.slot) == *slot)
    });
    due.retain(|expired| passes.turn((expired.scope, expired.slot), expired.ttl, now));
    if due.is_empty() {
        return true;
    }
    // What was read of positions is durable from here on.
    if inner.parts.settled().await.is_err() {
        return true;
    }
    for expired in due {
        let (state, of) = (inner.parts.state.clone(), expired.of.clone());
        match tokio::task::spawn_blocking(move || expired.clean(&state)).await {
            Ok(Ok(removed)) if removed > 0 => {
                of.usage.expired();
                tracing::debug!(removed, "expired state was taken away");
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "expired state can't be taken away now"),
            Err(_) => return false,
        }
    }
    true
}

/// Slots whose values end, with how far time is on each partition.
fn expired_slots(inner: &Inner) -> Vec<Expired> {
    let mut found = Vec::new();
    inner.each(|function| {
        let Some(deployment) = &function.deployment else {
            return;
        };
        for slot in deployment
            .slots
            .list
            .iter()
            .filter(|_| deployment.slots.stamped)
        {
            let Some(ttl) = slot.ttl else { continue };
            let disorder = deployment.manifest.time.disorder;
            let until = expired(&inner.parts, function, ttl.clock, disorder);
            let margin = match ttl.clock {
                Clock::Event => 0,
                Clock::Processing => RECEIPT,
            };
            found.extend(until.into_iter().map(|(partition, until)| Expired {
                of: Arc::clone(deployment),
                scope: Scope {
                    function: deployment.function,
                    partition,
                },
                slot: slot.number,
                ttl,
                until: until.saturating_sub(margin),
            }));
        }
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_types::FunctionId;

    #[test]
    fn each_slot_has_its_turn_by_its_time_to_live() {
        let scope = Scope {
            function: FunctionId(1),
            partition: 0,
        };
        let ttl = |seconds: i64| SlotTtl {
            clock: Clock::Event,
            micros: seconds * 1_000_000,
        };
        let mut passes = Passes::default();
        let mut turn =
            |slot, seconds, now| passes.turn((scope, slot), ttl(seconds), Duration::from_secs(now));
        assert!(turn(0, 100, 5) && turn(1, 1, 5));
        assert!(!turn(0, 100, 14) && turn(1, 1, 6));
        assert!(turn(0, 100, 15) && !turn(0, 100, 16));
        assert!(!turn(0, 86_400_000, 3_614) && turn(0, 86_400_000, 3_615));
    }
}
