//! Calls to the outside that events make. A call is made once its event is durable, and its outcome is on
//! record before the function sees it: the invocation that comes to a call without a record is given up,
//! the call is made, one frame puts the outcome on record, and the event is handed over again. The record
//! goes in the frame that gives the event its fate; what is left of others is swept. ARCHITECTURE.md,
//! "Calls to the outside", says what a crash leaves.

mod making;
mod stored;
mod sweeping;
#[cfg(test)]
mod tests;

pub(crate) use making::Caller;
#[cfg(test)]
pub(crate) use stored::write;
pub(crate) use stored::{Recorded, SLOT, from_key, key_of};
pub(crate) use sweeping::{Sweeps, sweep};

use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::time::Duration;
use tidemill_env::outside::{Answer, CallError, Request};
use tidemill_types::FunctionId;

/// Registry entry with what makes this host's idempotency keys differ from other hosts'.
pub(crate) const SEED: &str = "calls-seed";

/// What a call came to.
pub(crate) type Outcome = Result<Answer, CallError>;

/// What makes calls: which of a task's events or timers it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Subject {
    /// What it is.
    pub(crate) kind: Kind,
    /// The topic that an event was read from; otherwise 0.
    pub(crate) topic: u32,
    /// An event's offset in what the task reads, a dead letter's number among the parked events, a timer's
    /// number.
    pub(crate) number: u64,
}

/// What a [`Subject`] is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// An event that was read.
    Event = 0,
    /// A dead letter that was put back.
    Redriven = 1,
    /// A timer.
    Timer = 2,
}

/// What is known of the event that a function is about to be handed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calling {
    /// What it is.
    pub(crate) subject: Subject,
    /// Where it came from: the function's input, partition and offset in it; of a timer its number and the first
    /// input.
    pub(crate) origin: (u32, u32, u64),
    /// How often it failed.
    pub(crate) failures: u32,
}

/// Whose calls they are.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    /// What this host's keys are drawn from.
    pub(crate) seed: Vec<u8>,
    /// The function.
    pub(crate) function: FunctionId,
}

/// A call to be made.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// Whose it is.
    pub(crate) calling: Calling,
    /// Which of its calls, from 0.
    pub(crate) number: u16,
    /// What is asked for.
    pub(crate) request: Request,
    /// What tells it from others.
    pub(crate) digest: [u8; 32],
    /// The key it is sent with.
    pub(crate) key: String,
    /// How long it may take.
    pub(crate) time: Duration,
}

/// What there is to do for a call.
#[derive(Debug)]
pub(crate) enum Next {
    /// It was made: this is what it came to.
    Known(Outcome),
    /// It is to be made.
    Make,
    /// The event asked for something else at this place before.
    Differs,
}

/// Decides what to do for a call of an event that failed so often: `found` is what is on record of it, `last`
/// whether nothing is on record of calls behind it.
///
/// An outcome that may pass (no answer, 429, 503 and the like) counts until the event has failed with it; then
/// the call is made again, under the same key. If the event went on to other calls, it has dealt with the
/// outcome, and it stays. What another version asked for is no fault of this one.
pub(crate) fn next(
    found: Option<Recorded>,
    last: bool,
    (digest, failures, version): ([u8; 32], u32, u32),
) -> Next {
    let Some(found) = found else {
        return Next::Make;
    };
    if last && found.failures != failures && may_pass(&found.outcome) {
        return Next::Make;
    }
    if found.digest == digest {
        return Next::Known(found.outcome);
    }
    match found.version == version {
        true => Next::Differs,
        false => Next::Make,
    }
}

/// Whether the same call may come to something else later.
fn may_pass(outcome: &Outcome) -> bool {
    match outcome {
        Ok(answer) => matches!(answer.status, 408 | 425 | 429 | 500 | 502 | 503 | 504),
        Err(_) => true,
    }
}

/// What tells a request from others.
pub(crate) fn digest(request: &Request) -> [u8; 32] {
    let mut digest = Sha256::new();
    request.parts(|part| {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    });
    digest.finalize().into()
}

/// The key that a call is sent with: 32 hexadecimal digits, drawn from the host's seed, the function, the topic
/// it reads, and the event's place and the call's number, so that it is the same whenever the event comes to
/// this call again, and no other call's.
pub(crate) fn idempotency_key(owner: &Owner, calling: &Calling, number: u16) -> String {
    let timer = u8::from(calling.subject.kind == Kind::Timer);
    let (topic, partition, offset) = calling.origin;
    let mut digest = Sha256::new();
    digest.update(b"tidemill call 1\0");
    digest.update((owner.seed.len() as u64).to_le_bytes());
    digest.update(&owner.seed);
    digest.update(owner.function.0.to_le_bytes());
    digest.update(topic.to_le_bytes());
    digest.update([timer]);
    digest.update(partition.to_le_bytes());
    digest.update(offset.to_le_bytes());
    digest.update(number.to_le_bytes());
    let mut key = String::with_capacity(32);
    for byte in &digest.finalize()[..16] {
        let _ = write!(key, "{byte:02x}");
    }
    key
}

impl Wanted {
    /// The record of what it came to, as it is stored; `version` is that of the function.
    ///
    /// # Errors
    /// `TooLarge` when a header's name is longer than a record can say.
    pub(crate) fn record(
        &self,
        outcome: &Outcome,
        version: u32,
    ) -> tidemill_types::Result<Vec<u8>> {
        stored::write(outcome, (self.digest, self.calling.failures, version))
    }
}

impl Recorded {
    /// Reads a record.
    ///
    /// # Errors
    /// `Corrupt` when it is none of a known version.
    pub(crate) fn of(stored: &[u8]) -> tidemill_types::Result<Self> {
        stored::read(stored)
    }
}
