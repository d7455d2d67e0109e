//! What `#[tidemill::function]` makes of a function.

use crate::Result;
use crate::guest::Running;

/// A function of Tidemill. `#[tidemill::function]` implements it and leaves a `fn` of the same name that
/// gives it, for `Driver::of`; not meant to be implemented by hand.
pub trait Function {
    /// Its name.
    const NAME: &'static str;
    /// The topics it reads, at least one. The index is the number the host knows an input by.
    const INPUTS: &'static [&'static str];
    /// JSON pointer to the key it wants its inputs keyed by, if not the events' own.
    const KEY: Option<&'static str>;
    /// Its outputs: parameter and topic. The index is the number the host knows an output by.
    const OUTPUTS: &'static [(&'static str, &'static str)];
    /// Its slots by parameter. The index is the number the host knows a slot by.
    const SLOTS: &'static [Slot];
    /// Its manifest as JSON, as it travels inside the component.
    const MANIFEST: &'static str;

    /// Whether it is handed whole batches.
    const WHOLE: bool;
    /// Whether it has timers.
    const TIMERS: bool;

    /// Handles one event, or a whole batch.
    ///
    /// # Errors
    /// What the author's code says.
    fn handle(running: &Running<'_>) -> Result<()>;

    /// Handles a timer that is due.
    ///
    /// # Errors
    /// What the author's code says.
    fn on_timer(running: &Running<'_>) -> Result<()>;
}

/// What `#[tidemill::on_timer]` makes of a handler of timers.
pub trait TimerHandler {
    /// Kind and name of the slots and outputs it uses.
    const USES: &'static [(&'static str, &'static str)];

    /// Handles a timer that is due.
    ///
    /// # Errors
    /// What the author's code says.
    fn handle(running: &Running<'_>) -> Result<()>;
}

/// A slot of state.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// Name of its parameter.
    pub name: &'static str,
    /// `value`, `list`, `map` or `counter`.
    pub kind: &'static str,
    /// How long its values last, in µs; 0: for ever.
    pub ttl_micros: i64,
    /// Whether that is in processing time.
    pub processing: bool,
}

/// Whether a function has a parameter of the same name and kind for everything that its timer handler uses.
#[doc(hidden)]
pub const fn covers(
    uses: &[(&str, &str)],
    slots: &[Slot],
    outputs: &[(&'static str, &'static str)],
) -> bool {
    let mut at = 0;
    while at < uses.len() {
        let (kind, name) = uses[at];
        let (mut found, mut other) = (false, 0);
        while other < slots.len() {
            found = found || (same(slots[other].name, name) && same(slots[other].kind, kind));
            other += 1;
        }
        other = 0;
        while other < outputs.len() {
            found = found || (same(outputs[other].0, name) && same("output", kind));
            other += 1;
        }
        if !found {
            return false;
        }
        at += 1;
    }
    true
}

const fn same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}
