//! What `#[tidemill::function]` makes of a function.

use crate::Result;
use crate::guest::Running;

/// A function of Tidemill. `#[tidemill::function]` implements it and leaves a `fn` of the same name that
/// gives it, for `Driver::of`; not meant to be implemented by hand.
pub trait Function {
    /// Its name.
    const NAME: &'static str;
    /// The topic it reads.
    const INPUT: &'static str;
    /// JSON pointer to the key it wants its input keyed by, if not the events' own.
    const KEY: Option<&'static str>;
    /// Its outputs: parameter and topic. The index is the number the host knows an output by.
    const OUTPUTS: &'static [(&'static str, &'static str)];
    /// Its slots by parameter. The index is the number the host knows a slot by.
    const SLOTS: &'static [&'static str];
    /// Its manifest as JSON, as it travels inside the component.
    const MANIFEST: &'static str;

    /// Whether it is handed whole batches.
    const WHOLE: bool;

    /// Handles one event, or a whole batch.
    ///
    /// # Errors
    /// What the author's code says.
    fn handle(running: &Running<'_>) -> Result<()>;
}
