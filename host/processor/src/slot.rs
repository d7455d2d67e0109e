//! Looking at state from outside: what is there for events that are still to come.

use crate::function::Function;
use crate::manifest::SlotKind;
use crate::note::Note;
use crate::parts::Parts;
use crate::record::{Role, reader};
use crate::stored::{self, Opened, entry_key, entry_prefix, escaped, split_entry};
use crate::{StateEntry, StatePage};
use bytes::Bytes;
use std::collections::HashMap;
use std::ops::Bound;
use std::time::Duration;
use tidemill_state::{Scope, Store};
use tidemill_types::{Error, Result, Timestamp, partition_of_key};
use tidemill_wasm::{Clock, SlotTtl};

/// Entries read at once: few at first, for they may be large, and more where they are small.
const LEAST: usize = 64;
const MOST: usize = 4_096;
/// Bytes of entries that end a page, whatever was asked for.
const PAGE_BYTES: usize = 4 << 20;

/// A slot of a function, found by name.
#[derive(Clone)]
pub(crate) struct Slot {
    state: Store,
    scope: Scope,
    number: u16,
    kind: SlotKind,
    stamped: bool,
    ttl: Option<SlotTtl>,
    partitions: u32,
    /// By partition, up to when values have expired.
    expired: HashMap<u32, i64>,
}

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// Entries of this key only, in a map.
    pub(crate) key: Option<Vec<u8>>,
    /// What keys begin with; with a key, what its entries' do.
    pub(crate) prefix: Vec<u8>,
    /// Behind this place.
    pub(crate) after: Option<(u32, Bytes)>,
    /// Most entries.
    pub(crate) limit: usize,
}

impl Slot {
    /// Finds it.
    ///
    /// # Errors
    /// `slot-not-found` with the slots there are.
    pub(crate) fn find(parts: &Parts, function: &Function, slot: &str) -> Result<Self> {
        let manifest = &function.manifest;
        let spec = manifest.slots.iter().find(|known| known.name == slot);
        let number = function.record.slots.get(slot).copied();
        let found = spec.zip(number).zip(function.deployment.as_ref());
        let Some(((spec, number), deployment)) = found else {
            let names: Vec<&str> = manifest
                .slots
                .iter()
                .map(|slot| slot.name.as_str())
                .collect();
            let has = if names.is_empty() {
                "no state".into()
            } else {
                names.join(", ")
            };
            let detail = format!(
                "function {:?} has no slot {slot:?}; it has {has}",
                manifest.name
            );
            return Err(Error::not_found("slot-not-found", detail));
        };
        let ttl = spec.slot_ttl();
        Ok(Self {
            state: parts.state.clone(),
            scope: Scope {
                function: function.record.function(),
                partition: 0,
            },
            number,
            kind: spec.kind,
            stamped: function.record.stamped,
            ttl,
            partitions: deployment.partitions(),
            expired: ttl.map_or_else(HashMap::new, |ttl| {
                expired(parts, function, ttl.clock, manifest.time.disorder)
            }),
        })
    }

    fn on(&self, partition: u32) -> Scope {
        Scope {
            partition,
            ..self.scope
        }
    }

