//! Reading what a guest wants: outcomes per event and commands, checked before anything is believed.

use crate::Clock;
use tidemill_types::{Headers, Timestamp};

mod check;
mod head;

use head::{CommandHead, Op};

/// What became of one event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Handled, without any effect.
    Filtered,
    /// Handled, with at least one effect (an output or a state change).
    Effect,
    /// Passed over on purpose.
    Skip,
    /// Given up by the function: to the dead letter topic.
    DeadLetter,
    /// The value didn't parse: to the dead letter topic with reason `decode`.
    Undecodable,
}

/// An event the function emits.
#[derive(Clone, Copy, Debug)]
pub struct Emit<'a> {
    /// Index of the output in the manifest.
    pub output: u16,
    /// Key; `None` = null.
    pub key: Option<&'a [u8]>,
    /// Value; `None` = tombstone.
    pub value: Option<&'a [u8]>,
    /// Headers.
    pub headers: Headers<'a>,
    /// Event time; `None` = that of the event it came from.
    pub time: Option<Timestamp>,
}

/// One command of the guest.
#[derive(Clone, Copy, Debug)]
pub enum Command<'a> {
    /// Emit an event.
    Emit(Emit<'a>),
    /// Set a slot of the event's key.
    Set {
        /// The slot.
        slot: u16,
        /// Its new value.
        value: &'a [u8],
    },
    /// Clear a slot of the event's key.
    Delete {
        /// The slot.
        slot: u16,
    },
    /// Add to a counter of the event's key.
    Add {
        /// The slot.
        slot: u16,
        /// How much.
        by: i64,
    },
    /// Set an entry of a map of the event's key.
    Put {
        /// The slot.
        slot: u16,
        /// The entry's key.
        entry: &'a [u8],
        /// Its new value.
        value: &'a [u8],
    },
    /// Remove an entry of a map of the event's key.
    Remove {
        /// The slot.
        slot: u16,
        /// The entry's key.
        entry: &'a [u8],
    },
    /// Set a timer of the event's key, in place of the one with the same tag.
    SetTimer {
        /// In which time.
        clock: Clock,
        /// When, µs since 1970.
        due: i64,
        /// Which.
        tag: &'a [u8],
        /// What it brings along.
        payload: Option<&'a [u8]>,
    },
    /// Cancel a timer of the event's key.
    CancelTimer {
        /// Which.
        tag: &'a [u8],
    },
}

/// A checked answer of a guest. `processed` events have an outcome; if it is less than the batch's
/// count, the next event stopped the batch ([`Commands::stopped`]).
#[derive(Clone, Copy, Debug)]
pub struct Commands<'a> {
    outcomes: &'a [u8],
    heads: &'a [[u8; head::BYTES]],
    payload: &'a [u8],
    stop: Option<Stop<'a>>,
    volume: Volume,
}

/// How much an answer holds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Volume {
    /// Events emitted.
    pub emits: usize,
    /// Bytes of their keys, values and headers.
    pub emitted: usize,
    /// Changes of state and of timers.
    pub changes: usize,
    /// Bytes of their entries, tags and values.
    pub changed: usize,
}

/// Why a batch stopped before its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop<'a> {
    /// Try this event again later.
    Retry(&'a str),
    /// Stop the function.
    Fatal(&'a str),
    /// Timers that earlier events of the batch set come first.
    Timers,
}

impl<'a> Commands<'a> {
    /// Checks everything: version, bounds, UTF-8 of texts and header names, event, slot and output
    /// numbers against what is declared, order of commands by event.
    ///
    /// # Errors
    /// A sentence that says which byte is wrong; to be treated like a trap.
    pub fn parse(
        bytes: &'a [u8],
        events: usize,
        slots: usize,
        outputs: usize,
    ) -> Result<Self, String> {
        check::answer(bytes, events, slots, outputs)
    }

    /// Events with an outcome: the first so many of the batch.
    pub fn processed(&self) -> usize {
        self.outcomes.len()
    }

    /// How much it holds: room that is worth making at once. Bytes that are named more than once don't count again.
    pub fn volume(&self) -> Volume {
        Volume {
            emitted: self.volume.emitted.min(self.payload.len()),
            changed: self.volume.changed.min(self.payload.len()),
            ..self.volume
        }
    }

    /// Why the event behind the processed ones stopped the batch, if it did.
    pub fn stopped(&self) -> Option<Stop<'a>> {
        self.stop
    }

    /// Outcome of a processed event.
    ///
    /// # Panics
    /// When `event` is not a processed one.
    #[inline]
    pub fn outcome(&self, event: usize) -> Outcome {
        match self.outcomes[event] {
            0 => Outcome::Filtered,
            1 => Outcome::Effect,
            2 => Outcome::Skip,
            3 => Outcome::DeadLetter,
            _ => Outcome::Undecodable,
        }
    }

    /// The words that came with a skip, dead letter or decode failure of an event (empty if none).
    pub fn reason(&self, event: usize) -> &'a str {
        let first = self
            .heads
            .partition_point(|head| (CommandHead::read(head).event as usize) < event);
        self.heads[first..]
            .iter()
            .map(CommandHead::read)
            .take_while(|head| head.event as usize == event)
            .find(|head| head.op() == Some(Op::Reason))
            .map_or("", |head| head.text(self.payload))
    }

    /// How many events it emits.
    pub fn emits(&self) -> usize {
        self.volume.emits
    }

    /// All commands with the event they belong to, by event in order. State commands: at most one per
    /// key and slot, tagged with the last event that touched it.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (usize, Command<'a>)> {
        let payload = self.payload;
        self.heads.iter().filter_map(move |head| {
            let head = CommandHead::read(head);
            let command = match head.op()? {
                Op::Emit => Command::Emit(head.emit(payload)),
                Op::Set => Command::Set {
                    slot: head.port,
                    value: head.value(payload),
                },
                Op::Delete => Command::Delete { slot: head.port },
                Op::Add => Command::Add {
                    slot: head.port,
                    by: head.number(payload)?,
                },
                Op::Put => Command::Put {
                    slot: head.port,
                    entry: head.key(payload),
                    value: head.value(payload),
                },
                Op::Remove => Command::Remove {
                    slot: head.port,
                    entry: head.key(payload),
                },
                Op::SetTimer => Command::SetTimer {
                    clock: head.clock()?,
                    due: head.time,
                    tag: head.key(payload),
                    payload: (head.flags & head::HAS_PAYLOAD != 0).then(|| head.value(payload)),
                },
                Op::CancelTimer => Command::CancelTimer {
                    tag: head.key(payload),
                },
                Op::Reason | Op::StopReason => return None,
            };
            Some((head.event as usize, command))
        })
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
