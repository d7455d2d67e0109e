//! What a host keeps between calls: state, timers, and how far time is. A plain model of it.

use super::given::PendingTimer;
use crate::abi::{Clock, PackedEvent, ReplyCommand, Ttl};
use crate::guest::MapPage;
use crate::{Slot, Time};
use std::collections::BTreeMap;

/// Key, slot and, in a map, the entry.
type Place = (Vec<u8>, usize, Option<Vec<u8>>);

/// A value and when it expires.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Stored {
    expires: i64,
    value: Vec<u8>,
}

/// A timer that is set: in which time, when, and with which payload.
type Timer = (Clock, i64, Option<Vec<u8>>);

/// A timer in its place: when it is due, key, tag and payload.
type Turn<'m> = (i64, &'m [u8], &'m [u8], Option<&'m [u8]>);

/// State and timers.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Model {
    pub(super) state: BTreeMap<Place, Stored>,
    /// By key and tag.
    pub(super) timers: BTreeMap<(Vec<u8>, Vec<u8>), Timer>,
    /// The watermark.
    pub(super) watermark: i64,
    /// Processing time.
    pub(super) processing: i64,
}

impl Stored {
    pub(super) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.value).into_owned()
    }
}

/// How long the values of each slot last.
pub(super) fn ttls(slots: &[Slot]) -> Vec<Option<Ttl>> {
    let ttl = |slot: &Slot| {
        let clock = if slot.processing {
            Clock::Processing
        } else {
            Clock::Event
        };
        (slot.ttl_micros > 0).then_some(Ttl {
            clock,
            micros: slot.ttl_micros,
        })
    };
    let ttls: Vec<_> = slots.iter().map(ttl).collect();
    if ttls.iter().all(Option::is_none) {
        Vec::new()
    } else {
        ttls
    }
}

impl Model {
    pub(super) fn new() -> Self {
        Self {
            watermark: i64::MIN,
            processing: i64::MIN,
            ..Self::default()
        }
    }

    /// A value that hasn't expired by the watermark.
    pub(super) fn value(&self, key: &[u8], slot: usize) -> Option<&[u8]> {
        let stored = self.state.get(&(key.to_vec(), slot, None))?;
        Some(&stored.value)
    }

    /// The value for a batch, with its end.
    pub(super) fn cell(&self, key: Option<&[u8]>, slot: usize) -> Option<(i64, &[u8])> {
        let stored = self.state.get(&(key?.to_vec(), slot, None))?;
        Some((stored.expires, &stored.value))
    }

