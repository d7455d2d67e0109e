//! Promises that a task can be made to break on purpose, so that a simulation shows that it notices. Without the
//! feature `broken`, which only tests have, nothing of it is there.

#[cfg(feature = "broken")]
use tidemill_env::Random;

/// A promise that is broken.
#[cfg_attr(
    not(feature = "broken"),
    expect(unreachable_pub, reason = "it is shown with the feature only")
)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A transaction doesn't move the position.
    PositionStays,
    /// What is emitted isn't in the frame.
    OutputIsLost,
    /// What is emitted is in the frame twice.
    OutputTwice,
    /// State is changed by a frame of its own, and once more by the transaction.
    StateTwice,
    /// A timer that had its turn has another one.
    TimerTwice,
    /// What failed counts as done.
    FailureIsDone,
    /// A dead letter is counted, and isn't in the frame.
    LetterIsLost,
}

#[cfg(feature = "broken")]
impl Fault {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::PositionStays,
        Self::OutputIsLost,
        Self::OutputTwice,
        Self::StateTwice,
        Self::TimerTwice,
        Self::FailureIsDone,
        Self::LetterIsLost,
    ];
}

/// What is broken: nothing.
#[cfg(not(feature = "broken"))]
#[derive(Clone, Copy, Default)]
pub(crate) struct Faults;

#[cfg(not(feature = "broken"))]
impl Faults {
    /// Whether the promise is broken now.
    pub(crate) fn strikes(self, _: Fault) -> bool {
        false
    }
}

/// What is broken, now and then.
#[cfg(feature = "broken")]
#[derive(Clone, Default)]
pub(crate) struct Faults(Option<(Fault, Random)>);

#[cfg(feature = "broken")]
impl Faults {
    /// One promise.
    pub(crate) fn of(fault: Fault, random: Random) -> Self {
        Self(Some((fault, random)))
    }

    /// Whether the promise is broken now.
    pub(crate) fn strikes(&self, fault: Fault) -> bool {
        let broken = self.0.as_ref().filter(|(broken, _)| *broken == fault);
        broken.is_some_and(|(_, random)| random.below(4) == 0)
    }
}
