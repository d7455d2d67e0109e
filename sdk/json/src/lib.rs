//! JSON as functions and hosts read and write it: one fast pass, which declines whatever is out of the ordinary.
//!
//! A reader that declines isn't saying that the text is wrong. It hands back, and the caller reads the
//! text again with a complete parser: for the values that come once in a million, and for the words about
//! what is wrong and where. What this crate does accept it reads exactly as serde_json does (with
//! `float_roundtrip`); tests compare the two.
//!
//! It exists because reading JSON is most of what functions and ingest do. The texts of events are short
//! and their strings too, so what pays is to look at eight bytes at once (arithmetic on `u64`, which is the
//! same on a processor and in WebAssembly) and to step over members nobody asks for without interpreting
//! them. Grammar: RFC 8259.
//!
//! ```
//! #[derive(serde::Deserialize)]
//! struct Flight<'t> { carrier: &'t str, delay: Option<i32> }
//!
//! let text = r#"{"carrier": "UA", "route": ["EWR", "IAH"], "delay": null}"#;
//! let flight: Flight = tidemill_json::from_str(text).unwrap();
//! assert_eq!((flight.carrier, flight.delay), ("UA", None));
//! assert!(tidemill_json::from_str::<Flight>("{}").is_err());
//! ```

mod cursor;
mod number;
mod read;
mod word;
mod write;

pub use cursor::{Cursor, Declined, Name};
pub use read::from_str;
pub use word::text;
pub use write::append;

#[cfg(test)]
mod tests;