    /// A stored value, unless it has expired.
    fn live<'v>(&self, partition: u32, stored: &'v [u8]) -> Option<&'v [u8]> {
        let Opened { expires, value } = stored::opened(self.stamped, self.ttl, stored);
        let until = self.expired.get(&partition).copied().unwrap_or(i64::MIN);
        (expires > until).then_some(value)
    }

    /// The value for a key, or of an entry of its map; blocks. Looked for first where the key's hash says,
    /// then elsewhere, for producers may choose partitions themselves.
    ///
    /// # Errors
    /// `key-not-found`.
    pub(crate) fn get(&self, key: &[u8], entry: Option<&[u8]>) -> Result<StateEntry> {
        let place = match entry {
            Some(entry) => entry_key(key, entry),
            None => key.to_vec(),
        };
        let first = partition_of_key(key, self.partitions);
        let others = (0..self.partitions).filter(|partition| *partition != first);
        for partition in std::iter::once(first).chain(others) {
            let stored = self.get_on(partition, &place)?;
            if let Some(value) = stored.as_deref().and_then(|v| self.live(partition, v)) {
                return Ok(StateEntry {
                    partition,
                    key: Bytes::copy_from_slice(key),
                    entry: entry.map(Bytes::copy_from_slice),
                    value: Bytes::copy_from_slice(value),
                });
            }
        }
        let shown = String::from_utf8_lossy(key);
        Err(Error::not_found(
            "key-not-found",
            format!("nothing is stored for the key {shown:?}"),
        ))
    }

    fn get_on(&self, partition: u32, place: &[u8]) -> Result<Option<Bytes>> {
        let scope = self.on(partition);
        match self.state.get(scope, self.number, place) {
            Ok(value) => Ok(value),
            Err(missing) => {
                self.state.load(scope, &[missing])?;
                let again = self.state.get(scope, self.number, place);
                again.map_err(|_| {
                    Error::unavailable(
                        "unavailable",
                        "the value was evicted while it was read; try again",
                    )
                })
            }
        }
    }

    /// Entries by partition and key; blocks.
    ///
    /// # Errors
    /// `Unavailable` when the store can't be read.
    pub(crate) fn list(&self, wanted: &Wanted) -> Result<StatePage> {
        let prefix = match (&wanted.key, self.kind) {
            (Some(key), _) => [entry_prefix(key), wanted.prefix.clone()].concat(),
            (None, SlotKind::Map) => escaped(&wanted.prefix),
            (None, _) => wanted.prefix.clone(),
        };
        let mut page = StatePage::default();
        let (mut asked, mut bytes) = (LEAST, 0);
        let (first, mut after) = match &wanted.after {
            Some((partition, place)) => (*partition, Some(place.clone())),
            None => (0, None),
        };
        for partition in first..self.partitions {
            loop {
                let from = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let scope = self.on(partition);
                asked = asked.min(wanted.limit - page.entries.len() + 1);
                let found = self.state.scan(scope, self.number, &prefix, from, asked)?;
                let before = bytes;
                for (place, stored) in &found {
                    let Some(value) = self.live(partition, stored) else {
                        continue;
                    };
                    if page.entries.len() == wanted.limit || bytes >= PAGE_BYTES {
                        return Ok(page);
                    }
                    bytes += place.len() + value.len();
                    page.entries.push(self.entry(partition, place, value)?);
                    page.next = Some((partition, place.clone()));
                }
                match found.last() {
                    Some((last, _)) if found.len() == asked => after = Some(last.clone()),
                    _ => break,
                }
                if bytes - before < PAGE_BYTES / 16 {
                    asked = (asked * 4).clamp(LEAST, MOST);
                }
            }
            after = None;
        }
        page.next = None;
        Ok(page)
    }

    fn entry(&self, partition: u32, place: &Bytes, value: &[u8]) -> Result<StateEntry> {
        let value = Bytes::copy_from_slice(value);
        if self.kind != SlotKind::Map {
            return Ok(StateEntry {
                partition,
                key: place.clone(),
                entry: None,
                value,
            });
        }
        let (key, entry) = split_entry(place)
            .ok_or_else(|| Error::corrupt("an entry of a map is stored without its key"))?;
        Ok(StateEntry {
            partition,
            key: key.into(),
            entry: Some(Bytes::copy_from_slice(entry)),
            value,
        })
    }
}

/// By partition, up to when values have expired for every event that is still to come, parked ones too.
pub(crate) fn expired(
    parts: &Parts,
    function: &Function,
    clock: Clock,
    disorder: Duration,
) -> HashMap<u32, i64> {
    let reader = reader(function.record.function(), Role::Main);
    let positions = parts.log.positions(reader).into_iter();
    let now = |position: &tidemill_log::Position| {
        let note = Note::decode(&position.note).unwrap_or_default();
        match clock {
            Clock::Event => {
                let floor = note.floor.map_or(i64::MAX, |floor| floor.watermark);
                note.watermark_micros(disorder).min(floor)
            }
            Clock::Processing => {
                let floor = note.floor.map_or(i64::MAX, |floor| floor.received.micros());
                let reached = note.processing.map_or(i64::MIN, Timestamp::micros);
                reached.min(floor)
            }
        }
    };
    positions
        .map(|position| (position.at.partition, now(&position)))
        .collect()
}
