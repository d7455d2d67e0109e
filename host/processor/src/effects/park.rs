//! Events that wait to be tried again while the others of their partition go on.

use super::{Desk, Effects};
use crate::dead_letter::{Cause, cut};
use crate::note::Floor;
use crate::parked::{ParkedChange, ParkedEvent, SLOT, key_of};
use crate::pending::Pending;
use tidemill_state::Change;
use tidemill_types::Timestamp;

/// Longest error text kept with a parked event, in bytes.
const ERROR_BYTES: usize = 1024;

/// What an event has been through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tries<'a> {
    /// How often it failed.
    pub(crate) failures: u32,
    /// Why it failed last.
    pub(crate) cause: Option<&'a Cause>,
    /// When it is tried again.
    pub(crate) due: Timestamp,
}

impl Desk<'_> {
    /// The effects of parking the row at the front, which was read or parked before.
    pub(crate) fn parked(&self, pending: &Pending, row: usize, tries: Tries<'_>) -> Effects {
        let mut effects = self.empty();
        effects.rows = 1;
        match pending.fired(row) {
            None => self.park(&mut effects, pending, row, Some(tries)),
            Some(_) => {
                effects.rows = pending.queue(row).len();
                self.put(&mut effects, pending, row, Some(tries));
            }
        }
        effects
    }

    /// Parks an event that was read: it failed, or comes behind one of its key that did.
    pub(super) fn park(
        &self,
        effects: &mut Effects,
        pending: &Pending,
        row: usize,
        tries: Option<Tries<'_>>,
    ) {
        self.put(effects, pending, row, tries);
        self.read(effects, pending, row);
        effects.note.counts.retrying += 1;
    }

    fn put(&self, effects: &mut Effects, pending: &Pending, row: usize, tries: Option<Tries<'_>>) {
        let event = pending.raw(row);
        let limits = &self.deployment.manifest.time;
        let added = effects.parked.1.len() as u64;
        let (number, redriven, floor) = match pending.fired(row) {
            Some(fired) => (fired.number, fired.redriven, fired.floor),
            // All changes of a transaction that parks what was read are such.
            None => {
                let mut turn = effects.note;
                turn.arrives(event.ingest_time, limits.idle);
                let watermark = turn.watermark_micros(limits.disorder);
                let floor = Floor::new(watermark, event.ingest_time);
                (self.parked.next() + added, 0, floor)
            }
        };
        let cause = tries.and_then(|tries| tries.cause);
        let parked = ParkedEvent {
            attempts: tries.map_or(0, |tries| tries.failures),
            version: self.deployment.version,
            redriven,
            due: tries.map_or(i64::MIN, |tries| tries.due.micros()),
            first: tries.map_or(self.now, |_| self.first_failure(pending, row)),
            floor,
            time: event.row.time,
            offset: event.offset,
            topic: Some(self.deployment.inputs[pending.input(row)].topic.id),
            key: event.row.key,
            value: event.row.value,
            headers: event.row.headers,
            cause: cause.map(|cause| (cause.reason, cut(&cause.error, ERROR_BYTES))),
        };
        let (changes, order) = &mut effects.parked;
        parked.write(number, changes);
        let place = Some(parked.place());
        order.push(ParkedChange { number, place });
    }

    /// A parked event gets its fate.
    pub(super) fn gone(&self, effects: &mut Effects, number: u64) {
        let (changes, order) = &mut effects.parked;
        changes.push(Change::Delete {
            slot: SLOT,
            key: &key_of(number),
        });
        let place = None;
        order.push(ParkedChange { number, place });
        effects.note.counts.retrying = effects.note.counts.retrying.saturating_sub(1);
    }

    /// When the row at the front failed first.
    pub(super) fn first_failure(&self, pending: &Pending, row: usize) -> Timestamp {
        match pending.fired(row) {
            Some(fired) if fired.attempts > 0 => fired.first,
            Some(_) => self.now,
            None => {
                let is_timer = pending.timers_of().is_some();
                let front = self.note.front.filter(|front| front.is_timer == is_timer);
                front.map_or(self.now, |front| front.first)
            }
        }
    }
}
