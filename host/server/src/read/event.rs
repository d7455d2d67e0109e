//! One event as JSON. The value is the stored text byte for byte; what is not text comes as base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::IgnoredAny;
use std::io::Write;
use tidemill_json::Cursor;
use tidemill_log::Format;
use tidemill_types::Event;

/// How a JSON value with line breaks between its tokens is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    /// Byte for byte.
    AsStored,
    /// Line breaks become spaces, which means the same and keeps one event on one line.
    OneLine,
}

/// Appends an event to `out`.
pub(super) fn write(
    out: &mut Vec<u8>,
    format: Format,
    partition: u32,
    event: &Event<'_>,
    layout: Layout,
) {
    out.extend_from_slice(b"{\"partition\":");
    number(out, partition.into());
    out.extend_from_slice(b",\"offset\":");
    number(out, event.offset);
    out.push(b',');
    let row = &event.row;
    parts(out, format, (row.key, row.value), row.headers, layout);
    out.extend_from_slice(b",\"time\":\"");
    event.row.time.write_to(out);
    out.extend_from_slice(b"\",\"ingest_time\":\"");
    event.ingest_time.write_to(out);
    out.extend_from_slice(b"\"}");
}

/// Key, value and headers as members of an object.
pub(crate) fn parts<'e>(
    out: &mut Vec<u8>,
    format: Format,
    (key, value): (Option<&[u8]>, Option<&[u8]>),
    headers: impl Iterator<Item = (&'e str, &'e [u8])>,
    layout: Layout,
) {
    match key {
        None => out.extend_from_slice(b"\"key\":null"),
        Some(key) => text_or_base64(out, "key", key),
    }
    out.push(b',');
    match value {
        None => out.extend_from_slice(b"\"value\":null,\"tombstone\":true"),
        Some(value) if format == Format::Json => json_value(out, value, layout),
        Some(value) => text_or_base64(out, "value", value),
    }
    out.extend_from_slice(b",\"headers\":[");
    for (nth, (name, value)) in headers.enumerate() {
        if nth > 0 {
            out.push(b',');
        }
        out.push(b'[');
        string(out, name);
        out.push(b',');
        match std::str::from_utf8(value) {
            Ok(text) => string(out, text),
            Err(_) => put(
                out,
                format_args!("{{\"base64\":\"{}\"}}", STANDARD.encode(value)),
            ),
        }
        out.push(b']');
    }
    out.push(b']');
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to memory can't fail.
    let _ = out.write_fmt(text);
}

/// Appends a whole number.
pub(crate) fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn string(out: &mut Vec<u8>, text: &str) {
    let plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if text.bytes().all(plain) {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        let _ = serde_json::to_writer(out, text);
    }
}

/// Text as a JSON string, or bytes in base64 under another name.
pub(crate) fn text_or_base64(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    match simdutf8::basic::from_utf8(bytes) {
        Ok(text) => {
            out.push(b'"');
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
            string(out, text);
        }
        Err(_) => put(
            out,
            format_args!("\"{name}_base64\":\"{}\"", STANDARD.encode(bytes)),
        ),
    }
}

/// A value as JSON, or in base64 where it isn't.
pub(crate) fn json_or_base64(out: &mut Vec<u8>, value: &[u8]) {
    json_value(out, value, Layout::AsStored);
}

/// The same without a name of its own: what isn't JSON is an object with the member `base64`.
pub(crate) fn json_or_object(out: &mut Vec<u8>, value: &[u8]) {
    if is_json(value) {
        out.extend_from_slice(value);
    } else {
        put(
            out,
            format_args!("{{\"base64\":\"{}\"}}", STANDARD.encode(value)),
        );
    }
}

fn is_json(value: &[u8]) -> bool {
    let ordinary = |text: &str| {
        let mut at = Cursor::new(text);
        at.skip().and_then(|()| at.end()).is_ok()
    };
    simdutf8::basic::from_utf8(value)
        .is_ok_and(|text| ordinary(text) || serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// Values that a packed batch or a function brought are not known to be JSON, so they are looked at here.
fn json_value(out: &mut Vec<u8>, value: &[u8], layout: Layout) {
    if !is_json(value) {
        put(
            out,
            format_args!("\"value_base64\":\"{}\"", STANDARD.encode(value)),
        );
        return;
    }
    out.extend_from_slice(b"\"value\":");
    let start = out.len();
    out.extend_from_slice(value);
    if layout == Layout::OneLine && memchr::memchr2(b'\n', b'\r', value).is_some() {
        out[start..]
            .iter_mut()
            .filter(|byte| matches!(byte, b'\n' | b'\r'))
            .for_each(|byte| *byte = b' ');
    }
}
