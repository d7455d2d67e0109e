//! Writing an answer: outcomes and commands, event by event, with a way back to the start of an event.

use super::{Clock, HEAD, VERSION, flag, op, stop};

/// Outcomes by number.
pub(crate) mod outcome {
    pub(crate) const FILTERED: u8 = 0;
    pub(crate) const EFFECT: u8 = 1;
    pub(crate) const SKIP: u8 = 2;
    pub(crate) const DEAD_LETTER: u8 = 3;
    pub(crate) const UNDECODABLE: u8 = 4;
}

/// An answer in the making.
#[derive(Default)]
pub(crate) struct Answer {
    outcomes: Vec<u8>,
    /// What events say, in their order.
    commands: Vec<Command>,
    /// What state and timers come to.
    changes: Vec<Command>,
    payload: Vec<u8>,
    stop: u8,
}

/// One command; its bytes lie in the answer's payload from `at` on.
#[derive(Clone, Copy)]
struct Command {
    op: u8,
    flags: u8,
    port: u16,
    event: u32,
    time: i64,
    at: usize,
    key_len: usize,
    value_len: usize,
    headers_len: usize,
}

/// Where an answer stood before an event.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    commands: usize,
    payload: usize,
}

/// The fixed parts of an emit.
pub(crate) struct Emit<'e> {
    pub(crate) event: u32,
    pub(crate) output: u16,
    pub(crate) key: Option<&'e [u8]>,
    pub(crate) headers: &'e [u8],
    pub(crate) time: Option<i64>,
}

/// A change of state or of timers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Change<'c> {
    Delete {
        slot: u16,
    },
    Add {
        slot: u16,
        by: [u8; 8],
    },
    Put {
        slot: u16,
        entry: &'c [u8],
        value: &'c [u8],
    },
    Remove {
        slot: u16,
        entry: &'c [u8],
    },
    SetTimer {
        clock: Clock,
        due: i64,
        tag: &'c [u8],
        payload: Option<&'c [u8]>,
    },
    CancelTimer {
        tag: &'c [u8],
    },
}

impl Change<'_> {
    /// Its operation, flags, port and time.
    fn fields(&self) -> (u8, u8, u16, i64) {
        match self {
            Self::Delete { slot, .. } => (op::DELETE, 0, *slot, 0),
            Self::Add { slot, .. } => (op::ADD, 0, *slot, 0),
            Self::Put { slot, .. } => (op::PUT, 0, *slot, 0),
            Self::Remove { slot, .. } => (op::REMOVE, 0, *slot, 0),
            Self::SetTimer {
                clock,
                due,
                payload,
                ..
            } => {
                let flags = if payload.is_some() { flag::PAYLOAD } else { 0 };
                let port = u16::from(*clock == Clock::Processing);
                (op::SET_TIMER, flags, port, *due)
            }
            Self::CancelTimer { .. } => (op::CANCEL_TIMER, 0, 0, 0),
        }
    }

    /// Its key and its value.
    fn parts(&self) -> (&[u8], &[u8]) {
        match self {
            Self::Delete { .. } => (&[], &[]),
            Self::Add { by, .. } => (&[], by),
            Self::Put { entry, value, .. } => (entry, value),
            Self::Remove { entry, .. } => (entry, &[]),
            Self::SetTimer { tag, payload, .. } => (tag, payload.unwrap_or_default()),
            Self::CancelTimer { tag } => (tag, &[]),
        }
    }
}

impl Answer {
    /// Empties it for the next batch, keeping its memory.
    pub(crate) fn clear(&mut self) {
        self.outcomes.clear();
        self.commands.clear();
        self.changes.clear();
        self.payload.clear();
        self.stop = 0;
    }

