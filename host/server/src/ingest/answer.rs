//! What an append is answered with.

use super::rows::{Refusal, Rows};
use crate::body::json_text_answer;
use crate::problem::Problem;
use crate::read::number;
use axum::body::Body;
use axum::http::{Response, StatusCode};
use std::io::Write;
use tidemill_log::{AckMode, Topic, Written};

/// Where events landed, over all frames of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Landed {
    /// Events.
    pub(crate) count: u64,
    /// Events that went to the topic's dead letters.
    pub(crate) dead_lettered: u64,
    /// First and last offset by partition, in order.
    partitions: Vec<Written>,
}

impl Landed {
    /// Adds what one frame brought.
    pub(crate) fn add(&mut self, topic: &Topic, rows: &Rows, written: &[Written]) {
        self.add_counted(topic, (rows.heads.len(), rows.letters.len()), written);
    }

    /// The same of so many events and dead letters.
    pub(crate) fn add_counted(
        &mut self,
        topic: &Topic,
        (events, letters): (usize, usize),
        written: &[Written],
    ) {
        self.count += events as u64;
        self.dead_lettered += letters as u64;
        let ours = written.iter().filter(|it| it.at.topic == topic.id);
        if self.partitions.is_empty() {
            // They come in order, each partition once.
            self.partitions.extend(ours);
            return;
        }
        for written in ours {
            match self
                .partitions
                .binary_search_by_key(&written.at.partition, |known| known.at.partition)
            {
                Ok(known) => self.partitions[known].last = written.last,
                Err(place) => self.partitions.insert(place, *written),
            }
        }
    }

    /// First and last offset by partition, in order.
    pub(crate) fn partitions(&self) -> &[Written] {
        &self.partitions
    }

    /// As JSON members, without braces.
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\"count\":");
        number(out, self.count);
        out.extend_from_slice(b",\"partitions\":[");
        for (nth, written) in self.partitions.iter().enumerate() {
            if nth > 0 {
                out.push(b',');
            }
            out.extend_from_slice(b"{\"partition\":");
            number(out, written.at.partition.into());
            out.extend_from_slice(b",\"first\":");
            number(out, written.first);
            out.extend_from_slice(b",\"last\":");
            number(out, written.last);
            out.extend_from_slice(b",\"end\":");
            number(out, written.last + 1);
            out.push(b'}');
        }
        out.push(b']');
    }

    /// As a member of a problem, with the last line that is written.
    pub(crate) fn to_json(&self, last_line: u64) -> serde_json::Value {
        let mut text = b"{".to_vec();
        self.write(&mut text);
        text.extend_from_slice(b",\"line\":");
        number(&mut text, last_line);
        text.push(b'}');
        serde_json::from_slice(&text).unwrap_or_default()
    }
}

/// What an acknowledgement meant.
pub(crate) fn ack_name(ack: AckMode) -> &'static str {
    match ack {
        AckMode::Fsync => "fsync",
        AckMode::Memory => "memory",
    }
}

/// The answer to an append that landed.
pub(crate) fn accepted(
    landed: &Landed,
    ack: AckMode,
    refused: u64,
    refusals: &[Refusal],
) -> Response<Body> {
    let mut out = Vec::with_capacity(128 + 64 * landed.partitions.len());
    out.push(b'{');
    landed.write(&mut out);
    let _ = write!(out, ",\"ack\":\"{}\"", ack_name(ack));
    if landed.dead_lettered > 0 {
        let _ = write!(out, ",\"dead_lettered\":{}", landed.dead_lettered);
    }
    if refused > 0 {
        let listed: Vec<_> = refusals.iter().map(Refusal::to_json).collect();
        let _ = write!(
            out,
            ",\"refused\":{refused},\"errors\":{}",
            serde_json::Value::from(listed)
        );
    }
    out.push(b'}');
    json_text_answer(StatusCode::OK, out)
}

/// The problem of refused events; nothing was written.
pub(crate) fn refused(refused: u64, refusals: &[Refusal]) -> Problem {
    let Some(first) = refusals.first() else {
        return Problem::new("empty-body", "The body holds no event.");
    };
    let place = match first.line {
        Some(line) => format!("line {line}"),
        None => format!("index {}", first.index),
    };
    let of = if refused == 1 {
        "1 event is".to_owned()
    } else {
        format!("{refused} events are")
    };
    let code = if refusals.iter().all(|refusal| refusal.too_large) {
        "too-large"
    } else {
        "invalid-events"
    };
    let at = if first.pointer.is_empty() {
        String::new()
    } else {
        format!(" at {}", first.pointer)
    };
    let listed: Vec<_> = refusals.iter().map(Refusal::to_json).collect();
    Problem::new(
        code,
        format!("{of} refused; the first, {place}{at}: {}.", first.reason),
    )
    .member("errors", listed)
    .member("refused", refused)
}
