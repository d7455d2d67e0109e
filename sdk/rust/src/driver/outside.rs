//! The outside of a test: secrets, and who answers calls.

use crate::{HttpAnswer, HttpError, HttpErrorKind, HttpRequest};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Answers a call; the number says how often it was made before, because the event failed with what it came to.
type Answering = dyn Fn(&HttpRequest, u32) -> Result<HttpAnswer, HttpError>;

/// What a test gives its function.
#[derive(Clone, Default)]
pub(super) struct Outside {
    pub(super) secrets: BTreeMap<String, Vec<u8>>,
    pub(super) answering: Option<Rc<Answering>>,
}

/// What is on record of a call, as a host has it.
struct Recorded {
    request: HttpRequest,
    outcome: Result<HttpAnswer, HttpError>,
    /// Failures of the event when it was made.
    failures: u32,
    /// How often it was made.
    made: u32,
}

/// A call's place: the event's input (none of a timer), its offset, the call's number.
type Place = (Option<usize>, u64, usize);

/// One run's calls.
pub(super) struct Course {
    outside: Outside,
    records: BTreeMap<Place, Recorded>,
    /// Calls that were made, in order.
    made: Vec<HttpRequest>,
    /// Of the batch that is handled: its input (none of timers), the events' offsets, failures of the first.
    batch: (Option<usize>, Vec<u64>, u32),
    /// Calls so far, by event of the batch.
    numbers: BTreeMap<u32, usize>,
    /// What can't be gone on with.
    fault: Option<String>,
}

impl Course {
    pub(super) fn new(outside: Outside) -> Rc<RefCell<Self>> {
        Rc::new(RefCell::new(Self {
            outside,
            records: BTreeMap::new(),
            made: Vec::new(),
            batch: Default::default(),
            numbers: BTreeMap::new(),
            fault: None,
        }))
    }

    /// A batch is handed over.
    pub(super) fn begin(&mut self, input: Option<usize>, offsets: Vec<u64>, failures: u32) {
        self.batch = (input, offsets, failures);
        self.numbers.clear();
    }

    /// An event has its fate: its calls are forgotten.
    pub(super) fn forget(&mut self, input: Option<usize>, offset: u64) {
        self.records
            .retain(|(of_input, of, _), _| (*of_input, *of) != (input, offset));
    }

    /// Calls that were made.
    pub(super) fn made(&self) -> Vec<HttpRequest> {
        self.made.clone()
    }

    /// Why the run can't go on.
    pub(super) fn fault(&self) -> Option<String> {
        self.fault.clone()
    }

    pub(super) fn secret(&self, name: &str) -> Result<Vec<u8>, String> {
        let value = self.outside.secrets.get(name).cloned();
        value.ok_or_else(|| "the test gives no such secret: Driver::with_secret".into())
    }

    pub(super) fn http(
        &mut self,
        event: u32,
        asked: &HttpRequest,
    ) -> Result<HttpAnswer, HttpError> {
        let Some(answering) = self.outside.answering.clone() else {
            let what = "the test answers no calls: Driver::with_http";
            return Err(HttpError::new(HttpErrorKind::Denied, what));
        };
        let (input, offsets, failures) = &self.batch;
        let failures = if event == 0 { *failures } else { 0 };
        let offset = offsets.get(event as usize).copied().unwrap_or_default();
        let number = self.numbers.entry(event).or_default();
        let place = (*input, offset, *number);
        *number += 1;
        let is_last = !self.records.contains_key(&(place.0, place.1, place.2 + 1));
        let before = match self.records.get(&place) {
            Some(known) if !is_last || known.failures == failures || !may_pass(&known.outcome) => {
                if known.request != *asked {
                    self.fault = Some(format!(
                        "call {} of event {offset} is {} {} now and was {} {} on an earlier try, or with another header or body",
                        place.2, asked.method, asked.url, known.request.method, known.request.url
                    ));
                }
                return known.outcome.clone();
            }
            Some(known) => known.made,
            None => 0,
        };
        let outcome = answering(asked, before);
        self.made.push(asked.clone());
        let record = Recorded {
            request: asked.clone(),
            outcome: outcome.clone(),
            failures,
            made: before + 1,
        };
        self.records.insert(place, record);
        outcome
    }
}

/// Whether the same call may come to something else later.
fn may_pass(outcome: &Result<HttpAnswer, HttpError>) -> bool {
    match outcome {
        Ok(answer) => matches!(answer.status, 408 | 425 | 429 | 500 | 502 | 503 | 504),
        Err(_) => true,
    }
}
