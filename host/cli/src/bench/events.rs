//! The events of the bench, as requests that are built beforehand.

use super::connection::post;
use clap::ValueEnum;
use std::fmt::Write;

/// Different requests that are sent in turn.
const REQUESTS: u32 = 16;
/// Keys there are.
pub(super) const KEYS: u32 = 16_384;
/// No request is larger, however many events it was to have.
const REQUEST_BYTES: u32 = 1 << 20;
/// Bytes of a packed row's head.
const HEAD_BYTES: usize = 32;
/// 2026-01-01T00:00:00Z in µs.
const FIRST_TIME: i64 = 1_767_225_600_000_000;
/// Where in each value its key lies, and how long it is.
const KEY: (u32, u32) = (9, 10);

/// How events are sent.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// Lines of JSON; key and time are taken from each value.
    Ndjson,
    /// `application/vnd.tidemill.batch`, whose values are taken as they are.
    Packed,
}

impl Form {
    /// As it is called in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ndjson => "ndjson",
            Self::Packed => "packed",
        }
    }

    /// Its content type, of many events.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Ndjson => "application/x-ndjson",
            Self::Packed => "application/vnd.tidemill.batch",
        }
    }
}

/// Events of a request: as many as were asked for, as long as it doesn't get too large.
pub(super) fn fitting(batch: u32, size: u32) -> u32 {
    batch.min(REQUEST_BYTES / size.max(1)).max(1)
}

/// Requests of `batch` events of `size` bytes each. A single event is JSON, whatever the form.
pub(super) fn requests(topic: &str, form: Form, batch: u32, size: u32) -> Vec<Vec<u8>> {
    let path = format!("/v1/topics/{topic}/events");
    let request = |nth: u32| {
        let lines = lines(nth * batch, batch, size);
        match (form, batch) {
            (_, 1) => post(&path, "application/json", lines.trim_end().as_bytes()),
            (Form::Ndjson, _) => post(&path, form.content_type(), lines.as_bytes()),
            (Form::Packed, _) => {
                let body = packed(nth * batch, &lines);
                post(&path, form.content_type(), &body)
            }
        }
    };
    (0..REQUESTS).map(request).collect()
}

/// One value of so many bytes.
pub(super) fn line(size: u32) -> String {
    lines(0, 1, size).trim_end().to_owned()
}

/// Lines of `size` bytes each, with a key and a time that advances by 1 ms.
fn lines(first: u32, batch: u32, size: u32) -> String {
    let mut lines = String::new();
    for nth in first..first + batch {
        let mixed = nth.wrapping_mul(2_654_435_761);
        let start = lines.len();
        let _ = write!(
            lines,
            r#"{{"user":"user-{:05}","time":"2026-01-01T{:02}:{:02}:{:02}.{:03}Z","n":{nth},"text":""#,
            mixed % KEYS,
            nth / 3_600_000 % 24,
            nth / 60_000 % 60,
            nth / 1000 % 60,
            nth % 1000
        );
        // Not the same text everywhere: what comes later would compress it away.
        let end = start + usize::try_from(size).unwrap_or(200) - 2;
        let mut filler = mixed;
        while lines.len() < end {
            filler = filler.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            let _ = write!(lines, "{:04x}", filler >> 16);
        }
        lines.truncate(end);
        lines.push_str("\"}\n");
    }
    lines
}

/// The same events as a packed batch.
fn packed(first: u32, lines: &str) -> Vec<u8> {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
    let payload: String = lines.lines().collect();
    let count = lines.lines().count();
    let mut body = Vec::with_capacity(16 + count * HEAD_BYTES + payload.len());
    body.extend(1_u32.to_le_bytes());
    body.extend(number(count));
    body.extend(number(payload.len()));
    body.extend(0_u32.to_le_bytes());
    let mut value_at = 0;
    for (nth, line) in (i64::from(first)..).zip(lines.lines()) {
        body.extend((FIRST_TIME + nth * 1000).to_le_bytes());
        body.extend(number(value_at + KEY.0 as usize));
        body.extend(KEY.1.to_le_bytes());
        body.extend(number(value_at));
        body.extend(number(line.len()));
        body.extend(0_u32.to_le_bytes());
        // It has a key.
        body.extend(1_u32.to_le_bytes());
        value_at += line.len();
    }
    body.extend(payload.as_bytes());
    body
}

/// A packed batch of keys and values, all of the same moment.
pub(super) fn batch(events: impl Iterator<Item = (String, String)>) -> Vec<u8> {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
    let (mut heads, mut payload, mut count) = (Vec::new(), Vec::new(), 0);
    for (key, value) in events {
        heads.extend(FIRST_TIME.to_le_bytes());
        heads.extend(number(payload.len()));
        heads.extend(number(key.len()));
        payload.extend(key.as_bytes());
        heads.extend(number(payload.len()));
        heads.extend(number(value.len()));
        payload.extend(value.as_bytes());
        heads.extend(0_u32.to_le_bytes());
        // It has a key.
        heads.extend(1_u32.to_le_bytes());
        count += 1;
    }
    let head = [
        1_u32.to_le_bytes(),
        number(count),
        number(payload.len()),
        [0; 4],
    ];
    [&head.concat()[..], &heads, &payload].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn events_are_of_the_size_that_was_asked_for() {
        for size in [100, 200, 1024, 10_240] {
            let lines = lines(7, 3, size);
            assert_eq!(lines.lines().count(), 3);
            for line in lines.lines() {
                assert_eq!(line.len(), size as usize);
                let value: Value = serde_json::from_str(line).expect("JSON");
                let (at, length) = (KEY.0 as usize, KEY.1 as usize);
                assert_eq!(value["user"], line[at..at + length]);
                assert!(value["time"].as_str().expect("time").ends_with('Z'));
            }
        }
        assert_eq!((fitting(500, 200), fitting(500, 10_240)), (500, 102));
    }

    #[test]
    fn a_single_event_is_one_value_and_a_packed_batch_has_its_heads() {
        let single = &requests("t", Form::Packed, 1, 200)[0];
        assert!(single.ends_with(b"\"}") && single.starts_with(b"POST /v1/topics/t/events "));
        let lines = lines(1000, 2, 100);
        let body = packed(1000, &lines);
        assert_eq!(body.len(), 16 + 2 * HEAD_BYTES + 200);
        let second = &body[16 + HEAD_BYTES..16 + 2 * HEAD_BYTES];
        let field = |at: usize| u32::from_le_bytes(second[at..at + 4].try_into().expect("four"));
        assert_eq!(
            (field(8), field(12), field(16), field(20)),
            (109, 10, 100, 100)
        );
        let time = i64::from_le_bytes(second[..8].try_into().expect("eight"));
        assert_eq!(time, FIRST_TIME + 1_001_000);
    }
}