    /// The entries of a map.
    pub(super) fn entries<'m>(
        &'m self,
        key: &[u8],
        slot: usize,
    ) -> impl Iterator<Item = (&'m [u8], &'m [u8])> {
        let from = (key.to_vec(), slot, None);
        let same = (key.to_vec(), slot);
        self.state
            .range(from..)
            .take_while(move |((key, slot, _), _)| (key, slot) == (&same.0, &same.1))
            .filter_map(|((.., entry), stored)| Some((entry.as_deref()?, stored.value.as_slice())))
    }

    pub(super) fn map_get(&self, slot: u32, key: &[u8], entry: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(stored) = self
            .state
            .get(&(key.to_vec(), slot as usize, Some(entry.to_vec())))
        {
            pack(&mut out, b"", stored);
        }
        out
    }

    pub(super) fn map_scan(&self, slot: u32, key: &[u8], page: &MapPage<'_>) -> Vec<u8> {
        let from = (key.to_vec(), slot as usize, Some(page.from.to_vec()));
        let mut out = Vec::new();
        self.state
            .range(from..)
            .take_while(|((other, number, _), _)| other == key && *number == slot as usize)
            .filter_map(|((.., entry), stored)| Some((entry.as_deref()?, stored)))
            .filter(|(entry, _)| entry.starts_with(page.prefix))
            .filter(|(entry, _)| !page.behind || *entry != page.from)
            .take(page.limit as usize)
            .for_each(|(entry, stored)| pack(&mut out, entry, stored));
        out
    }

    /// Applies a command of an event at its turn.
    pub(super) fn apply(
        &mut self,
        command: &ReplyCommand<'_>,
        source: &PackedEvent,
        watermark: i64,
        slots: &[Slot],
    ) -> Result<(), String> {
        let key = || source.key.clone().ok_or("state without a key");
        let expires = |slot: u16| match slots.get(usize::from(slot)) {
            Some(slot) if slot.ttl_micros > 0 && slot.processing => {
                source.ingest_time.saturating_add(slot.ttl_micros)
            }
            Some(slot) if slot.ttl_micros > 0 => {
                source.time.max(watermark).saturating_add(slot.ttl_micros)
            }
            _ => i64::MAX,
        };
        let stored = |slot: u16, value: &[u8]| Stored {
            expires: expires(slot),
            value: value.to_vec(),
        };
        match command {
            ReplyCommand::Set { slot, value } => {
                self.state
                    .insert((key()?, usize::from(*slot), None), stored(*slot, value));
            }
            ReplyCommand::Delete { slot } => {
                self.state.remove(&(key()?, usize::from(*slot), None));
            }
            ReplyCommand::Add { slot, by } => {
                let before = self.value(&key()?, usize::from(*slot)).unwrap_or(b"0");
                let before: i64 = serde_json::from_slice(before).map_err(|why| why.to_string())?;
                let sum = before.checked_add(*by).ok_or("a counter overflows")?;
                let value = stored(*slot, sum.to_string().as_bytes());
                self.state.insert((key()?, usize::from(*slot), None), value);
            }
            ReplyCommand::Put { slot, entry, value } => {
                let place = (key()?, usize::from(*slot), Some(entry.to_vec()));
                self.state.insert(place, stored(*slot, value));
            }
            ReplyCommand::Remove { slot, entry } => {
                self.state
                    .remove(&(key()?, usize::from(*slot), Some(entry.to_vec())));
            }
            ReplyCommand::SetTimer {
                clock,
                due,
                tag,
                payload,
            } => {
                let timer = (*clock, *due, payload.map(<[u8]>::to_vec));
                self.timers.insert((key()?, tag.to_vec()), timer);
            }
            ReplyCommand::CancelTimer { tag } => {
                self.timers.remove(&(key()?, tag.to_vec()));
            }
            ReplyCommand::Emit { .. } | ReplyCommand::Reason(_) => {}
        }
        Ok(())
    }

    /// Timers in the order of their turns: when they are due, key, tag and payload.
    fn in_order(&self, clock: Clock) -> Vec<Turn<'_>> {
        let mut timers = Vec::new();
        for ((key, tag), (_, due, payload)) in self.timers.iter().filter(|(_, t)| t.0 == clock) {
            timers.push((*due, key.as_slice(), tag.as_slice(), payload.as_deref()));
        }
        timers.sort_unstable();
        timers
    }

    /// The first timer of a time, if it is due by a moment.
    pub(super) fn is_due(&self, clock: Clock, by: i64) -> bool {
        let mut timers = self.timers.values().filter(|timer| timer.0 == clock);
        timers.any(|(_, due, _)| *due <= by)
    }

    /// The timers whose turn it is: at most `most`, of each key one.
    pub(super) fn due(&self, processing: i64, most: usize) -> Option<(Clock, Vec<PackedEvent>)> {
        for (clock, by) in [
            (Clock::Event, self.watermark),
            (Clock::Processing, processing),
        ] {
            let mut rows: Vec<PackedEvent> = Vec::new();
            for (due, key, tag, payload) in self.in_order(clock) {
                let again = rows.iter().any(|row| row.key.as_deref() == Some(key));
                if due > by || again || rows.len() == most {
                    break;
                }
                let mut headers = Vec::new();
                if crate::abi::encode_header(&mut headers, "tag", tag).is_none() {
                    break;
                }
                rows.push(PackedEvent {
                    time: due,
                    key: Some(key.to_vec()),
                    value: payload.map(<[u8]>::to_vec),
                    headers,
                    offset: 0,
                    ingest_time: processing,
                });
            }
            if !rows.is_empty() {
                return Some((clock, rows));
            }
        }
        None
    }

    pub(super) fn pending(&self) -> Vec<PendingTimer> {
        let of = |clock| {
            self.in_order(clock)
                .into_iter()
                .map(move |(due, key, tag, _)| PendingTimer {
                    key: key.to_vec(),
                    tag: String::from_utf8_lossy(tag).into_owned(),
                    time: Time::from_micros(due),
                    processing: clock == Clock::Processing,
                })
        };
        of(Clock::Event).chain(of(Clock::Processing)).collect()
    }
}

fn pack(out: &mut Vec<u8>, key: &[u8], stored: &Stored) {
    let length = |part: &[u8]| u32::try_from(part.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&stored.expires.to_le_bytes());
    out.extend_from_slice(&length(key).to_le_bytes());
    out.extend_from_slice(&length(&stored.value).to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(&stored.value);
}
