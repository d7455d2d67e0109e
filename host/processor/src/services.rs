//! What an instance may ask for during a call.

use crate::calls::{self, Caller, Calling, Next, Owner, Recorded, SEED, SLOT, Wanted, key_of};
use crate::deployment::Deployment;
use crate::manifest::{Grants, SlotKind};
use crate::mask::Mask;
use crate::parked;
use crate::parts::Parts;
use crate::stored::{Opened, Slot, Slots, entry_key, entry_prefix};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemill_env::outside::{Answer, CallError, CallErrorKind, Request};
use tidemill_state::{Scope, Store};
use tidemill_types::{Error, FunctionName, limits};
use tidemill_wasm::{
    HostServices, HttpAnswer, HttpError, HttpErrorKind, HttpOutcome, HttpRequest, MapScan,
};

/// Answers for one task.
pub(crate) struct Services {
    state: Store,
    scope: Scope,
    slots: Slots,
    config: String,
    inputs: Vec<String>,
    /// Why state couldn't be read during the last call.
    unreadable: Mutex<Option<Error>>,
    grants: Grants,
    granted: Option<Granted>,
    mask: Mask,
    course: Mutex<Course>,
}

/// What functions with grants need.
struct Granted {
    name: FunctionName,
    version: u32,
    caller: Arc<Caller>,
    owner: Owner,
}

/// How far an event has come with its calls.
#[derive(Default)]
struct Course {
    calling: Option<Calling>,
    /// Calls so far.
    made: u16,
    /// The call that has to be made first.
    wanted: Option<Wanted>,
}

impl Services {
    /// For a task of a deployment.
    pub(crate) fn new(parts: &Parts, deployment: &Deployment, partition: u32) -> Self {
        let grants = deployment.manifest.grants.clone();
        let caller = parts.caller.as_ref().filter(|_| !grants.is_empty());
        let granted = caller.map(|caller| Granted {
            name: deployment.name.clone(),
            version: deployment.version,
            caller: Arc::clone(caller),
            owner: Owner {
                seed: parts
                    .log
                    .entries(SEED)
                    .first()
                    .map_or_else(Vec::new, |(_, seed)| seed.to_vec()),
                function: deployment.function,
            },
        });
        Self {
            state: parts.state.clone(),
            grants,
            granted,
            mask: Mask::default(),
            course: Mutex::default(),
            scope: Scope {
                function: deployment.function,
                partition,
            },
            slots: deployment.slots.clone(),
            config: deployment.manifest.config.clone(),
            inputs: deployment
                .inputs
                .iter()
                .map(|input| input.topic.name.to_string())
                .collect(),
            unreadable: Mutex::default(),
        }
    }

    /// Why state couldn't be read since this was last asked, if it couldn't: the function isn't to blame.
    pub(crate) fn take_unreadable(&self) -> Option<Error> {
        self.unreadable
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// An event is about to be handed over: its calls are counted from here.
    pub(crate) fn begin(&self, calling: Option<Calling>) {
        *self.course() = Course {
            calling,
            ..Course::default()
        };
    }

    /// The call that the last invocation was given up for.
    pub(crate) fn take_wanted(&self) -> Option<Wanted> {
        self.course().wanted.take()
    }

    /// Secrets that the function was given.
    pub(crate) fn mask(&self) -> &Mask {
        &self.mask
    }

    fn course(&self) -> MutexGuard<'_, Course> {
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is on record of a call. May wait for the disk.
    pub(crate) fn recorded(&self, scope: Scope, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        loop {
            match self.state.get(scope, SLOT, key) {
                Ok(found) => return Ok(found.map(|value| value.to_vec())),
                Err(missing) => self.state.load(scope, &[missing])?,
            }
        }
    }

    fn unreadable(&self, error: Error) -> String {
        let words = error.to_string();
        *self
            .unreadable
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(error);
        words
    }

    fn slot(&self, number: u32, is_map: bool) -> Result<&Slot, String> {
        let slot = usize::try_from(number)
            .ok()
            .and_then(|number| self.slots.list.get(number));
        slot.filter(|slot| (slot.kind == SlotKind::Map) == is_map)
            .ok_or_else(|| {
                let what = if is_map { "map" } else { "slot with one value" };
                format!("the function has no {what} of number {number}")
            })
    }

    fn read(&self, number: u16, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        loop {
            match self.state.get(self.scope, number, key) {
                Ok(found) => return Ok(found.map(|value| value.to_vec())),
                Err(missing) => self
                    .state
                    .load(self.scope, &[missing])
                    .map_err(|error| self.unreadable(error))?,
            }
        }
    }
}

impl HostServices for Services {
    fn state_get(&self, slot: u32, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let slot = self.slot(slot, false)?;
        let stored = self.read(slot.number, key)?;
        Ok(stored.map(|stored| self.slots.open(slot, &stored).value.to_vec()))
    }

