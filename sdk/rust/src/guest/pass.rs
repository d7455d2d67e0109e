//! One batch from its bytes to the bytes of the answer.

use super::overlay::NotWrittenDown;
use super::running::PassState;
use super::{Call, Instance, Overlay, Running};
use crate::abi::{Answer, BatchView, Mark, outcome};
use crate::error::Kind;
use crate::{Error, Function, Result, log};
use std::cell::{Cell, RefCell};

/// [`on_batch`] of some function.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) type OnBatch = fn(&Instance, Call, &[u8]) -> Result<Vec<u8>, String>;

/// Handles a batch: the answer's bytes.
///
/// # Errors
/// When the call as a whole fails: nothing of it takes effect.
pub(crate) fn on_batch<F: Function>(
    instance: &Instance,
    call: Call,
    events: &[u8],
) -> Result<Vec<u8>, String> {
    let batch = BatchView::parse(events)?;
    if usize::from(batch.slots()) != F::SLOTS.len() {
        return Err(format!(
            "the host sent {} slots, the function has {}",
            batch.slots(),
            F::SLOTS.len()
        ));
    }
    log::begin_pass(0);
    if let Ok(answer) = pass::<F>(instance, &call, &batch, false)? {
        return Ok(answer);
    }
    // The second pass repeats the first one's log lines before it adds its own.
    log::begin_pass(log::lines_of_pass());
    match pass::<F>(instance, &call, &batch, true)? {
        Ok(answer) => Ok(answer),
        Err(NotWrittenDown) => Err("an event could not be undone".to_owned()),
    }
}

fn pass<F: Function>(
    instance: &Instance,
    call: &Call,
    batch: &BatchView<'_>,
    careful: bool,
) -> Result<Result<Vec<u8>, NotWrittenDown>, String> {
    let overlay = RefCell::new(Overlay::new(batch, careful));
    let topic = instance.topic(call.input);
    instance.answer.borrow_mut().clear();
    let running = Running {
        batch,
        call,
        topic: &topic,
        instance,
        overlay: &overlay,
        slots: F::SLOTS,
        outputs: F::OUTPUTS,
        at: Cell::new(None),
        pass: PassState::default(),
    };
    let timers = batch.timer(0).is_some();
    if F::WHOLE && !timers {
        running.whole(F::handle(&running));
    } else {
        let handle = if timers { F::on_timer } else { F::handle };
        for _ in 0..batch.count() {
            if running.each(|| handle(&running)) == Next::Stop {
                break;
            }
        }
    }
    if running.pass.broken.get() {
        return Ok(Err(NotWrittenDown));
    }
    let mut answer = instance.answer.borrow_mut();
    overlay.borrow().tell(batch, F::SLOTS, &mut answer)?;
    answer.finish().map(Ok)
}

impl Running<'_> {
    /// Handles the next event: what it did stays only if it went through.
    pub(crate) fn each(&self, handle: impl FnOnce() -> Result<()>) -> Next {
        let index = self.pass.next.get();
        if self.timers_first(index) {
            self.instance.answer.borrow_mut().stop_for_timers();
            self.pass.stopped.set(true);
            return Next::Stop;
        }
        self.at.set(Some(index));
        log::at_event(index);
        #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
        if let Err(why) = super::hashing::set_back() {
            log::line(log::Level::Warn, format_args!("{why}"));
        }
        let mark = self.instance.answer.borrow().mark();
        let handled = handle();
        self.at.set(None);
        let next = self.judge(index, mark, handled);
        if next == Next::Event {
            self.pass.next.set(index + 1);
        } else {
            self.pass.stopped.set(true);
        }
        next
    }

    fn judge(&self, index: u32, mark: Mark, handled: Result<()>) -> Next {
        let mut answer = self.instance.answer.borrow_mut();
        match handled {
            Ok(()) => {
                let effect = answer.grew(mark) || self.overlay.borrow().is_touched();
                self.overlay.borrow_mut().keep();
                let outcome = if effect {
                    outcome::EFFECT
                } else {
                    outcome::FILTERED
                };
                answer.outcome(index, outcome, "");
                Next::Event
            }
            Err(error) => {
                answer.rollback(mark);
                if let Err(NotWrittenDown) = self.overlay.borrow_mut().undo() {
                    self.pass.broken.set(true);
                    return Next::Stop;
                }
                record(&mut answer, index, &error)
            }
        }
    }

    /// The end of a function over whole batches: what it said holds for every event that has no outcome yet.
    fn whole(&self, handled: Result<()>) {
        while !self.pass.stopped.get() && self.pass.next.get() < self.count() {
            let index = self.pass.next.get();
            let outcome = match self.undecodable(index) {
                Some(why) => Err(Error::new(Kind::Undecodable, why)),
                None => handled.clone(),
            };
            self.each(|| outcome);
        }
    }

    /// Why an event of a whole batch doesn't parse, if it doesn't.
    pub(crate) fn undecodable(&self, index: u32) -> Option<String> {
        self.pass.undecodable.borrow().get(&index).cloned()
    }

    /// Notes that an event of a whole batch doesn't parse.
    pub(crate) fn set_undecodable(&self, index: u32, why: String) {
        self.pass.undecodable.borrow_mut().insert(index, why);
    }

    /// The first event without an outcome, unless the batch was stopped.
    pub(crate) fn next(&self) -> Option<u32> {
        let next = self.pass.next.get();
        (!self.pass.stopped.get() && next < self.count()).then_some(next)
    }
}

/// Whether the next event may be handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    Event,
    Stop,
}

/// Writes down why an event did not go through.
fn record(answer: &mut Answer, event: u32, error: &Error) -> Next {
    let outcome = match error.kind() {
        Kind::Skip => outcome::SKIP,
        Kind::DeadLetter => outcome::DEAD_LETTER,
        Kind::Undecodable => outcome::UNDECODABLE,
        Kind::Retry => {
            answer.stop_to_retry(event, error.message());
            return Next::Stop;
        }
        Kind::Fatal => {
            answer.stop_for_good(event, error.message());
            return Next::Stop;
        }
    };
    answer.outcome(event, outcome, error.message());
    Next::Event
}
