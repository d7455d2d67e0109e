//! Write Tidemill functions in Rust: a plain function over events, whose parameters say what it uses.
//!
//! ```
//! use tidemill::prelude::*;
//!
//! #[derive(Deserialize)]
//! struct Flight {
//!     carrier: String,
//!     dep_delay: Option<f64>,
//! }
//!
//! #[derive(Default, Serialize, Deserialize)]
//! struct Delays {
//!     flights: u64,
//!     minutes: f64,
//! }
//!
//! /// Delays per carrier, kept up to date with every flight.
//! #[tidemill::function(input = "flights", output = "carrier-delays")]
//! fn carrier_delays(flight: Event<Flight>, total: State<Delays>, out: Output<Delays>) -> Result<()> {
//!     let Some(delay) = flight.value.dep_delay else { return skip("no departure delay") };
//!     let sum = total.update(|sum| {
//!         sum.flights += 1;
//!         sum.minutes += delay;
//!     })?;
//!     out.emit(&flight.value.carrier, sum)
//! }
//!
//! # #[cfg(not(target_arch = "wasm32"))]
//! # fn main() {
//! let mut t = Driver::of(carrier_delays);
//! t.send("UA", json!({"carrier": "UA", "dep_delay": 12.0}));
//! t.send("UA", json!({"carrier": "UA"}));
//! assert_eq!(t.output::<Delays>("carrier-delays").last().unwrap().value.flights, 1);
//! assert_eq!(t.skipped(), 1);
//! # }
//! ```
//!
//! The crate of a function is a `cdylib` (for the component) and an `rlib` (for its tests), and depends on
//! this crate and on `serde`, whose derives name their crate.

// The attribute writes `::tidemill::…`, also in this crate's own tests.
extern crate self as tidemill;

mod abi;
mod batch;
mod context;
mod counter;
#[cfg(not(target_arch = "wasm32"))]
mod driver;
mod error;
mod event;
mod function;
mod guest;
mod http;
#[doc(hidden)]
pub mod log;
mod map;
mod map_key;
mod output;
mod state;
mod time;
mod timers;
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod wasm;

pub use batch::Batch;
pub use context::Context;
pub use counter::{Counter, StateList};
#[cfg(not(target_arch = "wasm32"))]
pub use driver::{DeadLetter, Driver, Emitted, Given, PendingTimer};
pub use error::{Error, Result, dead_letter, fatal, skip};
pub use event::{Bytes, Event, Headers, Key, Payload};
#[doc(hidden)]
pub use function::covers;
pub use function::{Function, Slot, TimerHandler};
#[doc(hidden)]
pub use guest::Running;
pub use http::{Http, HttpAnswer, HttpCall, HttpError, HttpErrorKind, HttpRequest, Secret};
pub use log::{Level, LogLine};
pub use map::{MapIter, StateMap};
pub use map_key::{AsMapKey, MapKey};
pub use output::{Emission, EmitKey, Emittable, Output};
pub use serde_json::{Value, json};
pub use state::{Shared, State};
pub use tidemill_macros::{function, on_timer};
pub use time::{InvalidTime, Time};
pub use timers::{Timer, Timers, When};

/// What a function's file starts with: `use tidemill::prelude::*;`.
pub mod prelude {
    pub use crate::{
        Batch, Bytes, Context, Counter, Event, Key, Output, Result, State, StateList, StateMap,
        Time, Timer, Timers, Value, When, dead_letter, fatal, json, skip,
    };
    #[cfg(not(target_arch = "wasm32"))]
    pub use crate::{Driver, Given, HttpAnswer};
    pub use serde::{Deserialize, Serialize};
}
