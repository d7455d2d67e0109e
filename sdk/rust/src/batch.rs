//! What a handler over whole batches is given: many events of one partition at once.

use crate::error::Kind;
use crate::event::{Event, Payload};
use crate::guest::{Next, Running};
use crate::{Error, Result};

/// A bounded run of events, in order, their values read as `T`: look at all of them, then give each its
/// outcome by [`Batch::each`].
///
/// Worth it where one look over many events saves work: one query for all, one pass of a model, one
/// buffer. Where a batch ends is up to the host, so what becomes of an event must not depend on it;
/// [`Driver`](crate::Driver) tests that. An event whose value doesn't parse becomes a dead letter, as for
/// any function, and isn't seen here.
///
/// ```
/// use tidemill::prelude::*;
///
/// #[derive(Deserialize)]
/// struct Flight { carrier: String, dep_delay: Option<f64> }
///
/// /// Late flights, in minutes rounded to five.
/// #[tidemill::function(input = "flights", output = "late-flights")]
/// fn late_flights(flights: Batch<Flight>, seen: State<u64>, out: Output<f64>) -> Result<()> {
///     let mut delays: Vec<f64> = flights.iter().map(|flight| flight.value.dep_delay.unwrap_or(0.0)).collect();
///     for delay in &mut delays {
///         *delay = (*delay / 5.0).round() * 5.0;
///     }
///     let mut delays = delays.into_iter();
///     flights.each(|flight| {
///         let delay = delays.next().unwrap_or_default();
///         if delay <= 0.0 {
///             return skip("on time");
///         }
///         seen.update(|seen| *seen += 1)?;
///         out.emit(&flight.value.carrier, delay)
///     })
/// }
///
/// # #[cfg(not(target_arch = "wasm32"))]
/// # fn main() {
/// let mut t = Driver::of(late_flights);
/// t.send("UA", json!({"carrier": "UA", "dep_delay": 12.0}));
/// t.send("UA", json!({"carrier": "UA"}));
/// assert_eq!(t.output::<f64>("late-flights")[0].value, 10.0);
/// assert_eq!((t.skipped(), t.state::<u64>("seen", "UA")), (1, Some(1)));
/// # }
/// ```
pub struct Batch<'a, T> {
    running: &'a Running<'a>,
    /// With the place of each in the batch as the host sent it.
    events: Vec<(u32, Event<'a, T>)>,
}

impl<'a, T: Payload<'a>> Batch<'a, T> {
    #[doc(hidden)]
    pub fn new(running: &'a Running<'a>) -> Result<Self> {
        let mut events = Vec::with_capacity(running.count() as usize);
        for index in 0..running.count() {
            match running.read(&running.row(index)?) {
                Ok(event) => events.push((index, event)),
                Err(why) => running.set_undecodable(index, why),
            }
        }
        Ok(Self { running, events })
    }
}

impl<'a, T> Batch<'a, T> {
    /// Handles the events one after the other. What the closure does with state and outputs belongs to the
    /// event it is given, and stays only if it says `Ok`; an error is that event's outcome, as it would be
    /// a function's: `?` and [`Error::retry`] stop the batch there and the rest is handled later.
    ///
    /// Called again, it finds nothing left to handle. Events that it isn't called for get the outcome that the
    /// function itself gives: without effect after `Ok(())`, or whatever it says of all of them.
    ///
    /// # Errors
    /// When an event stopped the batch, to be passed on by `?`.
    pub fn each(&self, mut handle: impl FnMut(&Event<'a, T>) -> Result<()>) -> Result<()> {
        while let Some(next) = self.running.next() {
            let place = self.events.binary_search_by_key(&next, |(index, _)| *index);
            let outcome = match place.ok().and_then(|place| self.events.get(place)) {
                Some((_, event)) => self.running.each(|| handle(event)),
                None => {
                    let why = self.running.undecodable(next).unwrap_or_default();
                    self.running
                        .each(|| Err(Error::new(Kind::Undecodable, why)))
                }
            };
            if outcome == Next::Stop {
                return Err(Error::retry("an event stopped the batch"));
            }
        }
        Ok(())
    }

    /// The events in order, to look at.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Event<'a, T>> {
        self.events.iter().map(|(_, event)| event)
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether none of the events could be read.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}
