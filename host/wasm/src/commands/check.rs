//! Checking an answer from the first byte to the last.
//!
//! Every sentence starts with the byte of the answer that is wrong.

use super::head::{self, CommandHead, HAS_KEY, HAS_PAYLOAD, HAS_TIME, Op, TOMBSTONE};
use super::{Commands, Stop, Volume};
use tidemill_types::limits;

/// Version of the packed answer.
const VERSION: u8 = 1;
/// The stop of a batch for the sake of timers that it set.
const TIMERS: u8 = 3;
/// Bytes before the blocks.
const HEADER_BYTES: usize = 32;

/// Reads and checks an answer to a batch of `events` events.
pub(super) fn answer(
    bytes: &[u8],
    events: usize,
    slots: usize,
    outputs: usize,
) -> Result<Commands<'_>, String> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Err(wrong(
            bytes.len(),
            format_args!("the answer ends inside its header of {HEADER_BYTES} bytes"),
        ));
    };
    if header[0] != VERSION {
        let found = header[0];
        return Err(wrong(
            0,
            format_args!("version {found}, this host reads {VERSION}"),
        ));
    }
    if header[1] > 3 {
        return Err(wrong(
            1,
            format_args!("stop is {}, not 0, 1, 2 or 3", header[1]),
        ));
    }
    for at in [2, 3, 28, 29, 30, 31] {
        if header[at] != 0 {
            return Err(wrong(at, "an unused byte that is not 0"));
        }
    }
    let field = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let processed = field(4) as usize;
    let complete = header[1] == 0;
    if complete && processed != events {
        return Err(wrong(
            4,
            format_args!(
                "{processed} of {events} events have an outcome and nothing stopped the batch"
            ),
        ));
    }
    if !complete && processed >= events {
        return Err(wrong(
            4,
            format_args!(
                "{processed} of {events} events have an outcome, none is left to stop the batch"
            ),
        ));
    }

    if header[1] == TIMERS && processed == 0 {
        return Err(wrong(4, "no event set a timer, and yet timers come first"));
    }

    let outcomes = block(bytes, 12, field(12), u64::from(field(4)))?;
    let commands_at = field(16) as usize;
    let (heads, _) = block(
        bytes,
        16,
        field(16),
        u64::from(field(8)) * head::BYTES as u64,
    )?
    .as_chunks::<{ head::BYTES }>();
    let payload = block(bytes, 20, field(20), u64::from(field(24)))?;
    if let Some(event) = outcomes.iter().position(|outcome| *outcome > 4) {
        return Err(wrong(
            field(12) as usize + event,
            format_args!("event {event} has the unknown outcome {}", outcomes[event]),
        ));
    }

    let mut walk = Walk {
        outcomes,
        payload,
        slots: slots.min(limits::SLOTS),
        outputs,
        event: 0,
        touched: 0,
        reasoned: false,
        stop_reason: None,
        volume: Volume::default(),
    };
    for (number, head) in heads.iter().enumerate() {
        walk.command(CommandHead::read(head), complete || header[1] == TIMERS)
            .map_err(|what| {
                wrong(
                    commands_at + number * head::BYTES,
                    format_args!("command {number}: {what}"),
                )
            })?;
    }
    let words = walk.stop_reason.unwrap_or_default();
    let stop = match header[1] {
        0 => None,
        1 => Some(Stop::Retry(words)),
        TIMERS => Some(Stop::Timers),
        _ => Some(Stop::Fatal(words)),
    };
    Ok(Commands {
        outcomes,
        heads,
        payload,
        stop,
        volume: walk.volume,
    })
}

/// The block of `len` bytes at `at`; `field` is where the answer says so. An empty block may be anywhere.
fn block(bytes: &[u8], field: usize, at: u32, len: u64) -> Result<&[u8], String> {
    if len == 0 {
        return Ok(&[]);
    }
    let end = u64::from(at) + len;
    if (at as usize) < HEADER_BYTES || !at.is_multiple_of(8) {
        return Err(wrong(
            field,
            format_args!("a block starts at {at}: not a multiple of 8 behind the header"),
        ));
    }
    usize::try_from(end)
        .ok()
        .and_then(|end| bytes.get(at as usize..end))
        .ok_or_else(|| {
            wrong(
                field,
                format_args!(
                    "a block reaches from {at} to {end}, the answer has {} bytes",
                    bytes.len()
                ),
            )
        })
}

/// What is known on the way through the commands.
struct Walk<'a> {
    outcomes: &'a [u8],
    payload: &'a [u8],
    slots: usize,
    outputs: usize,
    /// The event the last command belonged to.
    event: u32,
    /// Slots that this event has a command for, one bit each.
    touched: u64,
    /// Whether this event has a reason.
    reasoned: bool,
    stop_reason: Option<&'a str>,
    volume: Volume,
}

impl<'a> Walk<'a> {
    fn command(&mut self, head: CommandHead, complete: bool) -> Result<(), String> {
        let Some(op) = head.op() else {
            return Err(format!("unknown operation {}", head.op));
        };
        if head.event < self.event {
            return Err(format!("event {} behind event {}", head.event, self.event));
        }
        if head.event > self.event {
            self.event = head.event;
            self.touched = 0;
            self.reasoned = false;
        }
        if head.end() > self.payload.len() as u64 {
            return Err(format!(
                "its bytes reach to {}, the payload has {}",
                head.end(),
                self.payload.len()
            ));
        }
        match op {
            Op::StopReason => self.stop_reason(head, complete),
            _ => {
                let Some(outcome) = self.outcomes.get(head.event as usize) else {
                    return Err(format!("event {} has no outcome", head.event));
                };
                self.weigh(head, op);
                match op {
                    Op::Reason => self.reason(head, *outcome),
                    _ if *outcome != 1 => Err(format!(
                        "an effect of event {}, whose outcome {outcome} has none",
                        head.event
                    )),
                    Op::Emit => self.emit(head),
                    Op::Put | Op::Remove => self.entry(head, op),
                    Op::SetTimer | Op::CancelTimer => timer(head, op),
                    _ => self.state(head, op),
                }
            }
        }
    }