    /// Where it stands, to come back to by [`Answer::rollback`].
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            commands: self.commands.len(),
            payload: self.payload.len(),
        }
    }

    /// Forgets everything since `mark`.
    pub(crate) fn rollback(&mut self, mark: Mark) {
        self.commands.truncate(mark.commands);
        self.payload.truncate(mark.payload);
    }

    /// Whether there is a command since `mark`.
    pub(crate) fn grew(&self, mark: Mark) -> bool {
        self.commands.len() > mark.commands
    }

    /// Emits an event; `write` appends its value, or says that it has none.
    pub(crate) fn emit<E>(
        &mut self,
        emit: &Emit<'_>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<HasValue, E>,
    ) -> Result<(), E> {
        let at = self.payload.len();
        self.payload.extend_from_slice(emit.key.unwrap_or_default());
        let value_at = self.payload.len();
        let has_value = match write(&mut self.payload) {
            Ok(has_value) => has_value,
            Err(error) => {
                self.payload.truncate(at);
                return Err(error);
            }
        };
        let headers_at = self.payload.len();
        self.payload.extend_from_slice(emit.headers);
        let mut flags = 0;
        for (set, bit) in [
            (emit.key.is_some(), flag::KEY),
            (has_value == HasValue::No, flag::TOMBSTONE),
            (emit.time.is_some(), flag::TIME),
        ] {
            if set {
                flags |= bit;
            }
        }
        self.commands.push(Command {
            op: op::EMIT,
            flags,
            port: emit.output,
            event: emit.event,
            time: emit.time.unwrap_or_default(),
            at,
            key_len: value_at - at,
            value_len: headers_at - value_at,
            headers_len: emit.headers.len(),
        });
        Ok(())
    }

    /// The outcome of the next event, with its reason if there is one.
    pub(crate) fn outcome(&mut self, event: u32, outcome: u8, reason: &str) {
        self.outcomes.push(outcome);
        if !reason.is_empty() {
            self.text(op::REASON, event, reason);
        }
    }

    /// The next event is to be tried again later.
    pub(crate) fn stop_to_retry(&mut self, event: u32, reason: &str) {
        self.stop = stop::RETRY;
        self.text(op::STOP, event, reason);
    }

    /// The next event stops the function.
    pub(crate) fn stop_for_good(&mut self, event: u32, reason: &str) {
        self.stop = stop::FATAL;
        self.text(op::STOP, event, reason);
    }

    /// Timers that were set come before the next event.
    pub(crate) fn stop_for_timers(&mut self) {
        self.stop = stop::TIMERS;
    }

    fn text(&mut self, op: u8, event: u32, text: &str) {
        let at = self.payload.len();
        self.payload.extend_from_slice(text.as_bytes());
        self.commands.push(Command {
            op,
            flags: 0,
            port: 0,
            event,
            time: 0,
            at,
            key_len: 0,
            value_len: text.len(),
            headers_len: 0,
        });
    }

    /// The stored value of a slot of the event's key comes to what `write` appends. Changes follow when all events
    /// were handled, in any order; `event` is the last one that made the change.
    pub(crate) fn set<E>(
        &mut self,
        event: u32,
        slot: u16,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let at = self.payload.len();
        write(&mut self.payload)?;
        self.changes.push(Command {
            op: op::SET,
            flags: 0,
            port: slot,
            event,
            time: 0,
            at,
            key_len: 0,
            value_len: self.payload.len() - at,
            headers_len: 0,
        });
        Ok(())
    }

    /// Another change.
    pub(crate) fn change(&mut self, event: u32, change: &Change<'_>) {
        let at = self.payload.len();
        let (op, flags, port, time) = change.fields();
        let (key, value) = change.parts();
        self.payload.extend_from_slice(key);
        self.payload.extend_from_slice(value);
        self.changes.push(Command {
            op,
            flags,
            port,
            event,
            time,
            at,
            key_len: key.len(),
            value_len: value.len(),
            headers_len: 0,
        });
    }

    /// The answer's bytes.
    ///
    /// # Errors
    /// When it passes the 4 GiB that the layout can describe.
    pub(crate) fn finish(&mut self) -> Result<Vec<u8>, String> {
        self.changes.sort_by_key(|change| change.event);
        let commands = self.commands.len() + self.changes.len();
        let commands_at = (HEAD + self.outcomes.len()).next_multiple_of(8);
        let payload_at = commands_at + commands * HEAD;
        let length = payload_at + self.payload.len();
        if u32::try_from(length).is_err() {
            return Err("the answer to one batch passes 4 GiB".to_owned());
        }
        let mut out = Vec::with_capacity(length);
        out.extend_from_slice(&[VERSION, self.stop, 0, 0]);
        for field in [
            self.outcomes.len(),
            commands,
            HEAD,
            commands_at,
            payload_at,
            self.payload.len(),
            0,
        ] {
            out.extend_from_slice(&narrow(field));
        }
        out.extend_from_slice(&self.outcomes);
        out.resize(commands_at, 0);
        // By event; of one event the changes come last.
        let mut changes = self.changes.iter().peekable();
        for command in &self.commands {
            while let Some(change) = changes.next_if(|change| change.event < command.event) {
                out.extend_from_slice(&change.head());
            }
            out.extend_from_slice(&command.head());
        }
        for change in changes {
            out.extend_from_slice(&change.head());
        }
        out.extend_from_slice(&self.payload);
        Ok(out)
    }
}

impl Command {
    fn head(&self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[0] = self.op;
        head[1] = self.flags;
        head[2..4].copy_from_slice(&self.port.to_le_bytes());
        head[4..8].copy_from_slice(&self.event.to_le_bytes());
        head[8..16].copy_from_slice(&self.time.to_le_bytes());
        head[16..20].copy_from_slice(&narrow(self.at));
        head[20..24].copy_from_slice(&narrow(self.key_len));
        head[24..28].copy_from_slice(&narrow(self.value_len));
        head[28..].copy_from_slice(&narrow(self.headers_len));
        head
    }
}

/// Whether an event has a value or is a tombstone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HasValue {
    Yes,
    No,
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "`finish` refuses answers that need more than 32 bits"
)]
fn narrow(field: usize) -> [u8; 4] {
    (field as u32).to_le_bytes()
}