    fn map_get(&self, slot: u32, key: &[u8], entry: &[u8]) -> Result<Vec<u8>, String> {
        let slot = self.slot(slot, true)?;
        if entry.len() > limits::ENTRY_KEY_BYTES || key.len() > limits::STATE_KEY_BYTES {
            return Ok(Vec::new());
        }
        let mut out = Vec::new();
        if let Some(stored) = self.read(slot.number, &entry_key(key, entry))? {
            pack(&mut out, b"", self.slots.open(slot, &stored));
        }
        Ok(out)
    }

    fn map_scan(&self, slot: u32, key: &[u8], wanted: &MapScan<'_>) -> Result<Vec<u8>, String> {
        let slot = self.slot(slot, true)?;
        let mut out = Vec::new();
        if key.len() > limits::STATE_KEY_BYTES {
            return Ok(out);
        }
        let skipped = entry_prefix(key).len();
        let (prefix, from) = (entry_key(key, wanted.prefix), entry_key(key, wanted.from));
        let mut from = if wanted.behind {
            Bound::Excluded(from)
        } else {
            Bound::Included(from)
        };
        let mut left = usize::try_from(wanted.limit).unwrap_or(usize::MAX).max(1);
        // Few at a time, for entries may be large.
        while left > 0 && out.len() < limits::SCAN_BYTES {
            let asked = left.min(SCANNED);
            let bound = from.as_ref().map(Vec::as_slice);
            let found = self
                .state
                .scan(self.scope, slot.number, &prefix, bound, asked);
            let found = found.map_err(|error| self.unreadable(error))?;
            for (place, stored) in &found {
                pack(&mut out, &place[skipped..], self.slots.open(slot, stored));
            }
            match found.last() {
                Some((last, _)) if found.len() == asked => from = Bound::Excluded(last.to_vec()),
                _ => break,
            }
            left -= asked;
        }
        Ok(out)
    }

    fn config(&self) -> &str {
        &self.config
    }

    fn input_topic(&self, input: u32) -> Option<&str> {
        let input = usize::try_from(input).ok()?;
        self.inputs.get(input).map(String::as_str)
    }

    fn secret(&self, name: &str) -> Result<Vec<u8>, String> {
        let granted = self.granted().map_err(|denied| denied.message)?;
        if !self.grants.secrets.iter().any(|known| known == name) {
            return Err(format!(
                "the function's manifest doesn't ask for secret {name:?}: add it to secrets under [grants]"
            ));
        }
        let value = granted.caller.grants().secret(name);
        let value = value.map_err(|error| error.detail)?;
        self.mask.add(&value);
        Ok(value)
    }

    fn http(&self, _event: u32, request: HttpRequest) -> Result<HttpOutcome, String> {
        match self.asked(request) {
            Ok((request, time)) => self.call(request, time).map(told),
            Err(denied) => Ok(told(Err(denied))),
        }
    }
}

impl Services {
    fn granted(&self) -> Result<&Granted, CallError> {
        let Some(granted) = &self.granted else {
            return Err(CallError::denied(
                "nothing is granted here: the manifest has no [grants], or this is no run on live events",
            ));
        };
        let host = granted.caller.grants();
        match host.may_be_granted(granted.name.as_str()) {
            true => Ok(granted),
            false => Err(CallError::denied(
                "this host grants nothing to the function any more (grants.functions)",
            )),
        }
    }

