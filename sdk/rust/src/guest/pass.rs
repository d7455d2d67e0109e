//! One batch from its bytes to the bytes of the answer.

use super::overlay::NotWrittenDown;
use super::{Call, Instance, Overlay, Running};
use crate::abi::{Answer, BatchView, outcome};
use crate::error::Kind;
use crate::{Error, Function, log};
use std::cell::RefCell;

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
    for index in 0..batch.count() {
        log::at_event(index);
        let row = batch.row(index)?;
        let mark = instance.answer.borrow().mark();
        let running = Running {
            batch,
            row,
            index,
            call,
            topic: &topic,
            instance,
            overlay: &overlay,
        };
        let handled = F::handle(&running);
        let mut answer = instance.answer.borrow_mut();
        match handled {
            Ok(()) => {
                let effect = answer.grew(mark) || overlay.borrow().is_touched();
                overlay.borrow_mut().keep();
                answer.outcome(
                    index,
                    if effect {
                        outcome::EFFECT
                    } else {
                        outcome::FILTERED
                    },
                    "",
                );
            }
            Err(error) => {
                answer.rollback(mark);
                if let Err(not_written_down) = overlay.borrow_mut().undo() {
                    return Ok(Err(not_written_down));
                }
                if record(&mut answer, index, &error) == Next::Stop {
                    break;
                }
            }
        }
    }
    let changes = overlay.borrow().changes(batch.slots())?;
    instance.answer.borrow().finish(&changes).map(Ok)
}

#[derive(PartialEq, Eq)]
enum Next {
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
