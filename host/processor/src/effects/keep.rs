//! What a run comes to in state and timers.

use super::{Desk, Effects, Refusal, Run};
use crate::manifest::SlotKind;
use crate::pending::Pending;
use crate::stored::{StoredTimer, TIMERS, entry_key, too_large};
use crate::timers::TimerChange;
use bytes::Bytes;
use std::ops::Range;
use tidemill_state::Change;
use tidemill_types::{Result, limits};
use tidemill_wasm::{Clock, Command, Commands};

impl Desk<'_> {
    /// A change of state or of timers by an event of a run.
    pub(super) fn keep(
        &self,
        effects: &mut Effects,
        pending: &Pending,
        (run, event): (&Run<'_>, usize),
        command: Command<'_>,
    ) -> Result<(), Refusal> {
        self.fits(&command)?;
        let slots = &self.deployment.slots;
        let slot = |slot: u16| &slots.list[usize::from(slot)];
        let row = run.sent[event];
        let key = pending.key(row).unwrap_or_default();
        let stamp = |clock: Clock| slots.stamp(now(pending, run, event, clock));
        let place = |at: u16| run.keys[event] as usize * slots.list.len() + usize::from(at);
        match &command {
            Command::Set { .. } | Command::Delete { .. } | Command::Add { .. } => {}
            _ => effects.growth = None,
        }
        let changes = &mut effects.changes;
        match command {
            Command::Emit(_) => {}
            Command::Set { slot: at, value } => {
                let slot = slot(at);
                let stamp = stamp(slot.clock);
                let value = [stamp.as_bytes(), value];
                changes.push_set(slot.number, &[key], &value);
                effects.grows(place(at), stored_size(key, &value));
            }
            Command::Delete { slot: at } => {
                let slot = slot(at).number;
                changes.push(Change::Delete { slot, key });
                effects.grows(place(at), 0);
            }
            Command::Add { slot: at, by } => {
                let before = run.counts.get(place(at)).copied().flatten();
                let sum = before.and_then(|before| before.checked_add(by));
                let slot = slot(at);
                let Some(sum) = sum else {
                    let name = &slot.name;
                    return Err(Refusal::Nonsense(format!(
                        "slot {name:?} holds no number that {by} can be added to"
                    )));
                };
                let mut digits = itoa::Buffer::new();
                let (stamp, sum) = (stamp(slot.clock), digits.format(sum));
                let value = [stamp.as_bytes(), sum.as_bytes()];
                changes.push_set(slot.number, &[key], &value);
                effects.grows(place(at), stored_size(key, &value));
            }
            Command::Put {
                slot: at,
                entry,
                value,
            } => {
                let slot = slot(at);
                let (stamp, place) = (stamp(slot.clock), entry_key(key, entry));
                changes.push_set(slot.number, &[&place], &[stamp.as_bytes(), value]);
            }
            Command::Remove { slot: at, entry } => {
                let (slot, key) = (slot(at).number, &entry_key(key, entry));
                changes.push(Change::Delete { slot, key });
            }
            Command::SetTimer {
                clock,
                due,
                tag,
                payload,
            } => {
                let timer = StoredTimer {
                    clock,
                    due,
                    payload,
                };
                let (place, head) = (entry_key(key, tag), timer.head());
                changes.push_set(TIMERS, &[&place], &[&head, payload.unwrap_or_default()]);
                effects.timers.push(change(key, tag, Some((clock, due))));
            }
            Command::CancelTimer { tag } => self.forget(effects, key, tag),
        }
        Ok(())
    }

    /// A command must be one for what its slot is, and timers must have somebody who handles them.
    fn fits(&self, command: &Command<'_>) -> Result<(), Refusal> {
        let slots = &self.deployment.slots;
        let (at, right): (u16, fn(SlotKind) -> bool) = match command {
            Command::Set { slot, .. } | Command::Delete { slot } => {
                (*slot, |kind| kind != SlotKind::Map)
            }
            Command::Add { slot, .. } => (*slot, |kind| kind == SlotKind::Counter),
            Command::Put { slot, .. } | Command::Remove { slot, .. } => {
                (*slot, |kind| kind == SlotKind::Map)
            }
            Command::SetTimer { .. } if !slots.timers => {
                let wrong = "it sets a timer, but its manifest says that it has none";
                return Err(Refusal::Nonsense(wrong.to_owned()));
            }
            _ => return Ok(()),
        };
        let slot = &slots.list[usize::from(at)];
        if right(slot.kind) {
            return Ok(());
        }
        let (name, kind) = (&slot.name, slot.kind.as_str());
        let wrong = format!("slot {name:?} is a {kind}, which that can't be done to");
        Err(Refusal::Nonsense(wrong))
    }

    /// Timers that had their turn are gone, unless they are set again.
    pub(super) fn had_their_turn(
        &self,
        effects: &mut Effects,
        pending: &Pending,
        rows: Range<usize>,
    ) {
        for row in rows {
            let key = pending.key(row).unwrap_or_default();
            self.forget(effects, key, pending.tag(row));
            effects.turns += 1;
        }
    }

    fn forget(&self, effects: &mut Effects, key: &[u8], tag: &[u8]) {
        effects.growth = None;
        effects.changes.push(Change::Delete {
            slot: TIMERS,
            key: &entry_key(key, tag),
        });
        effects.timers.push(change(key, tag, None));
    }

    /// Why a change can't be kept; `timers` would be set with it.
    pub(super) fn unkeepable<'k>(
        &self,
        key: impl Fn() -> &'k [u8],
        command: &Command<'_>,
        timers: usize,
    ) -> Option<String> {
        let of = |slot: u16| {
            format!(
                "slot {:?}",
                self.deployment.slots.list[usize::from(slot)].name
            )
        };
        let most = self.deployment.manifest.limits.state_value_bytes;
        let (what, why) = match command {
            Command::Set { slot, value } => {
                let why = too_large(key(), None, value, most)?;
                (of(*slot), why)
            }
            Command::Put { slot, entry, value } => {
                let why = too_large(key(), Some(entry), value, most)?;
                (of(*slot), why)
            }
            Command::SetTimer { tag, payload, .. } => {
                let payload = payload.unwrap_or_default();
                let why = too_large(key(), Some(tag), payload, most).or_else(|| {
                    let (most, name) = (limits::TIMERS, "TIMERS");
                    (timers > most).then(|| {
                        format!("one more would pass {name} ({most} timers on one partition)")
                    })
                });
                ("timers".to_owned(), why?)
            }
            _ => return None,
        };
        Some(format!("{what}: {why}"))
    }
}