    fn weigh(&mut self, head: CommandHead, op: Op) {
        let bytes = [head.key_len, head.value_len, head.headers_len];
        let bytes: usize = bytes.iter().map(|length| *length as usize).sum();
        let volume = &mut self.volume;
        match op {
            Op::Reason | Op::StopReason => {}
            Op::Emit => {
                volume.emits += 1;
                volume.emitted = volume.emitted.saturating_add(bytes);
            }
            _ => {
                volume.changes += 1;
                volume.changed = volume.changed.saturating_add(bytes);
            }
        }
    }

    fn emit(&self, head: CommandHead) -> Result<(), String> {
        if usize::from(head.port) >= self.outputs {
            return Err(format!("output {} of {}", head.port, self.outputs));
        }
        if head.flags & !(HAS_KEY | TOMBSTONE | HAS_TIME) != 0 {
            return Err(format!("unknown flags {}", head.flags));
        }
        if head.flags & HAS_KEY == 0 && head.key_len != 0 {
            return Err("a null key with bytes".into());
        }
        if head.flags & TOMBSTONE != 0 && head.value_len != 0 {
            return Err("a tombstone with a value".into());
        }
        if head.flags & HAS_TIME == 0 && head.time != 0 {
            return Err("a time without its flag".into());
        }
        if !head.headers(self.payload).are_valid() {
            return Err("headers that are cut off or whose names are not UTF-8".into());
        }
        Ok(())
    }

    fn entry(&self, head: CommandHead, op: Op) -> Result<(), String> {
        if usize::from(head.port) >= self.slots {
            return Err(format!("slot {} of {}", head.port, self.slots));
        }
        if head.flags != 0 || head.time != 0 || head.headers_len != 0 {
            return Err("flags, time or headers where there are none".into());
        }
        if op == Op::Remove && head.value_len != 0 {
            return Err("a removal with a value".into());
        }
        Ok(())
    }

    fn state(&mut self, head: CommandHead, op: Op) -> Result<(), String> {
        if usize::from(head.port) >= self.slots {
            return Err(format!("slot {} of {}", head.port, self.slots));
        }
        only_a_value(head)?;
        if op == Op::Delete && head.value_len != 0 {
            return Err("a deletion with a value".into());
        }
        if op == Op::Add && head.number(self.payload).is_none() {
            return Err(format!("an addition of {} bytes, not 8", head.value_len));
        }
        let bit = 1 << head.port;
        if self.touched & bit != 0 {
            return Err(format!(
                "a second change of slot {} by event {}",
                head.port, head.event
            ));
        }
        self.touched |= bit;
        Ok(())
    }

    fn reason(&mut self, head: CommandHead, outcome: u8) -> Result<(), String> {
        if outcome < 2 {
            return Err(format!(
                "a reason for event {}, whose outcome {outcome} needs none",
                head.event
            ));
        }
        if std::mem::replace(&mut self.reasoned, true) {
            return Err(format!("a second reason for event {}", head.event));
        }
        text(head, self.payload)?;
        Ok(())
    }

    fn stop_reason(&mut self, head: CommandHead, complete: bool) -> Result<(), String> {
        if complete {
            return Err("a reason of a stop, but nothing stopped the batch".into());
        }
        if head.event as usize != self.outcomes.len() {
            return Err(format!(
                "event {} stopped the batch, not event {}",
                self.outcomes.len(),
                head.event
            ));
        }
        if self.stop_reason.is_some() {
            return Err("a second reason of the stop".into());
        }
        self.stop_reason = Some(text(head, self.payload)?);
        Ok(())
    }
}

fn timer(head: CommandHead, op: Op) -> Result<(), String> {
    let has_payload = head.flags & HAS_PAYLOAD != 0;
    if head.headers_len != 0 || head.flags & !HAS_PAYLOAD != 0 {
        return Err("unknown flags or headers of a timer".into());
    }
    if head.value_len != 0 && !has_payload {
        return Err("a timer's payload without its flag".into());
    }
    match op {
        Op::SetTimer if head.clock().is_none() => {
            Err(format!("a timer in the unknown time {}", head.port))
        }
        Op::CancelTimer if head.port != 0 || head.time != 0 || has_payload => {
            Err("port, time or payload of a timer that is cancelled".into())
        }
        _ => Ok(()),
    }
}

fn only_a_value(head: CommandHead) -> Result<(), String> {
    if head.flags != 0 || head.time != 0 || head.key_len != 0 || head.headers_len != 0 {
        return Err("flags, time, key or headers where there are none".into());
    }
    Ok(())
}

fn text(head: CommandHead, payload: &[u8]) -> Result<&str, String> {
    only_a_value(head)?;
    if head.port != 0 {
        return Err(format!("port {} where there is none", head.port));
    }
    std::str::from_utf8(head.value(payload)).map_err(|_| "a reason that is not UTF-8".into())
}

fn wrong(at: usize, what: impl std::fmt::Display) -> String {
    format!("answer, byte {at}: {what}")
}