    /// What a guest asks for, if it may.
    fn asked(&self, request: HttpRequest) -> Result<(Request, Duration), CallError> {
        let HttpRequest {
            method,
            url,
            headers,
            body,
            timeout_ms,
        } = request;
        let host = self.granted()?.caller.grants();
        let request = Request::new(&method, &url, &headers, body)?;
        let shown = request.shown();
        let Some(grant) = self.grants.for_call(&request) else {
            return Err(CallError::denied(format!(
                "{shown}: the function's manifest doesn't ask for it: add it to [[grants.http]]"
            )));
        };
        if !host.allows(&request) {
            return Err(CallError::denied(format!(
                "{shown}: this host lets no function call there any more (grants.http)"
            )));
        }
        let most = host.request_bytes;
        if request.size() > most.as_usize() {
            return Err(CallError::denied(format!(
                "{shown}: the request has {} bytes, {most} are allowed (grants.request_bytes)",
                request.size()
            )));
        }
        if self.course().made >= host.calls {
            let most = host.calls;
            return Err(CallError::denied(format!(
                "{shown}: an event may make {most} calls (grants.calls)"
            )));
        }
        let time = grant.timeout.min(host.timeout);
        let own = Duration::from_millis(timeout_ms.into());
        Ok((request, if timeout_ms == 0 { time } else { own.min(time) }))
    }

    /// What is on record of the event's next call; without a record the invocation is given up.
    fn call(&self, request: Request, time: Duration) -> Result<calls::Outcome, String> {
        let mut course = self.course();
        let (Some(calling), Some(granted)) = (course.calling, &self.granted) else {
            return Err("calls belong to an event; they are made while one is handled".into());
        };
        let number = course.made;
        let digest = calls::digest(&request);
        let found = self.record(calling, number)?;
        let is_last = found.is_none() || self.record(calling, number + 1)?.is_none();
        let asked = (digest, calling.failures, granted.version);
        match calls::next(found, is_last, asked) {
            Next::Known(outcome) => {
                course.made += 1;
                Ok(outcome)
            }
            Next::Differs => Err(format!(
                "not deterministic: call {number} of this event is {} now and was another one on an earlier try; what an event asks for may depend on the event, its state and earlier answers only",
                request.shown()
            )),
            Next::Make => {
                course.wanted = Some(Wanted {
                    key: calls::idempotency_key(&granted.owner, &calling, number),
                    calling,
                    number,
                    request,
                    digest,
                    time,
                });
                Err("the call has to be made first".into())
            }
        }
    }

    fn record(&self, calling: Calling, number: u16) -> Result<Option<Recorded>, String> {
        let key = key_of(calling.subject, number);
        let stored = self
            .recorded(parked::scope(self.scope), &key)
            .map_err(|error| self.unreadable(error))?;
        let read = stored.map(|stored| Recorded::of(&stored));
        read.transpose().map_err(|error| error.to_string())
    }
}

/// An outcome as the guest is told.
fn told(outcome: calls::Outcome) -> HttpOutcome {
    match outcome {
        Ok(Answer {
            status,
            headers,
            body,
        }) => Ok(HttpAnswer {
            status,
            headers,
            body: body.to_vec(),
        }),
        Err(CallError { kind, message }) => Err(HttpError {
            kind: match kind {
                CallErrorKind::Denied => HttpErrorKind::Denied,
                CallErrorKind::Connect => HttpErrorKind::Connect,
                CallErrorKind::Timeout => HttpErrorKind::Timeout,
                CallErrorKind::TooLarge => HttpErrorKind::TooLarge,
                CallErrorKind::Broken => HttpErrorKind::Broken,
            },
            message,
        }),
    }
}

/// Entries of a map that are read at once.
const SCANNED: usize = 64;

/// An entry as `wit/README.md` has it.
fn pack(out: &mut Vec<u8>, key: &[u8], opened: Opened<'_>) {
    let length = |part: &[u8]| u32::try_from(part.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&opened.expires.to_le_bytes());
    out.extend_from_slice(&length(key).to_le_bytes());
    out.extend_from_slice(&length(opened.value).to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(opened.value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_golden_bytes() {
        let mut out = Vec::new();
        let opened = |expires, value| Opened { expires, value };
        pack(&mut out, b"a", opened(0x0102, b"17"));
        pack(&mut out, b"", opened(i64::MAX, b""));
        let golden = [
            &[
                2, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, b'a', b'1', b'7',
            ][..],
            &[
                255, 255, 255, 255, 255, 255, 255, 127, 0, 0, 0, 0, 0, 0, 0, 0,
            ],
        ];
        assert_eq!(out, golden.concat());
    }
}
