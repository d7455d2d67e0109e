//! Events that a function emits in a replay or when it is asked, as they are shown: where they belong, and
//! the members that events have when they are read.

use crate::app::App;
use crate::read::{Layout, parts};
use std::io::Write;
use tidemill_log::Format;
use tidemill_processor::Emitted;

/// Appends one to `out`, on one line.
pub(super) fn write(app: &App, out: &mut Vec<u8>, event: &Emitted) {
    let topic = app.log.topic(&event.topic);
    let format = topic.map_or(Format::Bytes, |topic| topic.settings.format);
    let (name, partition) = (
        serde_json::Value::from(event.topic.as_str()),
        event.partition,
    );
    // Writing to memory can't fail.
    let _ = write!(out, "{{\"topic\":{name},\"partition\":{partition},");
    let headers = event.headers.iter();
    let headers = headers.map(|(name, value)| (name.as_str(), &value[..]));
    let row = (event.key.as_deref(), event.value.as_deref());
    parts(out, format, row, headers, Layout::OneLine);
    let _ = write!(out, ",\"time\":\"{}\"}}", event.time);
}