impl Effects {
    /// A value comes to `after` bytes, its key among them: what it took before was seen when it was read.
    fn grows(&mut self, place: usize, after: u64) {
        let counted = self.growth.zip(self.sizes.get_mut(place));
        self.growth = counted.map(|(growth, size)| {
            let before = std::mem::replace(size, after);
            growth.replaced(before, after)
        });
    }
}

/// Bytes of a key and of a value in parts.
fn stored_size(key: &[u8], value: &[&[u8]]) -> u64 {
    value.iter().map(|part| part.len() as u64).sum::<u64>() + key.len() as u64
}

fn change(key: &[u8], tag: &[u8], set: Option<(Clock, i64)>) -> TimerChange {
    TimerChange {
        key: Bytes::copy_from_slice(key),
        tag: Bytes::copy_from_slice(tag),
        set,
    }
}

/// An event's now: the later of its time and the watermark, or when it was received.
fn now(pending: &Pending, run: &Run<'_>, event: usize, clock: Clock) -> i64 {
    let (time, received) = pending.times(run.sent[event]);
    match clock {
        Clock::Event => {
            let watermark = run.clock.get(event).copied().unwrap_or(i64::MIN);
            time.micros().max(watermark)
        }
        Clock::Processing => received.micros(),
    }
}

/// A timer that an event set and whose turn came before a later event that was handled all the same.
pub(super) fn out_of_turn(
    pending: &Pending,
    run: &Run<'_>,
    commands: &Commands<'_>,
) -> Option<String> {
    let last = commands.processed().checked_sub(1)?;
    let watermark = run.clock.get(last).copied()?;
    let (time, received) = pending.times(run.sent[last]);
    let by = |clock| match (pending.timers_of(), clock) {
        // Those that are due at the same time take turns by key and tag; only earlier ones are told here.
        (Some(Clock::Event), Clock::Event) => Some(time.micros().saturating_sub(1)),
        (Some(Clock::Event), Clock::Processing) => None,
        (Some(Clock::Processing), Clock::Processing) => Some(time.micros().saturating_sub(1)),
        (_, Clock::Event) => Some(watermark),
        (None, Clock::Processing) => Some(received.micros()),
    };
    commands.iter().find_map(|(event, command)| match command {
        Command::SetTimer { clock, due, .. } if event < last => (due <= by(clock)?).then(|| {
            format!("event {event} set a timer that comes before event {last}: the function must stop there")
        }),
        _ => None,
    })
}
